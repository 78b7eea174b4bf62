-- Requests made ready in a file, sent one after the other: again from the beginning at the end, or each once. What is
-- answered is looked at; at the end one line of JSON.
--
-- The file: one request a line, bearer, tab, body. BENCH_LOOK: look at every how many-th answer, 0 for none, for the
-- words in BENCH_EXPECT. BENCH_KEEP: a file for the ids in the answers.
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
local ready, kept = {}, nil
-- Globals, because `done` asks the thread for them.
sent, answered, wrong, first, last = 0, 0, 0, 0, 0
sample = ""

function init()
  for line in io.lines(os.getenv("BENCH_REQUESTS")) do
    local bearer, body = string.match(line, "^([^\t]*)\t(.*)$")
    local headers = {["Host"] = wrk.headers["Host"], ["Authorization"] = "Bearer " .. bearer}
    if body == "" then
      body = nil
    else
      headers["Content-Type"] = "application/json"
    end
    ready[#ready + 1] = wrk.format(os.getenv("BENCH_METHOD"), wrk.path, headers, body)
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
    if answered % look == 0 and not string.find(body, expected, 1, true) then
      wrong = wrong + 1
      sample = body
    end
    if kept then
      kept:write(string.match(body, '"id":"([^"]+)"') or "", "\n")
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
