-- The text engine: CUDA templates with `//% lua` lines and `$(expr)`, expanded into one self-contained source.
--
-- Not a macro language: it knows nothing of kernels, and whatever is longer than a condition belongs into a module of gen/.
-- Invariant: one template line becomes exactly one Lua line, so Lua's own messages carry templates/x.cu:LINE with no mapping table.
--
--   //% if softcap then            a line of Lua; vanishes from the output. `//% --` is a note for readers of the template
--   constexpr int N = $(tile_n);   the value of an expression; nil is an error, and so is a letter or digit glued behind it,
--                                  because clang-format would pull `$(x)f` apart
--   //% include "tile/rows.cuh"    another template, in place, once
--
-- How lines are translated that are not Lua already:
--   float acc[$(n)];        ->   _emit(12, [=[float acc[]=], (n), [=[];]=], "\n")
--   two lines               ->   _text(13, 15, [=[two lines
--   of plain text                of plain text]=], "\n")          first line, line after the last
-- The environment is read-only and holds what the caller gives plus SAFE below: no os, io, pairs or random, so that the same
-- request always gives the same bytes. An unknown name is an error, not nil.

local template = {}

-- What every template may use besides the caller's names.
local SAFE = {
  ipairs = ipairs, tostring = tostring, error = error, assert = assert,
  math = { min = math.min, max = math.max, abs = math.abs },
}

