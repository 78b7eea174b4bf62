-- wrk: verify the tokens of a file, one a line, in turn; at the end one line of JSON.
local ready, turn = {}, 0

function init()
  for token in io.lines(os.getenv("TOKENS")) do
    ready[#ready + 1] = wrk.format("GET", "/auth", {["Host"] = wrk.headers["Host"], ["Authorization"] = "Bearer " .. token})
  end
end

function request()
  turn = turn % #ready + 1
  return ready[turn]
end

function done(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('{"requests": %d, "failed": %d}\n', summary.requests, failed))
end
