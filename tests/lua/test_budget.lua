-- The budget: layouts without overlap, the limits of each architecture to the byte, sentences for what does not fit.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local arch = require "gen.arch"
local budget = require "gen.budget"
local test, equal, contains = runner.test, runner.equal, runner.contains

local ARCHS = { "sm_80", "sm_86", "sm_90a", "sm_120" }

-- A request of either pass; `changes` are laid over it.
local function request(changes)
  local out = { arch = "sm_80", dtype = "bf16", head_dim = 64, head_dim_v = 64, mask = "full", softcap = false, aligned = true,
    deterministic = false, tile_m = 64, tile_n = 64, warps = 4, stages = 2, dout_stages = 2, q_registers = false, blocks_per_sm = 1 }
  for name, value in pairs(changes) do out[name] = value end
  out.target = arch.parse(out.arch)
  return out
end

-- Calls `body` with the facts, or nil and the refusal, of many requests.
local function sweep(kernel, name, body)
  for _, head_dim in ipairs { 8, 64, 72, 128, 256 } do
    for _, head_dim_v in ipairs { 8, 64, 136, 256 } do
      for _, tile_m in ipairs { 16, 64, 128, 256 } do
        for _, tile_n in ipairs { 16, 48, 64, 128 } do
          for _, warps in ipairs { 1, 2, 3, 4, 8 } do
            for stages = 1, 3 do
              local r = request { arch = name, head_dim = head_dim, head_dim_v = head_dim_v, tile_m = tile_m, tile_n = tile_n,
                warps = warps, stages = stages, blocks_per_sm = stages }
              body(r, budget[kernel](r))
            end
          end
        end
      end
    end
  end
end

for _, kernel in ipairs { "fwd_sm80", "bwd_sm80" } do
  for _, name in ipairs(ARCHS) do
    test(("%s %s: what is accepted fits, what is refused says why"):format(kernel, name), function()
      local limits = arch.parse(name)
      local accepted, refused = 0, 0
      sweep(kernel, name, function(r, facts, sentence)
        if not facts then
          refused = refused + 1
          contains(sentence, kernel)
          return
        end
        accepted = accepted + 1
        assert(facts.threads == 32 * r.warps)
        assert(facts.shared_bytes <= limits.shared_per_block)
        assert(r.blocks_per_sm * (facts.shared_bytes + limits.shared_reserved) <= limits.shared_per_sm)
        assert(r.blocks_per_sm * facts.threads * facts.registers <= limits.registers_per_sm)
        assert(facts.registers % 8 == 0 or facts.registers == 255)
      end)
      assert(accepted > 0 and refused > 0)
    end)
  end

  test(kernel .. ": regions are aligned, in order, and end where the total says", function()
    sweep(kernel, "sm_90a", function(_, facts)
      if not facts then return end
      local free = 0
      for _, region in ipairs(facts.regions) do
        local name, bytes = region[1], region[2]
        equal(facts.offsets[name], region.offset)
        equal(region.offset % 128, 0)
        assert(region.offset >= free and region.offset < free + 128, name)
        free = region.offset + bytes
      end
      equal(facts.shared_bytes, free)
    end)
  end)

  test(kernel .. ": a byte over an architecture's limit is refused, the limit itself is not", function()
    local facts = assert(budget[kernel](request { stages = 1 }))
    for _, name in ipairs(ARCHS) do
      local limits = arch.parse(name)
      local real = arch.parse
      local function limited_to(bytes)
        arch.parse = function(...)
          local out = real(...)
          out.shared_per_block = bytes
          return out
        end
        local r = request { arch = name, stages = 1 }
        r.target.shared_per_block = bytes
        local got, sentence = budget[kernel](r)
        arch.parse = real
        return got, sentence
      end
      assert(facts.shared_bytes < limits.shared_per_block)
      assert(limited_to(facts.shared_bytes))
      local got, sentence = limited_to(facts.shared_bytes - 1)
      equal(got, nil)
      contains(sentence, tostring(facts.shared_bytes))
      contains(sentence, name)
    end
  end)
end

