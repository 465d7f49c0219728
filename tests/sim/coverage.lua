-- Lines of templates that no run of the suite reaches, by gcov: kernels compiled to count, not to be watched (engine.h, coverage).
--
--   lua5.4 tests/sim/coverage.lua SEEDS    runs all variants under seeds 1 to SEEDS, JOBS= at a time, and prints what is left
--   lua5.4 tests/sim/coverage.lua          prints what the last runs have left
--
-- SIM= and WORK= as suite.lua has them.
--
-- Branches of the generator are another matter (suite.lua branches): here a line counts if it has run in any variant that has it.

package.path = "./?.lua;" .. package.path

local cases = require "tests.sim.cases"
local runner = require "tests.lua.runner"
local suite = require "tests.sim.suite"
local variants = require "tests.sim.variants"

local FOLDER = (os.getenv("WORK") or "build/sim") .. "/coverage"

local function run_all(seeds)
  local lines = {}
  for _, variant in ipairs(variants.list) do
    local commands = {}
    for seed = 1, seeds do
      commands[#commands + 1] = suite.command(variant, seed, cases.batch(variant, seed), { coverage = 1, cache = FOLDER })
    end
    lines[#lines + 1] = ("%s\t%s"):format(variant.name, table.concat(commands, " && "))
  end
  os.execute(("mkdir -p %s && rm -f %s/*.gcda"):format(FOLDER, FOLDER)) -- counts of other templates
  local list = FOLDER .. "/runs.list"
  runner.write_file(list, table.concat(lines, "\n") .. "\n")
  return os.execute(("tests/run.sh -t 3600 -j %s %s"):format(os.getenv("JOBS") or "2", list))
end

-- file -> line -> how often. gcov's lines of one file may come from many kernels.
local function count()
  local counts = {}
  local pipe = assert(io.popen("for f in " .. FOLDER .. "/*.gcda; do gcov --json-format --stdout $f 2>/dev/null; done"))
  for json in pipe:lines() do
    -- Each file's object ends with its name, after its lines.
    local at = 1
    for lines, name, after in json:gmatch('"lines": (%b[]), "functions": %b[], "file": "([^"]*)"()') do
      at = after
      if name:find("^templates/") and not name:find("^templates/ptx/") then
        counts[name] = counts[name] or {}
        for times, number in lines:gmatch('"count": (%d+), "line_number": (%d+)') do
          number = tonumber(number)
          counts[name][number] = (counts[name][number] or 0) + tonumber(times)
        end
      end
    end
    assert(at > 1, "gcov's output is not what is expected here")
  end
  pipe:close()
  return counts
end

local function report(counts)
  local names, total, missed = {}, 0, 0
  for name in pairs(counts) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local numbers = {}
    for number in pairs(counts[name]) do numbers[#numbers + 1] = number end
    table.sort(numbers)
    local text = {}
    for line in io.lines(name) do text[#text + 1] = line end
    for _, number in ipairs(numbers) do
      total = total + 1
      if counts[name][number] == 0 then
        missed = missed + 1
        print(("%s:%d: %s"):format(name, number, (text[number] or ""):match("^%s*(.-)$")))
      end
    end
  end
  print(("%d of %d lines reached"):format(total - missed, total))
  return missed == 0 and total > 0
end

local ended = not arg[1] or run_all(tonumber(arg[1]))
os.exit(report(count()) and ended or false)
