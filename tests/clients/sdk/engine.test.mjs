// The `openai` package, and `ai`, against a model in larder's own process: tests/models/tiny-v3, which has the manner of a dictionary.
//   BASE     larder's address with /v1; models tiny (8 at once), tiny-tools (another template), narrow (1 at once, 2 wait),
//            cut (an upstream at CUT_PORT, with `continue: tiny`)
import http from 'node:http';
import test from 'node:test';
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { generateText, streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const BASE = process.env.BASE;
if (!BASE) throw new Error('set BASE (larder, with /v1)');
const client = new OpenAI({ baseURL: BASE, apiKey: 'sk-test', maxRetries: 0 });
const LIMIT = { timeout: 300_000 };
const say = (content) => [{ role: 'user', content }];
const ask = (more) => ({ model: 'tiny', messages: say('What does stable mean?'), max_tokens: 24, ...more });
const chat = (more) => client.chat.completions.create(ask(more));
const TOOLS = [{ type: 'function', function: { name: 'get_weather', description: 'Weather now',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }];

async function collect(stream) {
  const all = [];
  for await (const one of stream) all.push(one);
  return all;
}

// The choices of a stream put together, each chunk's form checked on the way.
function joined(chunks) {
  const choices = [];
  for (const chunk of chunks) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    assert.deepEqual([chunk.id, chunk.model, chunk.created, chunk.system_fingerprint],
      [chunks[0].id, chunks[0].model, chunks[0].created, chunks[0].system_fingerprint]);
    for (const { index, delta, finish_reason, logprobs } of chunk.choices) {
      if (!choices[index]) assert.deepEqual(delta, { role: 'assistant', content: '' });
      else assert.equal(delta.role, undefined);
      const c = choices[index] ??= { content: '', probs: [], finish: null };
      assert.equal(c.finish, null, 'a chunk behind the end');
      c.content += delta.content ?? '';
      c.probs.push(...logprobs?.content ?? []);
      c.finish = finish_reason;
    }
  }
  return choices;
}

function addsUp(usage) {
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.equal(usage.prompt_cache_hit_tokens + usage.prompt_cache_miss_tokens, usage.prompt_tokens);
  assert.equal(usage.prompt_tokens_details.cached_tokens, usage.prompt_cache_hit_tokens);
  assert.equal(usage.completion_tokens_details.reasoning_tokens, 0);
}

const refused = async (call, type, wanted) => {
  const error = await call.then(() => null, (e) => e);
  assert.ok(error instanceof type, String(error));
  for (const [name, value] of Object.entries(wanted)) assert.equal(error[name], value, `${name} of ${error}`);
  return error;
};

test('engine chat: streamed and whole say the same, usage adds up', LIMIT, async () => {
  const plain = await chat({ temperature: 0 });
  assert.equal(plain.object, 'chat.completion');
  assert.equal(plain.model, 'tiny');
  assert.ok(plain.choices[0].message.content.length > 10);
  assert.equal(plain.choices[0].message.role, 'assistant');
  addsUp(plain.usage);
  const chunks = await collect(await chat({ temperature: 0, stream: true, stream_options: { include_usage: true } }));
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  addsUp(last.usage);
  assert.ok(chunks.slice(0, -1).every((c) => c.usage === null));
  const [choice] = joined(chunks.slice(0, -1));
  assert.equal(choice.content, plain.choices[0].message.content);
  assert.equal(choice.finish, plain.choices[0].finish_reason);
  assert.equal(last.usage.completion_tokens, plain.usage.completion_tokens);
  assert.equal(last.usage.prompt_tokens, plain.usage.prompt_tokens);
  assert.ok(chunks.length > 5, 'a chunk for each piece of text');
  const without = await collect(await chat({ temperature: 0, stream: true }));
  assert.ok(without.every((c) => !c.usage));
});

test('engine chat: an end of the model\'s own, and of max_tokens', LIMIT, async () => {
  const short = await chat({ temperature: 0, max_tokens: 3 });
  assert.equal(short.choices[0].finish_reason, 'length');
  assert.equal(short.usage.completion_tokens, 3);
  const whole = await chat({ temperature: 0, max_tokens: undefined });
  assert.equal(whole.choices[0].finish_reason, 'stop');
  assert.ok(whole.choices[0].message.content.startsWith(short.choices[0].message.content));
});

for (const stream of [false, true]) {
  test(`engine chat: stop, ${stream ? 'streamed' : 'plain'}: the text ends before it, wherever tokens cut it`, LIMIT, async () => {
    const whole = (await chat({ temperature: 0 })).choices[0].message.content;
    for (const [from, len] of [[5, 1], [7, 9], [whole.length - 8, 8], [1, 20]]) {
      const stop = whole.slice(from, from + len), at = whole.indexOf(stop);
      const r = await chat({ temperature: 0, stop: ['never there', stop], stream });
      const c = stream ? joined(await collect(r))[0] : { content: r.choices[0].message.content, finish: r.choices[0].finish_reason };
      assert.deepEqual(c, { ...c, content: whole.slice(0, at), finish: 'stop' });
    }
  });
}

test('engine chat: the same seed, the same text; answer i of n is drawn with seed + i', LIMIT, async () => {
  const text = async (more) => (await chat({ temperature: 1.2, ...more })).choices.map((c) => c.message.content);
  const [one] = await text({ seed: 7 });
  assert.deepEqual(await text({ seed: 7 }), [one]);
  const three = await text({ seed: 7, n: 3 });
  assert.equal(three.length, 3);
  assert.equal(three[0], one);
  assert.deepEqual([three[1], three[2]], [(await text({ seed: 8 }))[0], (await text({ seed: 9 }))[0]]);
  assert.equal(new Set(three).size, 3);
  const free = await Promise.all(Array.from({ length: 4 }, () => text({})));
  assert.ok(new Set(free.flat()).size > 1, 'without a seed answers differ');
});

test('engine chat: n in a stream, usage over all of them', LIMIT, async () => {
  const r = await chat({ temperature: 1, seed: 3, n: 3 });
  const chunks = await collect(await chat({ temperature: 1, seed: 3, n: 3, stream: true, stream_options: { include_usage: true } }));
  assert.deepEqual(joined(chunks.slice(0, -1)).map((c) => c.content), r.choices.map((c) => c.message.content));
  assert.deepEqual(r.choices.map((c) => c.index), [0, 1, 2]);
  addsUp(r.usage);
  addsUp(chunks.at(-1).usage);
  assert.equal(chunks.at(-1).usage.completion_tokens, r.usage.completion_tokens);
  const alone = await chat({ temperature: 1, seed: 3 });
  assert.equal(r.usage.prompt_tokens, alone.usage.prompt_tokens);
  assert.ok(r.usage.completion_tokens > alone.usage.completion_tokens);
});

test('engine chat: logprobs', LIMIT, async () => {
  const r = await chat({ temperature: 0, logprobs: true, top_logprobs: 3 });
  const { content } = r.choices[0].logprobs;
  assert.ok(content.length > 3 && content.length <= r.usage.completion_tokens);
  assert.equal(Buffer.from(content.flatMap((t) => t.bytes)).toString(), r.choices[0].message.content);
  for (const t of content) {
    assert.ok(t.logprob <= 0);
    assert.equal(t.top_logprobs.length, 3);
    assert.deepEqual([t.top_logprobs[0].token, t.top_logprobs[0].logprob], [t.token, t.logprob], 'greedy takes the likeliest');
    assert.ok(t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob && t.top_logprobs[1].logprob >= t.top_logprobs[2].logprob);
  }
  const [streamed] = joined(await collect(await chat({ temperature: 0, logprobs: true, top_logprobs: 3, stream: true })));
  assert.deepEqual(streamed.probs, content);
  const whole = r.choices[0].message.content, stop = whole.slice(10, 16);
  const cut = await chat({ temperature: 0, logprobs: true, stop });
  const told = Buffer.from(cut.choices[0].logprobs.content.flatMap((t) => t.bytes)).toString();
  assert.ok(told.startsWith(cut.choices[0].message.content) && !told.includes(stop), JSON.stringify([told, stop]));
});

test('engine chat: logit_bias forbids a token, penalties change the text', LIMIT, async () => {
  const first = (await chat({ temperature: 0, max_tokens: 1, logprobs: true })).choices[0].logprobs.content[0].token;
  const { tokens } = await client.post('/tokenize', { body: { model: 'tiny', prompt: first, add_special_tokens: false } });
  assert.equal(tokens.length, 1);
  const other = await chat({ temperature: 0, max_tokens: 1, logprobs: true, logit_bias: { [tokens[0]]: -100 } });
  assert.notEqual(other.choices[0].logprobs.content[0].token, first);
  const plain = await chat({ temperature: 0, max_tokens: 60 });
  const penalised = await chat({ temperature: 0, max_tokens: 60, frequency_penalty: 2, presence_penalty: 2 });
  assert.notEqual(penalised.choices[0].message.content, plain.choices[0].message.content);
});

test('engine chat: a history with parts, and a kept prefix', LIMIT, async () => {
  const long = 'A ship is a large boat that goes over the sea, and a boat is a small one. '.repeat(8);
  const messages = [{ role: 'system', content: [{ type: 'text', text: long, cache_control: { type: 'ephemeral' } }] },
    { role: 'user', content: [{ type: 'text', text: 'What is' }, { type: 'text', text: 'a boat?' }] }];
  const first = await chat({ messages, temperature: 0, max_tokens: 8 });
  const second = await chat({ messages, temperature: 0, max_tokens: 8 });
  assert.equal(second.choices[0].message.content, first.choices[0].message.content);
  addsUp(first.usage);
  addsUp(second.usage);
  assert.ok(second.usage.prompt_tokens > 128, String(second.usage.prompt_tokens));
  assert.ok(second.usage.prompt_cache_hit_tokens >= 64, JSON.stringify(second.usage));
  const joinedText = await chat({ messages: [{ role: 'system', content: long }, { role: 'user', content: 'What is\na boat?' }],
    temperature: 0, max_tokens: 8 });
  assert.equal(joinedText.usage.prompt_tokens, first.usage.prompt_tokens);
  assert.equal(joinedText.choices[0].message.content, first.choices[0].message.content);
});

test('engine chat: tools in the request and in the history', LIMIT, async () => {
  const tools = (more) => client.chat.completions.create(ask({ model: 'tiny-tools', temperature: 0, max_tokens: 8, ...more }));
  const without = await tools({}), with_ = await tools({ tools: TOOLS });
  assert.ok(with_.usage.prompt_tokens > without.usage.prompt_tokens + 10, 'the tools are in the prompt');
  assert.ok(['stop', 'length', 'tool_calls'].includes(with_.choices[0].finish_reason));
  const call = { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Paris"}' } };
  const history = [...say('Weather in Paris?'), { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'call_1', content: '{"c": 21}' }];
  const after = await collect(await tools({ messages: history, tools: TOOLS, tool_choice: 'auto', stream: true }));
  assert.equal(joined(after).length, 1);
  await refused(tools({ tools: TOOLS, tool_choice: 'required' }), OpenAI.BadRequestError,
    { param: 'tool_choice', code: 'unsupported_value' });
  await refused(chat({ tools: TOOLS }), OpenAI.BadRequestError, { param: 'tools', code: 'unsupported_parameter' });
});

test('engine: what is not supported is a 400 that names the field', LIMIT, async () => {
  const image = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }] }];
  const code = 'unsupported_value', type = 'invalid_request_error';
  await refused(chat({ messages: image }), OpenAI.BadRequestError, { param: 'messages[0].content[0].type', code, type });
  await refused(chat({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } } }),
    OpenAI.BadRequestError, { param: 'response_format', code });
  await refused(chat({ modalities: ['text', 'audio'], audio: { voice: 'alloy', format: 'wav' } }), OpenAI.BadRequestError,
    { param: 'modalities', code });
  await refused(chat({ temperature: 3, stream: true }), OpenAI.BadRequestError, { param: 'temperature', code: 'invalid_value' });
  const long = await refused(chat({ messages: say('word '.repeat(2000)) }), OpenAI.BadRequestError,
    { param: 'messages', code: 'context_length_exceeded' });
  assert.match(long.message, /\d{4,} tokens.* 512 tokens/);
  await refused(chat({ max_tokens: 5000 }), OpenAI.BadRequestError, { param: 'max_tokens', code: 'context_length_exceeded' });
  await refused(chat({ model: 'gpt-4o' }), OpenAI.NotFoundError, {});
  await refused(client.responses.create({ model: 'tiny', input: 'x' }), OpenAI.NotFoundError, {});
  await refused(client.embeddings.create({ model: 'tiny', input: 'x' }), OpenAI.NotFoundError, {});
});

