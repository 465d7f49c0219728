-- The runner of the Lua tests: `test(name, body)` runs a body and counts it, `finish()` prints the closing line and ends the process.
--
-- A test fails by an error; expectations below raise one that says what was found. Tests run from the repository root.

package.path = "./?.lua;" .. package.path

local runner = {}

local passed, failed = 0, 0

function runner.test(name, body)
  local ok, fault = pcall(body)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print(("%s: %s"):format(name, tostring(fault)))
  end
end

function runner.finish()
  print(("%d passed, %d failed"):format(passed, failed))
  os.exit(failed == 0)
end

local function show(value)
  return type(value) == "string" and ("%q"):format(value) or tostring(value)
end

function runner.equal(found, expected)
  if found ~= expected then error(("found %s, expected %s"):format(show(found), show(expected)), 2) end
end

-- That `text` has `part` in it, as it stands.
function runner.contains(text, part)
  if type(text) ~= "string" or not text:find(part, 1, true) then error(("%s does not contain %s"):format(show(text), show(part)), 2) end
end

-- That a call answers nil and a sentence with `part` in it.
function runner.refused(part, value, sentence)
  if value ~= nil then error("was not refused", 2) end
  if not tostring(sentence):find(part, 1, true) then error(("refused with %s, expected %s"):format(show(sentence), show(part)), 2) end
end

-- That `body` raises an error whose message begins with `start`.
function runner.raises(start, body, ...)
  local ok, message = pcall(body, ...)
  if ok then error("raised no error", 2) end
  if tostring(message):sub(1, #start) ~= start then
    error(("raised %s, expected %s"):format(show(tostring(message)), show(start)), 2)
  end
end

function runner.read_file(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

function runner.write_file(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

-- What a command prints.
function runner.lines_of(command)
  local pipe, out = assert(io.popen(command)), {}
  for line in pipe:lines() do out[#out + 1] = line end
  pipe:close()
  return out
end

-- What the generator expects of whoever loads it.
_G.read_template = runner.read_file

return runner
