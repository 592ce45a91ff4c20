// Renders templates with @huggingface/jinja and writes what template_cases reads.
// usage: node oracle.mjs OUT.json COUNT SHAPE NAME... ; where @huggingface/jinja and @huggingface/ollama-utils are
// installed. SHAPE of conversations: text, object (arguments of calls), any (both, and contents that are lists or null).
// NAME of a template of ollama-utils, or a path; "all" are those of ollama-utils.
import fs from 'node:fs';
import path from 'node:path';
import { Template } from '@huggingface/jinja';
import { conversation } from './conversations.mjs';

const [out, count, shape, ...names] = process.argv.slice(2);
const conversations = Array.from({ length: Number(count) }, (_, i) => {
  if (shape === 'any') return conversation(i, { arguments: i % 2 ? 'text' : 'object', parts: true, none: true });
  return conversation(i, { arguments: shape, parts: false, none: shape === 'text' });
});

// The package exports no list: its source is one array.
function published() {
  const file = 'node_modules/@huggingface/ollama-utils/src/chat-template-automap.ts';
  const source = fs.readFileSync(file, 'utf8');
  const mark = 'OllamaChatTemplateMapEntry[] = ';
  const list = new Function(`return ${source.slice(source.indexOf(mark) + mark.length)}`)();
  return new Map(list.map((entry) => [entry.model.replace('library/', ''), entry.gguf]));
}

// strftime_now asks for the time: it is always noon of one day.
process.env.TZ = 'UTC';
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor() {
    super(1933502400000); // 2031-04-09T12:00Z
  }
};

function render(template, values) {
  try {
    return template.render(structuredClone(values));
  } catch (error) {
    if (process.env.SHOW_ERRORS) console.error(error.message);
    return null;
  }
}

const known = published();
const wanted = names[0] === 'all' ? [...known.keys()] : names;
const templates = wanted.map((name) => {
  const source = known.get(name) ?? fs.readFileSync(name, 'utf8');
  const template = new Template(source);
  return { name: path.basename(name), source, want: conversations.map((values) => render(template, values)) };
});
fs.writeFileSync(out, JSON.stringify({ conversations, templates }));
