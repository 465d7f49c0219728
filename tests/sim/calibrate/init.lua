-- The generator with two kernels more: calibrate.cu and, of two blocks, calibrate_pair.cu. Stands as gen/init.lua in a copy of the tree
-- (root.sh), where the generator's own is gen/generator.lua.

local arch = require "gen.arch"
local budget = require "gen.budget"
local kernels = require "gen.kernels"
local knobs = require "gen.knobs"

for _, name in ipairs { "calibrate", "calibrate_pair" } do
  kernels.by_name[name] = { name = name, template = name .. ".cu", uses = { knobs.by_name.arch, knobs.by_name.dtype } }
end

function budget.calibrate(request)
  local limits = arch.parse(request.arch)
  return { threads = 128, shared_bytes = 64 * 1024, blocks_per_sm = 1, registers = 255, shared_per_block = limits.shared_per_block,
    wgmma_columns = { 16, 64, 80, 128, 256 }, wgmma_bf16_columns = { 64 } }
end

function budget.calibrate_pair(request)
  local facts = budget.calibrate(request)
  facts.cluster = 2
  return facts
end

return require "gen.generator"
