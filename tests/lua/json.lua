-- Reads JSON, as far as configuration files need it: no \u escapes. Objects and lists become tables.

local json = {}

local LITERALS = { ["true"] = true, ["false"] = false }
local ESCAPES = { n = "\n", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local read

local function skip(text, at) return text:find("%S", at) or #text + 1 end

local function fail(text, at, what)
  local _, line = text:sub(1, at):gsub("\n", "")
  error(("line %d: expected %s"):format(line + 1, what), 0)
end

local function read_string(text, at)
  local out = {}
  at = at + 1
  while text:sub(at, at) ~= '"' do
    local plain = text:match('^[^"\\]+', at)
    if plain then
      out[#out + 1], at = plain, at + #plain
    else
      out[#out + 1] = ESCAPES[text:match("^\\(.)", at) or ""] or fail(text, at, "a string")
      at = at + 2
    end
  end
  return table.concat(out), at + 1
end

-- Items between `open` at `at` and `close`, separated by commas; `item` reads one.
local function read_items(text, at, close, item)
  at = skip(text, at + 1)
  if text:sub(at, at) == close then return at + 1 end
  while true do
    at = skip(text, item(at))
    local mark = text:sub(at, at)
    if mark == close then return at + 1 end
    if mark ~= "," then fail(text, at, ("',' or '%s'"):format(close)) end
    at = skip(text, at + 1)
  end
end

function read(text, at)
  at = skip(text, at)
  local first = text:sub(at, at)
  if first == "{" then
    local object = {}
    return object, read_items(text, at, "}", function(start)
      if text:sub(start, start) ~= '"' then fail(text, start, "a name") end
      local name, after = read_string(text, start)
      after = skip(text, after)
      if text:sub(after, after) ~= ":" then fail(text, after, "':'") end
      object[name], after = read(text, after + 1)
      return after
    end)
  elseif first == "[" then
    local list = {}
    return list, read_items(text, at, "]", function(start)
      local value, after = read(text, start)
      list[#list + 1] = value
      return after
    end)
  elseif first == '"' then
    return read_string(text, at)
  end
  local word = text:match("^%l+", at)
  if LITERALS[word] ~= nil then return LITERALS[word], at + #word end
  local digits = text:match("^%-?%d+%.?%d*[eE]?[%+%-]?%d*", at) or fail(text, at, "a value")
  return math.tointeger(tonumber(digits)) or tonumber(digits), at + #digits
end

function json.decode(text)
  local value, at = read(text, 1)
  if skip(text, at) <= #text then fail(text, at, "the end") end
  return value
end

return json
