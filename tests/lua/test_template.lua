-- The text engine: what templates may say, and where it says a fault is.

package.path = "./?.lua;" .. package.path
local runner = require "tests.lua.runner"
local template = require "gen.template"
local test, equal, raises = runner.test, runner.equal, runner.raises

local VALUES = { n = 3, yes = true, mask = "full", budget = { bytes = 4096, offsets = { q = 0 }, list = { 5, 6 } } }

-- Expands `text` as templates/a.cu; `others` are further files by their name below templates/.
local function expand(text, others, options)
  options = options or {}
  options.read = function(path)
    if path == "templates/a.cu" then return text end
    return others and others[path:match("^templates/(.*)$")]
  end
  return template.expand("a.cu", VALUES, options)
end

test("text is copied, values are inserted", function()
  equal(expand("a $ b ( ) %d [[x]] \\n\n\n\tint x = $(n + 1);\n"), "a $ b ( ) %d [[x]] \\n\n\n\tint x = 4;\n")
  equal(expand("acc$(n)[$(n)], $(yes) $(mask)"), "acc3[3], true full\n")
  equal(expand("$(math.max(n, (2 + 5)))"), "7\n")
  equal(expand(""), "\n")
end)

test("Lua lines vanish, loops and branches work", function()
  equal(expand("//% for i = 0, 1 do\nx$(i)\n  //% if i == 1 then\none\n//% else -- zero\nzero\n//% end -- if\n//% end\n"),
    "x0\nzero\nx1\none\n")
  equal(expand("//%-- a note\n//% -- another\na\n"), "a\n")
  equal(expand("//% for _, v in ipairs(budget.list) do\n$(v)\n//% end\n$(#budget.list)\n"), "5\n6\n2\n")
  equal(expand("// not %lua\nx //% nor this\n"), "// not %lua\nx //% nor this\n")
end)

test("a template is included once, in place", function()
  local others = { ["tile/x.cuh"] = "x $(n)\n//% include \"tile/y.cuh\"\n", ["tile/y.cuh"] = "y\n//% include \"tile/x.cuh\"\n" }
  equal(expand("//% include \"tile/x.cuh\"\na\n//% include \"tile/x.cuh\"\n//% include \"tile/y.cuh\"\nb\n", others), "x 3\ny\na\nb\n")
end)

test("faults name the template and the line", function()
  local others = { ["x.cuh"] = "\n\n$(misspelt)\n", ["y.cuh"] = "//% include \"x.cuh\"\n" }
  raises("templates/a.cu:2: the template's environment has no 'misspelt'", expand, "\n$(misspelt)\n")
  raises("templates/a.cu:3: the template's environment has no 'misspelt'", expand, "\n\n//% if misspelt then\n//% end\n")
  raises("templates/a.cu:2: budget has no 'byte'", expand, "\n$(budget.byte)\n")
  raises("templates/a.cu:2: offsets has no 'k'", expand, "\n$(budget.offsets.k)\n")
  raises("templates/x.cuh:3: the template's environment has no 'misspelt'", expand, "\n//% include \"y.cuh\"\n", others)
  raises("templates/a.cu:2: templates/none.cuh: no such template", expand, "\n//% include \"none.cuh\"\n", others)
  raises("templates/a.cu:1: a $(value) of this line is a nil", expand, "$( nil )\n")
  raises("templates/a.cu:1: a $(value) of this line is a table", expand, "$(budget)\n")
  raises("templates/a.cu:1: a $(value) of this line is a function", expand, "$(tostring)\n")
  raises("templates/a.cu:3:", expand, "\n\n//% for i = 1 do\n//% end\n")
  raises("templates/a.cu:2: attempt to perform arithmetic", expand, "\n$(budget + 1)\n")
  raises("templates/a.cu:4: told so", expand, "\n\n\n//% error(\"told so\")\n")
end)

test("faults of a value's form", function()
  raises("templates/a.cu:1: '$(n)' has text glued behind it", expand, "$(n)f\n")
  raises("templates/a.cu:2: '$(' is not closed on its line", expand, "\nx = $(n +\n1)\n")
  raises("templates/a.cu:1: '$()' is empty", expand, "$()\n")
  raises("templates/a.cu: has carriage returns", expand, "a\r\nb\n")
end)

test("the environment is read-only", function()
  raises("templates/a.cu:1: the template's environment is read-only: cannot set 'n'", expand, "//% n = 4\n")
  raises("templates/a.cu:1: the template's environment is read-only: cannot set 'm'", expand, "//% m = 4\n")
  raises("templates/a.cu:1: budget is read-only: cannot set 'bytes'", expand, "//% budget.bytes = 1\n")
  raises("templates/a.cu:1: math is read-only: cannot set 'max'", expand, "//% math.max = math.min\n")
  equal(expand("//% local m = n * 2\n$(m)\n"), "6\n")
  equal(VALUES.n, 3)
end)

test("nothing reaches the world or chance", function()
  for _, name in ipairs { "os", "io", "pairs", "next", "require", "load", "print", "debug", "setmetatable", "rawset", "getmetatable" } do
    raises(("templates/a.cu:1: the template's environment has no '%s'"):format(name), expand, ("//%% local x = %s\n"):format(name))
  end
  raises("templates/a.cu:1: math has no 'random'", expand, "$(math.random())\n")
end)

test("#line stands where output and template drift apart, and only there", function()
  local others = { ["x.cuh"] = "x\n" }
  equal(expand("a\nb\n//% include \"x.cuh\"\nc\n//% for i = 1, 2 do\nd\n//% end\n", others, { lines = true }),
    '#line 1 "templates/a.cu"\na\nb\n#line 1 "templates/x.cuh"\nx\n#line 4 "templates/a.cu"\nc\n'
    .. '#line 6 "templates/a.cu"\nd\n#line 6 "templates/a.cu"\nd\n')
  equal(expand("$(\"p\\nq\")\nr\n", nil, { lines = true }), '#line 1 "templates/a.cu"\np\nq\n#line 2 "templates/a.cu"\nr\n')
end)

test("one template line is one Lua line", function()
  local text = "a\n//% if yes then\nb $(n) ]] \"x\"\n\n//% end\n"
  local lua, branches = template.translate("templates/a.cu", text)
  equal(select(2, lua:gsub("\n", "")), select(2, text:gsub("\n", "")))
  equal(#branches, 1)
  equal(branches[1], 2)
end)

test("branches are counted", function()
  local text = "//% if yes then\na\n//% elseif n == 3 then -- note\nb\n//% else\nc\n//% end\n//% for i = 1, n do\nd\n//% end\n"
  local taken = {}
  local plain = expand(text)
  equal(expand(text, nil, { taken = taken }), plain)
  local counts = taken["templates/a.cu"]
  equal(counts[1], 1)
  equal(counts[3], nil)
  equal(counts[5], nil)
  equal(counts[8], 3)
  local _, branches = template.translate("templates/a.cu", text)
  equal(table.concat(branches, " "), "1 3 5 8")
end)

test("a changed file is read again", function()
  equal(expand("a\n"), "a\n")
  equal(expand("b\n"), "b\n")
end)

runner.finish()
