-- Which built-in rows serve a request: what runtime/config.c decides, said a second time so that tests over all requests need no C.
-- Operands are taken to be in reach of tensor maps where they are aligned, and rows that belong to a device to serve it. Conditions on
-- the sizes of a call hold for some call, so here they only mean that later rows can be reached too.

local arch = require "gen.arch"
local gen = require "gen.init"
local json = require "tests.lua.json"
local knobs = require "gen.knobs"
local runner = require "tests.lua.runner"

local rows = {}

rows.ARCHS = { "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121" }

rows.list = {}

local function add_file(path, file)
  for i, row in ipairs(file.rows) do
    row.pointer = ("%s#/rows/%d"):format(path, i - 1)
    local words = { "family=" .. row.use.family }
    for _, knob in ipairs(knobs.knobs) do
      if row.use[knob.name] ~= nil then words[#words + 1] = knob.name .. "=" .. knobs.write(row.use[knob.name]) end
    end
    row.knobs = table.concat(words, " ")
    rows.list[#rows.list + 1] = row
  end
end

-- Files that belong to a device come first, then the others; each by name.
local function add_files(with_device)
  for _, path in ipairs(runner.lines_of("ls configs/*.json")) do
    local file = json.decode(runner.read_file(path))
    if file.rows and (file.device ~= nil) == with_device then add_file(path, file) end
  end
end
add_files(true)
add_files(false)

local SIZES = { avg_q_max = true, avg_k_max = true, group_max = true }

local function admits(condition, allowed, request)
  if SIZES[condition] then return true end
  local name, bound = condition:match("^(.-)_(m[ai][xn])$")
  if bound == "max" then return request[name] <= allowed end
  if bound == "min" then return request[name] >= allowed end
  if type(allowed) ~= "table" then return request[condition] == allowed end
  for _, word in ipairs(allowed) do
    if request[condition] == word then return true end
  end
  return false
end

-- Whether the static conditions of a row hold.
function rows.admits(row, request)
  request.shared_kb = arch.parse(request.arch).shared_per_block // 1024
  if row.use.family == "sm90" and not request.aligned then return false end
  for condition, allowed in pairs(row.when) do
    if not admits(condition, allowed, request) then return false end
  end
  return true
end

local function asks_for_sizes(row)
  for condition in pairs(row.when) do
    if SIZES[condition] then return true end
  end
  return false
end

-- The spec of a request without knobs.
local function spec(request)
  local words = { "pass=" .. request.pass }
  for _, field in ipairs(knobs.fields) do words[#words + 1] = field.name .. "=" .. knobs.write(request[field.name]) end
  return table.concat(words, " ")
end

-- The variants that a request { pass, arch, dtype, ... } can get, one per row up to the first that asks for no sizes, as a list of
-- { row, spec, plan }; and the sentences of rows that the generator refuses, which at run time is an error.
function rows.variants(request)
  local out, refusals = {}, {}
  for _, row in ipairs(rows.list) do
    if rows.admits(row, request) then
      local full = spec(request) .. " " .. row.knobs
      local plan, refusal = gen.plan(full)
      if plan then
        out[#out + 1] = { row = row, spec = full, plan = plan }
      else
        refusals[#refusals + 1] = row.pointer .. ": " .. refusal
      end
      if not asks_for_sizes(row) then break end
    end
  end
  return out, refusals
end

-- Every combination of the words and flags of a request for `pass`; the caller adds arch and head sizes.
function rows.features(pass)
  local out = { { pass = pass } }
  for _, field in ipairs(knobs.fields) do
    local values = field.type == "word" and field.allowed or field.type == "flag" and { false, true } or nil
    if field.name == "deterministic" and pass == "fwd" then values = { false } end
    if values then
      local wider = {}
      for _, request in ipairs(out) do
        for _, value in ipairs(values) do
          local copy = { [field.name] = value }
          for name, old in pairs(request) do copy[name] = old end
          wider[#wider + 1] = copy
        end
      end
      out = wider
    end
  end
  return out
end

return rows
