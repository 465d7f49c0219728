-- Faults, mechanically: the list of one-place changes of a template's text that check-sim-mutants plants. Knows no kernel: statements
-- that are calls are removed, comparisons shifted by one, conditions forced, phases flipped, counts and bytes changed, offsets
-- narrowed, clears left out, loops cut short, operands swapped.
--
-- Of what stands in comments, directives, static_asserts, declarations and the heads of unrolled loops (whose bounds are constants that the
-- compiler sees) nothing is changed.
--
-- A compilation takes longer than most runs, so faults are also planted by the hundred, each behind a switch that is set while the program
-- runs (planted.h): where the language wants a constant, or another type, none can be.

local plant = {}

local VALUE = "\1" -- what stands in place of the generator's values

-- The text with comments, preprocessor lines, directives and strings blanked, so that positions stay.
local function code_of(text)
  local function blank(part) return (part:gsub("[^\n]", " ")) end
  text = text:gsub("//[^\n]*", blank)
  text = text:gsub("#pragma unroll%s*for %b()", blank)
  text = text:gsub("#[^\n]*", blank)
  text = text:gsub("%f[%w_]static_assert%b()", blank)
  text = text:gsub("\"[^\"\n]*\"", blank)
  text = text:gsub("%$%b()", function(part) return VALUE:rep(#part) end)
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
    if before == ";" or before == "{" or before == "}" or before == ")" or code:find("^else%s", from - 5) then
      local after = stop
      local angles = code:match("^%b<>()", after)
      if angles then after = angles end
      local ending = code:match("^%b()%s*;()", after)
      -- `) name(...)` is a statement after a condition, but not after a cast or a declarator.
      if ending and not KEYWORDS[name] and not HINTS[name] and (before ~= ")" or code:sub(1, from - 1):match("%f[%w_]%a+%s*%b()%s*$")) then
        -- What is not cleared holds anything.
        local otherwise = name == "clear" and ("if (planted(#)) spoil%s; else "):format(code:match("^%b()", after)) or "if (!planted(#)) "
        add("removed", from, ending - 1, ";", { { from, "{ " .. otherwise }, { ending, " }" } })
      end
    end
  end
end

-- Comparisons outside of template arguments stand between spaces.
local function comparisons(code, add)
  local shifted = { ["<"] = "<=", ["<="] = "<", [">"] = ">=", [">="] = ">", ["=="] = "!=", ["!="] = "==" }
  for from, sign, stop in code:gmatch("() ([<>=!]=?) ()") do
    if shifted[sign] and not code:sub(1, from):match("template$") then
      add("comparison", from + 1, stop - 2, shifted[sign], { { stop, ("Shifted{#} %s "):format(sign) } })
    end
  end
end

-- Where the condition that has a logical operator at a place begins and ends: at a bracket around it, a comma, a question mark, its colon,
-- or `=`.
local function logical_extent(code, at)
  local depth, from, stop = 0, at, at
  while from > 1 do
    local c = code:sub(from - 1, from - 1)
    depth = depth + (c:find("[%)%]}]") and 1 or c:find("[%(%[{]") and -1 or 0)
    local assigned = code:find("^[:=] ", from - 1) and not code:find("^[<>=!:]", from - 2)
    if depth < 0 or depth == 0 and (c:find("[;,?]") or assigned) then break end
    from = from - 1
  end
  from = code:match("^%s*return%s+()", from) or code:match("^%s*()", from)
  depth = 0
  while depth >= 0 and stop < #code do
    stop = stop + 1
    local c = code:sub(stop, stop)
    depth = depth + (c:find("[%(%[{]") and 1 or c:find("[%)%]}]") and -1 or 0)
    if depth == 0 and (c:find("[;,?]") or code:find("^ : ", stop - 1)) then break end
  end
  return from, stop -- behind its last character
end

-- Each condition of an if holds always, or never.
local function conditions(code, add)
  for from, stop in code:gmatch("%f[%w_]if ()%b()()") do
    add("condition", from, stop - 1, "(true)", { { from, "(planted(#) || " }, { stop, ")" } })
    -- Never doing a single call is the call removed.
    if not code:find("^%s+[%w_:%.<>, %-]+%b();", stop) then
      add("condition", from, stop - 1, "(false)", { { from, "(!planted(#) && " }, { stop, ")" } })
    end
  end
  for at in code:gmatch(" ()&& ") do
    local from, stop = logical_extent(code, at)
    local other = code:sub(from, at - 1) .. "||" .. code:sub(at + 2, stop - 1)
    add("condition", at, at + 1, "||", { { from, ("(planted(#) ? (%s) : ("):format(other:gsub("%s+", " ")) }, { stop, "))" } })
  end
end

-- Phases, ring positions, thread and stage counts, bytes: a constant more or less.
local function counts(code, add)
  local less = "(planted(#) ? 0 : 1)"
  for from, stop in code:gmatch("() %^ 1()") do add("phase", from, stop - 1, "", { { stop - 1, less, 1 } }) end
  for from, stop in code:gmatch("() %^= 1()") do add("phase", from, stop - 1, " ^= 0", { { stop - 1, less, 1 } }) end
  for from, stop in code:gmatch("()parity%(%)()[,)]") do
    add("phase", from, stop - 1, "parity() ^ 1", { { stop, " ^ (planted(#) ? 1 : 0)" } })
  end
  for from, stop in code:gmatch("() [%+%-] 1()%f[^%w_.]") do add("count", from, stop - 1, "", { { stop - 1, less, 1 } }) end
  for _, stop in code:gmatch("% ()[%u_]*STAGES()%f[^%w_]") do
    add("count", stop, stop - 1, " + 1", { { stop, " + (planted(#) ? 1 : 0)" } })
  end
  for _, sign in ipairs { "-", "+" } do
    local switched = (" %s (planted(#) ? 16 : 0)"):format(sign)
    for stop in code:gmatch("%f[%w_][%u_]*BYTES()%)") do add("bytes", stop, stop - 1, (" %s 16"):format(sign), { { stop, switched } }) end
  end
  for _, wait in ipairs { "cp_async_wait<", "wgmma_wait<" } do
    for from, digit, number, stop, ending in code:gmatch("()" .. wait .. "()(%d)()>[^;]*;()") do
      local more = tostring(tonumber(number) + 1)
      local switched = ("{ if (planted(#)) %s%s%s else "):format(wait, more, code:sub(stop, ending - 1):gsub("%s+", " "))
      add("count", digit, stop - 1, more, { { from, switched }, { ending, " }" } })
    end
  end
end

-- Offsets in 32 bits, and zeros for what is unused.
local function widths(code, add)
  for from, stop in code:gmatch("()static_cast<i64>()%(") do add("narrow", from, stop - 1, "static_cast<int>") end
  for from, stop in code:gmatch("const ()i64() %w+ = ") do add("narrow", from, stop - 1, "int") end
  for _, from, stop in code:gmatch("(%? )()[^%?:;,%(%)]+ : 0()%f[^%w_.]") do
    local body = code:sub(from, stop - 1)
    local value = body:match("^(.-) : 0$")
    add("no zero", from, stop - 1, value .. " : " .. value, { { stop - 1, ("(planted(#) ? %s : 0)"):format(value), 1 } })
  end
end

-- Loops with a step that leave out all turns but the first.
local function loops(code, add)
  for variable, first, stop in code:gmatch("%f[%w_]for %(%w+ (%w+) = ([^;\n]*);[^;\n]*; [^{}\n]*%) {()") do
    first = first:match("^(.-), %w+ = ") or first
    add("continue", stop, stop - 1, (" if (%s != %s) continue;"):format(variable, first),
      { { stop, (" if (planted(#) && %s != %s) continue;"):format(variable, first) } })
  end
end

-- The first two arguments of a call exchanged, where both are plain names. Other types do not compile, and do not count.
local function operands(code, add)
  for a, b_from, b_stop in code:gmatch("%f[%w_]multiply%f[^%w_][^;]-, ()[%w_]+, ()[%w_]+()%)") do
    add("operands", a, b_stop - 1, code:sub(b_from, b_stop - 1) .. ", " .. code:sub(a, b_from - 3))
  end
end

-- Ranges whose values the compiler must know: constants, and what functions that it may evaluate are made of.
local function constants(code)
  local out = {}
  for from in code:gmatch("()%f[%w_]constexpr%f[^%w_]") do
    local condition = code:match("^constexpr%s*%b()()", from)                   -- of an if
    local stop = condition or code:match("^[^;{}=]*%b()[%s%w_]*%b{}()", from)   -- a function
      or code:match("^[^;]*()", from)
    out[#out + 1] = { from, stop }
  end
  for from, stop in code:gmatch("%f[%w_]template ()%b<>()") do out[#out + 1] = { from, stop } end
  for from, stop in code:gmatch("[%w_]()%b<>()%(") do out[#out + 1] = { from, stop } end                         -- arguments of one
  for from, stop in code:gmatch("[%w_>] [%a_][%w_]*()%b[]()[^;\n]*[;{=]") do out[#out + 1] = { from, stop } end -- an array
  return out
end

local function inside(ranges, at)
  for _, range in ipairs(ranges) do
    if at >= range[1] and at < range[2] then return true end
  end
  return false
end

-- The mutants of a template's text, no two alike, in order of place: { kind, line, at, detail, place = the line as it stands, text = with
-- the fault, switch = how it stands behind a switch, or nil: edits { position, text[, characters that it replaces] } }.
function plant.mutants(text)
  local code, out, known = code_of(text), {}, {}
  local fixed = constants(code)
  local function add(kind, from, stop, new, switch)
    if not indented(text, from) or new:find(VALUE, 1, true) then return end
    for _, edit in ipairs(switch or {}) do
      if edit[2]:find(VALUE, 1, true) or inside(fixed, edit[1]) then switch = nil end
    end
    local changed = text:sub(1, from - 1) .. new .. text:sub(stop + 1)
    if changed == text or known[changed] then return end
    known[changed] = true
    local old = text:sub(from, stop):gsub("%s+", " ")
    local line = text:sub(1, from):match("[^\n]*$") .. text:sub(from + 1):match("^[^\n]*")
    local detail = kind == "removed" and old
      or ("%s -> %s"):format(old == "" and "here" or old, new == "" and "nothing" or new:match("^%s*(.-)%s*$"))
    out[#out + 1] = { kind = kind, line = line_of(text, from), at = from, detail = detail, place = line:match("^%s*(.-)%s*$"),
      text = changed, switch = switch }
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

-- The text with all the `mutants` that have one behind switches: number -> mutant.
function plant.switched(text, mutants)
  local edits = {}
  for number, mutant in pairs(mutants) do
    local from, stop = mutant.switch[1][1], mutant.switch[#mutant.switch][1]
    for i, edit in ipairs(mutant.switch) do
      -- At one place what ends comes first, and of two ranges the longer begins first and ends last.
      local ends = i == 2
      edits[#edits + 1] = { at = edit[1], text = edit[2]:gsub("#", number), skip = edit[3] or 0, ends = ends,
        order = ends and (stop - from) * 10000 + number or (from - stop) * 10000 - number, single = #mutant.switch == 1 }
    end
  end
  table.sort(edits, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    if a.ends ~= b.ends then return a.ends end
    return a.order < b.order
  end)
  local out, at = { '#include "planted.h" ' }, #text:match("^//[^\n]*") + 1 -- in place of a comment, so that lines stay
  for _, edit in ipairs(edits) do
    out[#out + 1] = text:sub(at, edit.at - 1)
    out[#out + 1] = edit.text
    at = edit.at + edit.skip
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

return plant
