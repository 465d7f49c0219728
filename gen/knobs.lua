-- THE table of everything that can be static in a kernel: what is asked for (fields) and how it is done (knobs). From a row come the
-- reading and checking of spec strings, the template's names, the constexpr block with its comments, the tuner's axis, the variant
-- name and the table in docs/templates.md. Which kernel uses which row stands in kernels.lua.
--
-- Canonical order = order of the rows. Types: word (one of `allowed`), flag (0 or 1 in a spec, false or true here), number
-- (`allowed` = { first, last, step }), arch (arch.lua decides).

local arch = require "gen.arch"

local knobs = {}

-- What is asked for. `constant`: written into kernels as a constexpr; a word is left to the template's Lua.
knobs.fields = {
  { name = "arch", type = "arch", meaning = "architecture the kernel is compiled for" },
  { name = "dtype", type = "word", allowed = { "bf16", "fp16" }, meaning = "element type of q, k, v and o" },
  { name = "head_dim", type = "number", allowed = { 8, 256, 8 }, meaning = "columns of q and k" },
  { name = "head_dim_v", type = "number", allowed = { 8, 256, 8 }, meaning = "columns of v and o" },
  { name = "mask", type = "word", allowed = { "full", "causal", "window" }, meaning = "which keys a query sees" },
  { name = "softcap", type = "flag", meaning = "logits are softcap * tanh(logit / softcap)" },
  { name = "aligned", type = "flag", meaning = "operands start at 16 bytes and strides are multiples of 16 bytes" },
  { name = "deterministic", type = "flag", meaning = "the backward adds dQ in a fixed order" },
}

-- How it is done. letter: in variant names. numeric: the passes in which a value changes the bits of a result. axis: the values that
-- the tuner tries. default: taken, and left unsaid in specs and names, where a row does not set the knob.
knobs.knobs = {
  { name = "tile_m", letter = "m", type = "number", allowed = { 16, 256, 16 }, axis = { 16, 32, 64, 128, 192 }, numeric = { "bwd" },
    meaning = "rows of q in a tile" },
  { name = "tile_n", letter = "n", type = "number", allowed = { 16, 256, 16 }, axis = { 16, 32, 64, 80, 96, 112, 128, 176, 256 },
    numeric = { "fwd", "bwd" }, meaning = "rows of k in a tile" },
  { name = "warps", letter = "w", type = "number", allowed = { 1, 8, 1 }, axis = { 1, 2, 4, 8 }, numeric = {},
    meaning = "warps of a block" },
  { name = "stages", letter = "s", type = "number", allowed = { 1, 4, 1 }, axis = { 1, 2, 3 }, numeric = {},
    meaning = "tiles in flight between global memory and the products" },
  { name = "dout_stages", letter = "o", type = "number", allowed = { 1, 4, 1 }, axis = { 1, 2, 3, 4 }, numeric = {},
    meaning = "tiles of the output's gradient in flight" },
  { name = "q_registers", letter = "q", type = "flag", axis = { false, true }, numeric = {},
    meaning = "q stays in registers for a whole row of tiles" },
  { name = "blocks_per_sm", letter = "b", type = "number", allowed = { 1, 8, 1 }, axis = { 1, 2, 3, 4 }, numeric = {},
    meaning = "blocks that share an SM: bounds the registers" },
  { name = "consumers", letter = "c", type = "number", allowed = { 1, 3, 1 }, axis = { 1, 2, 3 }, numeric = {},
    meaning = "warpgroups that compute, 64 rows each, of one tile or (tile_m 64) each of its own; one more feeds them" },
  { name = "output_stages", letter = "g", type = "number", allowed = { 0, 1, 1 }, default = 0, axis = { 0, 1 }, numeric = {},
    meaning = "tiles of o in shared memory, from where the copy engine takes them; 0: they leave from registers" },
  { name = "q_stages", letter = "a", type = "number", allowed = { 1, 4, 1 }, default = 1, axis = { 1 }, numeric = {},
    meaning = "tiles of q in flight" },
  { name = "tile_slots", letter = "t", type = "number", allowed = { 2, 8, 1 }, default = 2, axis = { 2, 4 }, numeric = {},
    meaning = "tiles of work between who draws and who computes" },
  { name = "alternate", letter = "l", type = "flag", default = false, axis = { false, true }, numeric = {},
    meaning = "the backward's warpgroups take pieces of up to 64 keys in turns, one each, instead of both one" },
  { name = "group_buffers", letter = "h", type = "flag", default = false, axis = { false, true }, numeric = {},
    meaning = "the backward's warpgroups have buffers of their own for k, v and dS, 64 keys each: faster for short sequences" },
}

knobs.rows, knobs.by_name = {}, {}
for _, list in ipairs { knobs.fields, knobs.knobs } do
  for _, row in ipairs(list) do
    knobs.rows[#knobs.rows + 1] = row
    knobs.by_name[row.name] = row
  end
end

-- The values that a row allows, as text: for sentences, the signature and the documentation.
function knobs.allowed_text(row)
  if row.type == "flag" then return "0, 1" end
  if row.type == "word" then return table.concat(row.allowed, ", ") end
  if row.type == "arch" then return "sm_80, ..." end
  local first, last, step = table.unpack(row.allowed)
  return step == 1 and ("%d to %d"):format(first, last) or ("%d to %d in steps of %d"):format(first, last, step)
end

-- Text of a spec -> value of the row, or nil and a sentence.
function knobs.read(row, text)
  if row.type == "arch" then
    local facts, fault = arch.parse(text)
    return facts and text, fault
  elseif row.type == "flag" then
    if text == "0" or text == "1" then return text == "1" end
  elseif row.type == "word" then
    for _, word in ipairs(row.allowed) do
      if text == word then return text end
    end
  else
    local value = text:find("^%d+$") and math.tointeger(tonumber(text))
    local first, last, step = table.unpack(row.allowed)
    if value and value >= first and value <= last and (value - first) % step == 0 then return value end
  end
  return nil, ("%s=%s is not allowed: %s"):format(row.name, text, knobs.allowed_text(row))
end

-- The value of a row as a spec writes it.
function knobs.write(value)
  if type(value) == "boolean" then return value and "1" or "0" end
  return tostring(value)
end

-- The value as a C++ constant line, or nil for what is no constant.
function knobs.constant(row, value)
  local c_type = row.type == "number" and "int" or row.type == "flag" and "bool"
  return c_type and ("constexpr %s %s = %s;  // %s"):format(c_type, row.name:upper(), tostring(value), row.meaning) or nil
end

local function fnv1a(text)
  local hash = 0xcbf29ce484222325
  for _, byte in ipairs { text:byte(1, -1) } do hash = (hash ~ byte) * 0x100000001b3 end
  return hash
end

-- A number over what changes the bits of a result in `pass`, the family and values of knobs: equal for equal ones. 31 bits are enough to
-- tell a few plans apart, and fit an int.
function knobs.numeric(pass, family, request)
  local values = { family }
  for _, row in ipairs(knobs.knobs) do
    for _, name in ipairs(row.numeric) do
      if name == pass then values[#values + 1] = row.name .. "=" .. knobs.write(request[row.name]) end
    end
  end
  return fnv1a(table.concat(values, " ")) & 0x7fffffff
end

-- Short and stable: changes when a knob's name or its values do, so that a config written for others is refused.
function knobs.signature()
  local rows = {}
  for i, row in ipairs(knobs.knobs) do rows[i] = row.name .. "=" .. knobs.allowed_text(row) end
  return ("%016x"):format(fnv1a(table.concat(rows, "\n")))
end

return knobs