-- The engine's own names, for luacheck. `include` and those of SAFE are for templates to use.
function template.names()
  local out = { "_text", "_emit", "include" }
  for name in pairs(SAFE) do out[#out + 1] = name end
  return out
end

-- A view of `values` that refuses writes and unknown names. Integer keys end with nil, so that ipairs works.
local function read_only(values, what)
  local function index(_, name)
    local value = values[name]
    if value == nil and math.type(name) ~= "integer" then error(("%s has no '%s'"):format(what, tostring(name)), 2) end
    return type(value) == "table" and read_only(value, tostring(name)) or value
  end
  local function refuse(_, name) error(("%s is read-only: cannot set '%s'; write `local %s = ...`"):format(what, name, name), 2) end
  return setmetatable({}, { __index = index, __newindex = refuse, __len = function() return #values end, __metatable = false })
end

-- Text as a Lua string on as many lines as it has itself.
local function quote(text)
  local level = "="
  while text:find("]" .. level .. "]", 1, true) do level = level .. "=" end
  -- A long string drops a line break that comes first.
  local breaks = text:match("^\n+") or ""
  local escaped = breaks == "" and "" or ('"%s"%s, '):format(("\\n"):rep(#breaks), breaks)
  return ("%s[%s[%s]%s]"):format(escaped, level, text:sub(#breaks + 1), level)
end

-- A line with values as the arguments of _emit, or nil and what is wrong.
local function translate_values(line)
  local pieces, position = {}, 1
  while true do
    local from = line:find("$(", position, true)
    if not from then break end
    local expression = line:match("^%b()", from + 1)
    if not expression then return nil, "'$(' is not closed on its line" end
    if expression:find("^%(%s*%)$") then return nil, "'$()' is empty" end
    local to = from + #expression
    if line:find("^[%w_]", to + 1) then return nil, ("'$%s' has text glued behind it"):format(expression) end
    if from > position then pieces[#pieces + 1] = quote(line:sub(position, from - 1)) end
    pieces[#pieces + 1] = expression
    position = to + 1
  end
  if position <= #line then pieces[#pieces + 1] = quote(line:sub(position)) end
  return table.concat(pieces, ", ")
end

-- The Lua text of a template, line for line, and the numbers of the lines that open a branch (then, else, do). With `count`, each
-- branch also tells _branch that it was taken. Plain lines go over in runs: this is on the way of every kernel that is loaded.
function template.translate(path, text, count)
  if text:find("\r", 1, true) then error(path .. ": has carriage returns", 0) end
  if text:sub(-1) ~= "\n" then text = text .. "\n" end
  local out, branches = {}, {}
  local at, number = 1, 1         -- the current line: where it begins, its number
  local run, run_number = 1, 1    -- the same of the first plain line not yet written
  local directive, value = 0, 0   -- where the next of them stands, seen from `at`
  local function next_mark(mark, known)
    return known >= at and known or text:find(mark, at, true) or math.huge
  end
  local function end_run()
    if run == at then return end
    out[#out + 1] = ("_text(%d, %d, %s, \"\\n\")\n"):format(run_number, number, quote(text:sub(run, at - 2)))
  end
  while at <= #text do
    local ending = text:find("\n", at, true)
    directive, value = next_mark("//%", directive), next_mark("$(", value)
    local lua = directive < ending and text:match("^[ \t]*//%%([^\n]*)", at)
    if lua then
      local code = lua:gsub("%s*%-%-.*$", "")
      local opener = code:match("%f[%w_](%l+)%s*$")
      if opener == "then" or opener == "else" or opener == "do" then
        branches[#branches + 1] = number
        if count then lua = ("%s _branch(%d)"):format(code, number) end
      end
      end_run()
      out[#out + 1] = lua .. "\n"
    elseif value < ending then
      local arguments, fault = translate_values(text:sub(at, ending - 1))
      if not arguments then error(("%s:%d: %s"):format(path, number, fault), 0) end
      end_run()
      out[#out + 1] = ("_emit(%d, %s, \"\\n\")\n"):format(number, arguments)
    end
    at, number = ending + 1, number + 1
    if lua or value <= ending then run, run_number = at, number end
  end
  end_run()
  return table.concat(out), branches
end

-- Translated templates by path; `text` tells whether the file has changed since.
local chunks = {}

local function load_chunk(path, text, count)
  local known = chunks[path]
  if known and known.text == text and known.count == count then return known.chunk end
  -- The environment is the chunk's argument; on the first line, so that line numbers stay.
  local chunk, fault = load("local _ENV, _text, _emit, _branch = ...; " .. template.translate(path, text, count), "@" .. path, "t")
  if not chunk then error(fault, 0) end
  chunks[path] = { text = text, count = count, chunk = chunk }
  return chunk
end

-- Expands templates/<name> with `values` as the template's names. options: read = function(path) -> text or nil; lines = true
-- writes #line where output and template drift apart; taken = a table in which [path][line] counts the branches entered.
-- Returns the text. A fault is an error whose message begins with path:line where a line is to blame.
function template.expand(name, values, options)
  local out, included = {}, {}
  local taken, lines = options.taken, options.lines
  local expected_path, expected_line

  local names = {}
  for key, value in pairs(SAFE) do names[key] = value end
  for key, value in pairs(values) do names[key] = value end
  local environment = read_only(names, "the template's environment")

  local function run(file, level)
    local path = "templates/" .. file
    local text = options.read(path)
    if not text then error(path .. ": no such template", level) end
    included[file] = true

    local function mark_line(line, next_line)
      if lines and (expected_path ~= path or expected_line ~= line) then
        out[#out + 1] = ('#line %d "%s"\n'):format(line, path)
      end
      expected_path, expected_line = path, next_line
    end

    local function write_text(line, next_line, ...)
      mark_line(line, next_line)
      for i = 1, select("#", ...) do out[#out + 1] = (select(i, ...)) end
    end

    local function emit(line, ...)
      mark_line(line, line + 1)
      for i = 1, select("#", ...) do
        local piece = (select(i, ...))
        local kind = type(piece)
        if kind == "nil" or kind == "table" or kind == "function" then error("a $(value) of this line is a " .. kind, 2) end
        piece = tostring(piece)
        if piece ~= "\n" and piece:find("\n", 1, true) then expected_path = nil end
        out[#out + 1] = piece
      end
    end

    local branch
    if taken then
      local counts = taken[path] or {}
      taken[path] = counts
      branch = function(line) counts[line] = (counts[line] or 0) + 1 end
    end
    load_chunk(path, text, taken ~= nil)(environment, write_text, emit, branch)
  end

  names.include = function(file)
    if not included[file] then run(file, 3) end
  end

  run(name, 0)
  return table.concat(out)
end

return template
