-- Offsets that are computed in 32 bits: no small problem can make them overflow, so clang reads the kernels instead. Every kernel of the
-- suite, as the simulator expands it, is searched for products that are widened after they were computed and for 64-bit values that are
-- shortened without a cast; lines of widths.txt are known to be small.
--
--   lua5.4 tests/sim/widths.lua        WORK= folder (build/sim)

package.path = "./?.lua;" .. package.path

local gen = require "gen.init"
local runner = require "tests.lua.runner"
local suite = require "tests.sim.suite"
local variants = require "tests.sim.variants"

local widths = {}

local WORK = os.getenv("WORK") or "build/sim"
local CHECKS = "-*,bugprone-implicit-widening-of-multiplication-result,clang-diagnostic-shorten-64-to-32"
-- The types of the hardware's halves only have to parse.
local FLAGS = "-std=c++17 -Wshorten-64-to-32 -D_Float16=__fp16 -Xclang -fallow-half-arguments-and-returns"

local function trimmed(line) return line:match("^%s*(.-)%s*$") end

local known
local function read_known()
  known = {}
  for line in assert(runner.read_file("tests/sim/widths.txt")):gmatch("[^\n]+") do
    if not line:find("^#") then known[trimmed(line)] = true end
  end
end

-- What clang says about a kernel's text, without what is known: a list of "message: line". `root`: the tree that it comes from.
function widths.faults(source, root)
  if not known then read_known() end
  local path = WORK .. "/widths"
  runner.write_file(path .. ".cu", source)
  local command = ("lua5.4 tests/sim/expand.lua %s . %s.cu > %s.cpp && clang-tidy --quiet --checks='%s' %s.cpp -- -Itests/sim %s")
    :format(root, path, path, CHECKS, path, FLAGS .. " 2>/dev/null")
  local out, message = {}, nil
  for _, line in ipairs(runner.lines_of(command)) do
    if message and not known[trimmed(line)] then out[#out + 1] = ("%s: %s"):format(message, trimmed(line)) end
    message = line:match("warning: (.*)$") or line:match("error: (.*)$")
  end
  os.remove(path .. ".cu")
  os.remove(path .. ".cpp")
  return out
end

local function main()
  if not os.execute("command -v clang-tidy > /dev/null") then
    print("clang-tidy is not here: widths of offsets were not checked")
    return 77
  end
  os.execute("mkdir -p " .. WORK)
  local seen, passed, failed = {}, 0, 0
  for _, variant in ipairs(variants.list) do
    for _, kernel in ipairs(suite.kernels(variant)) do
      if not seen[kernel.spec] then
        seen[kernel.spec] = true
        local faults = widths.faults(assert(gen.source(kernel.spec)), ".")
        if #faults > 0 then print(kernel.spec .. "\n  " .. table.concat(faults, "\n  ")) end
        passed, failed = passed + (#faults == 0 and 1 or 0), failed + (#faults > 0 and 1 or 0)
      end
    end
  end
  print(("%d passed, %d failed"):format(passed, failed))
  return failed == 0
end

if arg and arg[0]:find("widths.lua$") then os.exit(main()) end

return widths
