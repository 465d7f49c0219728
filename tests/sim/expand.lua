-- The source of a kernel for the simulator: the generator's own text for a spec, with #line directives and with the templates of
-- ptx/ taken from tests/sim/ptx.
--
--   lua5.4 tests/sim/expand.lua ROOT SIM_ROOT SOURCE    SOURCE: a file of the text that the runtime has compiled, its spec at its head
--
-- The runtime's text must be what ROOT gives for the spec: else the library has other templates built in than those that would be tested.
-- The last lines tell the machine what it needs to know of the kernel.

local root, sim_root, source_path = ...
package.path = root .. "/?.lua"

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

local function need(value, fault)
  if value then return value end
  io.stderr:write("expand: ", fault, "\n")
  os.exit(1)
end

-- luacheck: globals read_template
local simulated = false
function read_template(path)
  local ptx = path:match("^templates/(ptx/.*)")
  if simulated and ptx then return read(sim_root .. "/tests/sim/" .. ptx) end
  return read(root .. "/" .. path)
end

local gen = require "gen.init"

local source = need(read(source_path), source_path .. ": no such file")
local spec = need(source:match("%-%-spec '([^']*)'"), "the source does not name its spec")
if need(gen.source(spec)) ~= source then
  need(nil, ("the text of '%s' is not what %s/templates gives: build again, or set VARFLASH_SOURCE"):format(spec, root))
end
local facts = need(gen.kernel(spec))

simulated = true
io.write(need(gen.source(spec, { lines = true })))
io.write(([[

#line 1 "tests/sim/expand.lua"
extern "C" VISIBLE const sim_facts sim_about = {"%s", "%s", %d, %d, %d, sim_cluster, sim_parameter_bytes(%s), %s};
extern "C" VISIBLE void sim_run(const void *parameter) { sim_call(%s, parameter); }
]]):format(facts.entry, spec, facts.threads, facts.shared_bytes, facts.registers, facts.entry,
  facts.budget.ordered and "true" or "false", facts.entry))
