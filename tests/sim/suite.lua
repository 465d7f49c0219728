-- The suite of the simulator: compiled variants that together take every branch of the templates, each under many seeds, each seed with
-- problems and a device of its own. Results are judged by `varflash check`.
--
--   lua5.4 tests/sim/suite.lua list                    names of the variants
--   lua5.4 tests/sim/suite.lua run NAME FROM TO        one variant, seeds FROM to TO: prints what failed, with the command that replays it
--   lua5.4 tests/sim/suite.lua branches                whether every branch of every template is taken
--   lua5.4 tests/sim/suite.lua long SECONDS [FROM]     all variants, seeds without end, JOBS= at a time
--
-- SIM= the program (build/varflash-sim), WORK= folder for problems and configurations (build/sim).

package.path = "./?.lua;" .. package.path

local cases = require "tests.sim.cases"
local gen = require "gen.init"
local kernels = require "gen.kernels"
local runner = require "tests.lua.runner"
local template = require "gen.template"
local variants = require "tests.sim.variants"

local suite = {}

local SIM = os.getenv("SIM") or "build/varflash-sim"
local WORK = os.getenv("WORK") or "build/sim"

-- ---- running

-- What a seed makes of the device: number of multiprocessors, order of blocks, lanes that drift.
local function settings(variant, seed)
  local counts = { 1, 2 + #variant.name % 2, 132, 3 }
  return ("sim:seed=%d,cc=%d,sms=%d,order=%s,lanes=%s"):format(seed, variant.cc, counts[(seed - 1) % 4 + 1],
    seed % 3 == 0 and "any" or "index", seed % 3 == 2 and "strict" or "together")
end

-- The command that checks a batch of problems, its files written. `more`: further settings of the simulator, or nil.
function suite.command(variant, seed, batch, more)
  local folder = WORK .. "/" .. variant.name
  os.execute("mkdir -p " .. folder)
  local backend = settings(variant, seed)
  for name, value in pairs(more or {}) do backend = ("%s,%s=%s"):format(backend, name, value) end
  local words = { SIM, "check", ("%s/%s.json"):format(folder, batch.name), "--quiet --served --threads 1 --backend", backend }
  runner.write_file(words[3], cases.json(batch.problems))
  local config = variants.config(variant)
  if config then
    local path = folder .. "/rows.json"
    if runner.read_file(path) ~= config then runner.write_file(path, config) end
    words[#words + 1] = "--config " .. path
  end
  if batch.checked then words[#words + 1] = "--checked" end
  return table.concat(words, " ")
end

-- Runs a batch; its counts, and the output.
local function run_batch(variant, seed, batch)
  local pipe = assert(io.popen("2>&1 " .. suite.command(variant, seed, batch)))
  local output = pipe:read("a")
  local ended, how, status = pipe:close()
  local passed, failed = output:match("(%d+) passed, (%d+) failed")
  passed, failed = tonumber(passed) or 0, tonumber(failed) or 0
  -- A process that died has not counted what it left undone.
  if passed + failed < #batch.problems or not ended and failed == 0 then
    output = output .. ("%s: %s %s after %d of %d problems\n"):format(SIM, how, status, passed + failed, #batch.problems)
    failed = failed + 1
  end
  return passed, failed, output
end

-- The first lines of a text, none of them endless.
local function head(text, count)
  local out = {}
  for line in text:gmatch("[^\n]+") do
    if #out == count then break end
    out[#out + 1] = #line > 1000 and line:sub(1, 1000) .. "..." or line
  end
  return table.concat(out, "\n")
end

local FAILURES_SHOWN = 3

local function run(name, from, to)
  local variant = assert(variants.by_name[name], "no variant " .. tostring(name))
  local passed, failed, shown = 0, 0, 0
  for seed = from, to do
    local good, bad, output = run_batch(variant, seed, cases.batch(variant, seed))
    passed, failed = passed + good, failed + bad
    if bad > 0 and shown < FAILURES_SHOWN then
      shown = shown + 1
      print(("%s seed %d:\n%s"):format(name, seed, head(output, 24)))
      io.stdout:flush()
    end
  end
  print(("%d passed, %d failed"):format(passed, failed))
  return failed == 0
end

-- Rounds of four seeds over all variants until the time is over, each variant a process.
local function run_long(seconds, from)
  local jobs, ending, passed, failed = os.getenv("JOBS") or "2", os.time() + seconds, 0, 0
  for seed = from or 1001, math.maxinteger, 4 do
    local lines = {}
    for _, variant in ipairs(variants.list) do
      lines[#lines + 1] = ("%s\tlua5.4 tests/sim/suite.lua run %s %d %d"):format(variant.name, variant.name, seed, seed + 3)
    end
    runner.write_file(WORK .. "/long.list", table.concat(lines, "\n") .. "\n")
    local pipe = assert(io.popen(("tests/run.sh -j %s %s/long.list"):format(jobs, WORK)))
    for line in pipe:lines() do
      local good, bad = line:match("^(%d+) passed, (%d+) failed$")
      if good then passed, failed = passed + good, failed + bad elseif not line:find("^ok ") then print(line) end
    end
    pipe:close()
    print(("seeds %d to %d: %d passed, %d failed so far"):format(seed, seed + 3, passed, failed))
    io.stdout:flush()
    if os.time() >= ending then break end
  end
  print(("%d passed, %d failed"):format(passed, failed))
  return failed == 0
end

-- ---- coverage

-- The kernels that a variant can launch, checked mode's included, as { spec, pass }.
function suite.kernels(variant)
  local out = {}
  for _, spec in ipairs(variants.specs(variant)) do
    local pass = spec:match("pass=(%S+)")
    for _, kernel in ipairs(assert(gen.plan(spec)).kernels) do out[#out + 1] = { spec = kernel.spec, pass = pass } end
  end
  return out
end

-- Branches of templates that no variant takes, as "templates/x.cu:LINE", and templates that none includes.
local function branches()
  local taken = {}
  for _, variant in ipairs(variants.list) do
    for _, kernel in ipairs(suite.kernels(variant)) do assert(gen.source(kernel.spec, { taken = taken })) end
  end
  local missing, count = {}, 0
  for path, counts in pairs(taken) do
    local _, lines = template.translate(path, runner.read_file(path))
    for _, line in ipairs(lines) do
      count = count + 1
      if not counts[line] then missing[#missing + 1] = ("%s:%d"):format(path, line) end
    end
  end
  for _, kernel in ipairs(kernels.rows) do
    if not taken["templates/" .. kernel.template] then missing[#missing + 1] = "templates/" .. kernel.template end
  end
  table.sort(missing)
  for _, place in ipairs(missing) do print(place .. ": taken by no variant of tests/sim/variants.lua") end
  print(("%d passed, %d failed"):format(count - #missing, #missing))
  return #missing == 0
end

local function list()
  for _, variant in ipairs(variants.list) do print(variant.name) end
  return true
end

local verbs = {
  list = list, branches = branches,
  run = function(name, from, to) return run(name, tonumber(from), tonumber(to)) end,
  long = function(seconds, from) return run_long(tonumber(seconds), tonumber(from)) end,
}
if arg and arg[0]:find("suite.lua$") then
  local verb = verbs[arg[1]] or error("usage: see the head of tests/sim/suite.lua", 0)
  os.exit(verb(table.unpack(arg, 2)))
end

return suite