test('engine completions: one and many prompts, echo, logprobs, ids', LIMIT, async () => {
  const text = (more) => client.completions.create({ model: 'tiny', prompt: 'stable:', max_tokens: 8, temperature: 0, ...more });
  const one = await text({});
  assert.equal(one.object, 'text_completion');
  assert.ok(one.choices[0].text.length > 0);
  assert.equal((await text({ echo: true })).choices[0].text, 'stable:' + one.choices[0].text);
  const many = await text({ prompt: ['stable:', 'a boat is'], n: 2, seed: 5, temperature: 1 });
  assert.deepEqual(many.choices.map((c) => c.index), [0, 1, 2, 3]);
  assert.deepEqual(many.choices.slice(2).map((c) => c.text),
    (await text({ prompt: 'a boat is', n: 2, seed: 5, temperature: 1 })).choices.map((c) => c.text));
  const probs = await text({ logprobs: 2 });
  const { tokens, token_logprobs, top_logprobs, text_offset } = probs.choices[0].logprobs;
  assert.equal(tokens.join(''), probs.choices[0].text);
  assert.equal(token_logprobs.length, tokens.length);
  assert.ok(top_logprobs.every((t, i) => t[tokens[i]] === token_logprobs[i]));
  assert.deepEqual(text_offset.slice(0, 2), [0, tokens[0].length]);
  const ids = (await client.post('/tokenize', { body: { model: 'tiny', prompt: 'stable:' } })).tokens;
  assert.equal((await text({ prompt: ids })).choices[0].text, one.choices[0].text);
  const chunks = await collect(await text({ stream: true }));
  assert.equal(chunks.map((c) => c.choices[0]?.text ?? '').join(''), one.choices[0].text);
});

