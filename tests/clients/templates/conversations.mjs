// Conversations made from a seed, for holding templates against @huggingface/jinja: several turns, systems, reasoning,
// tools, calls and results, text in several scripts, look-alikes of special tokens.

function generator(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  return {
    below: (n) => next() % n,
    chance: (percent) => next() % 100 < percent,
    pick: (list) => list[next() % list.length],
  };
}

const PIECES = [
  'The tide turns at noon.', ' Read me the log', '\n', '\n\n', '  two blanks', '\tand a tab', '航海日志', 'Größe', 'naïve ', '🚣🏽‍♀️',
  '<think>', '</think>', '<｜User｜>', '<|im_end|>', '<｜tool▁calls▁begin｜>', '<|assistant|>', '{"a": [1, 2.5]}', "it's \"quoted\"",
  '\\n is not a line end', '{{ not a template }}', '{% nor this %}', '&lt;b&gt; & <b>', '0', 'ENDE.', '\u00a0', '…', '`code`', '$5',
];

function text(r, most = 5) {
  let s = '';
  for (let n = 1 + r.below(most); n > 0; n--) s += r.pick(PIECES);
  return s;
}

const NAMES = ['get_tide', 'read_log', 'set_course', 'weather-now', 'find'];

function value(r, depth = 0) {
  switch (r.below(depth > 2 ? 6 : 8)) {
    case 0: return r.below(1000);
    case 1: return -r.below(5);
    case 2: return r.below(1000) / 8 + 0.0625;
    case 3: return r.chance(50);
    case 4: return null;
    case 5: return text(r, 2);
    case 6: return Array.from({ length: r.below(3) }, () => value(r, depth + 1));
    default: return Object.fromEntries(Array.from({ length: r.below(3) }, (_, i) => [`k${i}`, value(r, depth + 1)]));
  }
}

function tool(r, name) {
  const properties = {};
  for (let n = r.below(4); n > 0; n--) {
    const property = { type: r.pick(['string', 'number', 'integer', 'boolean']), description: text(r, 2) };
    if (r.chance(20)) property.enum = ['N', 'S "x"'];
    if (r.chance(20)) Object.assign(property, { type: 'array', items: { type: 'string' } });
    if (r.chance(15)) property.default = value(r);
    properties[r.pick(['port', 'day', 'höhe', 'unit', 'limit'])] = property;
  }
  const parameters = { type: 'object', properties };
  if (r.chance(60)) parameters.required = Object.keys(properties).slice(0, 1);
  return { type: 'function', function: { name, description: text(r, 3), parameters } };
}

function callArguments(r) {
  return Object.fromEntries(Array.from({ length: r.below(4) }, () => [r.pick(['port', 'day', 'höhe', 'n']), value(r)]));
}

function calls(r, form, count) {
  return Array.from({ length: count }, (_, i) => {
    const object = callArguments(r);
    return {
      id: `call_${'abcdefghi'.slice(0, 3)}${100000 + r.below(900000) + i}`.slice(0, 13), type: 'function',
      function: { name: r.pick(NAMES), arguments: form === 'text' ? JSON.stringify(object) : object },
    };
  });
}

function assistant(r, options) {
  const m = { role: 'assistant', content: text(r) };
  if (r.chance(30)) m.content = `<think>\n${text(r)}\n</think>\n\n${m.content}`;
  if (r.chance(30)) m.reasoning_content = text(r);
  if (options.tools && r.chance(50)) {
    m.tool_calls = calls(r, options.form, 1 + r.below(options.parallel ? 3 : 1));
    if (r.chance(60)) m.content = r.chance(50) && options.none ? null : '';
  }
  return m;
}

/**
 * One conversation: the variables that a template is rendered with.
 * shape.arguments: 'text' as in OpenAI's API, or 'object'; shape.parts: contents may be lists; shape.none: or null.
 */
export function conversation(seed, shape) {
  const r = generator(seed * 7919 + 17);
  const options = { tools: r.chance(50), form: shape.arguments, none: shape.none, parallel: r.chance(50) };
  const messages = [];
  if (r.chance(60)) messages.push({ role: 'system', content: text(r) });
  if (r.chance(5)) messages.push({ role: 'system', content: text(r) });
  for (let turns = 1 + r.below(4); turns > 0; turns--) {
    messages.push({ role: 'user', content: r.chance(8) && shape.parts ? [{ type: 'text', text: text(r) }] : text(r) });
    if (turns === 1 && r.chance(60)) break;
    const m = assistant(r, options);
    messages.push(m);
    if (!m.tool_calls) continue;
    for (const c of m.tool_calls)
      messages.push({ role: 'tool', content: text(r), tool_call_id: c.id, name: c.function.name });
    if (r.chance(70)) messages.push({ role: 'assistant', content: text(r) });
  }
  const values = { messages, add_generation_prompt: r.chance(70), bos_token: '<BOS>', eos_token: '<EOS>' };
  if (options.tools) values.tools = [...new Set(Array.from({ length: 1 + r.below(3) }, () => r.pick(NAMES)))].map((n) => tool(r, n));
  if (r.chance(40)) values.enable_thinking = r.chance(50);
  if (r.chance(40)) values.thinking = r.chance(50);
  return values;
}
