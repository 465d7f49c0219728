-- That the built-in rows serve every request there is, on every architecture, and that where only lengths decide between rows, these
-- agree in all that changes bits.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local rows = require "tests.lua.rows"

local HEAD_DIMS = { 8, 40, 64, 72, 96, 128, 136, 192, 256 }

local function check(request)
  local variants, refusals = rows.variants(request)
  if #refusals > 0 then error(refusals[1], 0) end
  if #variants == 0 then error(("head_dim=%d head_dim_v=%d: no row"):format(request.head_dim, request.head_dim_v), 0) end
  if request.pass == "bwd" and not request.deterministic then return end
  for _, variant in ipairs(variants) do
    if variant.plan.numeric ~= variants[1].plan.numeric then
      error(("head_dim=%d: %s and %s differ in a numeric knob"):format(request.head_dim, variants[1].row.pointer, variant.row.pointer), 0)
    end
  end
end

for _, name in ipairs(rows.ARCHS) do
  for _, pass in ipairs { "fwd", "bwd" } do
    runner.test(("%s %s: every request has a variant"):format(name, pass), function()
      for _, features in ipairs(rows.features(pass)) do
        features.arch = name
        for _, head_dim in ipairs(HEAD_DIMS) do
          for _, head_dim_v in ipairs(HEAD_DIMS) do
            features.head_dim, features.head_dim_v = head_dim, head_dim_v
            check(features)
          end
        end
      end
    end)
  end
end

runner.finish()
