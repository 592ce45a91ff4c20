// One GGUF file after another, with random weights, in larder and in llama.cpp: the same ids in, the likeliest next
// token of each out. usage: compare.mjs LARDER WRITE_MODEL FOLDER SHAPE:TYPE[:legacy]...
// llama.cpp rounds activations to eight bits before products with quantised weights; larder is asked for float32. So
// what is compared is equal but for that rounding, and wherever the likeliest token differs, it must be a near-tie:
// of logits (the two best are closer than what rounding moves), or of a router (larder's own logits move as far when all
// norms change by as little as rounding changes activations: one of six such changes must show it).
import {execFileSync} from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [larder, writer, folder, ...wanted] = process.argv.slice(2);
const LOGIT_TIE = 0.06; // of the logits' standard deviation
const EQUAL_MIN = 0.95;
const JITTERS = 6;

// Five texts of 40 ids, the same on every run.
let state = 7;
const next = () => (state = (state * 1103515245 + 12345) % 2147483648) >> 8;
const cases = [...Array(5).keys()].map((k) => ({
  name: `c${k}`,
  ids: [256, ...Array.from({length: 39}, () => next() % 512)],
  positions: [...Array(40).keys()],
}));

function readLogits(file) {
  const bytes = fs.readFileSync(file);
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
  return cases.map((c) => {
    const {shape, data_offsets: [from, to]} = header[`${c.name}.logits`];
    const data = bytes.subarray(8 + length + from, 8 + length + to);
    return Array.from({length: shape[0]}, (_, row) =>
      Float64Array.from({length: shape[1]}, (_, i) => data.readFloatLE(4 * (row * shape[1] + i))));
  });
}

function runLarder(model, ids) {
  const out = path.join(folder, "logits.safetensors");
  execFileSync(larder, ["run", "--model", model, "--ids", ids, "--logits", out]);
  return readLogits(out);
}

async function runLlama(llama, file) {
  const model = await llama.loadModel({modelPath: file});
  const context = await model.createContext({contextSize: 256, batchSize: 256});
  const sequence = context.getSequence();
  const best = [];
  for (const c of cases) {
    await sequence.clearHistory();
    const asked = c.ids.map((id) => [id, {generateNext: {probabilities: true}}]);
    const answers = await sequence.controlledEvaluate(asked);
    best.push(answers.map((a) => a.next.probabilities.entries().next().value[0]));
  }
  await context.dispose();
  await model.dispose();
  return best;
}

function spread(logits) {
  const mean = logits.reduce((a, b) => a + b) / logits.length;
  return Math.sqrt(logits.reduce((a, b) => a + (b - mean) ** 2, 0) / logits.length);
}

const argmax = (logits) => logits.reduce((best, x, i) => (x > logits[best] ? i : best), 0);

// How far the difference of two logits moves, in standard deviations.
const moved = (was, is, a, b) => Math.abs(was[a] - was[b] - (is[a] - is[b])) / spread(was);

// Each position where the likeliest tokens differ, with the margin between them.
function differences(exact, theirs) {
  const found = [];
  cases.forEach((c, k) => c.ids.forEach((_, i) => {
    const logits = exact[k][i], ours = argmax(logits), other = theirs[k][i];
    if (ours !== other) found.push({k, i, ours, other, margin: (logits[ours] - logits[other]) / spread(logits)});
  }));
  return found;
}

function compare(name, exact, theirs, jittered) {
  const all = cases.reduce((n, c) => n + c.ids.length, 0), found = differences(exact, theirs);
  let open = found.filter((x) => x.margin >= LOGIT_TIE);
  for (let seed = 1; seed <= JITTERS && open.length; seed++) {
    const other = jittered(seed);
    open = open.filter((x) => moved(exact[x.k][x.i], other[x.k][x.i], x.ours, x.other) < x.margin / 2);
  }
  for (const x of open)
    console.log(`${name}: ${cases[x.k].name} position ${x.i}: larder ${x.ours}, llama.cpp ${x.other}, ` +
                `no near-tie: ${x.margin.toFixed(3)} apart`);
  const equal = all - found.length, ok = equal >= EQUAL_MIN * all && !open.length;
  console.log(`${name}: ${equal} of ${all} equal, ${found.length - open.length} near-ties${ok ? "" : ": NOT OK"}`);
  return ok;
}

const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: 2, progressLogs: false});
const ids = path.join(folder, "cases.json");
fs.writeFileSync(ids, JSON.stringify({cases}));
let bad = 0;
for (const name of wanted) {
  const [shape, type, legacy] = name.split(":");
  // A spread of 8 for the embedding: as in trained models, layers add to what is there and do not drown it.
  const options = ["--shape", shape, "--q-rank", "256", "--type", type, "--embedding", "8"];
  if (legacy) options.push("--legacy");
  const write = (file, more) => (execFileSync(writer, [file, ...options, ...more]), file);
  const file = write(path.join(folder, "model.gguf"), []);
  const jittered = (seed) => runLarder(write(path.join(folder, "jittered.gguf"), ["--jitter", `${seed}`]), ids);
  if (!compare(name, runLarder(file, ids), await runLlama(llama, file), jittered)) bad++;
}
process.exit(bad ? 1 : 0);
