-- Requests made ready in a file, sent one after the other: again from the beginning at the end, or each once. What is
-- answered is looked at; at the end one line of JSON.
--
-- The file: one request a line, bearer, tab, body; or, with BENCH_WHOLE, the whole request, in which \1 ends a line.
-- BENCH_LOOK: look at every how many-th answer, 0 for none, for the words in BENCH_EXPECT and the status BENCH_STATUS.
-- BENCH_KEEP: a file for the ids in the answers, or for what BENCH_KEPT finds there.
local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long us; } bench_time; int gettimeofday(bench_time *now, void *zone);")
local now = ffi.new("bench_time")

local function microseconds()
  ffi.C.gettimeofday(now, nil)
  return tonumber(now.s) * 1000000 + tonumber(now.us)
end

local once = os.getenv("BENCH_ONCE") == "1"
local look = tonumber(os.getenv("BENCH_LOOK"))
local expected = os.getenv("BENCH_EXPECT")
local keep = os.getenv("BENCH_KEEP")
local whole = os.getenv("BENCH_WHOLE") == "1"
local right = tonumber(os.getenv("BENCH_STATUS") or "")
local pattern = os.getenv("BENCH_KEPT") or '"id":"([^"]+)"'
local ready, kept = {}, nil
-- Globals, because `done` asks the thread for them.
sent, answered, wrong, first, last = 0, 0, 0, 0, 0
sample = ""

local function format(line)
  local bearer, body = string.match(line, "^([^\t]*)\t(.*)$")
  local headers = {["Host"] = wrk.headers["Host"], ["Authorization"] = "Bearer " .. bearer}
  if body == "" then
    body = nil
  else
    headers["Content-Type"] = "application/json"
  end
  return wrk.format(os.getenv("BENCH_METHOD"), wrk.path, headers, body)
end

function init()
  for line in io.lines(os.getenv("BENCH_REQUESTS")) do
    ready[#ready + 1] = whole and string.gsub(line, "\1", "\r\n") or format(line)
  end
  if keep ~= "" then
    kept = io.open(keep, "w")
    kept:setvbuf("full")
  end
end

function request()
  if sent == 0 then
    first = microseconds()
  end
  if once and sent == #ready then
    -- What is in flight now is lost to the count; a request must be returned, and is never sent.
    if kept then
      kept:flush()
    end
    wrk.thread:stop()
    return ready[#ready]
  end
  sent = sent + 1
  return ready[(sent - 1) % #ready + 1]
end

if look > 0 then
  function response(status, headers, body)
    answered = answered + 1
    last = microseconds()
    if answered % look == 0 and not (string.find(body, expected, 1, true) and (not right or status == right)) then
      wrong = wrong + 1
      sample = status .. " " .. body
    end
    if kept then
      kept:write(string.match(body, pattern) or "", "\n")
    end
  end
end

local thread
function setup(one)
  thread = one
end

function done(summary, latency, requests)
  local e = summary.errors
  -- Where every request is sent once it may be over before the time is; otherwise wrk has the time.
  local took = once and thread:get("last") - thread:get("first") or summary.duration
  io.write(string.format(
    '\n{"requests": %d, "microseconds": %d, "sent": %d, "failed": %d, "wrong": %d, "p50_us": %.0f, "p99_us": %.0f}\n',
    summary.requests, took, thread:get("sent"), e.connect + e.read + e.write + e.status + e.timeout,
    thread:get("wrong"), latency:percentile(50), latency:percentile(99)))
  io.stderr:write(thread:get("sample"))
end
