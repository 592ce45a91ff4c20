// Prefill and decode of llama.cpp (node-llama-cpp) as `larder bench-model --csv` prints larder's: the same ids, a prompt
// and single tokens behind it.
//   node llama_bench.mjs FILE.gguf THREADS PROMPT DECODE
// one line: prefill_tokens_s,decode_tokens_s,prefill_cpu_ms,decode_cpu_ms (the processor's time of a token, all threads)
import {getLlama} from "node-llama-cpp";

const [file, ...numbers] = process.argv.slice(2);
const [threads, prompt, decode] = numbers.map(Number);
const llama = await getLlama({gpu: false, build: "never", maxThreads: threads, logLevel: "error"});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({contextSize: prompt + decode + 8, batchSize: 512, threads});
const vocabulary = Number(model.fileInfo.metadata.deepseek2.vocab_size ?? model.fileInfo.metadata.tokenizer.ggml.tokens.length);
const ids = Array.from({length: prompt + decode}, (_, i) => Number((BigInt(i) * 2654435761n) % BigInt(vocabulary)));
const sequence = context.getSequence();

await sequence.evaluateWithoutGeneratingNewTokens(ids.slice(0, 16)); // takes pages, wakes threads
await sequence.clearHistory();
const now = () => ({clock: performance.now(), cpu: Object.values(process.cpuUsage()).reduce((a, b) => a + b) / 1000});
const start = now();
await sequence.evaluateWithoutGeneratingNewTokens(ids.slice(0, prompt));
const read = now();
for (const id of ids.slice(prompt)) await sequence.evaluateWithoutGeneratingNewTokens([id]);
const end = now();
const figures = [(prompt * 1000) / (read.clock - start.clock), (decode * 1000) / (end.clock - read.clock),
    (read.cpu - start.cpu) / prompt, (end.cpu - read.cpu) / decode];
console.log(figures.map((n) => n.toFixed(3)).join(","));
process.exit(0);
