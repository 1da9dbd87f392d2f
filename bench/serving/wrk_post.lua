-- Posts the lines of a file as JSON bodies, in turn, and prints one JSON line with the outcome.
local bodies, position = {}, 0

function init(arguments)
  for line in io.lines(arguments[1]) do
    bodies[#bodies + 1] = wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, line)
  end
  math.randomseed(1)
  position = math.random(#bodies)
end

function request()
  position = position % #bodies + 1
  return bodies[position]
end

function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format(
    '{"seconds": %f, "requests": %d, "errors": %d, "p50_ms": %f, "p99_ms": %f}',
    summary.duration / 1e6, summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
