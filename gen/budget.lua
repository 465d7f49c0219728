-- Shared memory, threads and registers of each kernel, from its request alone; refuses with a sentence. Templates take their offsets from
-- here and repeat the total in a static_assert, so kernel and budget cannot drift.

local arch = require "gen.arch"

local budget = {}

local WORK_BYTES = 2 * 64 -- two slots of struct Work (attn/schedule.cuh)
local MOST_REGISTERS = 255

-- Lays regions { name, bytes } out one after the other, each at a multiple of 128 bytes.
local function lay_out(regions)
  local offset, offsets = 0, {}
  for _, region in ipairs(regions) do
    offset = (offset + 127) // 128 * 128
    offsets[region[1]], region.offset = offset, offset
    offset = offset + region[2]
  end
  return offset, offsets
end

-- Checks what every kernel must fit, and completes its facts.
local function fit(name, request, threads, regions)
  local limits = arch.parse(request.arch)
  local bytes, offsets = lay_out(regions)
  local blocks = request.blocks_per_sm or 1
  local what = ("%s head_dim=%d tile_m=%d tile_n=%d"):format(name, request.head_dim, request.tile_m, request.tile_n)
  if bytes > limits.shared_per_block then
    return nil, ("%s: needs %d bytes of shared memory, %s has %d"):format(what, bytes, request.arch, limits.shared_per_block)
  end
  if blocks * (bytes + limits.shared_reserved) > limits.shared_per_sm then
    return nil, ("%s: %d blocks of %d bytes of shared memory do not fit the %d of an %s multiprocessor"):format(what, blocks, bytes,
      limits.shared_per_sm, request.arch)
  end
  if blocks * threads > limits.threads_per_sm then
    return nil, ("%s: %d blocks of %d threads do not fit the %d of an %s multiprocessor"):format(what, blocks, threads,
      limits.threads_per_sm, request.arch)
  end
  local registers = math.min(MOST_REGISTERS, limits.registers_per_sm // (threads * blocks) // 8 * 8)
  return { threads = threads, shared_bytes = bytes, offsets = offsets, regions = regions, blocks_per_sm = blocks,
    registers = registers }
end

-- Accumulators that a thread holds, plus what addresses and fragments take at least: a variant beyond it would spill.
local function enough_registers(facts, name, request, accumulators, others)
  if accumulators + others > facts.registers then
    return nil, ("%s head_dim=%d tile_m=%d tile_n=%d warps=%d: %d registers of accumulators do not fit the %d a thread has"):format(name,
      request.head_dim, request.tile_m, request.tile_n, request.warps, accumulators, facts.registers)
  end
  return facts
end

function budget.fwd_sm80(r)
  if r.tile_m % (16 * r.warps) ~= 0 then
    return nil, ("fwd_sm80: tile_m=%d is not a multiple of 16 rows for each of %d warps"):format(r.tile_m, r.warps)
  end
  local warp_rows = r.tile_m // r.warps
  local q_warp_bytes = (warp_rows * math.max(r.head_dim, r.head_dim_v) * 2 + 127) // 128 * 128
  local facts, why = fit("fwd_sm80", r, r.warps * 32, {
    { "q", q_warp_bytes * r.warps },
    { "k", r.stages * r.tile_n * r.head_dim * 2 },
    { "v", r.stages * r.tile_n * r.head_dim_v * 2 },
    { "work", WORK_BYTES },
  })
  if not facts then return nil, why end
  facts.q_warp_bytes = q_warp_bytes
  local accumulators = warp_rows * (r.tile_n + r.head_dim_v) // 32 + (r.q_registers and warp_rows * r.head_dim // 64 or 0)
  return enough_registers(facts, "fwd_sm80", r, accumulators, 24)
end

-- One block of threads for the whole batch.
function budget.schedule(_)
  return { threads = 1024, shared_bytes = 2 * 256 * 8 + 3 * 8, blocks_per_sm = 1, registers = 64 }
end

function budget.check_lengths(_)
  return { threads = 1024, shared_bytes = 0, blocks_per_sm = 1, registers = 64 }
end

local function placeholder(request)
  return { threads = 32 * (request.warps or 8), shared_bytes = 0, blocks_per_sm = request.blocks_per_sm or 1, registers = 255 }
end

for _, name in ipairs { "bwd_pre", "bwd_sm80", "bwd_post" } do budget[name] = placeholder end

return budget
