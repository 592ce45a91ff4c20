// The `@anthropic-ai/sdk` package through the gateway: messages plain, streamed, with tools, errors, aborts.
import test from 'node:test';
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { BASE, KEY, THROUGH_GATEWAY, TRICKY, WEATHER, bigText, collect, logCount, logFrom, same,
  settled } from './common.mjs';

// This package adds /v1 itself.
const client = (base, more = {}) => new Anthropic({ baseURL: base.replace(/\/v1$/, ''), apiKey: KEY, authToken: null,
  maxRetries: 0, ...more });
const LIMIT = { timeout: 60_000 };
const ask = (content, more = {}) => ({ model: 'claude-demo', max_tokens: 256, system: 'You are terse.',
  messages: [{ role: 'user', content }], ...more });
const tools = [{ name: 'get_weather', description: 'Weather now', input_schema: WEATHER }];

test('anthropic messages: plain, the same as without the gateway, with usage', LIMIT, async () => {
  const r = await same((b) => client(b).messages.create(ask(TRICKY)), settled);
  assert.equal(r.type, 'message');
  assert.ok(r.content[0].text.length > 0);
  assert.ok(r.usage.output_tokens > 0);
});

test('anthropic messages: streamed events, and the helper that puts them together', LIMIT, async () => {
  const events = await same(async (b) => collect(await client(b).messages.create(ask('Stream.', { stream: true }))), settled);
  assert.equal(events[0].type, 'message_start');
  assert.equal(events.at(-1).type, 'message_stop');
  const whole = await client(BASE).messages.stream(ask('Stream.')).finalMessage();
  const text = events.filter((e) => e.delta?.type === 'text_delta').map((e) => e.delta.text).join('');
  assert.equal(whole.content[0].text, text);
  assert.ok(whole.usage.output_tokens > 0);
});

test('anthropic messages: the key and the version reach the upstream', LIMIT, async () => {
  const from = await logCount();
  await client(BASE).messages.create(ask('headers'));
  await client(BASE, { apiKey: null, defaultHeaders: { 'x-api-key': KEY } }).messages.create(ask('headers'));
  const [now, older] = (await logFrom(from)).entries.map((e) =>
    Object.fromEntries(e.headers.map(([k, v]) => [k.toLowerCase(), v])));
  assert.equal(now.authorization ?? 'Bearer ' + now['x-api-key'], 'Bearer ' + KEY);
  assert.equal(older['x-api-key'], KEY);
  assert.ok(now['anthropic-version']);
});

for (const stream of [false, true]) {
  test(`anthropic messages: tools, two rounds, ${stream ? 'streamed' : 'plain'}`, LIMIT, async () => {
    await same(async (b) => {
      const messages = [];
      const seen = [];
      const turn = (more) => {
        const body = { ...ask(''), messages, tools, ...more };
        return stream ? client(b).messages.stream(body).finalMessage() : client(b).messages.create(body);
      };
      for (const city of ['Paris', '北京']) {
        messages.push({ role: 'user', content: `TOOLCALL weather in ${city}?` });
        const first = await turn();
        assert.equal(first.stop_reason, 'tool_use');
        const use = first.content.find((c) => c.type === 'tool_use');
        assert.equal(use.name, 'get_weather');
        messages.push({ role: 'assistant', content: first.content },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: '21 degrees' }] });
        const second = await turn({ tool_choice: { type: 'none' } });
        messages.push({ role: 'assistant', content: second.content });
        seen.push(use.input, settled(second.content));
      }
      return seen;
    });
  });
}

test('anthropic messages: an abort in mid-stream, then the client goes on', LIMIT, async () => {
  for (let i = 0; i < 5; i++) {
    const stream = client(BASE).messages.stream(ask('abort ' + i, { model: 'drip-100' }));
    stream.once('streamEvent', () => stream.abort());
    await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  }
  assert.ok((await client(BASE).messages.create(ask('after'))).content[0].text);
});

for (const [status, type] of [[400, Anthropic.BadRequestError], [401, Anthropic.AuthenticationError],
  [404, Anthropic.NotFoundError], [429, Anthropic.RateLimitError], [503, Anthropic.InternalServerError]]) {
  test(`anthropic messages: ${status} is ${type.name}, plain and streamed`, LIMIT, async () => {
    for (const stream of [false, true]) {
      await same(async (b) => {
        const error = await client(b).messages.create(ask('fail', { model: 'status-' + status, stream }))
          .then(() => null, (e) => e);
        assert.ok(error instanceof type, String(error));
        return { status: error.status, error: error.error?.error };
      });
    }
  });
}

test('anthropic messages: a body that is not JSON is a 400 in this protocol\'s own form', { ...LIMIT, skip: !THROUGH_GATEWAY }, async () => {
  const cut = (url, init) => fetch(url, { ...init, body: '{"model":' });
  const error = await client(BASE, { fetch: cut }).messages.create(ask('x')).then(() => null, (e) => e);
  assert.ok(error instanceof Anthropic.BadRequestError, String(error));
  assert.equal(error.error.type, 'error');
  assert.equal(typeof error.error.error.message, 'string');
});

test('anthropic messages: a stream cut by the upstream is an error, never a quiet end', LIMIT, async () => {
  await assert.rejects(client(BASE).messages.stream(ask('cut', { model: 'cut-after-3' })).finalMessage());
});

test('anthropic messages: 8 MB of user text', { timeout: 120_000 }, async () => {
  const r = await client(BASE).messages.create(ask(bigText(8 << 20)));
  assert.ok(r.content[0].text.length > 0);
});

test('anthropic messages: 32 requests at once, each gets its own answer', LIMIT, async () => {
  await Promise.all(Array.from({ length: 32 }, async (_, i) => {
    const body = ask('hello ' + i, { model: 'model-' + i });
    const r = i % 2 ? await client(BASE).messages.stream(body).finalMessage() : await client(BASE).messages.create(body);
    assert.equal(r.model, 'model-' + i);
  }));
});
