// What the client tests share: addresses, tricky texts, and "the same call directly and through the gateway".
//   BASE     the gateway's address with /v1
//   CONTROL  the demo upstream's address without a path
import assert from 'node:assert/strict';

export const BASE = process.env.BASE;
export const CONTROL = process.env.CONTROL;
if (!BASE || !CONTROL) throw new Error('set BASE (gateway, with /v1) and CONTROL (upstream, without a path)');
export const DIRECT = CONTROL + '/v1';
// Against the upstream itself (to try the tests out) the gateway's own headers and answers are not expected.
export const THROUGH_GATEWAY = BASE !== DIRECT;
export const KEY = 'sk-test-client';

// Every kind of character that a rewriter or a cut between two reads could damage.
export const TRICKY = 'line one\r\nline two\ttab \\ "quoted" é ü 北京天气很好 😀👩‍👩‍👧 \u2028 \u0000 end </s> data: [DONE]';

export const WEATHER = {
  type: 'object',
  properties: { city: { type: 'string', description: 'City, e.g. 北京' } },
  required: ['city'],
};

// Runs `call` against the upstream itself, then through the gateway; what the client sees must be the same.
export async function same(call, pick = (x) => x) {
  const direct = pick(await call(DIRECT));
  const via = pick(await call(BASE));
  assert.deepEqual(via, direct);
  return via;
}

// What is new in every answer is taken out: ids and times. Cache hits differ too: the second caller finds a warm cache.
const FRESH = new Set(['id', 'created', 'created_at', 'completed_at', 'item_id', 'call_id', '_request_id',
  'prompt_cache_hit_tokens', 'prompt_cache_miss_tokens', 'prompt_tokens_details', 'input_tokens_details',
  'cache_read_input_tokens', 'cache_creation_input_tokens', 'input_tokens', 'obfuscation']);
export function settled(value) {
  if (Array.isArray(value)) return value.map(settled);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value)
    .filter(([k, v]) => !FRESH.has(k) && typeof v !== 'function').map(([k, v]) => [k, settled(v)]));
}

export async function collect(stream) {
  const all = [];
  for await (const one of stream) all.push(one);
  return all;
}

async function control(path, body) {
  const r = await fetch(CONTROL + path, body === undefined ? {} : {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  assert.equal(r.status, 200, `${path} of the demo upstream`);
  return r.json();
}
export const nextAnswer = (message) => control('/__next', { message });
export const logFrom = (n) => control('/__log?from=' + n);
export async function logCount() {
  return (await control('/__log?from=999999999')).count;
}

export const bigText = (bytes) => {
  const line = 'The ship\'s log says: "wind NNW, 12 knots" \\ 航海日志第七页。\n';
  return line.repeat(Math.ceil(bytes / Buffer.byteLength(line)));
};
