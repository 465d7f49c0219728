-- A generator of one template, faults.cu, whose cases each plant one fault: what tests/sim/test_machine.c has the machine find. Stands
-- where a tree's gen/init.lua stands; the text engine and what is not here of templates/ come from the working directory.
--
--   lua5.4 tests/sim/faults/gen/init.lua list            a line a case: name, threads, blocks, programmatic, kind that is to be found
--   lua5.4 tests/sim/faults/gen/init.lua source NAME     its source

-- luacheck: globals read_template
package.path = package.path .. ";./?.lua"

local template = require "gen.template"

local FOLDER = "tests/sim/faults/"

local function read(path)
  local text = read_template and read_template(path)
  if text then return text end
  local file = io.open(FOLDER .. path, "rb") or io.open(path, "rb")
  if not file then return nil end
  text = file:read("a")
  file:close()
  return text
end

local gen = { names = {}, cases = {} }

-- //% if case == "NAME" then -- threads=64 blocks=2 finds KIND
for file in read("templates/faults.cu"):gmatch('include "(cases/[^"]+)"') do
  for name, marks, kind in read("templates/" .. file):gmatch('case == "([%l_]+)" then %-%- ([^\n]-)finds ([^\n]+)') do
    gen.names[#gen.names + 1] = name
    local function number(mark) return tonumber(marks:match(mark .. "=(%d+)")) end
    gen.cases[name] = {
      kind = kind, threads = number("threads") or 64, cluster = number("cluster") or 1, blocks = number("blocks") or number("cluster") or 1,
      deterministic = marks:find("deterministic", 1, true) ~= nil, programmatic = marks:find("programmatic", 1, true) ~= nil,
    }
  end
end

local function case_of(spec)
  return spec:match("case=([%l_]+)")
end

function gen.kernel(spec)
  local case = gen.cases[case_of(spec)]
  return { entry = "vf_" .. case_of(spec), threads = case.threads, shared_bytes = 8192, registers = 96,
    budget = { ordered = case.deterministic } }
end

function gen.source(spec, options)
  local facts = gen.kernel(spec)
  local names = { case = case_of(spec), entry = facts.entry, threads = facts.threads, cc = 90, dtype = "bf16",
    cluster = gen.cases[case_of(spec)].cluster,
    budget = { wgmma_columns = {} }, ptx = {} }
  return ("// --spec '%s'\n"):format(spec) .. template.expand("faults.cu", names, { read = read, lines = options and options.lines })
end

function gen.spec(name)
  return "kernel=faults case=" .. name
end

if arg and arg[0]:find("faults/gen/init.lua", 1, true) then
  if arg[1] == "source" then
    io.write(gen.source(gen.spec(arg[2])))
  else
    for _, name in ipairs(gen.names) do
      local case = gen.cases[name]
      print(("%s %d %d %d %s"):format(name, case.threads, case.blocks, case.programmatic and 1 or 0, case.kind))
    end
  end
end

return gen