test('engine ai: generateText and streamText say the same, with usage', LIMIT, async () => {
  const model = createOpenAICompatible({ name: 'larder', baseURL: BASE, apiKey: 'sk-test', includeUsage: true })('tiny');
  const options = { model, prompt: 'What does stable mean?', temperature: 0, maxOutputTokens: 24, maxRetries: 0 };
  const whole = await generateText(options);
  const streamed = streamText(options);
  let text = '';
  for await (const part of streamed.textStream) text += part;
  assert.equal(text, whole.text);
  assert.equal(whole.text, (await chat({ temperature: 0 })).choices[0].message.content);
  assert.equal(await streamed.finishReason, whole.finishReason);
  const usage = await streamed.usage;
  assert.deepEqual([usage.inputTokens, usage.outputTokens], [whole.usage.inputTokens, whole.usage.outputTokens]);
});

test('engine models: list and one', LIMIT, async () => {
  const names = (await client.models.list()).data.map((m) => m.id);
  assert.ok(names.includes('tiny'), String(names));
  assert.equal((await client.models.retrieve('tiny')).id, 'tiny');
  await refused(client.models.retrieve('none'), OpenAI.NotFoundError, {});
});

test('engine chat: cancelled in mid-stream, again and again, and the next one runs', LIMIT, async () => {
  const want = (await chat({ temperature: 0 })).choices[0].message.content;
  for (let i = 0; i < 12; i++) {
    const stop = new AbortController();
    const stream = await client.chat.completions.create(
      ask({ temperature: 1, max_tokens: 400, ignore_eos: true, n: 1 + i % 3, stream: true }), { signal: stop.signal });
    let got = 0;
    try {
      for await (const chunk of stream) {
        void chunk;
        if (++got > i) stop.abort();
      }
    } catch (e) {
      assert.ok(e instanceof OpenAI.APIUserAbortError, String(e));
    }
    assert.ok(got > i);
    for await (const chunk of await chat({ max_tokens: 400, ignore_eos: true, stream: true })) {
      assert.ok(chunk.id);
      break; // leaving the loop is leaving the server
    }
  }
  assert.equal((await chat({ temperature: 0 })).choices[0].message.content, want);
});

