-- What each GPU architecture offers, by rules over its compute capability, so that a card that is newer than this file is served
-- with the limits of its generation, or, where that is unknown too, with the smallest ones there are.
--
-- Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Bytes and counts.

local arch = {}

local KIB = 1024

-- The first row whose `serves` holds. shared_per_sm is what the blocks of an SM share; each block also takes shared_reserved.
local ROWS = {
  { serves = function(major, minor) return major == 8 and (minor == 0 or minor == 7) end,
    shared_per_block = 163 * KIB, shared_per_sm = 164 * KIB },
  { serves = function(major) return major >= 9 and major <= 11 end,
    shared_per_block = 227 * KIB, shared_per_sm = 228 * KIB },
  { serves = function() return true end,
    shared_per_block = 99 * KIB, shared_per_sm = 100 * KIB },
}

local SHARED_RESERVED = 1 * KIB
local REGISTERS_PER_SM = 64 * KIB
local REGISTERS_PER_THREAD = 255
local THREADS_PER_BLOCK = 1024

-- 8.0, 9.0 and 10.x keep 64 warps; the cards between and after them 48.
local function threads_per_sm(major, minor)
  return (major == 8 and minor == 0 or major == 9 or major == 10) and 2048 or 1536
end

local function blocks_per_sm(major, minor)
  if major == 8 and minor == 0 or major == 9 or major == 10 then return 32 end
  return (major == 8 and minor ~= 9) and 16 or 24
end

-- "sm_90a" -> a table of facts, or nil and a sentence. compute_NN (PTX for newer cards) has the limits of sm_NN.
function arch.parse(name)
  local kind, digits, suffix = tostring(name):match("^(%l+)_(%d%d%d?)([af]?)$")
  if kind ~= "sm" and kind ~= "compute" then
    return nil, ("arch=%s is not an architecture: sm_80, sm_90a, ..., or compute_80, ..."):format(tostring(name))
  end
  local cc = math.tointeger(tonumber(digits))
  if cc < 80 then return nil, ("arch=%s: nothing below sm_80 is supported"):format(name) end
  local major, minor = cc // 10, cc % 10
  local facts = {
    name = name, cc = cc, suffix = suffix,
    shared_reserved = SHARED_RESERVED,
    registers_per_sm = REGISTERS_PER_SM,
    registers_per_thread = REGISTERS_PER_THREAD,
    threads_per_block = THREADS_PER_BLOCK,
    threads_per_sm = threads_per_sm(major, minor),
    blocks_per_sm = blocks_per_sm(major, minor),
    pdl = cc >= 90,        -- griddepcontrol: programmatic dependent launch
    vector_red = cc >= 90, -- red.global.add of two and four float32
  }
  for _, row in ipairs(ROWS) do
    if row.serves(major, minor) then
      facts.shared_per_block, facts.shared_per_sm = row.shared_per_block, row.shared_per_sm
      break
    end
  end
  return facts
end

return arch
