-- The structs that cross from C into kernels.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local args = require "gen.args"
local test, equal, contains = runner.test, runner.equal, runner.contains

test("fields lie one after the other", function()
  local layout = args.layout { name = "S", { "ptr", "a" }, { "i32", "b" }, { "f32", "c" }, { "Lengths", "d" } }
  equal(table.concat(layout.offsets, " "), "0 8 12 16")
  equal(layout.size, 32)
  equal(layout.align, 8)
  layout = args.layout { name = "S", { "i32", "a", count = 3 }, { "f32", "b" } }
  equal(table.concat(layout.offsets, " "), "0 12")
  equal(layout.size, 16)
end)

test("a struct with maps is as long as their alignment asks", function()
  local layout = args.layout { name = "S", { "TensorMap", "a" }, { "TensorMap", "b" }, { "i32", "c" } }
  equal(table.concat(layout.offsets, " "), "0 128 256")
  equal(layout.size, 320)
  equal(layout.align, 64)
end)

test("padding is refused", function()
  local function layout(struct) return function() args.layout(struct) end end
  local function fails_with(part, struct)
    local _, message = pcall(layout(struct))
    contains(message, part)
  end
  fails_with("S.b: would need padding", { name = "S", { "i32", "a" }, { "i64", "b" } })
  fails_with("S.b: would need padding", { name = "S", { "i32", "a" }, { "Operand", "b" } })
  fails_with("S: would need padding at its end", { name = "S", { "i64", "a" }, { "i32", "b" } })
  fails_with("S.b: would need padding", { name = "S", { "Operand", "a" }, { "TensorMap", "b" } })
  fails_with("S.a: unknown type short", { name = "S", { "short", "a" } })
end)

test("every struct is laid out and written for both sides", function()
  local cuda, c = args.cuda(), args.c_header()
  for _, struct in ipairs(args.structs) do
    local size = args.layout(struct).size
    contains(cuda, "struct " .. struct.name .. " {")
    contains(cuda, ("static_assert(sizeof(%s) == %d"):format(struct.name, size))
    contains(c, ("== %d, \"ORDER args\");"):format(size))
  end
  contains(c, "struct kernel_forward_args {")
  contains(c, "_Static_assert(offsetof(struct kernel_forward_args, lse) == 128")
  contains(c, "struct kernel_forward_sm90_args {\n    struct cuda_tensor_map q;")
  contains(cuda, "struct ForwardSm90Args {\n    TensorMap q;")
end)

test("kernel parameters stay below 4 KB", function()
  for _, struct in ipairs(args.structs) do
    assert(not struct.name:find("Args$") or args.layout(struct).size <= 4096, struct.name)
  end
end)

test("the C header compiles", function()
  local path = os.tmpname()
  runner.write_file(path, args.c_header())
  local ok = os.execute(("cc -std=c11 -Wall -Wextra -Werror -Iruntime -Iruntime/include -fsyntax-only -x c %s"):format(path))
  os.remove(path)
  equal(ok, true)
end)

runner.finish()
