-- The simulator's versions of templates/ptx/: the same files, and in each every function of the real one with the same parameters, so that
-- a kernel which compiles for the GPU compiles for the simulator. The names and types of built-ins too.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"

local FILES = { "builtins", "cluster", "math", "mbarrier", "memory", "mma", "sync", "tma", "warpgroup", "wgmma", "wgmma_bf16" }

-- Function name(types) -> true. Loops of the template are taken as they stand: $(...) is a name.
local function functions(text)
  local out = {}
  text = text:gsub("//[^\n]*", ""):gsub("template <>[^;]*;", "")
  for name, parameters in text:gmatch("DEVICE [^;{}()]-([%w_$()]+)(%b())%s*[;{]") do
    local types = {}
    for parameter in (parameters:sub(2, -2) .. ","):gmatch("%s*(.-)%s*,") do
      parameter = parameter:gsub("%s+", " "):gsub("%(&%a*%)", "(&)") -- references to arrays
      types[#types + 1] = parameter:find("(&)", 1, true) and parameter or (parameter:gsub("([%s*&])[%a_][%w_]*$", "%1"))
    end
    out[("%s(%s)"):format(name:gsub("%$%(.-%)", "$"), table.concat(types, ", "):gsub("%s+", " "))] = true
  end
  return out
end

for _, name in ipairs(FILES) do
  runner.test(name, function()
    local real = functions(runner.read_file(("templates/ptx/%s.cuh"):format(name)))
    local simulated = functions(runner.read_file(("tests/sim/ptx/%s.cuh"):format(name)))
    local missing, count = {}, 0
    for signature in pairs(real) do
      count = count + 1
      if not simulated[signature] then missing[#missing + 1] = signature end
    end
    table.sort(missing)
    runner.equal(table.concat(missing, "\n"), "")
    assert(count > 0, "no function was found")
  end)
end

runner.test("files", function()
  local listing = io.popen("ls templates/ptx"):read("a")
  runner.equal(listing, table.concat(FILES, ".cuh\n") .. ".cuh\n")
end)

runner.finish()
