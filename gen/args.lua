-- The structs that cross from C into kernels: THE table. `cuda` writes them into generated sources, `c_header` writes the same
-- structs for the runtime with an assert for every offset, so the two sides cannot drift. ORDER args
--
-- Types: ptr (a device address), i64, u64, i32, u32, f32, TensorMap (templates/ptx/builtins.cuh, runtime/cuda_api.h), or the name of an
-- earlier struct. Fields are laid out in order; every struct is written so that no padding is needed, and `layout` refuses one that would
-- need some, but for the end of a struct with maps, which is as long as their alignment asks.

local args = {}

local SIZE = { ptr = 8, i64 = 8, u64 = 8, i32 = 4, u32 = 4, f32 = 4, TensorMap = 128 }
local ALIGN = { TensorMap = 64 } -- others: their size

-- How the structs of a pass end in both families, whose kernels differ in how they read.
local FORWARD = {
  { "Operand", "o", "" },
  { "Operand", "lse", "float32; data null: not wanted" },
  { "Schedule", "schedule", "by q" },
  { "i32", "heads", "query heads" },
  { "i32", "group", "query heads per key head" },
  { "i32", "window_left", "INT_MAX: no edge; edges are clamped to +-2^30 by the host" },
  { "i32", "window_right", "" },
  { "f32", "scale", "softmax_scale" },
  { "f32", "softcap", "" },
}
local BACKWARD = {
  { "Operand", "dq", "" },
  { "Operand", "dk", "" },
  { "Operand", "dv", "" },
  { "Schedule", "schedule", "by k" },
  { "ptr", "stats", "" },
  { "ptr", "accumulator", "" },
  { "ptr", "turns", "" },
  { "i64", "stat_rows", "" },
  { "i64", "accumulator_rows", "" },
  { "i32", "heads", "query heads" },
  { "i32", "group", "query heads per key head" },
  { "i32", "window_left", "" },
  { "i32", "window_right", "" },
  { "f32", "scale", "" },
  { "f32", "softcap", "" },
}

