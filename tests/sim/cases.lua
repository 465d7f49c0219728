-- The problems of the simulator's suite: for a variant and a seed a list of problems, as `varflash check` reads them. Small, and each there
-- for a kind of fault; lengths that are not fixed are drawn from the seed.

local gen = require "gen.init"
local variants = require "tests.sim.variants"

local cases = {}

-- The next numbers of a generator that is the same everywhere.
local function dice(seed)
  local state = seed * 0x9e3779b97f4a7c15 + 1
  return function(low, high)
    state = state * 6364136223846793005 + 1442695040888963407
    return low + (state >> 33) % (high - low + 1)
  end
end

local function times(count, value)
  local out = {}
  for i = 1, count do out[i] = type(value) == "function" and value() or value end
  return out
end

local EDGES = { 0, 0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 191, 192, 193 }
local SHIFTS = { 0, -1, -2, 1, 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 126, 127, 128, 129 } -- of a diagonal, beside tile edges

-- Windows of one diagonal, of none, that leave out the last keys or rows, and so wide that 32 bits do not hold the sum of their edges.
local WINDOWS = { "0,0", "7,-7", "-3,2", "1073741824,1073741823", "60,-20", "-6,30" }

-- Without the fields of the variant. Every problem runs both passes unless it says otherwise. helpers: warps of the kernels have roles;
-- piece: keys that two blocks of the backward share, or nil; mask: the variant's.
local function shapes(roll, seed, helpers, piece, mask)
  local function edge() return EDGES[roll(1, #EDGES)] end
  local function shift() return SHIFTS[roll(1, #SHIFTS)] end
  local long, edges_q, edges_k = roll(20, 150), times(5, edge), times(5, edge)
  local out = {
    { name = "ragged", seqlens_q = { 0, 130, 7, 90, 0, 65 }, seqlens_k = { 5, 77, 0, 140, 0, 129 }, heads_q = 2, heads_k = 1 },
    -- Empty sequences first, then one: a zero-trip loop must not leave anybody waiting.
    { name = "founding", seqlens_q = { 0, 0, roll(60, 200) }, seqlens_k = { 0, 1, roll(60, 260) }, heads_q = 2, rows_q = 230 },
    { name = "keyless", seqlens_q = { 320 }, seqlens_k = { 40 } }, -- causal: tiles without keys in a row, drawn last
    { name = "skips", seqlens_q = { 64, 64, 64 }, seqlens_k = { 64, 0, 30 }, heads_q = 2 },
    { name = "nothing", seqlens_q = { 0, 0 }, seqlens_k = { 0, 7 }, rows_q = 5 },
    { name = "no-queries", seqlens_q = { 0, 0 }, seqlens_k = { 0, 7 } },
    { name = "no-keys", seqlens_q = { 40, 9, 100 }, seqlens_k = { 0, 30, 0 } },
    { name = "short", seqlens_q = times(12, 30), seqlens_k = times(12, 31), heads_q = 2 },
    { name = "many-keys", seqlens_q = { 70 }, seqlens_k = { 300 } }, -- at least 3 key tiles add to each tile of dQ
    { name = "reproducible", seqlens_q = { 100, 40 }, seqlens_k = { 200, 65 }, heads_q = 2, heads_k = 1 },
    { name = "growing", seqlens_q = { 70, 20 }, seqlens_k = { 190, 80 }, input_scale = seed % 2 == 1 and 9 or 4 },
    { name = "negative", seqlens_q = { 20, 9, 33, 2 }, seqlens_k = { 1, 2, 1, 3 }, input_scale = 12, heads_q = 2 },
    -- One key, whose weight is 1, whatever is left of so large a score and its LSE: everything stays finite that the type can hold.
    { name = "vast", seqlens_q = { 70, 20 }, seqlens_k = { 1, 1 }, scale = 1e30, heads_q = 2, backward_of = "bf16" },
    -- Several tiles of scores so large that one key of a row has all the weight; gradients would be differences of roundings.
    { name = "vast-tiles", seqlens_q = { 70 }, seqlens_k = { 300 }, scale = 1e6, forward = true },
    { name = "diagonal", seqlens_q = { long, 40 }, seqlens_k = { math.max(0, long + shift()), 40 + shift() + 2 } },
    { name = "edges", seqlens_q = edges_q, seqlens_k = edges_k, heads_q = roll(1, 2),
      max_seqlen_q = math.max(table.unpack(edges_q)), max_seqlen_k = math.max(table.unpack(edges_k)) },
    { name = "gaps", seqlens_q = { 50, 30, 20, 0 }, seqlens_k = { 60, 30, 9, 0 }, seqused_q = { 44, 30, 0, 0 }, seqused_k = { 51, 0, 9, 0 },
      rows_q = 120, rows_k = 131, dlse = true, heads_q = 2 },
    -- Garbage right behind the last tile's rows.
    { name = "spoiled", seqlens_q = { 80, 40, 64 }, seqlens_k = { 150, 70, 66 }, seqused_q = { 64, 1, 33 }, seqused_k = { 128, 65, 1 },
      heads_q = 2, heads_k = 1, poison = seed % 2 == 0 and "inf" or "nan" },
    { name = "keep", seqlens_q = { 50, 33 }, seqused_q = { 44, roll(0, 33) }, rows_q = 90, fill = "keep" },
    { name = "batched", seqlens_q = times(3, 50), seqlens_k = times(3, 70), seqused_k = { roll(0, 70), 70, 33 }, batched = true,
      heads_q = 2 },
    -- Rows of dlse so far apart that one too many is outside.
    { name = "strides", seqlens_q = { 40, 30 }, seqlens_k = { 70, 31 }, heads_q = 2, heads_k = 1, dlse = true,
      strides = { o = "-", lse = "3,1", dlse = "1200,1", dv = "-" } },
    { name = "random", seqlens_q = times(3, function() return roll(0, 130) end), seqlens_k = times(3, function() return roll(0, 200) end),
      heads_q = 2, heads_k = 1, int64_lengths = true },
  }
  if helpers then -- several query tiles of several first key tiles: who only passes word of them may fall behind
    for _ = 1, 2 do out[#out + 1] = { name = "lagging", seqlens_q = { 160 }, seqlens_k = { 140 }, heads_q = 5 } end
    -- So many query heads to a key head that key tiles add to dQ in the other order (templates/bwd_sm90.cu, ascending).
    out[#out + 1] = { name = "many-heads", seqlens_q = { 150, 20 }, seqlens_k = { 256, 70 }, heads_q = 4, heads_k = 1 }
    if mask == "causal" then -- and so many key heads that the last ones do
      -- A diagonal that ends a query tile's keys where a key tile ends.
      out[#out + 1] = { name = "heads-apart", seqlens_q = { 216, 20 }, seqlens_k = { 280, 70 }, heads_q = 8, heads_k = 8 }
    end
    -- Keys whose weights are all too small for fp16.
    out[#out + 1] = { name = "tiny", seqlens_q = { 64 }, seqlens_k = { 128 }, input_scale = 6, backward_of = "bf16" }
  end
  if mask == "window" then
    -- The last query sees keys up to a tile's end; the last query tile, were there any, keys behind the last.
    out[#out + 1] = { name = "right-edge", seqlens_q = { 70 }, seqlens_k = { 148 }, window = "60,-20" }
    out[#out + 1] = { name = "beyond", seqlens_q = { 70 }, seqlens_k = { 148 }, window = "-6,30" }
    -- The first query tile sees all keys, later ones do not.
    out[#out + 1] = { name = "left-edge", seqlens_q = { 200 }, seqlens_k = { 64 }, window = "30,1000" }
  end
  if piece then -- pieces that blocks share, then one that is one block's; heads that are left over
    local function add(name, q, k, heads_q, heads_k)
      out[#out + 1] = { name = name, seqlens_q = q, seqlens_k = k, heads_q = heads_q, heads_k = heads_k }
    end
    add("pieces", { 130, 70 }, { 2 * piece + roll(1, piece), piece + roll(1, piece) }, 3)
    add("halves", { 70, 9, 100 }, { 2 * piece + piece // 2, piece // 2, piece + 1 }, 2)
    add("many-pieces", { 140 }, { 2 * piece + roll(1, piece // 2) }, 12, 3)
    if mask == "window" then -- more keys than the L2 cache holds of two heads, of which few are seen: one head after the other
      add("sections", { 20 }, { 4392 }, 8, 2)
      out[#out].window = "200,0"
    end
  end
  if seed % 4 == 1 then -- on one multiprocessor: more items than it takes to make heads travel together
    local count = piece and 60 or helpers and 30 or 16 -- and so many that several pairs of heads do
    out[#out + 1] = { name = "crowd", seqlens_q = times(count, function() return roll(0, 3) * 4 end),
      seqlens_k = times(count, function() return roll(0, 2) * 5 end), heads_q = piece and 4 or 8, heads_k = 4 }
    if helpers and mask == "causal" then -- so many heads that more ascend than travel in half of the items
      out[#out + 1] = { name = "crowd-of-heads", seqlens_q = times(10, 4), seqlens_k = times(10, 5), heads_q = 18, heads_k = 18 }
    end
    -- More sequences than the schedule kernel has threads.
    out[#out + 1] = { name = "many", seqlens_q = times(1100, function() return roll(1, 60) == 1 and roll(1, 40) or 0 end),
      seqlens_k = times(1100, function() return roll(0, 2) == 0 and 0 or roll(1, 40) end), no_lse = true, forward = true }
  elseif seed % 4 == 3 then -- more than one block of its threads lists
    out[#out + 1] = { name = "shares", seqlens_q = times(2100, function() return roll(1, 60) == 1 and roll(1, 40) or 0 end),
      seqlens_k = times(2100, function() return roll(1, 30) == 1 and roll(0, 200) or 1 end), no_lse = true, forward = true }
  end
  return out
end

-- Lengths that are broken: checked mode names the fault, of several the first, and unchecked mode stays inside the tensors and gives no
-- row to two sequences.
local function broken()
  local late = times(1030, 0) -- past the threads of the kernel that checks
  late[1030] = 7
  return {
    { start_q = 3 }, { start_k = -3 }, { rows_q = 45 }, { rows_k = 60 }, { max_seqlen_q = 39 }, { max_seqlen_k = 69 },
    { seqused_q = { -1, 9 } }, { seqused_k = { 50, 71 }, int64_lengths = true },
    { seqlens_q = times(70, 2), seqlens_k = times(70, 3), max_seqlen_q = 1, max_seqlen_k = 2 }, -- in threads of three warps
    { seqlens_q = late, seqlens_k = late, max_seqlen_k = 6, forward = true },
    { seqlens_q = { 40, -9, 30 }, seqlens_k = { 50, 70, 9 } }, { seqlens_q = { 40, 9, 30 }, seqlens_k = { 50, -70, 90 }, rows_k = 70 },
    { seqlens_q = { 40, 5000000000, -5000000000, 9 }, seqlens_k = { 50, 9, 9, 9 }, rows_q = 60, int64_lengths = true },
    { seqlens_q = { 40, 1000000000, -1000000000 }, seqlens_k = { 50, -2000000000, 2000000000 }, rows_q = 60, rows_k = 60 },
  }
end

-- Strides "-" are those of a tensor with room between its rows; unaligned variants have an odd offset in q.
local function place(problem, variant)
  local aligned = variants.field(variant, "aligned")
  for name, text in pairs(problem.strides or {}) do
    local dim = (name == "q" or name == "k") and variants.field(variant, "head_dim") or variants.field(variant, "head_dim_v")
    if text == "-" then problem.strides[name] = ("%d,%d"):format((dim + 8) * 2 + 16, dim + 8) end
  end
  if not aligned then
    problem.strides = problem.strides or {}
    for _, name in ipairs { "q", "k", "o" } do problem.strides[name] = problem.strides[name] or "+" .. #problem.name % 7 + 1 end
  end
end

-- Adds what the variant is for.
local function complete(problems, variant, seed, roll)
  for i, problem in ipairs(problems) do
    problem.name = problem.name or "broken"
    problem.seqlens_q, problem.seqlens_k = problem.seqlens_q or { 40, 9 }, problem.seqlens_k or { 50, 70 }
    for _, name in ipairs { "head_dim", "head_dim_v", "dtype" } do problem[name] = variants.field(variant, name) end
    problem.seed = seed * 100 + i
    local other = problem.backward_of and problem.backward_of ~= problem.dtype
    problem.backward = not problem.forward and not other or nil
    problem.forward, problem.backward_of = nil, nil
    local mask = variants.field(variant, "mask")
    if mask == "causal" then problem.causal = true end
    local window = ("%d,%d"):format(roll(-3, 90), roll(-2, 20))
    if mask == "window" then problem.window = problem.window or i % 3 == 0 and WINDOWS[(i // 3 + seed) % #WINDOWS + 1] or window end
    if variants.field(variant, "softcap") then problem.softcap = roll(2, 40) end
    if variants.field(variant, "deterministic") then problem.deterministic = true end
    place(problem, variant)
  end
  return problems
end

-- Keys that two blocks of the variant's backward share; nil: none.
local function shared_keys(variant)
  for _, spec in ipairs(variants.specs(variant)) do
    local plan = assert(gen.plan(spec))
    for _, kernel in ipairs(plan.kernels) do
      if kernel.cluster > 1 then return plan.tile_n end
    end
  end
end

-- The problems of a seed: { name, problems, checked = run in checked mode }.
function cases.batch(variant, seed)
  local roll = dice(seed)
  local helpers = variant.knobs.bwd and variant.knobs.bwd:find("sm90", 1, true)
  local problems, checked = shapes(roll, seed, helpers, shared_keys(variant), variants.field(variant, "mask")), seed % 2 == 0
  for _, problem in ipairs(seed % 4 == 2 and broken() or {}) do problems[#problems + 1] = problem end
  return { name = "seed-" .. seed, problems = complete(problems, variant, seed, roll), checked = checked }
end

local function value_json(value)
  if type(value) == "table" and (#value > 0 or next(value) == nil) then return "[" .. table.concat(value, ", ") .. "]" end
  if type(value) == "table" then
    local parts = {}
    for name, text in pairs(value) do parts[#parts + 1] = ('"%s": "%s"'):format(name, text) end
    table.sort(parts)
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return type(value) == "string" and ('"%s"'):format(value) or tostring(value)
end

-- The file: a list with one problem a line.
function cases.json(problems)
  local lines = {}
  for i, problem in ipairs(problems) do
    local members = {}
    for name, value in pairs(problem) do members[#members + 1] = ('"%s": %s'):format(name, value_json(value)) end
    table.sort(members)
    lines[i] = "{" .. table.concat(members, ", ") .. "}"
  end
  return "[" .. table.concat(lines, ",\n ") .. "]\n"
end

return cases
