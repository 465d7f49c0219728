-- That the built-in rows serve every request there is, on every architecture.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local rows = require "tests.lua.rows"

local HEAD_DIMS = { 8, 16, 40, 64, 72, 80, 96, 104, 128, 136, 192, 248, 256 }

for _, name in ipairs(rows.ARCHS) do
  for _, pass in ipairs { "fwd", "bwd" } do
    runner.test(("%s %s: every head size has a variant"):format(name, pass), function()
      for _, head_dim in ipairs(HEAD_DIMS) do
        for _, head_dim_v in ipairs(HEAD_DIMS) do
          local request = { pass = pass, arch = name, dtype = "bf16", head_dim = head_dim, head_dim_v = head_dim_v, mask = "causal",
            softcap = true, aligned = true, deterministic = pass == "bwd" }
          local variants, refusals = rows.variants(request)
          local last = variants[#variants]
          if not last then error(("head_dim=%d head_dim_v=%d: %s"):format(head_dim, head_dim_v, table.concat(refusals, "; "))) end
        end
      end
    end)
  end
end

runner.finish()
