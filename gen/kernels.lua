-- The registry: one row per kernel. `uses` are the rows of knobs.lua that its text depends on; they alone stand in its spec, so that
-- variants which differ in other things share it. Its template is templates/<name>.cu, its budget budget.<name>(request).

local knobs = require "gen.knobs"

local kernels = {}

local function words(text)
  local out = {}
  for word in text:gmatch("%S+") do out[#out + 1] = word end
  return out
end

-- Order: as a variant launches them.
local ROWS = {
  { name = "check_lengths", uses = "arch" },
  { name = "schedule", uses = "arch" },
  { name = "fwd_sm80",
    uses = "arch dtype head_dim head_dim_v mask softcap aligned tile_m tile_n warps stages q_registers blocks_per_sm" },
  { name = "fwd_sm90",
    uses = "arch dtype head_dim head_dim_v mask softcap tile_m tile_n stages blocks_per_sm consumers q_stages tile_slots output_stages" },
  { name = "bwd_pre", uses = "arch dtype head_dim head_dim_v aligned tile_m" },
  { name = "bwd_pre_sm90", uses = "arch dtype head_dim head_dim_v mask softcap aligned tile_m tile_n" },
  { name = "bwd_sm80",
    uses = "arch dtype head_dim head_dim_v mask softcap aligned deterministic tile_m tile_n warps stages blocks_per_sm" },
  { name = "bwd_sm90", uses = "arch dtype head_dim head_dim_v mask softcap tile_m tile_n stages dout_stages alternate group_buffers" },
  { name = "bwd_post", uses = "arch dtype head_dim mask aligned tile_m tile_n warps" },
}

-- The kernels that serve a pass, by family. `check` is checked mode's and belongs to none.
kernels.variants = {
  sm80 = {
    fwd = words "schedule fwd_sm80",
    bwd = words "schedule bwd_pre bwd_sm80 bwd_post",
  },
  sm90 = {
    fwd = words "schedule fwd_sm90",
    bwd = words "schedule bwd_pre_sm90 bwd_sm90",
  },
}
kernels.check = words "check_lengths"

kernels.rows, kernels.by_name = {}, {}
for i, row in ipairs(ROWS) do
  local kernel = { name = row.name, template = row.name .. ".cu", uses = {} }
  local used = {}
  for _, name in ipairs(words(row.uses)) do
    if not knobs.by_name[name] then error(("kernels.lua: %s uses '%s', which knobs.lua does not have"):format(row.name, name)) end
    used[name] = true
  end
  for _, knob in ipairs(knobs.rows) do
    if used[knob.name] then kernel.uses[#kernel.uses + 1] = knob end
  end
  kernels.rows[i], kernels.by_name[row.name] = kernel, kernel
end

-- The rows that a variant's kernels use, all together, in canonical order.
function kernels.union(names)
  local used, out = {}, {}
  for _, name in ipairs(names) do
    for _, row in ipairs(kernels.by_name[name].uses) do used[row.name] = true end
  end
  for _, row in ipairs(knobs.rows) do
    if used[row.name] then out[#out + 1] = row end
  end
  return out
end

-- vf_fwd_sm80_d128_bf16_causal: what is asked for, without knobs. `request` holds values.
function kernels.entry(kernel, request)
  local parts = { "vf_" .. kernel.name }
  local function part(text) parts[#parts + 1] = text end
  if request.head_dim then part("d" .. request.head_dim) end
  if request.head_dim_v and request.head_dim_v ~= request.head_dim then part("v" .. request.head_dim_v) end
  if request.dtype then part(request.dtype) end
  if request.mask and request.mask ~= "full" then part(request.mask) end
  if request.softcap then part("softcap") end
  if request.deterministic then part("deterministic") end
  if request.aligned == false then part("unaligned") end
  return table.concat(parts, "_")
end

-- fwd_sm80_d128_bf16_causal-sm_90a-m128n64w4s2q1b1: the pass's own kernel, which is the one with most rows, then its knobs.
function kernels.variant_name(names, request)
  local main = kernels.by_name[names[1]]
  for _, name in ipairs(names) do
    if #kernels.by_name[name].uses > #main.uses then main = kernels.by_name[name] end
  end
  local name, letters = kernels.entry(main, request):sub(#"vf_" + 1) .. "-" .. request.arch, ""
  for _, row in ipairs(main.uses) do
    local value = request[row.name]
    if row.letter and (row.default == nil or value ~= row.default) then letters = letters .. row.letter .. knobs.write(value) end
  end
  return letters == "" and name or name .. "-" .. letters
end

return kernels