test("what fits a data-centre card is refused on one with 99 KB", function()
  local large = { head_dim = 128, head_dim_v = 128, tile_m = 128, tile_n = 128, warps = 8 }
  for _, name in ipairs { "sm_80", "sm_90a", "sm_100" } do
    large.arch = name
    assert(budget.fwd_sm80(request(large)))
  end
  for _, name in ipairs { "sm_86", "sm_89", "sm_120", "sm_121" } do
    large.arch = name
    local facts, sentence = budget.fwd_sm80(request(large))
    equal(facts, nil)
    contains(sentence, "101376")
  end
end)

test("warps must divide the rows", function()
  local facts, sentence = budget.fwd_sm80(request { tile_m = 64, warps = 8 })
  equal(facts, nil)
  contains(sentence, "8 warps")
end)

test("helper kernels fit everywhere", function()
  for _, name in ipairs(ARCHS) do
    for _, kernel in ipairs { "schedule", "check_lengths", "bwd_pre", "bwd_post" } do
      local facts = assert(budget[kernel](request { arch = name }))
      local limits = arch.parse(name)
      assert(facts.threads * facts.blocks_per_sm <= limits.threads_per_sm)
      assert(facts.threads * facts.blocks_per_sm * facts.registers <= limits.registers_per_sm)
      assert(facts.shared_bytes <= 48 * 1024)
    end
  end
end)

-- Calls `body` with Hopper backward requests and what the budget says of them.
local function sweep_hopper(body)
  for _, head_dim in ipairs { 8, 64, 72, 128, 136, 192, 256 } do
    for _, head_dim_v in ipairs { 8, 64, 128, 200 } do
      for stages = 1, 4 do
        for _, softcap in ipairs { false, true } do
          for _, tile_n in ipairs { 64, 128, 256 } do
            local r = request { arch = "sm_90a", head_dim = head_dim, head_dim_v = head_dim_v, stages = stages, dout_stages = 5 - stages,
              softcap = softcap, tile_n = tile_n }
            body(r, budget.bwd_sm90(r))
            r.alternate, r.group_buffers = true, true
            body(r, budget.bwd_sm90(r))
          end
        end
      end
    end
  end
end

test("bwd_sm90: what is accepted fits a block of 512 threads, what is refused says why", function()
  local accepted, refused = 0, 0
  sweep_hopper(function(r, facts, sentence)
    if not facts then
      refused = refused + 1
      contains(sentence, "bwd_sm90 head_dim=" .. r.head_dim)
      return
    end
    accepted = accepted + 1
    equal(facts.threads, 512)
    assert(facts.shared_bytes <= r.target.shared_per_block)
    equal(2 * facts.compute_registers + facts.dq_registers + facts.helper_registers, 4 * facts.registers)
    assert(facts.wide or (r.head_dim + r.head_dim_v) // 2 + 48 < facts.compute_registers)
    equal(facts.cluster, r.tile_n == 128 and math.max(r.head_dim, r.head_dim_v) > 128 and 2 or 1)
    assert(not facts.wide or facts.cluster == 2 or r.tile_n == 64)
    assert(not r.group_buffers or not facts.wide)
    equal(facts.slot_keys, (r.group_buffers or facts.wide) and 64 or 128)
    for _, map in ipairs(facts.maps) do
      equal(map.rows, (map.operand == "k" or map.operand == "v") and facts.slot_keys or r.tile_m)
    end
    local free = 0
    for _, region in ipairs(facts.regions) do
      assert(region.offset % (region[3] or 128) == 0 and region.offset >= free, region[1])
      free = region.offset + region[2]
    end
    equal(facts.shared_bytes, free)
  end)
  assert(accepted > 0 and refused > 0)
end)

test("bwd_sm90: needs wgmma, and its own tiles", function()
  for changes, part in pairs {
    [{ arch = "sm_80", tile_n = 128 }] = "sm_90a",
    [{ arch = "sm_90a", tile_n = 96 }] = "tile_n 128",
    [{ arch = "sm_90a", tile_n = 256 }] = "tile_n 128",
    [{ arch = "sm_90a", tile_n = 128, tile_m = 128 }] = "tile_m is 64",
  } do
    local facts, sentence = budget.bwd_sm90(request(changes))
    equal(facts, nil)
    contains(sentence, part)
  end
  local facts, sentence = budget.bwd_pre_sm90(request { arch = "sm_90a", aligned = false })
  equal(facts, nil)
  contains(sentence, "16 bytes")
end)

runner.finish()
