// Writes cases for tokenizer_check, with the ids and texts that another implementation gives.
//   node tokenizer_cases.mjs FOLDER SEED COUNT OUT [--family NAME] [--native] [--assigned]
// FOLDER has tokenizer.json and tokenizer_config.json. --family puts another pre-tokenizer (tokenizer_families.mjs) into the
// file and writes it to OUT.json. The implementation is @huggingface/tokenizers, with --native the package tokenizers (the
// reference in Rust; not among the pinned ones: npm install --no-save tokenizers@0.23.2).
// --assigned leaves out strings with characters that this node's Unicode does not know.
// A record: kind (1 byte), bytes of text (u32), text, ids (u32), ids (u32 each), little-endian. Kinds: A the ids of added
// tokens (first), E text to ids, P the same without added tokens, D ids to text (what is not UTF-8 replaced).
import fs from 'node:fs';
import { createRequire } from 'node:module';
import { families } from './tokenizer_families.mjs';
import { hardString, random } from './tokenizer_strings.mjs';

const [folder, seed, count, out, ...options] = process.argv.slice(2);
const file = JSON.parse(fs.readFileSync(`${folder}/tokenizer.json`, 'utf8'));
const config = JSON.parse(fs.readFileSync(`${folder}/tokenizer_config.json`, 'utf8'));
if (options[0] === '--family') {
  file.pre_tokenizer = families[options[1]];
  fs.writeFileSync(`${out}.json`, JSON.stringify(file));
}

async function open(json) {
  if (!options.includes('--native')) {
    const { Tokenizer } = await import('@huggingface/tokenizers');
    const t = new Tokenizer(json, config);
    return { encode: (text) => t.encode(text, { add_special_tokens: false }).ids, decode: (ids) => t.decode(ids) };
  }
  const { Tokenizer } = createRequire(import.meta.url)('tokenizers');
  const t = Tokenizer.fromString(JSON.stringify(json));
  return {
    encode: async (text) => (await t.encode(text, null, { addSpecialTokens: false })).getIds(),
    decode: (ids) => t.decode(ids, false),
  };
}

const whole = await open(file), bare = await open({ ...file, added_tokens: [] });
const specials = file.added_tokens.filter((t, i) => i < 6 || !t.special).map((t) => t.content);
const known = [...Object.values(file.model.vocab), ...file.added_tokens.map((t) => t.id)];

const chunks = [];
function record(kind, text, ids) {
  const bytes = Buffer.from(text, 'utf8');
  const head = Buffer.alloc(5), tail = Buffer.alloc(4 + 4 * ids.length);
  head.write(kind, 0);
  head.writeUInt32LE(bytes.length, 1);
  tail.writeUInt32LE(ids.length, 0);
  ids.forEach((id, i) => tail.writeUInt32LE(id, 4 + 4 * i));
  chunks.push(head, bytes, tail);
}

fs.rmSync(out, { force: true });
record('A', '', file.added_tokens.map((t) => t.id));
const r = random(Number(seed));
for (let i = 0; i < Number(count); i++) {
  const text = hardString(r, specials);
  if (options.includes('--assigned') && /\p{Cn}/u.test(text)) continue;
  const ids = await whole.encode(text);
  record('E', text, ids);
  if (ids.length && (await whole.decode(ids)) !== text) console.log(`note: not given back: ${JSON.stringify(text)}`);
  if (r.chance(0.2)) record('P', text, await bare.encode(text));
  if (r.chance(0.2)) {
    const some = Array.from({ length: 1 + r.below(12) }, () => r.pick(known));
    record('D', await whole.decode(some), some);
  }
  if (chunks.length > 30000) fs.appendFileSync(out, Buffer.concat(chunks.splice(0)));
}
fs.appendFileSync(out, Buffer.concat(chunks));
