// Prefill and decode of llama.cpp (node-llama-cpp) as `larder bench-model --csv` prints larder's: the same ids, a prompt
// and single tokens behind it.
//   node llama_bench.mjs FILE.gguf THREADS PROMPT DECODE      one line: prefill_tokens_s,decode_tokens_s
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
const start = performance.now();
await sequence.evaluateWithoutGeneratingNewTokens(ids.slice(0, prompt));
const read = performance.now();
for (const id of ids.slice(prompt)) await sequence.evaluateWithoutGeneratingNewTokens([id]);
const end = performance.now();
console.log(`${((prompt * 1000) / (read - start)).toFixed(2)},${((decode * 1000) / (end - read)).toFixed(2)}`);
process.exit(0);
