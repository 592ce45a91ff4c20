// The `openai` package through the gateway: chat, responses, embeddings, models, errors, aborts.
import test from 'node:test';
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { BASE, DIRECT, KEY, THROUGH_GATEWAY, TRICKY, WEATHER, bigText, collect, logCount, logFrom, nextAnswer, same,
  settled } from './common.mjs';

const client = (base, more = {}) => new OpenAI({ baseURL: base, apiKey: KEY, maxRetries: 0, ...more });
const LIMIT = { timeout: 60_000 };
const MODEL = 'deepseek-chat';
const say = (content) => [{ role: 'system', content: 'You are terse.' }, { role: 'user', content }];
const chatTools = [{ type: 'function', function: { name: 'get_weather', description: 'Weather now', parameters: WEATHER } }];
const responseTools = [{ type: 'function', name: 'get_weather', description: 'Weather now', parameters: WEATHER,
  strict: false }];
const joined = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? '').join('');

test('openai chat: plain, the same as without the gateway, with usage', LIMIT, async () => {
  const r = await same((b) => client(b).chat.completions.create({ model: MODEL, messages: say(TRICKY) }), settled);
  assert.equal(r.object, 'chat.completion');
  assert.ok(r.choices[0].message.content.length > 0);
  assert.ok(r.usage.prompt_tokens > 0 && r.usage.completion_tokens > 0);
});

test('openai chat: an answer full of odd characters arrives unchanged, plain and streamed', LIMIT, async () => {
  await nextAnswer({ role: 'assistant', content: TRICKY });
  const plain = await client(BASE).chat.completions.create({ model: MODEL, messages: say('odd') });
  assert.equal(plain.choices[0].message.content, TRICKY);
  await nextAnswer({ role: 'assistant', content: TRICKY });
  const chunks = await collect(await client(BASE).chat.completions.create(
    { model: MODEL, messages: say('odd'), stream: true }));
  assert.equal(joined(chunks), TRICKY);
});

test('openai chat: streamed without usage asked for, none is shown', LIMIT, async () => {
  const chunks = await same(async (b) => collect(await client(b).chat.completions.create(
    { model: MODEL, messages: say('Say something.'), stream: true })), settled);
  assert.ok(joined(chunks).length > 0);
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop');
  assert.equal(chunks.filter((c) => c.usage).length, 0);
});

test('openai chat: streamed with include_usage, the last chunk has it', LIMIT, async () => {
  const chunks = await same(async (b) => collect(await client(b).chat.completions.create(
    { model: MODEL, messages: say('Say more.'), stream: true, stream_options: { include_usage: true } })), settled);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.ok(chunks.at(-1).usage.completion_tokens > 0);
});

test('openai chat: headers of the answer, and those that reach the upstream', LIMIT, async () => {
  const from = await logCount();
  const { response } = await client(BASE, { defaultHeaders: { 'x-trace': 'abc' } })
    .chat.completions.create({ model: MODEL, messages: say('headers') }).withResponse();
  if (THROUGH_GATEWAY) assert.match(response.headers.get('x-larder-request-id') ?? '', /^\S{8,}$/);
  const entry = (await logFrom(from)).entries[0];
  const headers = Object.fromEntries(entry.headers.map(([k, v]) => [k.toLowerCase(), v]));
  assert.equal(headers.authorization, 'Bearer ' + KEY);
  assert.equal(headers['x-trace'], 'abc');
});

for (const stream of [false, true]) {
  test(`openai chat: tools, two rounds, ${stream ? 'streamed' : 'plain'}`, LIMIT, async () => {
    await same(async (b) => {
      const messages = say('');
      messages.pop();
      const seen = [];
      for (const city of ['Paris', '北京']) {
        messages.push({ role: 'user', content: `TOOLCALL weather in ${city}?` });
        const ask = (more) => client(b).chat.completions.create({ model: MODEL, messages, tools: chatTools, stream, ...more });
        const first = await message(await ask(), stream);
        const call = first.tool_calls[0];
        assert.equal(call.function.name, 'get_weather');
        JSON.parse(call.function.arguments);
        messages.push(first, { role: 'tool', tool_call_id: call.id, content: `{"city":"${city}","c":21}` });
        const second = await message(await ask({ tool_choice: 'none' }), stream);
        messages.push(second);
        seen.push(call.function.arguments, second.content);
      }
      return seen;
    });
  });
}

