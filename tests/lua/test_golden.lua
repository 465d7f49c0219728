-- Expanded kernels as files, so that a change of the generator or of a template shows as a change of what is compiled.
--
--   lua5.4 tests/lua/test_golden.lua [--update]        --update (make golden) writes the files instead of comparing

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local gen = require "gen.init"

local UPDATE = arg[1] == "--update"

-- Between them: both passes, every mask, both types, the awkward head sizes, every kind of kernel.
local SPECS = {
  "kernel=schedule arch=sm_80",
  "kernel=fwd_sm80 arch=sm_90a dtype=bf16 head_dim=128 head_dim_v=128 mask=causal softcap=0 aligned=1 tile_m=64 tile_n=64 warps=4 "
    .. "stages=2 q_registers=1 blocks_per_sm=1",
  "kernel=fwd_sm80 arch=sm_86 dtype=fp16 head_dim=72 head_dim_v=40 mask=window softcap=1 aligned=0 tile_m=64 tile_n=64 warps=4 "
    .. "stages=1 q_registers=0 blocks_per_sm=1",
  "kernel=bwd_sm80 arch=sm_90a dtype=bf16 head_dim=64 head_dim_v=64 mask=full softcap=0 aligned=1 deterministic=1 tile_m=64 tile_n=64 "
    .. "warps=4 stages=2 blocks_per_sm=1",
  "kernel=bwd_sm90 arch=sm_90a dtype=bf16 head_dim=96 head_dim_v=96 mask=causal softcap=0 tile_m=64 tile_n=128 stages=3 dout_stages=2",
  "kernel=bwd_post arch=sm_80 dtype=bf16 head_dim=64 mask=causal aligned=1 tile_m=64 tile_n=64 warps=4",
}

local function first_difference(found, expected)
  local number, lines = 0, expected:gmatch("([^\n]*)\n")
  for line in found:gmatch("([^\n]*)\n") do
    number = number + 1
    local other = lines()
    if line ~= other then return ("line %d: %q, the file has %q"):format(number, line, other or "(its end)") end
  end
  return "the file is longer"
end

for _, spec in ipairs(SPECS) do
  runner.test(spec, function()
    local text, fault = gen.source(spec)
    assert(text, fault)
    local path = ("tests/golden/%s_%s.cu"):format(gen.kernel(spec).entry, spec:match("arch=(%S+)"))
    if UPDATE then
      runner.write_file(path, text)
      return
    end
    local expected = runner.read_file(path)
    if not expected then error(path .. " is missing: make golden", 0) end
    if text ~= expected then error(("%s: %s. If that is meant: make golden"):format(path, first_difference(text, expected)), 0) end
  end)
end

runner.finish()
