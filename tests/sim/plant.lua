-- Faults, mechanically: the list of one-place changes of a template's text that check-sim-mutants plants. Knows no kernel: statements
-- that are calls are removed, comparisons shifted by one, conditions forced, phases flipped, counts and bytes changed, offsets
-- narrowed, clears left out, loops cut short, operands swapped.
--
-- Of what stands in comments, directives, static_asserts, declarations and the heads of unrolled loops (whose bounds are constants that the
-- compiler sees) nothing is changed.

local plant = {}

-- The text with comments, preprocessor lines, directives and strings blanked, so that positions stay.
local function code_of(text)
  local function blank(part) return (part:gsub("[^\n]", " ")) end
  text = text:gsub("//[^\n]*", blank)
  text = text:gsub("#pragma unroll%s*for %b()", blank)
  text = text:gsub("#[^\n]*", blank)
  text = text:gsub("%f[%w_]static_assert%b()", blank)
  text = text:gsub("\"[^\"\n]*\"", blank)
  return text
end

local function line_of(text, at)
  return select(2, text:sub(1, at):gsub("\n", "")) + 1
end

-- Whether the place stands inside a function: some brace around it belongs to one. Files indent by four; declarations of constants, structs
-- and parameters stand at the left edge or are no statements.
local function indented(text, at)
  local start = at
  while start > 1 and text:sub(start - 1, start - 1) ~= "\n" do start = start - 1 end
  return text:sub(start, start) == " "
end

local KEYWORDS = { ["if"] = true, ["for"] = true, ["while"] = true, ["return"] = true, ["switch"] = true, ["sizeof"] = true,
  ["constexpr"] = true, ["static_assert"] = true }

-- Hints to the compiler and the hardware, which change nothing that anyone could observe.
local HINTS = { pin = true, pin_fragments = true, pin_weights = true, allow_successor = true, prefetch_tensor_map = true }

-- Calls that are a whole statement: waits, arrives, fences, commits, syncs, loads, stores, clears, whatever it be.
local function calls(code, add)
  for from, name, stop in code:gmatch("()%f[%w_:]([%a_][%w_:%.]*)%f[^%w_:%.]()") do
    local before = code:sub(1, from - 1):match("([^%s])%s*$")
    if before == ";" or before == "{" or before == "}" or before == ")" then
      local after = stop
      local angles = code:match("^%b<>()", after)
      if angles then after = angles end
      local ending = code:match("^%b()%s*;()", after)
      -- `) name(...)` is a statement after a condition, but not after a cast or a declarator.
      if ending and not KEYWORDS[name] and not HINTS[name] and (before ~= ")" or code:sub(1, from - 1):match("%f[%w_]%a+%s*%b()%s*$")) then
        add("removed", from, ending - 1, ";")
      end
    end
  end
end

-- Comparisons outside of template arguments stand between spaces.
local function comparisons(code, add)
  local shifted = { ["<"] = "<=", ["<="] = "<", [">"] = ">=", [">="] = ">", ["=="] = "!=", ["!="] = "==" }
  for from, sign, stop in code:gmatch("() ([<>=!]=?) ()") do
    if shifted[sign] and not code:sub(1, from):match("template$") then add("comparison", from + 1, stop - 2, shifted[sign]) end
  end
end

-- Each condition of an if holds always, or never.
local function conditions(code, add)
  for from, stop in code:gmatch("%f[%w_]if ()%b()()") do
    add("condition", from, stop - 1, "(true)")
    -- Never doing a single call is the call removed.
    if not code:find("^%s+[%w_:%.<>, %-]+%b();", stop) then add("condition", from, stop - 1, "(false)") end
  end
  for from, sign, stop in code:gmatch("() (&&) ()") do add("condition", from + 1, stop - 2, sign == "&&" and "||") end
end