async function message(answer, stream) {
  if (!stream) return answer.choices[0].message;
  const out = { role: 'assistant', content: '' };
  for await (const c of answer) {
    const delta = c.choices[0]?.delta ?? {};
    out.content += delta.content ?? '';
    for (const t of delta.tool_calls ?? []) {
      out.tool_calls ??= [];
      const at = (out.tool_calls[t.index] ??= { id: t.id, type: 'function', function: { name: '', arguments: '' } });
      at.function.name += t.function?.name ?? '';
      at.function.arguments += t.function?.arguments ?? '';
    }
  }
  if (out.tool_calls && out.content === '') out.content = null;
  return out;
}

test('openai chat: the helper that runs tools by itself', LIMIT, async () => {
  let calls = 0;
  const runner = client(BASE).chat.completions.runTools({
    model: MODEL, messages: say('TOOLCALL weather?'),
    tools: [{ type: 'function', function: { ...chatTools[0].function, parse: JSON.parse,
      function: () => { calls++; return 'sunny'; } } }],
  }, { maxChatCompletions: 2 });
  await runner.done();
  assert.equal(calls >= 1, true);
});

test('openai chat: an abort in mid-stream, then the client goes on', LIMIT, async () => {
  for (let i = 0; i < 5; i++) {
    const stop = new AbortController();
    const stream = await client(BASE).chat.completions.create(
      { model: 'drip-100', messages: say('abort ' + i), stream: true }, { signal: stop.signal });
    let got = 0;
    try {
      for await (const chunk of stream) {
        got++;
        if (got === 1) stop.abort();
        void chunk;
      }
    } catch (e) {
      assert.ok(e instanceof OpenAI.APIUserAbortError, String(e));
    }
    assert.ok(got >= 1);
  }
  const r = await client(BASE).chat.completions.create({ model: MODEL, messages: say('after') });
  assert.ok(r.choices[0].message.content);
});

test('openai chat: leaving the loop early ends the request', LIMIT, async () => {
  for await (const chunk of await client(BASE).chat.completions.create(
    { model: 'drip-100', messages: say('leave'), stream: true })) {
    assert.ok(chunk.id);
    break;
  }
});

for (const [status, type] of [[400, OpenAI.BadRequestError], [401, OpenAI.AuthenticationError],
  [404, OpenAI.NotFoundError], [429, OpenAI.RateLimitError], [503, OpenAI.InternalServerError]]) {
  for (const stream of [false, true]) {
    test(`openai chat: ${status} ${stream ? 'streamed' : 'plain'} is ${type.name}`, LIMIT, async () => {
      await same(async (b) => {
        const error = await client(b).chat.completions.create(
          { model: 'status-' + status, messages: say('fail'), stream }).then(() => null, (e) => e);
        assert.ok(error instanceof type, String(error));
        return { status: error.status, error: error.error, code: error.code, type: error.type,
          retry: error.headers.get('retry-after') };
      });
    });
  }
}

test('openai chat: a 503 is tried again by the client', LIMIT, async () => {
  const from = await logCount();
  await assert.rejects(client(BASE, { maxRetries: 1 }).chat.completions.create(
    { model: 'status-503', messages: say('again') }), OpenAI.InternalServerError);
  assert.equal(await logCount() - from, 2);
});

test('openai chat: a body that is not JSON is a typed 400', LIMIT, async () => {
  const cut = (url, init) => fetch(url, { ...init, body: '{"model":"x","messages":[' });
  const error = await client(BASE, { fetch: cut }).chat.completions.create(
    { model: MODEL, messages: say('cut') }).then(() => null, (e) => e);
  assert.ok(error instanceof OpenAI.BadRequestError, String(error));
  assert.equal(typeof error.error.message, 'string');
  assert.equal(typeof error.type, 'string');
});

test('openai chat: a stream cut by the upstream is an error, never a quiet end', LIMIT, async () => {
  await assert.rejects(async () => collect(await client(BASE).chat.completions.create(
    { model: 'cut-after-3', messages: say('cut'), stream: true })));
});

for (const odd of ['no-done', 'early-hints', 'slow-300']) {
  for (const stream of [false, true]) {
    test(`openai chat: an upstream that does "${odd}", ${stream ? 'streamed' : 'plain'}, looks as it does directly`, LIMIT,
      async () => {
        await same(async (b) => {
          try {
            const r = await client(b).chat.completions.create({ model: odd, messages: say('odd'), stream });
            return settled(stream ? await collect(r) : r);
          } catch (e) {
            return [e.constructor.name, e.status, e.error];
          }
        });
      });
  }
}

