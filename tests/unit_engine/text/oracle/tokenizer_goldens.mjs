// Writes known ids of DeepSeek-V3's tokenizer as cases for tokenizer_check: tokenizer_goldens.mjs OUT
import fs from 'node:fs';

const goldens = [
  ['Hello world', [19923, 2058]],
  ['1234567 + 89', [6895, 18009, 25, 940, 223, 4362]],
  ["don't I'm we'll", [20385, 1664, 342, 4571, 579, 5922]],
  ['<｜User｜>Hi<｜Assistant｜><think>\n', [128803, 23166, 128804, 30, 37947, 1018]],
];
const chunks = goldens.map(([text, ids]) => {
  const bytes = Buffer.from(text, 'utf8'), record = Buffer.alloc(9 + bytes.length + 4 * ids.length);
  record.write('E', 0);
  record.writeUInt32LE(bytes.length, 1);
  bytes.copy(record, 5);
  record.writeUInt32LE(ids.length, 5 + bytes.length);
  ids.forEach((id, i) => record.writeUInt32LE(id, 9 + bytes.length + 4 * i));
  return record;
});
fs.writeFileSync(process.argv[2], Buffer.concat(chunks));
