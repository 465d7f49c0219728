-- Architectures: the known cards' limits, and rules for those that are newer than the table.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local arch = require "gen.arch"
local test, equal, refused = runner.test, runner.equal, runner.refused

-- Name, KiB of shared memory of a block, threads and blocks of a multiprocessor: the Programming Guide's table.
local CARDS = {
  { "sm_80", 163, 2048, 32 }, { "sm_86", 99, 1536, 16 }, { "sm_87", 163, 1536, 16 }, { "sm_89", 99, 1536, 24 },
  { "sm_90", 227, 2048, 32 }, { "sm_90a", 227, 2048, 32 }, { "sm_100", 227, 2048, 32 }, { "sm_100a", 227, 2048, 32 },
  { "sm_103f", 227, 2048, 32 }, { "sm_110", 227, 1536, 24 }, { "sm_120", 99, 1536, 24 }, { "sm_121", 99, 1536, 24 },
}

for _, card in ipairs(CARDS) do
  test(card[1], function()
    local facts = assert(arch.parse(card[1]))
    equal(facts.name, card[1])
    equal(facts.shared_per_block, card[2] * 1024)
    equal(facts.shared_per_sm, (card[2] + 1) * 1024)
    equal(facts.threads_per_sm, card[3])
    equal(facts.blocks_per_sm, card[4])
    equal(facts.registers_per_sm, 65536)
    equal(facts.registers_per_thread, 255)
    equal(facts.pdl, facts.cc >= 90)
    equal(facts.vector_red, facts.cc >= 90)
  end)
end

test("a newer card has its generation's limits, else the smallest", function()
  equal(arch.parse("sm_105").shared_per_block, 227 * 1024)
  equal(arch.parse("sm_129").shared_per_block, 99 * 1024)
  equal(arch.parse("sm_150").shared_per_block, 99 * 1024)
  equal(arch.parse("sm_150").threads_per_sm, 1536)
  equal(arch.parse("compute_120").cc, 120)
end)

test("suffixes are kept apart from the number", function()
  equal(arch.parse("sm_90a").suffix, "a")
  equal(arch.parse("sm_90a").cc, 90)
  equal(arch.parse("sm_90").suffix, "")
end)

test("what is no architecture is refused", function()
  refused("is not an architecture", arch.parse("90"))
  refused("is not an architecture", arch.parse("sm_90b"))
  refused("is not an architecture", arch.parse("sm_9"))
  refused("is not an architecture", arch.parse("sm_1000"))
  refused("is not an architecture", arch.parse("cc_90"))
  refused("is not an architecture", arch.parse(nil))
  refused("nothing below sm_80", arch.parse("sm_75"))
end)

runner.finish()
