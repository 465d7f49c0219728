-- Generated sources: the same bytes for the same spec, self-contained, and naming what made them.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local gen = require "gen.init"
local rows = require "tests.lua.rows"
local test, equal, contains = runner.test, runner.equal, runner.contains

-- Kernel specs of a forward and a backward variant of the built-in rows.
local specs = {}
for _, pass in ipairs { "fwd", "bwd" } do
  local request = { pass = pass, arch = "sm_90a", dtype = "bf16", head_dim = 72, head_dim_v = 64, mask = "window", softcap = true,
    aligned = false, deterministic = pass == "bwd" }
  for _, kernel in ipairs(assert(rows.variants(request)[1]).plan.kernels) do specs[#specs + 1] = kernel.spec end
end
specs[#specs + 1] = "kernel=check_lengths arch=sm_80"

for _, spec in ipairs(specs) do
  local name = spec:match("^kernel=(%S+)")

  test(name .. ": the same bytes again, from fresh modules too", function()
    local first = assert(gen.source(spec))
    equal(assert(gen.source(spec)), first)
    local pipe = assert(io.popen(("%s gen/cli.lua source '%s'"):format(arg[-1], spec)))
    local other = pipe:read("a")
    pipe:close()
    equal(other, first)
  end)

  test(name .. ": names its spec, template, budget and entry", function()
    local text, facts = gen.source(spec), gen.kernel(spec)
    local head = text:match("^.-\n\n")
    contains(head, facts.entry)
    contains(head, ("templates/%s.cu"):format(name))
    contains(head, ("varflash show --spec '%s'"):format(spec))
    contains(head, ("%d threads, %d bytes of shared memory"):format(facts.threads, facts.shared_bytes))
    contains(text, facts.entry .. "(")
  end)

  test(name .. ": is self-contained and fully expanded", function()
    local text = gen.source(spec)
    for line in text:gmatch("[^\n]+") do
      assert(not line:find("^%s*#%s*include"), line)
      assert(not line:find("^%s*//%%"), line)
      assert(not line:find("$(", 1, true), line)
      assert(not line:find("[^\t\32-\126]"), line)
      assert(not line:find("^#line"), line)
    end
    for _, row in ipairs { "tile_m", "tile_n", "warps", "head_dim" } do
      local value = spec:match(" " .. row .. "=(%S+)")
      if value then contains(text, ("constexpr int %s = %s;"):format(row:upper(), value)) end
    end
  end)

  test(name .. ": keeps to its layers", function()
    -- __shared__ stands in the one function that gives out dynamic shared memory.
    local _, count = gen.source(spec):gsub("__shared__", "")
    equal(count, 1)
  end)

  test(name .. ": #line only where it is asked for", function()
    local lines = gen.source(spec, { lines = true })
    contains(lines, ('#line 1 "templates/%s.cu"'):format(name))
    equal((lines:gsub('#line %d+ "[^"]+"\n', "")), gen.source(spec))
  end)
end

runner.finish()
