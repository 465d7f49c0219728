-- The generator at a prompt: every verb, and its exit status.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local gen = require "gen.init"
local test, equal, contains = runner.test, runner.equal, runner.contains

local SPEC = "kernel=schedule arch=sm_80"

-- What `lua5.4 gen/cli.lua words` prints, both streams, and its exit status.
local function cli(words)
  local pipe = assert(io.popen(("%s gen/cli.lua %s 2>&1"):format(arg[-1], words)))
  local text = pipe:read("a")
  local _, _, status = pipe:close()
  return text, status
end

test("source, plan, candidates", function()
  equal(cli(("source '%s'"):format(SPEC)), gen.source(SPEC))
  equal(cli(("source '%s' --lines"):format(SPEC)), gen.source(SPEC, { lines = true }))
  contains(cli("plan 'pass=check arch=sm_80'"), "spec = kernel=check_lengths arch=sm_80\n")
  contains(cli("candidates 'pass=bwd arch=sm_80 dtype=bf16 head_dim=64 head_dim_v=64 mask=full softcap=0 aligned=1 deterministic=0 "
    .. "family=sm80'"), "tile_m=64 tile_n=64")
end)

test("args, signature, names", function()
  contains(cli("names"), "_emit _text aligned alternate arch")
  equal(cli("args"), require("gen.args").c_header())
  equal(cli("signature"), gen.signature() .. "\n")
end)

test("every template is Lua that loads, on as many lines", function()
  local count = 0
  for _, path in ipairs(runner.lines_of("find templates -name '*.cu' -o -name '*.cuh'")) do
    local text, status = cli("lua " .. path)
    equal(status, 0)
    assert(load(text, "@" .. path))
    equal(select(2, text:gsub("\n", "")), select(2, runner.read_file(path):gsub("\n", "")))
    count = count + 1
  end
  assert(count > 10)
end)

test("failures say one sentence and exit with 1, wrong use with 2", function()
  local text, status = cli("source 'kernel=none'")
  equal(text, "gen: kernel=none is not a kernel\n")
  equal(status, 1)
  text, status = cli("lua templates/none.cu")
  equal(text, "gen: templates/none.cu: no such template\n")
  equal(status, 1)
  text, status = cli("nonsense")
  contains(text, "usage: ")
  equal(status, 2)
  equal(select(2, cli("")), 2)
end)

runner.finish()
