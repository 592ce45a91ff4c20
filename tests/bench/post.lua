-- wrk script: posts chat bodies of about `kilobytes` (first argument), sixteen different ones in turn, and prints
-- one CSV line: requests,errors,duration_us,p50_us,p99_us.
-- A body looks like an agent's: system text, tools, turns of long text with \n and \" escapes and some Chinese.
local sentence = {
  'The ship left the harbour at dawn, and the log of that day says only: \\"wind NNW, 12 knots\\".\\n',
  '    for (size_t i = 0; i < n; i++) {\\n        sum += table[i] & 0xff; /* \\"low byte\\" */\\n    }\\n',
  '航海日志第七页写道:风向西北,海面平静,船长决定继续前进。\\n',
  'Please read src/net/listener.c again and say why the second connection waits; see C:\\\\logs\\\\run.txt.\\n',
  'Result: 200 OK, 1532 bytes, 0.84 ms; the retry after 429 came 1.2 s later and was answered from the cache.\\n',
}

local tool = '{"type":"function","function":{"name":"tool_%d","description":"Reads or edits one file of the project; ' ..
  'paths are relative.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"File"},' ..
  '"from":{"type":"integer","minimum":0},"text":{"type":"string"}},"required":["path"]}}}'

local function text(bytes, seed)
  local parts, length, i = {}, 0, seed
  while length < bytes do
    local s = sentence[i % #sentence + 1]
    parts[#parts + 1] = s
    length = length + #s
    i = i + 1 + seed % 2
  end
  return table.concat(parts)
end

local function body(bytes, seed)
  local parts = { '{"model":"bench","temperature":0.7,"messages":[{"role":"system","content":"You are a careful engineer.\\n',
    text(bytes / 10, 1), '"}' }
  local length = bytes / 10 + 200
  local turn = math.max(600, bytes / 24)
  local roles, n = { 'user', 'assistant' }, 0
  local tools = ''
  if bytes > 4096 then
    local all = {}
    for i = 1, 10 do all[i] = string.format(tool, i) end
    tools = ',"tools":[' .. table.concat(all, ',') .. ']'
    length = length + #tools
  end
  repeat
    local t = text(math.min(turn, math.max(100, bytes - length - 100)), seed + n)
    parts[#parts + 1] = ',{"role":"' .. roles[n % 2 + 1] .. '","content":"' .. t .. '"}'
    length = length + #t + 32
    n = n + 1
  until length >= bytes
  parts[#parts + 1] = ']' .. tools .. '}'
  return table.concat(parts)
end

local requests, at = {}, 0

function init(args)
  local bytes = tonumber(args[1]) * 1024
  local headers = { ['Content-Type'] = 'application/json', ['Authorization'] = 'Bearer sk-bench',
    ['User-Agent'] = 'OpenAI/JS 6.0', ['Accept'] = 'application/json' }
  for i = 1, 16 do
    requests[i] = wrk.format('POST', '/v1/chat/completions', headers, body(bytes, i * 7))
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('RESULT %d,%d,%d,%.0f,%.0f\n', summary.requests,
    e.connect + e.read + e.write + e.status + e.timeout, summary.duration, latency:percentile(50), latency:percentile(99)))
end
