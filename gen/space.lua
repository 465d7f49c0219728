-- The tuner's candidates: every combination of knob values on the axes of knobs.lua that the budget accepts.

local gen = require "gen.init"
local kernels = require "gen.kernels"
local knobs = require "gen.knobs"

local space = {}

-- `request`: a request's spec without knobs but with its family. A list of complete specs, in canonical order; or nil, sentence.
function space.candidates(request)
  local family, pass = request:match("family=(%S+)"), request:match("pass=(%S+)")
  local names = kernels.variants[family] and kernels.variants[family][pass]
  if not names then return nil, "candidates: needs family=... and pass=fwd or pass=bwd" end

  local axes = {}
  for _, row in ipairs(kernels.union(names)) do
    if row.axis then axes[#axes + 1] = row end
  end
  local out, refusal = {}, nil
  local function extend(spec, i)
    local row = axes[i]
    if row then
      for _, value in ipairs(row.axis) do extend(("%s %s=%s"):format(spec, row.name, knobs.write(value)), i + 1) end
      return
    end
    local plan, why = gen.plan(spec)
    if plan then out[#out + 1] = spec else refusal = why end
  end
  extend(request, 1)
  if #out == 0 then return nil, refusal end
  return out
end

-- The same for every family that has kernels for `request`, which names none: knobs alone ("family=sm80 tile_m=64 ..."), a line each, or
-- nil and the last refusal.
function space.lines(request)
  local names, out, refusal = {}, {}, nil
  for name in pairs(kernels.variants) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local found, why = space.candidates(request .. " family=" .. name)
    refusal = why or refusal
    for _, spec in ipairs(found or {}) do out[#out + 1] = spec:sub(#request + 2) .. "\n" end
  end
  if #out == 0 then return nil, refusal end
  return table.concat(out)
end

return space