for (const stream of [false, true]) {
  const how = stream ? 'streamed' : 'plain';
  test(`openai chat: an error that the upstream sends with status 200 is an exception, ${how}`,
    { ...LIMIT, skip: !THROUGH_GATEWAY }, async () => {
      const error = await client(BASE).chat.completions.create({ model: 'error-200', messages: say('odd'), stream })
        .then(() => null, (e) => e);
      assert.ok(error instanceof OpenAI.InternalServerError, String(error));
      assert.equal(error.type, 'server_error');
      assert.equal(error.error.message, 'a planned failure');
    });

  test(`openai chat: an answer that the upstream ends too early is an exception, ${how}`, LIMIT, async () => {
    await assert.rejects(async () => {
      const r = await client(BASE).chat.completions.create({ model: 'end-after-3', messages: say('odd'), stream });
      if (stream) await collect(r);
    });
  });
}

test('openai chat: an upstream that hangs ends at the client\'s own limit', LIMIT, async () => {
  await assert.rejects(client(BASE, { timeout: 700 }).chat.completions.create(
    { model: 'hang', messages: say('wait') }), OpenAI.APIConnectionTimeoutError);
});

test('openai chat: 8 MB of user text, plain and streamed', { timeout: 120_000 }, async () => {
  const messages = say(bigText(8 << 20));
  const r = await same((b) => client(b).chat.completions.create({ model: MODEL, messages }), settled);
  assert.ok(r.usage.prompt_tokens > 0);
  const chunks = await collect(await client(BASE).chat.completions.create({ model: MODEL, messages, stream: true }));
  assert.ok(joined(chunks).length > 0);
});

test('openai chat: a body of 1 MB reaches the upstream byte for byte', LIMIT, async () => {
  const messages = say(bigText(1 << 20));
  const from = await logCount();
  await client(BASE).chat.completions.create({ model: MODEL, messages });
  const entry = (await logFrom(from)).entries[0];
  assert.ok(entry.body === JSON.stringify({ model: MODEL, messages }), 'the body was changed on the way');
});

test('openai chat: 48 requests at once, each gets its own answer', LIMIT, async () => {
  const one = async (i) => {
    const model = 'model-' + i;
    if (i % 2) {
      const chunks = await collect(await client(BASE).chat.completions.create(
        { model, messages: say('hello ' + i), stream: true }));
      assert.ok(chunks.every((c) => c.model === model));
      return;
    }
    const r = await client(BASE).chat.completions.create({ model, messages: say('hello ' + i) });
    assert.equal(r.model, model);
  };
  await Promise.all(Array.from({ length: 48 }, (_, i) => one(i)));
});

test('openai responses: plain and streamed agree, with usage', LIMIT, async () => {
  const ask = { model: MODEL, instructions: 'You are terse.', input: TRICKY };
  const plain = await same((b) => client(b).responses.create(ask), settled);
  assert.ok(plain.output_text.length > 0);
  assert.ok(plain.usage.output_tokens > 0);
  const events = await same(async (b) => collect(await client(b).responses.create({ ...ask, stream: true })), settled);
  assert.equal(events.at(-1).type, 'response.completed');
  const text = events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join('');
  assert.equal(text, plain.output_text);
});

for (const stream of [false, true]) {
  test(`openai responses: tools, ${stream ? 'streamed' : 'plain'}`, LIMIT, async () => {
    await same(async (b) => {
      const input = [{ role: 'user', content: 'TOOLCALL weather in 北京?' }];
      const ask = async (more) => {
        const r = await client(b).responses.create({ model: MODEL, input, tools: responseTools, stream, ...more });
        return stream ? (await collect(r)).at(-1).response : r;
      };
      const first = await ask();
      const call = first.output.find((o) => o.type === 'function_call');
      assert.equal(call.name, 'get_weather');
      JSON.parse(call.arguments);
      input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: '{"c":21}' });
      const second = await ask({ tool_choice: 'none' });
      return [call.arguments, settled(second.output)];
    });
  });
}

test('openai responses: a 429 is a RateLimitError', LIMIT, async () => {
  await assert.rejects(client(BASE).responses.create({ model: 'status-429', input: 'x' }), OpenAI.RateLimitError);
});

test('openai embeddings: one and many, floats and base64', LIMIT, async () => {
  for (const more of [{}, { encoding_format: 'float' }]) {
    const r = await same((b) => client(b).embeddings.create({ model: 'text-embedding', input: ['a', '北京', 'c'], ...more }),
      settled);
    assert.equal(r.data.length, 3);
    assert.equal(typeof r.data[2].embedding[0], 'number');
  }
});

test('openai models: list', LIMIT, async () => {
  const list = await same(async (b) => settled((await client(b).models.list()).data));
  assert.ok(list.length > 0);
});

test('openai: an unknown path is a NotFoundError, as without the gateway', LIMIT, async () => {
  for (const b of [DIRECT, BASE]) {
    await assert.rejects(client(b).get('/no/such/path'), OpenAI.NotFoundError);
  }
});
