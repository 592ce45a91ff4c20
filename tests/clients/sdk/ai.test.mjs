// The `ai` package with `@ai-sdk/openai-compatible` through the gateway: text, streams, tool loops, errors, aborts.
import test from 'node:test';
import assert from 'node:assert/strict';
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { BASE, KEY, TRICKY, WEATHER, bigText, nextAnswer, same } from './common.mjs';

const model = (base, id = 'deepseek-chat', more = {}) =>
  createOpenAICompatible({ name: 'demo', baseURL: base, apiKey: KEY, ...more })(id);
const LIMIT = { timeout: 60_000 };
const quiet = { maxRetries: 0, onError: () => {} };
const tools = () => ({ get_weather: tool({ description: 'Weather now', inputSchema: jsonSchema(WEATHER),
  execute: async () => '21 degrees' }) });

test('ai generateText: the same as without the gateway, with usage', LIMIT, async () => {
  const r = await same(async (b) => {
    const { text, finishReason, usage } = await generateText({ model: model(b), system: 'You are terse.', prompt: TRICKY,
      maxRetries: 0 });
    return { text, finishReason, total: usage.totalTokens };
  });
  assert.ok(r.text.length > 0 && r.total > 0);
});

test('ai streamText: an answer full of odd characters', LIMIT, async () => {
  await nextAnswer({ role: 'assistant', content: TRICKY });
  const r = streamText({ model: model(BASE), prompt: 'odd', ...quiet });
  let text = '';
  for await (const part of r.textStream) text += part;
  assert.equal(text, TRICKY);
  assert.equal(await r.finishReason, 'stop');
});

test('ai streamText: usage when it is asked for', LIMIT, async () => {
  const r = streamText({ model: model(BASE, 'deepseek-chat', { includeUsage: true }), prompt: 'usage', ...quiet });
  await r.consumeStream();
  assert.ok((await r.usage).outputTokens > 0);
});

test('ai generateText: a tool loop', LIMIT, async () => {
  const r = await same(async (b) => {
    const { steps } = await generateText({ model: model(b), prompt: 'TOOLCALL weather in Paris?', tools: tools(),
      stopWhen: stepCountIs(2), maxRetries: 0 });
    return steps.map((s) => [s.text, s.toolCalls.map((c) => [c.toolName, c.input])]);
  });
  assert.equal(r[0][1][0][0], 'get_weather');
  assert.equal(r.length, 2);
});

test('ai streamText: a tool loop', LIMIT, async () => {
  const r = streamText({ model: model(BASE), prompt: 'TOOLCALL weather in 北京?', tools: tools(),
    stopWhen: stepCountIs(2), ...quiet });
  await r.consumeStream();
  const steps = await r.steps;
  assert.equal(steps[0].toolCalls[0].toolName, 'get_weather');
  assert.equal(steps.length, 2);
});

test('ai streamText: an abort in mid-stream, then the client goes on', LIMIT, async () => {
  for (let i = 0; i < 5; i++) {
    const stop = new AbortController();
    const r = streamText({ model: model(BASE, 'drip-100'), prompt: 'abort', abortSignal: stop.signal, ...quiet });
    const kinds = [];
    for await (const part of r.fullStream) {
      kinds.push(part.type);
      if (part.type === 'text-delta') stop.abort();
    }
    assert.ok(kinds.includes('abort'), kinds.join(' '));
  }
  assert.ok((await generateText({ model: model(BASE), prompt: 'after', maxRetries: 0 })).text);
});

for (const status of [400, 401, 404, 429, 503]) {
  test(`ai generateText: ${status} is an APICallError`, LIMIT, async () => {
    await same(async (b) => {
      const e = await generateText({ model: model(b, 'status-' + status), prompt: 'fail', maxRetries: 0 })
        .then(() => null, (x) => x);
      assert.ok(APICallError.isInstance(e), String(e));
      return [e.statusCode, e.message, e.isRetryable];
    });
  });
}

test('ai streamText: a stream cut by the upstream is an error', LIMIT, async () => {
  const r = streamText({ model: model(BASE, 'cut-after-3'), prompt: 'cut', ...quiet });
  const kinds = [];
  try {
    for await (const part of r.fullStream) kinds.push(part.type);
  } catch (e) {
    assert.ok(APICallError.isInstance(e), String(e));
    kinds.push('error');
  }
  assert.ok(kinds.includes('error'), kinds.join(' '));
});

test('ai generateText: 8 MB of user text', { timeout: 120_000 }, async () => {
  assert.ok((await generateText({ model: model(BASE), prompt: bigText(8 << 20), maxRetries: 0 })).text);
});

test('ai: 32 requests at once', LIMIT, async () => {
  await Promise.all(Array.from({ length: 32 }, async (_, i) => {
    const r = await generateText({ model: model(BASE, 'model-' + i), prompt: 'hello ' + i, maxRetries: 0 });
    assert.equal(r.response.modelId, 'model-' + i);
  }));
});
