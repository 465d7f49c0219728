-- The variants that the simulator's suite compiles: what is asked for, then the knobs of both passes. Small tiles, so that small problems
-- have many, and odd ones first, because mutants try the first that they reach; the last ones are what the rows of configs/ choose.
-- `suite.lua branches` fails if a branch of a template is taken by none.

package.path = "./?.lua;" .. package.path

local knobs = require "gen.knobs"

local variants = { list = {}, by_name = {} }

local function add(name, cc, request, fwd, bwd)
  local variant = { name = name, cc = cc, request = request, knobs = { fwd = fwd, bwd = bwd } }
  variants.list[#variants.list + 1], variants.by_name[name] = variant, variant
end

-- Without a row: head_dim_v is head_dim, bf16, full, no softcap, aligned, not deterministic.
add("window-72-40-softcap-fp16", 80, { head_dim = 72, head_dim_v = 40, dtype = "fp16", mask = "window", softcap = true },
  "family=sm80 tile_m=32 tile_n=48 warps=2 stages=3 q_registers=0 blocks_per_sm=1",
  "family=sm80 tile_m=32 tile_n=32 warps=2 stages=2 blocks_per_sm=1")
add("full-24-16-many-warps", 90, { head_dim = 24, head_dim_v = 16 },
  "family=sm80 tile_m=128 tile_n=32 warps=8 stages=2 q_registers=0 blocks_per_sm=1",
  "family=sm80 tile_m=64 tile_n=64 warps=8 stages=2 blocks_per_sm=1")
add("causal-64-deterministic", 90, { head_dim = 64, mask = "causal", deterministic = true },
  "family=sm80 tile_m=64 tile_n=32 warps=2 stages=1 q_registers=1 blocks_per_sm=2",
  "family=sm80 tile_m=32 tile_n=64 warps=4 stages=1 blocks_per_sm=1")
add("full-192-32", 90, { head_dim = 192, head_dim_v = 32 },
  "family=sm80 tile_m=64 tile_n=64 warps=4 stages=2 q_registers=0 blocks_per_sm=1",
  "family=sm80 tile_m=64 tile_n=64 warps=8 stages=1 blocks_per_sm=1")
add("window-40-unaligned-deterministic", 80, { head_dim = 40, mask = "window", aligned = false, deterministic = true },
  "family=sm80 tile_m=64 tile_n=64 warps=4 stages=2 q_registers=1 blocks_per_sm=1",
  "family=sm80 tile_m=32 tile_n=32 warps=4 stages=2 blocks_per_sm=1")
add("causal-32-64-softcap", 90, { head_dim = 32, head_dim_v = 64, mask = "causal", softcap = true },
  "family=sm80 tile_m=32 tile_n=32 warps=1 stages=3 q_registers=1 blocks_per_sm=1",
  "family=sm80 tile_m=32 tile_n=64 warps=2 stages=3 blocks_per_sm=1")
add("full-8-unaligned-softcap-deterministic", 90,
  { head_dim = 8, mask = "full", aligned = false, softcap = true, deterministic = true },
  "family=sm80 tile_m=16 tile_n=16 warps=1 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm80 tile_m=16 tile_n=16 warps=1 stages=1 blocks_per_sm=1")
add("causal-128-fp16", 80, { head_dim = 128, dtype = "fp16", mask = "causal" },
  "family=sm80 tile_m=64 tile_n=48 warps=4 stages=2 q_registers=0 blocks_per_sm=1",
  "family=sm80 tile_m=64 tile_n=64 warps=8 stages=1 blocks_per_sm=1")
add("window-64-deterministic", 90, { head_dim = 64, mask = "window", deterministic = true },
  "family=sm80 tile_m=64 tile_n=64 warps=4 stages=2 q_registers=0 blocks_per_sm=1",
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=2 blocks_per_sm=1")
add("causal-96-fp16-deterministic", 90, { head_dim = 96, dtype = "fp16", mask = "causal", deterministic = true },
  "family=sm80 tile_m=64 tile_n=64 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm80 tile_m=32 tile_n=32 warps=4 stages=1 blocks_per_sm=1")
-- Hopper.
add("hopper-72-40-window-softcap", 90, { head_dim = 72, head_dim_v = 40, mask = "window", softcap = true },
  "family=sm90 tile_m=64 tile_n=48 stages=3 blocks_per_sm=1 consumers=1",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=2")
add("hopper-96-causal", 90, { head_dim = 96, mask = "causal" },
  "family=sm90 tile_m=192 tile_n=96 stages=2 blocks_per_sm=1 consumers=3",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=2")
add("hopper-40-softcap", 90, { head_dim = 40, softcap = true },
  "family=sm90 tile_m=64 tile_n=64 stages=2 blocks_per_sm=1 consumers=3 output_stages=1",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=2")
add("hopper-64-causal-two-blocks", 90, { head_dim = 64, dtype = "fp16", mask = "causal" },
  "family=sm90 tile_m=64 tile_n=128 stages=2 blocks_per_sm=2 consumers=1",
  "family=sm90 tile_m=64 tile_n=128 stages=3 dout_stages=2")
add("hopper-64", 90, { head_dim = 64 },
  "family=sm90 tile_m=128 tile_n=64 stages=2 blocks_per_sm=1 consumers=2 q_stages=3 tile_slots=3",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=2")
add("hopper-56-48-ahead", 90, { head_dim = 56, head_dim_v = 48 },
  "family=sm90 tile_m=192 tile_n=48 stages=3 blocks_per_sm=1 consumers=3 q_stages=2 tile_slots=4 output_stages=1",
  "family=sm80 tile_m=32 tile_n=32 warps=2 stages=2 blocks_per_sm=1")
add("hopper-128-causal-fp16-deterministic", 90, { head_dim = 128, dtype = "fp16", mask = "causal", deterministic = true },
  "family=sm90 tile_m=192 tile_n=80 stages=2 blocks_per_sm=1 consumers=3",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=1")
add("hopper-96-64-softcap", 90, { head_dim = 96, head_dim_v = 64, softcap = true },
  "family=sm90 tile_m=128 tile_n=96 stages=1 blocks_per_sm=1 consumers=2",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=1")
add("hopper-192-128-causal", 90, { head_dim = 192, head_dim_v = 128, mask = "causal" },
  "family=sm90 tile_m=128 tile_n=64 stages=2 blocks_per_sm=1 consumers=2",
  "family=sm90 tile_m=64 tile_n=64 stages=3 dout_stages=2")
add("hopper-200-136-window-fp16-deterministic", 90,
  { head_dim = 200, head_dim_v = 136, mask = "window", dtype = "fp16", deterministic = true },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=64 stages=2 dout_stages=1")
add("hopper-128-40-softcap", 90, { head_dim = 128, head_dim_v = 40, softcap = true },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=64 stages=3 dout_stages=3")
-- Two blocks to a piece of the backward.
add("pair-256-window", 90, { head_dim = 256, mask = "window", deterministic = true },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=1")
add("pair-192-128-causal", 90, { head_dim = 192, head_dim_v = 128, mask = "causal" },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=128 stages=3 dout_stages=2")
add("alternate-128-window", 90, { head_dim = 128, mask = "window" },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=128 stages=3 dout_stages=2 alternate=1")
-- Buffers of a compute warpgroup's own.
add("buffers-128-fp16", 90, { head_dim = 128, dtype = "fp16" },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=2 alternate=1 group_buffers=1")
add("buffers-96-40-window", 90, { head_dim = 96, head_dim_v = 40, mask = "window" },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=128 stages=3 dout_stages=2 alternate=1 group_buffers=1")
add("buffers-64-causal", 90, { head_dim = 64, mask = "causal" },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=128 stages=3 dout_stages=3 alternate=1 group_buffers=1")
-- Mutants begin at both ends of the list, where variants differ most.
add("pair-216-72", 90, { head_dim = 216, head_dim_v = 72 },
  "family=sm80 tile_m=64 tile_n=32 warps=4 stages=1 q_registers=0 blocks_per_sm=1",
  "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=1")
add("rows-64", 80, { head_dim = 64 })
add("rows-128-causal", 80, { head_dim = 128, mask = "causal" })

local DEFAULTS = { head_dim = 64, dtype = "bf16", mask = "full", softcap = false, aligned = true, deterministic = false }

-- A field of the request.
function variants.field(variant, name)
  local value = variant.request[name]
  if value == nil and name == "head_dim_v" then value = variant.request.head_dim end
  if value == nil then value = DEFAULTS[name] end
  return value
end

-- The rows that choose the knobs, as a configuration file, or nil: those of the library.
function variants.config(variant)
  if not variant.knobs.fwd then return nil end
  local rows = {}
  for _, pass in ipairs { "fwd", "bwd" } do
    local use = {}
    for name, value in variant.knobs[pass]:gmatch("(%S+)=(%S+)") do
      local row = knobs.by_name[name]
      if row and row.type == "flag" then value = value == "1" and "true" or "false" end
      use[#use + 1] = ('"%s": %s'):format(name, row and value or '"' .. value .. '"')
    end
    rows[#rows + 1] = ('{"when": {"pass": "%s"}, "use": {%s}}'):format(pass, table.concat(use, ", "))
  end
  return ('{"rows": [%s]}\n'):format(table.concat(rows, ",\n  "))
end

-- Complete specs of what a variant can launch: forward, backward, checked mode.
function variants.specs(variant)
  local arch = variant.cc == 90 and "sm_90a" or "sm_80"
  local words = { "arch=" .. arch }
  for _, field in ipairs(knobs.fields) do
    if field.name ~= "arch" then words[#words + 1] = field.name .. "=" .. knobs.write(variants.field(variant, field.name)) end
  end
  local request = table.concat(words, " ")
  local out = { "pass=check arch=" .. arch }
  for _, pass in ipairs { "fwd", "bwd" } do
    if variant.knobs[pass] then out[#out + 1] = ("pass=%s %s %s"):format(pass, request, variant.knobs[pass]) end
  end
  return out
end

return variants