-- Phases, ring positions, thread and stage counts, bytes: a constant more or less.
local function counts(code, add)
  for from, stop in code:gmatch("() %^ 1()") do add("phase", from, stop - 1, "") end
  for from, stop in code:gmatch("() %^= 1()") do add("phase", from, stop - 1, " ^= 0") end
  for from, stop in code:gmatch("()parity%(%)()[,)]") do add("phase", from, stop - 1, "parity() ^ 1") end
  for from, stop in code:gmatch("() [%+%-] 1()%f[^%w_.]") do add("count", from, stop - 1, "") end
  for _, stop in code:gmatch("% ()[%u_]*STAGES()%f[^%w_]") do add("count", stop, stop - 1, " + 1") end
  for _, stop in code:gmatch("%f[%w_]()[%u_]*BYTES()%)") do add("bytes", stop, stop - 1, " - 16") end
  for _, stop in code:gmatch("%f[%w_]()[%u_]*BYTES()%)") do add("bytes", stop, stop - 1, " + 16") end
  for from, number, stop in code:gmatch("cp_async_wait<()(%d)()>") do add("count", from, stop - 1, tostring(tonumber(number) + 1)) end
  for from, number, stop in code:gmatch("wgmma_wait<()(%d)()>") do add("count", from, stop - 1, tostring(tonumber(number) + 1)) end
end

-- Offsets in 32 bits, and zeros for what is unused.
local function widths(code, add)
  for from, stop in code:gmatch("()static_cast<i64>()%(") do add("narrow", from, stop - 1, "static_cast<int>") end
  for from, stop in code:gmatch("const ()i64() %w+ = ") do add("narrow", from, stop - 1, "int") end
  for _, from, stop in code:gmatch("(%? )()[^%?:;,%(%)]+ : 0()%f[^%w_.]") do
    local body = code:sub(from, stop - 1)
    add("no zero", from, stop - 1, (body:gsub(" : 0$", "")) .. " : " .. body:match("^(.-) : 0$"))
  end
end

-- Loops with a step that leave out all turns but the first.
local function loops(code, add)
  for _, variable, first, stop in code:gmatch("%f[%w_]for %((%w+) (%w+) = ([^;\n]*);[^;\n]*; [^{}\n]*%) {()") do
    add("continue", stop, stop - 1, (" if (%s != %s) continue;"):format(variable, first))
  end
end

-- The first two arguments of a call exchanged, where both are plain names. Other types do not compile, and do not count.
local function operands(code, add)
  for a, b_from, b_stop in code:gmatch("%f[%w_]multiply%f[^%w_][^;]-, ()[%w_]+, ()[%w_]+()%)") do
    add("operands", a, b_stop - 1, code:sub(b_from, b_stop - 1) .. ", " .. code:sub(a, b_from - 3))
  end
end

-- The mutants of a template's text: { name = "12: removed block_sync();", text = ... }, no two alike, in order of place.
function plant.mutants(text)
  local code, out, known = code_of(text), {}, {}
  local function add(kind, from, stop, new)
    if not new or not indented(text, from) then return end
    local changed = text:sub(1, from - 1) .. new .. text:sub(stop + 1)
    if changed == text or known[changed] then return end
    known[changed] = true
    local old = text:sub(from, stop):gsub("%s+", " ")
    local line = text:sub(1, from):match("[^\n]*$") .. text:sub(from + 1):match("^[^\n]*")
    local detail = kind == "removed" and old
      or ("%s -> %s"):format(old == "" and "here" or old, new == "" and "nothing" or new:match("^%s*(.-)%s*$"))
    out[#out + 1] = { kind = kind, line = line_of(text, from), at = from, detail = detail, place = line:match("^%s*(.-)%s*$"),
      text = changed }
  end
  calls(code, add)
  comparisons(code, add)
  conditions(code, add)
  counts(code, add)
  widths(code, add)
  loops(code, add)
  operands(code, add)
  table.sort(out, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    return a.kind .. a.detail < b.kind .. b.detail
  end)
  return out
end

return plant