-- Each struct: name, then fields { type, name, meaning, count = elements if it is an array }.
args.structs = {
  { name = "Operand", -- element (batch, row, head, column) is data[batch * batch_stride + row * row_stride + head * head_stride + column]
    { "ptr", "data", "first element" },
    { "i64", "batch_stride", "elements; 0 in a packed tensor" },
    { "i64", "row_stride", "elements" },
    { "i64", "head_stride", "elements" },
  },
  { name = "Lengths", -- cu_seqlens or seqused
    { "ptr", "data", "null: absent" },
    { "i64", "wide", "1: int64, 0: int32" },
  },
  { name = "Sequence", -- a schedule entry: one sequence, or a range of rows where no token lives (then the other length is 0)
    { "i64", "q_begin", "first row of q (packed), 0 or the first unused row (batched)" },
    { "i64", "k_begin", "the same for k" },
    { "i64", "stat_row", "row of q counted over the whole tensor: index into the backward's row statistics" },
    { "i64", "accumulator_row", "first row in the dQ accumulators; -1: keys fit one tile and dQ is written directly" },
    { "i32", "q_len", "used rows of q" },
    { "i32", "k_len", "used rows of k" },
    { "i32", "q_batch", "index of the slot in a batched q, 0 in a packed one" },
    { "i32", "k_batch", "the same for k" },
  },
  { name = "ScheduleHeader",
    { "u64", "ticket", "next work item to draw" },
    { "i64", "blocks", "row blocks of one head, all entries together" },
    { "i64", "entries", "entries in use" },
    { "i64", "accumulator_rows", "rows of dQ accumulators in use" },
  },
  { name = "Schedule",
    { "ptr", "header", "ScheduleHeader" },
    { "ptr", "first_block", "i64[entries + 1]: blocks of all earlier entries" },
    { "ptr", "sequences", "Sequence[entries]" },
  },
  { name = "SchedulePart", -- counts of a share of the sequences: of each bin of the two lists, of accumulators, of what is broken
    { "u64", "bins", "entries << 36 | blocks", count = 2 * 256 + 2 },
  },
  { name = "ScheduleArgs",
    { "Lengths", "cu_q", "[batch + 1]; absent: batched, every slot is q_rows long" },
    { "Lengths", "cu_k", "[batch + 1]; absent: batched" },
    { "Lengths", "used_q", "[batch]" },
    { "Lengths", "used_k", "[batch]" },
    { "Schedule", "by_q", "work list in blocks of tile_m rows of q; header null: not wanted" },
    { "Schedule", "by_k", "work list in blocks of tile_n rows of k; header null: not wanted" },
    { "i64", "batch", "" },
    { "i64", "q_rows", "rows of q: of the packed tensor, or of one slot" },
    { "i64", "k_rows", "rows of k" },
    { "i64", "share", "sequences of one block of threads" },
    { "ptr", "parts", "SchedulePart of each block; null: there is one block, which counts and places" },
    { "i32", "tile_m", "" },
    { "i32", "tile_n", "" },
    { "i32", "fill", "1: rows where no token lives become entries" },
    { "i32", "counted", "1: parts are there, 0: they are to be counted" },
  },
  { name = "ForwardArgs",
    { "Operand", "q", "" },
    { "Operand", "k", "" },
    { "Operand", "v", "" },
    table.unpack(FORWARD),
  },
  { name = "ForwardSm90Args",
    { "TensorMap", "q", "maps: boxes of rows as the kernel's plan lists them, 64 columns, 128-byte swizzle" },
    { "TensorMap", "k", "" },
    { "TensorMap", "v", "" },
    { "TensorMap", "output", "of o, where the plan lists it" },
    table.unpack(FORWARD),
  },
  { name = "BackwardPreArgs",
    { "Operand", "o", "" },
    { "Operand", "dout", "" },
    { "Operand", "lse", "float32" },
    { "Operand", "dlse", "float32; data null: absent" },
    { "Schedule", "schedule", "by q" },
    { "ptr", "stats", "float2[heads][stat_rows]: lse * log2(e), delta" },
    { "ptr", "accumulator", "float[heads][accumulator_rows][head_dim], in the main kernel's order" },
    { "ptr", "turns", "u32[heads][accumulator_rows / tile_m]: key blocks that have added their part" },
    { "i64", "stat_rows", "" },
    { "i64", "accumulator_rows", "" },
    { "i32", "heads", "query heads" },
    { "i32", "reserved", "" },
  },
  { name = "BackwardPreSm90Args",
    { "Operand", "o", "" },
    { "Operand", "dout", "" },
    { "Operand", "dq", "" },
    { "Operand", "lse", "float32" },
    { "Operand", "dlse", "float32; data null: absent" },
    { "Schedule", "schedule", "by q" },
    { "ptr", "stats", "16 bytes [heads][stat_rows]: templates/attn/row_statistics.cuh" },
    { "ptr", "turns", "u32[heads][accumulator_rows / tile_m]: key blocks that have added their part" },
    { "i64", "stat_rows", "" },
    { "i64", "accumulator_rows", "" },
    { "i32", "heads", "query heads" },
    { "i32", "window_left", "" },
    { "i32", "window_right", "" },
    { "f32", "scale", "" },
  },
  { name = "BackwardArgs",
    { "Operand", "q", "" },
    { "Operand", "k", "" },
    { "Operand", "v", "" },
    { "Operand", "dout", "" },
    table.unpack(BACKWARD),
  },
  { name = "BackwardSm90Args",
    { "TensorMap", "q", "" },
    { "TensorMap", "k", "" },
    { "TensorMap", "v", "" },
    { "TensorMap", "dout", "" },
    table.unpack(BACKWARD),
  },
  { name = "BackwardPostArgs",
    { "Operand", "dq", "" },
    { "Schedule", "schedule", "by q" },
    { "ptr", "accumulator", "" },
    { "i64", "accumulator_rows", "" },
    { "i32", "heads", "query heads" },
    { "i32", "window_left", "" },
    { "i32", "window_right", "" },
    { "f32", "scale", "" },
  },
  { name = "CheckArgs", -- checked mode: validates lengths before anything is launched
    { "Lengths", "cu_q", "" },
    { "Lengths", "cu_k", "" },
    { "Lengths", "used_q", "" },
    { "Lengths", "used_k", "" },
    { "i64", "batch", "" },
    { "i64", "q_rows", "" },
    { "i64", "k_rows", "" },
    { "i64", "max_q", "0: no bound" },
    { "i64", "max_k", "0: no bound" },
    { "ptr", "report", "CheckReport" },
  },
  { name = "CheckReport",
    { "u64", "fault", "smallest of index * 16 + kind over all faults; all ones: none" },
    { "i64", "found", "the value found there" },
  },
}

