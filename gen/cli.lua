-- The generator at a prompt, from the repository root; also what the Makefile calls.
--
--   lua5.4 gen/cli.lua source 'kernel=fwd_sm80 arch=sm_90a dtype=bf16 ...'    the CUDA text (--lines: with #line)
--   lua5.4 gen/cli.lua plan 'pass=fwd arch=sm_90a ... family=sm80 ...'        the variant's kernels
--   lua5.4 gen/cli.lua candidates 'pass=fwd arch=sm_90a ... family=sm80'      all variants that fit, as specs
--   lua5.4 gen/cli.lua lua templates/fwd_sm80.cu                              a template as Lua, for luacheck
--   lua5.4 gen/cli.lua names                                                  the names that templates see, for luacheck
--   lua5.4 gen/cli.lua knobs                                                  the table of knobs, in Markdown
--   lua5.4 gen/cli.lua args                                                   the C header of kernel arguments
--   lua5.4 gen/cli.lua signature                                              the knobs' signature

package.path = "./?.lua;" .. package.path

-- luacheck: globals read_template
-- The runtime provides the same global.
function read_template(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

local gen = require "gen.init"

local function need(value, fault)
  if value then return value end
  io.stderr:write("gen: ", fault, "\n")
  os.exit(1)
end

local verbs = {}

function verbs.source(spec, option)
  io.write(need(gen.source(spec, { lines = option == "--lines" })))
end

local function print_table(value, indent)
  local names = {}
  for name in pairs(value) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do
    if type(value[name]) == "table" then
      print(indent .. tostring(name) .. ":")
      print_table(value[name], indent .. "  ")
    else
      print(("%s%s = %s"):format(indent, name, value[name]))
    end
  end
end

function verbs.plan(spec)
  print_table(need(gen.plan(spec)), "")
end

function verbs.candidates(spec)
  print(table.concat(need(require("gen.space").candidates(spec)), "\n"))
end

function verbs.lua(path)
  local text = need(read_template(path), path .. ": no such template")
  io.write((require("gen.template").translate(path, text)))
end

function verbs.names()
  print(table.concat(gen.template_names(), " "))
end

function verbs.knobs()
  local kernels = require "gen.kernels"
  local knobs = require "gen.knobs"
  print("| knob | values | changes bits in | kernels | meaning |\n|---|---|---|---|---|")
  for _, row in ipairs(knobs.knobs) do
    local users = {}
    for _, kernel in ipairs(kernels.rows) do
      for _, used in ipairs(kernel.uses) do
        if used == row then users[#users + 1] = kernel.name end
      end
    end
    local values = knobs.allowed_text(row) .. (row.default ~= nil and "; else " .. knobs.write(row.default) or "")
    print(("| `%s` | %s | %s | %s | %s |"):format(row.name, values, table.concat(row.numeric, ", "),
      table.concat(users, ", "), row.meaning))
  end
end

function verbs.args()
  io.write(require("gen.args").c_header())
end

function verbs.signature()
  print(gen.signature())
end

local verb = verbs[arg[1]]
if not verb then
  io.stderr:write("usage: lua5.4 gen/cli.lua source|plan|candidates|lua|names|knobs|args|signature ... (see the head of gen/cli.lua)\n")
  os.exit(2)
end
need(pcall(verb, table.unpack(arg, 2)))
