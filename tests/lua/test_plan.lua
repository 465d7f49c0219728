-- Specs: what a request becomes, which kernels variants share, and every way in which a spec is refused.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local arch = require "gen.arch"
local gen = require "gen.init"
local space = require "gen.space"
local test, equal, refused = runner.test, runner.equal, runner.refused

local FORWARD = "pass=fwd arch=sm_90a dtype=bf16 head_dim=128 head_dim_v=128 mask=causal softcap=0 aligned=1 deterministic=0 "
  .. "family=sm80 tile_m=64 tile_n=64 warps=4 stages=2 q_registers=0 blocks_per_sm=1"
local BACKWARD = "pass=bwd arch=sm_90a dtype=bf16 head_dim=64 head_dim_v=64 mask=causal softcap=0 aligned=1 deterministic=1 "
  .. "family=sm80 tile_m=64 tile_n=64 warps=4 stages=1 blocks_per_sm=1"

-- A spec with `key` set to `value`, or without it.
local function with(spec, key, value)
  local out = spec:gsub(" ?%f[%w_]" .. key .. "=%S+", "")
  return value and out .. " " .. key .. "=" .. value or out
end

test("a forward variant", function()
  local plan = assert(gen.plan(FORWARD))
  equal(plan.name, "fwd_sm80_d128_bf16_causal-sm_90a-m64n64w4s2q0b1")
  equal(plan.family, "sm80")
  equal(plan.tile_m, 64)
  equal(plan.tile_n, 64)
  equal(plan.shared_per_block, 227 * 1024)
  equal(#plan.kernels, 2)
  equal(plan.kernels[1].spec, "kernel=schedule arch=sm_90a")
  equal(plan.kernels[1].entry, "vf_schedule")
  local main = plan.kernels[2]
  equal(main.name, "fwd_sm80")
  equal(main.spec, "kernel=fwd_sm80 arch=sm_90a dtype=bf16 head_dim=128 head_dim_v=128 mask=causal softcap=0 aligned=1 "
    .. "tile_m=64 tile_n=64 warps=4 stages=2 q_registers=0 blocks_per_sm=1")
  equal(main.entry, "vf_fwd_sm80_d128_bf16_causal")
  equal(main.threads, 128)
end)

test("a backward variant", function()
  local plan = assert(gen.plan(BACKWARD))
  local names = {}
  for i, kernel in ipairs(plan.kernels) do names[i] = kernel.name end
  equal(table.concat(names, " "), "schedule bwd_pre bwd_sm80 bwd_post")
  equal(plan.kernels[3].entry, "vf_bwd_sm80_d64_bf16_causal_deterministic")
end)

test("checked mode", function()
  local plan = assert(gen.plan("pass=check arch=sm_80"))
  equal(#plan.kernels, 1)
  equal(plan.kernels[1].spec, "kernel=check_lengths arch=sm_80")
  equal(plan.kernels[1].entry, "vf_check_lengths")
end)

test("every kernel of a plan has whole launch facts within the limits", function()
  for _, name in ipairs { "sm_80", "sm_86", "sm_90a", "sm_120" } do
    local limits = arch.parse(name)
    for _, spec in ipairs { FORWARD, BACKWARD } do
      for _, kernel in ipairs(assert(gen.plan(with(spec, "arch", name))).kernels) do
        for _, fact in ipairs { "threads", "shared_bytes", "blocks_per_sm", "cluster", "registers" } do
          equal(math.type(kernel[fact]), "integer")
        end
        assert(kernel.threads % 32 == 0 and kernel.threads <= limits.threads_per_block)
        assert(kernel.shared_bytes >= 0 and kernel.shared_bytes <= limits.shared_per_block)
        assert(kernel.blocks_per_sm * kernel.threads <= limits.threads_per_sm)
        assert(kernel.blocks_per_sm * kernel.threads * kernel.registers <= limits.registers_per_sm)
      end
    end
  end
end)

test("variants share kernels that do not depend on where they differ", function()
  local a, b = gen.plan(FORWARD), gen.plan(with(with(FORWARD, "tile_m", 128), "mask", "window"))
  equal(a.kernels[1].spec, b.kernels[1].spec)
  assert(a.kernels[2].spec ~= b.kernels[2].spec)
  equal(gen.plan(with(FORWARD, "deterministic", 1)).kernels[2].spec, a.kernels[2].spec)
  local c, d = gen.plan(BACKWARD), gen.plan(with(BACKWARD, "deterministic", 0))
  equal(c.kernels[2].spec, d.kernels[2].spec)
  assert(c.kernels[3].spec ~= d.kernels[3].spec)
end)

test("a knob with a default is left unsaid where it has it", function()
  local spec = with(FORWARD, "family", "sm90")
  for _, name in ipairs { "warps", "q_registers" } do spec = with(spec, name) end
  for name, value in pairs { tile_m = 128, tile_n = 80, consumers = 2 } do spec = with(spec, name, tostring(value)) end
  local plan = assert(gen.plan(spec))
  local said = assert(gen.plan(spec .. " tile_slots=2 q_stages=1"))
  equal(said.name, plan.name)
  equal(said.kernels[2].spec, plan.kernels[2].spec)
  assert(not plan.kernels[2].spec:find("q_stages", 1, true))
  local other = assert(gen.plan(spec .. " q_stages=2"))
  equal(other.name, plan.name .. "a2")
  equal(other.kernels[2].spec, plan.kernels[2].spec .. " q_stages=2")
end)

test("the order of words does not matter", function()
  local words = {}
  for word in FORWARD:gmatch("%S+") do table.insert(words, 1, word) end
  equal(gen.plan(table.concat(words, " ")).kernels[2].spec, gen.plan(FORWARD).kernels[2].spec)
end)

test("entries say what is asked for", function()
  local spec = with(with(with(with(FORWARD, "head_dim_v", 64), "softcap", 1), "aligned", 0), "mask", "window")
  equal(gen.plan(spec).kernels[2].entry, "vf_fwd_sm80_d128_v64_bf16_window_softcap_unaligned")
  equal(gen.plan(with(FORWARD, "mask", "full")).kernels[2].entry, "vf_fwd_sm80_d128_bf16")
end)

test("specs that cannot be are refused with a sentence", function()
  refused("fwd sm80: tile_m is missing", gen.plan(with(FORWARD, "tile_m")))
  refused("fwd sm80: dtype is missing", gen.plan(with(FORWARD, "dtype")))
  refused("fwd sm80: does not have tile_k, tiles", gen.plan(FORWARD .. " tiles=1 tile_k=2"))
  refused("bwd sm80: does not have q_registers", gen.plan(BACKWARD .. " q_registers=1"))
  refused("fwd sm80: tile_m=100 is not allowed: 16 to 256 in steps of 16", gen.plan(with(FORWARD, "tile_m", 100)))
  refused("fwd sm80: head_dim=264 is not allowed", gen.plan(with(FORWARD, "head_dim", 264)))
  refused("fwd sm80: arch=sm_9 is not an architecture", gen.plan(with(FORWARD, "arch", "sm_9")))
  refused("family=sm70 is not a kernel family", gen.plan(with(FORWARD, "family", "sm70")))
  refused("family=nil is not a kernel family", gen.plan(with(FORWARD, "family")))
  refused("pass=both is not one of fwd, bwd", gen.plan(with(FORWARD, "pass", "both")))
  refused("spec: 'tile_m' is given twice", gen.plan(FORWARD .. " tile_m=64"))
  refused("spec: 'tile' is not key=value", gen.plan(FORWARD .. " tile"))
  refused("spec: 'Tile=1' is not key=value", gen.plan(FORWARD .. " Tile=1"))
  refused("spec: 'tile=' is not key=value", gen.plan(FORWARD .. " tile="))
  refused("check lengths: arch is missing", gen.plan("pass=check"))
  refused("check lengths: does not have tile_m", gen.plan("pass=check arch=sm_80 tile_m=16"))
end)

test("kernel specs are refused likewise", function()
  refused("kernel=nil is not a kernel", gen.source(""))
  refused("kernel=fwd is not a kernel", gen.source("kernel=fwd"))
  refused("schedule: arch is missing", gen.source("kernel=schedule"))
  refused("schedule: does not have tile_m", gen.source("kernel=schedule arch=sm_80 tile_m=64"))
  refused("is not a multiple of 16 rows for each of 8 warps",
    gen.source(with(with(gen.plan(FORWARD).kernels[2].spec, "warps", 8), "tile_m", 64)))
  refused("kernel=nil is not a kernel", gen.kernel("arch=sm_80"))
end)

test("a kernel's facts are the plan's", function()
  for _, kernel in ipairs(gen.plan(BACKWARD).kernels) do
    local facts = assert(gen.kernel(kernel.spec))
    for _, name in ipairs { "name", "spec", "entry", "threads", "shared_bytes", "blocks_per_sm", "cluster", "registers" } do
      equal(facts[name], kernel[name])
    end
  end
end)

test("candidates are specs that fit, each once", function()
  local seen = {}
  local request = FORWARD:match("^(.* family=sm80)")
  for _, spec in ipairs(assert(space.candidates(request))) do
    assert(not seen[spec])
    seen[spec] = true
    assert(gen.plan(spec))
  end
  assert(seen[FORWARD])
  refused("needs family", space.candidates("pass=fwd arch=sm_80"))
  refused("is missing", space.candidates("pass=fwd family=sm80 arch=sm_80"))
end)

runner.finish()
