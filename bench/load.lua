-- One request again and again, from the environment; at the end one line of JSON.
wrk.method = os.getenv("BENCH_METHOD")
wrk.body = os.getenv("BENCH_BODY")
for line in string.gmatch(os.getenv("BENCH_HEADERS"), "[^\n]+") do
  local name, value = string.match(line, "^([^:]+): (.*)$")
  wrk.headers[name] = value
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "microseconds": %d, "failed": %d, "p50_us": %.0f, "p99_us": %.0f}\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
