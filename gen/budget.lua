-- Shared memory, threads and registers of each kernel, from its request alone; refuses with a sentence. Templates take their offsets from
-- here and repeat the total in a static_assert, so kernel and budget cannot drift.

local arch = require "gen.arch"

local budget = {}

local L2_SECTION_MIB = 33 -- what heads that are worked on side by side may read and add to
local WORK_BYTES = 2 * 64 -- two slots of struct Work (attn/schedule.cuh)
local MOST_REGISTERS = 255

-- Lays regions { name, bytes, alignment } out one after the other, each at a multiple of its alignment, which is 128 bytes if absent. One
-- that is false does not exist. Gives all bytes, offsets by name, and those that exist.
local function lay_out(regions)
  local offset, offsets, present = 0, {}, {}
  for _, region in ipairs(regions) do
    if region then
      local alignment = region[3] or 128
      offset = (offset + alignment - 1) // alignment * alignment
      offsets[region[1]], region.offset = offset, offset
      offset = offset + region[2]
      present[#present + 1] = region
    end
  end
  return offset, offsets, present
end

-- Whether rows may start anywhere, and take no 16 bytes at once. Some kernels are only for operands whose rows don't, and aren't asked.
local function scattered(request) return request.aligned == false end

-- Checks what every kernel must fit, and completes its facts.
local function fit(name, request, threads, regions)
  local limits = arch.parse(request.arch)
  local bytes, offsets, present = lay_out(regions)
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
  return { threads = threads, shared_bytes = bytes, offsets = offsets, regions = present, blocks_per_sm = blocks,
    registers = registers, cluster = 1, scattered = scattered(request) }
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
  facts.q_warp_bytes, facts.last_block_first, facts.l2_section_mib = q_warp_bytes, true, r.mask == "causal" and L2_SECTION_MIB
  local accumulators = warp_rows * (r.tile_n + r.head_dim_v) // 32 + (r.q_registers and warp_rows * r.head_dim // 64 or 0)
  return enough_registers(facts, "fwd_sm80", r, accumulators, 24)
end

-- Hopper: warpgroups of 128 threads, 64 rows to a consumer. Tiles are panels of 64 columns (templates/tile/panels.cuh).
local GROUP_THREADS, GROUP_ROWS, SWIZZLE = 128, 64, 1024
local STAGED_ROWS = 16 -- of o, a consumer warp's
local TILE_BYTES = 80 -- struct Tile (templates/attn/forward_turns.cuh), struct Item (forward_alone.cuh)

local function panel_bytes(rows, columns)
  return (columns + 63) // 64 * rows * 128
end

-- What threads have after helpers have given registers to consumers: together what the block starts with. Nothing is traded when that is
-- plenty for all.
local function trade_registers(facts, consumers)
  local start = math.min(facts.registers, 248)
  if start >= 240 then return nil, start end
  local helper = consumers == 1 and start >= 128 and 56 or consumers == 2 and 40 or 32
  return helper, math.min(240, (start * (consumers + 1) - helper) // consumers // 8 * 8)
end

-- Why a kernel cannot be, if it is not for an architecture with wgmma.
local function no_wgmma(kernel, r)
  if r.target.cc ~= 90 or r.target.suffix ~= "a" then return ("%s: arch=%s has no wgmma; it needs sm_90a"):format(kernel, r.arch) end
end

-- Widths of products, each once; 0 is none.
local function distinct(widths)
  local out, seen = {}, { [0] = true }
  for _, columns in ipairs(widths) do
    if not seen[columns] then out[#out + 1] = columns end
    seen[columns] = true
  end
  return out
end

-- What a kernel of the Hopper forward needs to know of its products.
local function describe_products(facts, name, r, key_columns, key_rows)
  facts.helper_registers, facts.consumer_registers = trade_registers(facts, r.consumers)
  facts.trade = facts.helper_registers ~= nil
  facts.maps = { { operand = "q", rows = GROUP_ROWS }, { operand = "k", rows = key_rows }, { operand = "v", rows = key_rows } }
  if r.output_stages > 0 then table.insert(facts.maps, { operand = "o", rows = STAGED_ROWS }) end
  facts.wgmma_columns = distinct { r.head_dim_v, table.unpack(key_columns) }
  facts.last_block_first, facts.l2_section_mib = true, r.mask == "causal" and L2_SECTION_MIB
  local accumulators = (r.tile_n + r.head_dim_v) // 2 + r.tile_n // 4 -- scores, output, packed weights
  if accumulators + 24 > facts.consumer_registers then
    return nil, ("%s: %d registers of accumulators do not fit the %d a consumer has"):format(name, accumulators, facts.consumer_registers)
  end
  return facts
end

-- Where o passes on its way out: 16 rows for each consumer warp.
local function staging(r)
  return r.output_stages > 0 and { "staging", 4 * r.consumers * panel_bytes(STAGED_ROWS, r.head_dim_v), SWIZZLE }
end

-- Consumers that share a tile of rows and its keys: templates/attn/forward_turns.cuh.
local function turns(name, r)
  local ahead = r.tile_slots > 2
  local facts, why = fit("fwd_sm90", r, GROUP_THREADS * (r.consumers + 1), {
    { "q", r.q_stages * panel_bytes(r.tile_m, r.head_dim), SWIZZLE },
    { "k", r.stages * panel_bytes(r.tile_n, r.head_dim), SWIZZLE },
    { "v", r.stages * panel_bytes(r.tile_n, r.head_dim_v), SWIZZLE },
    staging(r),
    { "tiles", r.tile_slots * TILE_BYTES },
    { "work", WORK_BYTES // 2 },
    ahead and { "ticket", 8 },
    { "barriers", 8 * (2 * r.consumers * r.q_stages + 4 * r.stages + 2 * r.tile_slots + (ahead and 2 or 1)) },
  })
  if not facts then return nil, why end
  facts.alone, facts.drawn_ahead = false, ahead
  facts.idle_groups = facts.drawn_ahead and r.consumers > 2 -- worth looking for where sequences are short
  return describe_products(facts, name, r, { r.tile_n }, r.tile_n)
end

-- Consumers with tiles of their own: templates/attn/forward_alone.cuh. `stages` counts halves of key tiles.
local function alone(name, r)
  if r.q_stages ~= 1 or r.tile_slots ~= 2 then
    return nil, name .. ": q_stages and tile_slots are for consumers that share a tile"
  end
  local part = (r.tile_n // 2 + 15) // 16 * 16
  local rest = r.tile_n - part
  if r.stages < 2 or rest == 0 then return nil, name .. ": needs 32 keys and 2 stages, for the two parts of a key tile" end
  local item_slots = 2
  local function lay(q_slots)
    local pair = q_slots * panel_bytes(GROUP_ROWS, r.head_dim) + r.stages * (panel_bytes(part, r.head_dim) +
      panel_bytes(part, r.head_dim_v))
    return fit("fwd_sm90", r, GROUP_THREADS * (r.consumers + 1), {
      { "pairs", r.consumers * pair, SWIZZLE },
      staging(r),
      { "items", r.consumers * item_slots * TILE_BYTES },
      { "barriers", 8 * r.consumers * (2 * q_slots + 4 * r.stages + 2 * item_slots) },
    })
  end
  local facts, why = lay(1)
  if not facts then return nil, why end
  local q_slots = 1
  while q_slots < r.stages and lay(q_slots + 1) do q_slots = q_slots + 1 end
  facts = lay(q_slots)
  facts.alone, facts.parts, facts.q_slots, facts.item_slots = true, { part, rest }, q_slots, item_slots
  return describe_products(facts, name, r, { part, rest }, part)
end

function budget.fwd_sm90(r)
  local name = ("fwd_sm90 head_dim=%d head_dim_v=%d tile_m=%d tile_n=%d consumers=%d"):format(r.head_dim, r.head_dim_v, r.tile_m, r.tile_n,
    r.consumers)
  local lacking = no_wgmma("fwd_sm90", r)
  if lacking then return nil, lacking end
  if r.tile_m == GROUP_ROWS then return alone(name, r) end
  if r.tile_m == GROUP_ROWS * r.consumers then return turns(name, r) end
  return nil, name .. ": tile_m is neither 64 rows nor 64 for each consumer"
end

-- Registers after the trade, two compute warpgroups, one for dQ and the helpers: with 512 threads a block starts with 128 each.
local BACKWARD_REGISTERS = { compute = 208, dq = 64, helper = 32 }
local PIECE_BYTES, TURN_STAGES = 100, 2 -- templates/bwd_sm90.cu; of a pair or with turns 8 bytes more each, with an owner 4

-- How many blocks share a piece of tile_n keys, how many keys each has, and whether both compute warpgroups have the same.
local function share_keys(r)
  local broad = r.head_dim > 128 or r.head_dim_v > 128
  local cluster = r.tile_n == 2 * GROUP_ROWS and broad and 2 or 1
  return cluster, r.tile_n // cluster, r.tile_n // cluster == GROUP_ROWS
end

-- Whether weights wait for their gradient as float32.
local function whole_weights(r, wide) return wide or r.head_dim + r.head_dim_v <= 128 end

function budget.bwd_sm90(r)
  local name = ("bwd_sm90 head_dim=%d head_dim_v=%d tile_m=%d tile_n=%d"):format(r.head_dim, r.head_dim_v, r.tile_m, r.tile_n)
  local lacking = no_wgmma("bwd_sm90", r)
  if lacking then return nil, lacking end
  local cluster, own_keys, wide = share_keys(r)
  if r.tile_m ~= GROUP_ROWS or own_keys ~= GROUP_ROWS and own_keys ~= 2 * GROUP_ROWS then
    return nil, name .. ": tile_m is 64, and tile_n 128, 64 keys for each compute warpgroup (of head sizes above 128 for each of two " ..
      "blocks), or 64, the same for both"
  end
  if r.stages < 2 then return nil, name .. ": the next tile of q is needed before the last one is done with; 2 stages" end
  if r.alternate and wide then return nil, name .. ": both warpgroups need each other where they have the same keys; alternate=0" end
  -- dK and dV, S or dP, P packed. Wide: a group has about half the columns.
  local kept = wide and (r.head_dim + 127) // 128 * 64 + (r.head_dim_v + 127) // 128 * 64 or r.head_dim + r.head_dim_v
  local accumulators = kept // 2 + r.tile_m // 2 + r.tile_m // 4
  if r.softcap and not wide and r.head_dim + r.head_dim_v > 128 then accumulators = accumulators + r.tile_m // 4 end
  if accumulators + 32 > BACKWARD_REGISTERS.compute then
    return nil, ("%s: %d registers of accumulators do not fit the %d a compute warpgroup's thread has"):format(name, accumulators,
      BACKWARD_REGISTERS.compute)
  end
  local pair = cluster == 2
  if r.group_buffers and (wide or not r.alternate) then
    return nil, name .. ": buffers are a group's where groups alternate; group_buffers=0"
  end
  local slot_keys = r.group_buffers and GROUP_ROWS or own_keys
  local piece_slots = r.group_buffers and 8 or 4 -- several short pieces are under way, the loader is ahead of both groups
  local fine = wide and (r.dtype == "bf16" or r.softcap) -- what makes dS crosses apart from dV's operand
  local piece_bytes = (PIECE_BYTES + (pair and 8 or 0) + (r.group_buffers and 8 or 0) + (r.alternate and 4 or 0) + 7) // 8 * 8
  local small = pair and 16 or 128 -- alignment of what is small: pairs of wide heads leave no room
  local function lay(k_stages, v_stages, ds_stages)
    local key_slots = own_keys // slot_keys * (k_stages + v_stages + ds_stages)
    local rings = r.stages + r.dout_stages + key_slots + piece_slots + TURN_STAGES
    return fit("bwd_sm90", r, 4 * GROUP_THREADS, {
      { "k", k_stages * panel_bytes(own_keys, r.head_dim), SWIZZLE },
      pair and { "peer_k", k_stages * panel_bytes(own_keys, r.head_dim // 2), SWIZZLE },
      { "v", v_stages * panel_bytes(own_keys, r.head_dim_v), SWIZZLE },
      { "q", r.stages * panel_bytes(r.tile_m, r.head_dim), SWIZZLE },
      { "dout", r.dout_stages * panel_bytes(r.tile_m, r.head_dim_v), SWIZZLE },
      pair and { "peer_ds", ds_stages * panel_bytes(own_keys, r.tile_m), SWIZZLE },
      { "statistics", r.stages * r.tile_m * 16 }, -- not last: compute-sanitizer takes a product's operand for twice as long as it is
      not wide and { "zeros", r.tile_m * 16 },
      { "ds", ds_stages * panel_bytes(own_keys, r.tile_m), SWIZZLE },
      r.group_buffers and { "staging", 3 * 4 * 1024 }, -- 1 KB for each warp that stores rows (templates/tile/store.cuh)
      wide and { "p", panel_bytes(own_keys, r.tile_m), SWIZZLE },
      fine and { "weights", own_keys * r.tile_m * 2 },
      { "pieces", piece_slots * piece_bytes },
      { "work", WORK_BYTES // 2, small },
      pair and { "ticket", 16, small },
      { "barriers", 8 * (2 * rings + (wide and 3 or 1) + (pair and ds_stages + 2 or 0)), small },
    })
  end
  -- What is left of shared memory: the next piece's k first, because k is held longest, then room for dQ to lag behind, then v.
  local k_stages, v_stages, ds_stages = 1, 1, 2
  local facts, why = lay(k_stages, v_stages, ds_stages)
  if not facts then return nil, why end
  for _, step in ipairs { { 1, 0, 0 }, { 0, 0, 1 }, { 0, 1, 0 }, { 0, 0, 1 } } do
    local larger = lay(k_stages + step[1], v_stages + step[2], ds_stages + step[3])
    if larger then
      facts, k_stages, v_stages, ds_stages = larger, k_stages + step[1], v_stages + step[2], ds_stages + step[3]
    end
  end
  facts.k_stages, facts.v_stages, facts.ds_stages, facts.dout_stages = k_stages, v_stages, ds_stages, r.dout_stages
  facts.compute_registers, facts.dq_registers = BACKWARD_REGISTERS.compute, BACKWARD_REGISTERS.dq
  facts.helper_registers = BACKWARD_REGISTERS.helper
  facts.wide, facts.fine_weights, facts.cluster, facts.slot_keys = wide, fine, cluster, slot_keys
  facts.piece_slots = piece_slots
  facts.whole_weights = whole_weights(r, wide)
  facts.kv_registers = not wide and r.head_dim <= 64 and r.head_dim_v <= 64
  local dk, dv = r.head_dim, r.head_dim_v
  local dk_first, dv_first = dk, dv
  if wide then dk_first, dv_first = (dk + 63) // 128 * 64, math.min((dv + 127) // 128 * 64, dv) end -- templates/attn/backward_wide.cuh
  local panels = (dk + 63) // 64
  local divided = pair and panels % 2 == 1 and (dk - (panels - 1) * 64 + 15) // 16 * 8 or 0 -- templates/bwd_sm90.cu
  facts.wgmma_columns = distinct { r.tile_m, dk_first, dk - dk_first, dv_first, dv - dv_first, math.min(dk, 64), dk % 64, divided }
  facts.wgmma_bf16_columns = { r.tile_m }
  facts.dq_row_warps, facts.last_block_first, facts.ordered = 4, true, true
  -- Under a mask, chains of blocks that start apart read more of a head at a time.
  facts.l2_section_mib = r.mask == "full" and L2_SECTION_MIB or L2_SECTION_MIB // 2 + 1
  facts.maps = { { operand = "q", rows = r.tile_m }, { operand = "k", rows = slot_keys }, { operand = "v", rows = slot_keys },
    { operand = "dout", rows = r.tile_m } }
  return facts
end

function budget.schedule(_)
  return { threads = 1024, shared_bytes = (2 * 256 + 2) * 8 + 3 * 8, blocks_per_sm = 1, registers = 64 }
end

function budget.check_lengths(_)
  return { threads = 1024, shared_bytes = 0, blocks_per_sm = 1, registers = 64 }
end

-- How `warps` warps share a product of rows x columns: rows of warps, so that each has whole blocks of 16 rows and its shared-memory reads
-- (its rows of A and its columns of B) are fewest. columns: of the product; unit: what a warp's columns are multiples of.
local function warp_rows(warps, rows, columns, unit)
  local best
  for _, down in ipairs { 1, 2, 4, 8 } do
    if warps % down == 0 and rows % (16 * down) == 0 then
      local each = math.ceil(columns / unit / (warps // down)) * unit
      local cost = rows // down + each + 0.01 * down
      if each * (warps // down) - columns >= columns / 3 then cost = cost + 1000 end -- mostly idle columns
      if not best or cost < best.cost then best = { down = down, cost = cost } end
    end
  end
  return best
end

-- How warps share two products of one shape: all of them both, or apart, half of them each, whichever reads less. divide(warps, apart)
-- gives `down`, rows of warps, and `cost`, what a warp reads for a step; or nil. Gives that, and whether apart.
local function shares(warps, allowed, divide)
  local together = divide(warps, false)
  local apart = allowed and warps % 2 == 0 and divide(warps // 2, true)
  if apart and (not together or apart.cost < 2 * together.cost) then return apart, true end
  return together, false
end

function budget.bwd_sm80(r)
  local name = ("bwd_sm80 head_dim=%d head_dim_v=%d tile_m=%d tile_n=%d warps=%d"):format(r.head_dim, r.head_dim_v, r.tile_m, r.tile_n,
    r.warps)
  local widest = math.max(r.head_dim, r.head_dim_v)
  local equal = r.head_dim == r.head_dim_v
  local score, scores_apart = shares(r.warps, equal, function(warps, apart)
    local best
    for _, down in ipairs { 1, 2, 4, 8 } do -- the squarest pieces read least
      local across = warps // down
      if warps % down == 0 and r.tile_n % (16 * down) == 0 and r.tile_m % ((apart and 32 or 16) * across) == 0 then
        local traded = apart and 2 * r.tile_m * r.tile_n / (r.head_dim * warps) or 0 -- float32, written and read, beside 16-bit operands
        local cost = r.tile_n // down + r.tile_m // across + traded
        if not best or cost < best.cost then best = { down = down, cost = cost } end
      end
    end
    return best
  end)
  local dkv, dkv_apart = shares(r.warps, equal, function(warps) return warp_rows(warps, r.tile_n, widest, 16) end)
  local dq = budget.dq_row_warps(r)
  if not (score and dkv and dq) then
    return nil, name .. ": tiles cannot be divided among the warps in blocks of 16 rows"
  end
  local facts, why = fit("bwd_sm80", r, r.warps * 32, {
    { "k", r.tile_n * r.head_dim * 2 },
    { "v", r.tile_n * r.head_dim_v * 2 },
    { "q", r.stages * r.tile_m * r.head_dim * 2 },
    { "dout", r.stages * r.tile_m * r.head_dim_v * 2 },
    { "p", r.tile_n * r.tile_m * 2 },
    { "ds", r.tile_n * r.tile_m * 2 },
    { "stats", r.stages * r.tile_m * 8 },
    scores_apart and { "trade", r.tile_n * r.tile_m * 4 },
    { "work", WORK_BYTES },
  })
  if not facts then return nil, why end
  facts.scores_apart, facts.dkv_apart = scores_apart, dkv_apart
  facts.score_key_warps, facts.dkv_key_warps, facts.dq_row_warps = score.down, dkv.down, dq
  facts.last_block_first = r.deterministic -- the order of turns; else the longest first
  facts.ordered = r.deterministic -- float32 sums in memory have one order
  facts.l2_section_mib = L2_SECTION_MIB
  local function each(columns, warps) return math.ceil(math.ceil(columns / 16) / warps) * 16 end
  local across = r.warps // dkv.down // (dkv_apart and 2 or 1)
  local kept = r.tile_n // dkv.down * (each(r.head_dim, across) + (dkv_apart and 0 or each(r.head_dim_v, across))) // 32
  local passing = math.max(2 * r.tile_n * r.tile_m // (32 * r.warps), r.tile_m // dq * each(r.head_dim, r.warps // dq) // 32)
  return enough_registers(facts, "bwd_sm80", r, kept + passing, 40)
end

-- Shared with bwd_post, which reads what bwd_sm80 adds up.
function budget.dq_row_warps(r)
  local share = warp_rows(r.warps, r.tile_m, r.head_dim, 16)
  return share and share.down
end

-- These stream over memory: enough blocks to fill a multiprocessor.
local function streaming(r, blocks_per_sm, registers)
  local limits = arch.parse(r.arch)
  local threads = 256
  return { threads = threads, shared_bytes = 0, blocks_per_sm = math.min(blocks_per_sm, limits.threads_per_sm // threads),
    registers = registers, dq_row_warps = r.warps and budget.dq_row_warps(r), scattered = scattered(r) }
end

function budget.bwd_pre(r) return streaming(r, 3, 80) end -- each thread has several rows' loads under way

function budget.bwd_post(r) return streaming(r, 5, 48) end

function budget.bwd_pre_sm90(r)
  if not r.aligned then return nil, "bwd_pre_sm90: operands must be aligned to 16 bytes" end
  local facts = streaming(r, 3, 80) -- each thread has several rows' loads under way
  facts.dq_row_warps = 4
  facts.wide = select(3, share_keys(r))
  facts.whole_weights = whole_weights(r, facts.wide)
  return facts
end

return budget
