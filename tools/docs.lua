-- Rewrites the generated tables in README.md and docs/: what stands between "<!-- table: NAME -->" and "<!-- end -->" comes from the
-- table in the sources. Fails if a page was out of date.
--
--   lua5.4 tools/docs.lua             rewrite
--   lua5.4 tools/docs.lua --check     only say which

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

local function output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("a")
  assert(pipe:close(), command .. " failed")
  return text
end

local tables = {}

function tables.status()
  local out = { "| status | value | meaning |", "| --- | --- | --- |" }
  for name, value, text in read("runtime/status.def"):gmatch('STATUS%(([%w_]+), (%d+), "(.-)"%)') do
    out[#out + 1] = ("| `%s` | %s | %s |"):format(name, value, text)
  end
  return table.concat(out, "\n")
end

function tables.environment()
  local out = { "| variable | meaning |", "| --- | --- |" }
  for name, text in read("runtime/fs.h"):gmatch('VARIABLE%([%w_]+, "(.-)", "(.-)"%)') do
    out[#out + 1] = ("| `%s` | %s |"):format(name, text)
  end
  return table.concat(out, "\n")
end

function tables.knobs()
  return (output_of("lua5.4 gen/cli.lua knobs"):gsub("\n$", ""))
end

local check = arg[1] == "--check"
local stale, count = {}, 0
for path in output_of("ls README.md docs/*.md"):gmatch("[^\n]+") do
  local old = read(path)
  local new = old:gsub("(<!%-%- table: (%w+) %-%->\n).-(<!%-%- end %-%->)", function(first, name, last)
    count = count + 1
    local make = assert(tables[name], path .. ": there is no table " .. name)
    return first .. make() .. "\n" .. last
  end)
  if new ~= old then
    stale[#stale + 1] = path
    if not check then
      local file = assert(io.open(path, "w"))
      file:write(new)
      file:close()
    end
  end
end

for _, path in ipairs(stale) do print(path .. (check and " is out of date: make docs" or " was out of date and is rewritten")) end
print(("%d passed, %d failed"):format(count - #stale, #stale))
os.exit(#stale == 0)
