-- Knobs and fields: reading and writing values, refusals, constants, the signature.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local kernels = require "gen.kernels"
local knobs = require "gen.knobs"
local test, equal, refused = runner.test, runner.equal, runner.refused

test("every row is complete, and its name and letter are its own", function()
  local letters = {}
  for _, row in ipairs(knobs.rows) do
    assert(row.meaning ~= "" and row.type, row.name)
    assert(row.name:find("^[%l_]+$"), row.name)
  end
  for _, row in ipairs(knobs.knobs) do
    assert(not letters[row.letter], row.name .. ": letter " .. tostring(row.letter))
    letters[row.letter] = true
    for _, value in ipairs(row.axis) do equal(knobs.read(row, knobs.write(value)), value) end
    for _, pass in ipairs(row.numeric) do assert(pass == "fwd" or pass == "bwd", row.name) end
  end
end)

test("every row is used by a kernel, every kernel by a variant", function()
  local used, launched = {}, {}
  for _, kernel in ipairs(kernels.rows) do
    for _, row in ipairs(kernel.uses) do used[row.name] = true end
  end
  for _, row in ipairs(knobs.rows) do assert(used[row.name], row.name) end
  local lists = { kernels.check }
  for _, passes in pairs(kernels.variants) do
    for _, names in pairs(passes) do lists[#lists + 1] = names end
  end
  for _, names in ipairs(lists) do
    for _, name in ipairs(names) do launched[name] = true end
  end
  for _, kernel in ipairs(kernels.rows) do assert(launched[kernel.name], kernel.name) end
end)

test("values are read as what they are", function()
  local row = knobs.by_name
  equal(knobs.read(row.tile_m, "64"), 64)
  equal(math.type(knobs.read(row.tile_m, "64")), "integer")
  equal(knobs.read(row.softcap, "0"), false)
  equal(knobs.read(row.softcap, "1"), true)
  equal(knobs.read(row.mask, "causal"), "causal")
  equal(knobs.read(row.arch, "sm_90a"), "sm_90a")
end)

test("values that are not allowed are refused with what is", function()
  local row = knobs.by_name
  refused("tile_m=24 is not allowed: 16 to 256 in steps of 16", knobs.read(row.tile_m, "24"))
  refused("tile_m=0 is not allowed", knobs.read(row.tile_m, "0"))
  refused("tile_m=272 is not allowed", knobs.read(row.tile_m, "272"))
  refused("tile_m=-16 is not allowed", knobs.read(row.tile_m, "-16"))
  refused("tile_m=1e2 is not allowed", knobs.read(row.tile_m, "1e2"))
  refused("tile_m=64.0 is not allowed", knobs.read(row.tile_m, "64.0"))
  refused("tile_m=0x40 is not allowed", knobs.read(row.tile_m, "0x40"))
  refused("tile_m=99999999999999999999 is not allowed", knobs.read(row.tile_m, "99999999999999999999"))
  refused("warps=9 is not allowed: 1 to 8", knobs.read(row.warps, "9"))
  refused("softcap=true is not allowed: 0, 1", knobs.read(row.softcap, "true"))
  refused("mask=none is not allowed: full, causal, window", knobs.read(row.mask, "none"))
  refused("head_dim=12 is not allowed: 8 to 256 in steps of 8", knobs.read(row.head_dim, "12"))
  refused("arch=sm_70: nothing below sm_80", knobs.read(row.arch, "sm_70"))
end)

test("constants", function()
  local row = knobs.by_name
  equal(knobs.constant(row.tile_m, 64), "constexpr int TILE_M = 64;  // " .. row.tile_m.meaning)
  equal(knobs.constant(row.softcap, false), "constexpr bool SOFTCAP = false;  // " .. row.softcap.meaning)
  equal(knobs.constant(row.mask, "full"), nil)
  equal(knobs.constant(row.arch, "sm_80"), nil)
end)

test("the signature follows names and values", function()
  local before = knobs.signature()
  equal(knobs.signature(), before)
  assert(before:find("^%x+$") and #before == 16)
  local row = knobs.by_name.warps
  local allowed = row.allowed
  row.allowed = { 1, 16, 1 }
  local changed = knobs.signature()
  row.allowed = allowed
  assert(changed ~= before)
  equal(knobs.signature(), before)
end)

test("numeric: equal exactly for equal bits", function()
  local function numeric(pass, tile_m, tile_n, warps)
    return knobs.numeric(pass, "sm80", { tile_m = tile_m, tile_n = tile_n, warps = warps })
  end
  equal(numeric("fwd", 64, 64, 4), numeric("fwd", 128, 64, 8))
  assert(numeric("fwd", 64, 64, 4) ~= numeric("fwd", 64, 32, 4))
  equal(numeric("bwd", 64, 64, 4), numeric("bwd", 64, 64, 8))
  assert(numeric("bwd", 64, 64, 4) ~= numeric("bwd", 128, 64, 4))
  assert(numeric("bwd", 64, 64, 4) ~= numeric("bwd", 64, 128, 4))
  assert(numeric("fwd", 64, 64, 4) ~= knobs.numeric("fwd", "sm90", { tile_n = 64 }))
end)

runner.finish()