test('engine chat: 50 clients at once, each gets the answer that it gets alone', LIMIT, async () => {
  const one = async (i) => {
    const more = { messages: say(`What does word ${i} mean?`), seed: i, temperature: 0.9, max_tokens: 12 };
    if (i % 2) return joined(await collect(await chat({ ...more, stream: true })))[0].content;
    return (await chat(more)).choices[0].message.content;
  };
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) => one(i)));
  assert.equal(all.length, 50);
  for (const i of [0, 1, 17, 32, 49]) assert.equal(await one(i), all[i], `client ${i}`);
});

test('engine chat: more than the queue holds is a 503 that says when to come back', LIMIT, async () => {
  const narrow = (more, options) => client.chat.completions.create(ask({ model: 'narrow', temperature: 0, ...more }), options);
  const all = await Promise.allSettled(Array.from({ length: 40 }, () => narrow({ max_tokens: 300, ignore_eos: true })));
  const failed = all.filter((r) => r.status === 'rejected').map((r) => r.reason);
  assert.ok(all.length - failed.length >= 2, 'two may wait, and one of them runs at once');
  assert.ok(failed.length >= 1, 'forty at once are too many');
  for (const e of failed) {
    assert.ok(e instanceof OpenAI.InternalServerError, String(e));
    assert.equal(e.status, 503);
    assert.equal(e.type, 'overloaded_error');
    assert.match(e.headers.get('retry-after') ?? '', /^\d+$/);
  }
  const patient = await Promise.all(Array.from({ length: 6 }, () => narrow({ max_tokens: 20 }, { maxRetries: 50 })));
  assert.ok(patient.every((r) => r.choices[0].message.content === patient[0].choices[0].message.content));
});

