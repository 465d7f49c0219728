-- Reads JSON from stdin, strictly: one value, or with --lines one a line. Prints the value at a path ("a.0.b"; without one nothing),
-- lists and objects as the number of their members. Exit status 1 if the text is not JSON or has no such value.

local lines, path = false, nil
for _, word in ipairs(arg) do
  if word == "--lines" then lines = true else path = word end
end

local text, at
local function fault(what) io.stderr:write(("byte %d: %s\n"):format(at, what)) os.exit(1) end
local function skip() at = text:find("[^ \t\r\n]", at) or #text + 1 end
local value

local function members(close, read)
  local out, count = {}, 0
  at = at + 1
  skip()
  if text:sub(at, at) ~= close then
    repeat
      local name, item = read(count)
      out[name], count = item, count + 1
      skip()
      local mark = text:sub(at, at)
      if mark ~= "," and mark ~= close then fault("neither , nor " .. close) end
      at = at + 1
      skip()
    until mark == close
    return { members = out, count = count }
  end
  at = at + 1
  return { members = out, count = 0 }
end

local function string()
  local _, last, body = text:find('^"([^"\\\0-\31]*)"', at)
  if not last then
    local first = at
    at = at + 1
    while text:sub(at, at) ~= '"' do
      local step = text:match("^\\[\"\\/bfnrt]()", at) or text:match("^\\u%x%x%x%x()", at) or text:match("^[^\"\\\0-\31]()", at)
      if not step then fault("not a string") end
      at = step
    end
    at = at + 1
    return text:sub(first + 1, at - 2)
  end
  at = last + 1
  return body
end

function value()
  skip()
  local mark = text:sub(at, at)
  if mark == '"' then return string() end
  if mark == "{" then
    return members("}", function()
      if text:sub(at, at) ~= '"' then fault("not a name") end
      local name = string()
      skip()
      if text:sub(at, at) ~= ":" then fault("no :") end
      at = at + 1
      return name, value()
    end)
  end
  if mark == "[" then return members("]", function(count) return tostring(count), value() end) end
  for _, word in ipairs { "true", "false", "null" } do
    if text:sub(at, at + #word - 1) == word then at = at + #word return word end
  end
  local number, after = text:match("^(-?%d+%.?%d*[eE]?[-+]?%d*)()", at)
  if not number or not tonumber(number) then fault("not a value") end
  at = after
  return number
end

local function read(source)
  text, at = source, 1
  local result = value()
  skip()
  if at <= #text then fault("more than one value") end
  return result
end

local result
if lines then
  for line in io.lines() do result = read(line) end
else
  result = read(io.read("a"))
end
for name in (path or ""):gmatch("[^.]+") do
  result = type(result) == "table" and result.members[name] or nil
  if result == nil then os.exit(1) end
end
if path then print(type(result) == "table" and result.count or result) end
