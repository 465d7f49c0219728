-- Includes point downward only. The order is the table of layers in docs/design.md, which is read here: a file that is in no layer, or
-- includes a layer that its row does not name, fails. So do outside headers in the wrong place and assembly outside templates/ptx.

package.path = "./?.lua;" .. package.path

local runner = require "tests.lua.runner"

local faults = {}
local function expect(condition, message, ...)
  if not condition then faults[#faults + 1] = message:format(...) end
end

-- "runtime/cpu*" -> Lua pattern; a name without an ending stands for its .c, .h and .def
local function pattern_of(name)
  local pattern = name:gsub("[%.%-%+]", "%%%0"):gsub("%*", "[^/]*")
  return "^" .. pattern .. (name:match("%.%w+$") and "" or "%.%a+") .. "$"
end

-- Rows "| `layer` | `file` `file` | `layer` `layer` |" of the section "Layers".
local layers, by_name = {}, {}
local section = assert(runner.read_file("docs/design.md"):match("\n## Layers\n(.-)\n## "), "docs/design.md has no section Layers")
for name, files, uses in section:gmatch("\n| `([%w_]+)` | ([^|]+) |([^|]*)|") do
  local layer = { name = name, patterns = {}, uses = {} }
  for file in files:gmatch("`([^`]+)`") do layer.patterns[#layer.patterns + 1] = pattern_of(file) end
  for use in uses:gmatch("`([^`]+)`") do
    expect(use == name or by_name[use], "docs/design.md: layer %s uses %s, which does not stand above it", name, use)
    layer.uses[use] = true
  end
  layers[#layers + 1], by_name[name] = layer, layer
end
expect(#layers > 10, "docs/design.md: only %d layers were found", #layers)

-- The layer whose pattern is the most specific.
local function layer_of(path)
  local found, length = nil, 0
  for _, layer in ipairs(layers) do
    for _, pattern in ipairs(layer.patterns) do
      if #pattern > length and path:match(pattern) then found, length = layer, #pattern end
    end
  end
  return found
end

-- What the simulator puts into kernels in place of templates/ptx is compiled alone, with an include path of its own.
local files = runner.lines_of("find runtime tools tests templates gen "
  .. "'(' -path tests/sim/ptx -o -path tests/sim/faults -o -path tests/sim/kernel.h ')' -prune -o "
  .. "'(' -name '*.[ch]' -o -name '*.def' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -path 'gen/*.lua' ')' -print | sort")
local by_name_of_file = {} -- what a C file includes by its name is unique in the tree
for _, path in ipairs(files) do
  local base = path:match("[^/]+$")
  local key = path:match("^templates/") and path or base
  expect(not by_name_of_file[key] or key:match("%.c$"), "%s and %s have one name", path, tostring(by_name_of_file[key]))
  by_name_of_file[key] = path
end

local SEARCH = { ["varflash/"] = "runtime/include/varflash/" }

-- The path in the tree that an include or require names, or nil for what comes from outside.
local function resolve(name)
  if name:match("^gen%.") then return name:gsub("%.", "/") .. ".lua" end
  local from, rest = name:match("^(varflash/)(.*)$")
  if from then return SEARCH[from] .. rest end
  return by_name_of_file[name] or by_name_of_file["templates/" .. name]
end

local GENERATED = { ["kernel_args.h"] = true }
local OUTSIDE = { -- header -> pattern of the files that may include it
  { "^lua", "^runtime/source%.c$" }, { "^lauxlib", "^runtime/source%.c$" },
  { "^cjson/", "^runtime/config%.c$" }, { "^cjson/", "^tools/" },
  { "^zstd", "^runtime/bundle%.c$" }, { "^zstd", "^tools/lib/bundle_write%.c$" },
  { "^cuda", "^$" }, { "^nvrtc", "^$" }, { "^check%.h", "^tests/" },
}

local function outside_allowed(header, path)
  local known, allowed = false, false
  for _, rule in ipairs(OUTSIDE) do
    if header:match(rule[1]) then known, allowed = true, allowed or path:match(rule[2]) ~= nil end
  end
  return not known or allowed or path:match("^tests/")
end

-- What a file and its header have in common; source_none.c is another source.c.
local function stem(path) return (path:match("([^/]+)%.%w+$"):gsub("_none$", "")) end

local function check_file(path)
  local layer = layer_of(path)
  expect(layer, "%s is in no layer of docs/design.md", path)
  local number = 0
  for line in (runner.read_file(path) .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    local name = line:match('^#include "([^"]+)"') or line:match('^%s*//%%%s*include "([^"]+)"')
      or (path:match("^gen/") and line:match('require%s*%(?%s*"([^"]+)"'))
    local header = line:match("^#include <([^>]+)>")
    if header then expect(outside_allowed(header, path), "%s:%d: <%s> does not belong here", path, number, header) end
    if name and name:match("^/") then
      expect(path:match("^tests/"), "%s:%d: %s by its absolute path", path, number, name)
    elseif name and not GENERATED[name] and layer then
      local target = resolve(name)
      local other = target and layer_of(target)
      expect(other, "%s:%d: %s is in no layer", path, number, name)
      expect(not other or layer.uses[other.name] or stem(target) == stem(path),
        "%s:%d: %s (%s) may not use %s (%s)", path, number, path, layer.name, name, other and other.name)
    end
    if path:match("^templates/") and not path:match("^templates/ptx/") then
      local code = line:gsub("//.*", "")
      expect(not code:match("%f[%w_]asm%f[^%w_]") and not code:match("__asm"), "%s:%d: assembly outside templates/ptx", path, number)
      expect(not code:match("__shared__"), "%s:%d: shared memory is reached through shared_memory() only", path, number)
    end
  end
end

-- A file is one test, and so is the table with the names.
local passed, failed = 0, 0
local function finish()
  for _, fault in ipairs(faults) do print("failed: " .. fault) end
  if #faults == 0 then passed = passed + 1 else failed = failed + 1 end
  faults = {}
end
finish()
for _, path in ipairs(files) do
  check_file(path)
  finish()
end

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)