-- What checked mode can find wrong with cu_seqlens and seqused: the kinds of CheckReport.fault, 8 more for the k side. Of several at one
-- index the first counts.
args.length_faults = { "START_NOT_ZERO", "DECREASING", "BEYOND_ROWS", "TOO_LONG", "USED_NEGATIVE", "USED_BEYOND_SLOT" }

local by_name = {}

-- Size, alignment and field offsets of a struct; refuses implicit padding.
function args.layout(struct)
  local offset, offsets, align = 0, {}, 1
  for i, field in ipairs(struct) do
    local nested = by_name[field[1]]
    local size = nested and nested.size or SIZE[field[1]]
    if not size then error(struct.name .. "." .. field[2] .. ": unknown type " .. field[1]) end
    local unit = nested and nested.align or ALIGN[field[1]] or size
    if offset % unit ~= 0 then error(struct.name .. "." .. field[2] .. ": would need padding") end
    offsets[i], offset, align = offset, offset + size * (field.count or 1), math.max(align, unit)
  end
  if align > 8 then offset = (offset + align - 1) // align * align end
  if offset % align ~= 0 then error(struct.name .. ": would need padding at its end") end
  return { size = offset, align = align, offsets = offsets }
end

for _, struct in ipairs(args.structs) do by_name[struct.name] = args.layout(struct) end

local CUDA_TYPE = { ptr = "u64" }
local C_TYPE = { ptr = "uint64_t", i64 = "int64_t", u64 = "uint64_t", i32 = "int32_t", u32 = "uint32_t", f32 = "float",
  TensorMap = "struct cuda_tensor_map" }

-- "ScheduleHeader" -> "schedule_header", "ForwardSm90Args" -> "forward_sm90_args"
local function snake(name)
  return (name:gsub("([%l%d])(%u)", "%1_%2"):lower())
end

local function array_text(field)
  return field.count and ("[%d]"):format(field.count) or ""
end

-- All structs as CUDA text. A ptr is a u64: templates cast it once, through pointer<T>() of ptx/builtins.cuh.
function args.cuda()
  local out = {}
  for _, struct in ipairs(args.structs) do
    out[#out + 1] = "struct " .. struct.name .. " {"
    for _, field in ipairs(struct) do
      local note = field[3] ~= "" and "  // " .. field[3] or ""
      out[#out + 1] = ("    %s %s%s;%s"):format(CUDA_TYPE[field[1]] or field[1], field[2], array_text(field), note)
    end
    out[#out + 1] = "};"
    out[#out + 1] = ("static_assert(sizeof(%s) == %d, \"ORDER args\");"):format(struct.name, by_name[struct.name].size)
  end
  return table.concat(out, "\n")
end

-- The faults as an enum, which reads the same in CUDA and in C.
function args.fault_enum()
  return "enum lengths_fault { LENGTHS_" .. table.concat(args.length_faults, ", LENGTHS_") .. ", LENGTHS_K_SIDE = 8 };"
end

-- Structs and faults for C: build/gen/kernel_args.h.
function args.c_header()
  local out = { "// Generated by gen/args.lua: the structs that kernels take. Do not edit.", "#ifndef VF_KERNEL_ARGS_H",
    "#define VF_KERNEL_ARGS_H", "", "#include \"cuda_api.h\"", "", "#include <stddef.h>", "#include <stdint.h>", "" }
  for _, struct in ipairs(args.structs) do
    local c_name = "kernel_" .. snake(struct.name)
    local layout = by_name[struct.name]
    out[#out + 1] = "struct " .. c_name .. " {"
    for _, field in ipairs(struct) do
      local c_type = C_TYPE[field[1]] or "struct kernel_" .. snake(field[1])
      local note = field[3] ~= "" and " // " .. field[3] or ""
      out[#out + 1] = ("    %s %s%s;%s"):format(c_type, field[2], array_text(field), note)
    end
    out[#out + 1] = "};"
    for i, field in ipairs(struct) do
      out[#out + 1] = ("_Static_assert(offsetof(struct %s, %s) == %d, \"ORDER args\");"):format(c_name, field[2], layout.offsets[i])
    end
    out[#out + 1] = ("_Static_assert(sizeof(struct %s) == %d, \"ORDER args\");"):format(c_name, layout.size)
    out[#out + 1] = ""
  end
  out[#out + 1] = args.fault_enum()
  out[#out + 1] = ""
  out[#out + 1] = "#endif"
  return table.concat(out, "\n") .. "\n"
end

return args
