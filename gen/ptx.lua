-- What PTX wants spelled out and C++ cannot: register lists of instructions whose operands are as many as their shape says.

local ptx = {}

local ELEMENT = { bf16 = "bf16", fp16 = "f16" }

local function list(first, count, pattern)
  local out = {}
  for i = 0, count - 1 do out[i + 1] = pattern:format(first + i) end
  return table.concat(out, ", ")
end

-- The pieces of wgmma with n columns. Operands of the asm statement in order: the accumulators, then `a` (1 descriptor, or 4 registers),
-- the descriptor of b, the flag that keeps the accumulators. { head, accumulators, outputs, a, b, flag }
function ptx.wgmma(n, dtype, a_registers)
  local kept = n // 2
  return {
    head = ("wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s"):format(n, ELEMENT[dtype], ELEMENT[dtype]),
    kept = kept,
    accumulators = "{" .. list(0, kept, "%%%d") .. "}",
    outputs = list(0, kept, '"+f"(d[%d])'),
    a = a_registers == 1 and list(kept, 1, "%%%d") or "{" .. list(kept, a_registers, "%%%d") .. "}",
    b = list(kept + a_registers, 1, "%%%d"),
    flag = list(kept + a_registers + 1, 1, "%%%d"),
  }
end

return ptx