// As model cut: the stream of model tiny, of which the first events come, and then the connection ends.
function cutter(events) {
  return http.createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    const whole = await fetch(`${BASE}/chat/completions`, { method: 'POST', body: JSON.stringify({ ...JSON.parse(body), model: 'tiny' }) });
    const first = (await whole.text()).split('\n\n').slice(0, events).map((e) => `${e}\n\n`).join('');
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(first, () => response.destroy());
  });
}

for (const events of [2, 5, 9]) {
  test(`a stream that is cut after ${events} events goes on at the model, and the clients see one`, LIMIT, async () => {
    const server = cutter(events);
    await new Promise((resolve) => server.listen(Number(process.env.CUT_PORT), '127.0.0.1', resolve));
    try {
      const whole = await chat({ temperature: 0 });
      const chunks = await collect(await chat({ model: 'cut', temperature: 0, stream: true, stream_options: { include_usage: true } }));
      const [choice] = joined(chunks.slice(0, -1));
      assert.equal(choice.content, whole.choices[0].message.content);
      assert.equal(choice.finish, whole.choices[0].finish_reason);
      const { usage } = chunks.at(-1);
      assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
      assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
      assert.equal(usage.larder.begun.completion_tokens + usage.larder.continued.completion_tokens, usage.completion_tokens);
      assert.equal(chunks.filter((c) => c.larder?.continued_by === 'tiny').length, 1, 'the seam');
      const helper = client.chat.completions.stream(ask({ model: 'cut', temperature: 0 }));
      assert.equal((await helper.finalMessage()).content, whole.choices[0].message.content);
      const provider = createOpenAICompatible({ name: 'larder', baseURL: BASE, apiKey: 'sk-test' });
      const streamed = streamText({ model: provider('cut'), messages: say('What does stable mean?'), maxOutputTokens: 24, temperature: 0 });
      assert.equal(await streamed.text, whole.choices[0].message.content);
      assert.equal(await streamed.finishReason, whole.choices[0].finish_reason);
    } finally {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  });
}

test('a stream that is cut and cannot go on (logprobs) is an error for the clients', LIMIT, async () => {
  const server = cutter(3);
  await new Promise((resolve) => server.listen(Number(process.env.CUT_PORT), '127.0.0.1', resolve));
  try {
    await assert.rejects(async () => collect(await chat({ model: 'cut', temperature: 0, stream: true, logprobs: true })));
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});
