-- Can the simulator fail? Plants the faults of plant.lua in copies of the templates and counts those that the suite's problems find, with
-- the first three seeds of variants whose kernels the change reaches; or that a test program of a kernel alone finds.
--
--   lua5.4 tests/sim/mutants.lua [SHARE] [PLACE | I/N]    SHARE=n: an n-th of them, chosen by the commit's hash; PLACE: TEMPLATE or
--                                                         TEMPLATE:LINE, those alone; I/N: the I-th of N parts
--
-- Where it can, a fault stands behind a switch, with all others in one copy: a run of a seed's problems begins without faults, and goes on
-- by itself with each fault whose place it comes to (planted.h). The others are planted and compiled one at a time.
--
-- Prints what is missed, and what equivalents.txt says nobody can find, with its reason. The last line: found / planted, without the latter
-- and what does not compile. Fails below 95 %, a part below 85 %. To miss a fault takes a hundred times as long as to find one: those that
-- missed.txt says a run of all has missed are tried again by runs of all alone; in others they count as missed.
-- JOBS= processes (2), SIM= and WORK= as suite.lua has them; LIST=1 prints how each one was found.

package.path = "./?.lua;" .. package.path

local gen = require "gen.init"
local plant = require "tests.sim.plant"
local runner = require "tests.lua.runner"
local suite = require "tests.sim.suite"
local cases = require "tests.sim.cases"
local variants = require "tests.sim.variants"
local widths = require "tests.sim.widths"

local VARIANTS = { 5, 2, 1 } -- of each seed, so many variants of a pass
local ENOUGH, ENOUGH_OF_A_PART = 0.95, 0.85 -- a part is a small sample
local LONGEST = 10 -- seconds of a core for the problems of a seed, a loop without accesses or waits
local TURNS = 1000000 -- steps of a warp in a launch; the suite has launches of more than 200,000
local SIGXCPU = 24
local EQUIVALENTS, MISSED = "tests/sim/equivalents.txt", "tests/sim/missed.txt"
local SIM = os.getenv("SIM") or "build/varflash-sim"
local WORK = os.getenv("WORK") or "build/sim" -- of a worker its own
local JOBS = tonumber(os.getenv("JOBS")) or 2

-- "templates/x.cu | what stands there | the change" -> why nobody can find it, or nobody has.
local function read_reasons(path)
  local out = {}
  for line in (runner.read_file(path) or ""):gmatch("[^\n]+") do
    local key, reason = line:match("^(templates/.-)%s+:: (.+)$")
    if key then
      out[key] = reason
    elseif not line:match("^#") then
      error(("%s: '%s' is not TEMPLATE | PLACE | CHANGE :: REASON"):format(path, line), 0)
    end
  end
  return out
end

-- `counts`: how often a key has occurred in its file; the second has (2) behind it.
local function key_of(path, mutant, counts)
  local key = ("%s | %s | %s: %s"):format(path, mutant.place, mutant.kind, mutant.detail)
  counts[key] = (counts[key] or 0) + 1
  return counts[key] == 1 and key or ("%s (%d)"):format(key, counts[key])
end

-- ---- which variants a change reaches

local kernels = {}   -- variant -> { spec, pass, text, includes = template path -> true }
local originals = {} -- template path -> text, as it stood when the run began

-- A program that tests one kernel stands for a variant of one pass.
local subjects = { { name = "test_schedule", kernel = "kernel=schedule arch=sm_90a" }, table.unpack(variants.list) }

for _, variant in ipairs(subjects) do
  kernels[variant] = variant.kernel and { { spec = variant.kernel, pass = "alone" } } or variant.knobs.fwd and suite.kernels(variant) or {}
  for _, kernel in ipairs(kernels[variant]) do
    kernel.includes = {}
    kernel.text = assert(gen.source(kernel.spec, { taken = kernel.includes }))
    for path in pairs(kernel.includes) do originals[path] = originals[path] or runner.read_file(path) end
  end
end

local changed = {} -- template path -> text in place of the file's
_G.read_template = function(path) return changed[path] or originals[path] or runner.read_file(path) end

-- With `texts` in place of templates, of all variants with rows of their own the kernels that are different now, as a list of
-- { variant, pass, text }; nil if one cannot be expanded.
local function kernels_reached(texts)
  local out, fine, known = {}, true, {}
  changed = texts
  for _, variant in ipairs(subjects) do
    for _, kernel in ipairs(kernels[variant]) do
      local includes = false
      for path in pairs(texts) do includes = includes or kernel.includes[path] end
      if includes and not known[kernel.spec] then
        local expanded, now = pcall(gen.source, kernel.spec)
        fine = fine and expanded
        known[kernel.spec] = now
      end
      local now = known[kernel.spec]
      if now and now ~= kernel.text then out[#out + 1] = { variant = variant, pass = kernel.pass, text = now } end
    end
  end
  changed = {}
  return fine and out or nil
end

-- Whether a seed has problems that launch a kernel of the pass.
local function is_tried(variant, pass, seed)
  if pass == "alone" then return seed == 1 end
  return pass ~= "check" or cases.batch(variant, seed).checked
end

-- The command that runs these problems.
local function command_of(variant, pass, seed, unoptimised)
  if pass == "alone" then return ("%s/tests/sim/%s"):format(SIM:match("^(.*)/"), variant.name) end
  local batch, problems = cases.batch(variant, seed), {}
  for _, problem in ipairs(batch.problems) do
    if pass == "fwd" or pass == "bwd" and problem.backward or pass == "check" and batch.checked then problems[#problems + 1] = problem end
    if pass ~= "bwd" then problem.backward, problem.dlse = nil, nil end
  end
  batch.problems = problems
  batch.name = batch.name .. "-" .. pass
  local settings = { cache = WORK .. "/cache", findings = 1, turns = TURNS, unoptimised = unoptimised and 1 or 0 }
  return suite.command(variant, seed, batch, settings) .. " --first"
end

-- ---- runs

local function make_root(folder)
  os.execute(("rm -rf %s && mkdir -p %s && cp -r templates gen %s"):format(folder, folder, folder))
end

-- What a command makes of the templates in `root`: the output, and how the process ended.
local function run(root, command, numbers, limit)
  local pipe = assert(io.popen(("%sPLANTED='%s' VARFLASH_SOURCE=%s SIM_CACHE=%s/cache CK_FORK=no exec %s 2>&1")
    :format(limit or "", table.concat(numbers, " "), root, WORK, command)))
  local output = pipe:read("a")
  local ended, how, status = pipe:close()
  if output:find("build again, or set VARFLASH_SOURCE", 1, true) then error("the tree has changed under this run: start again", 0) end
  return output, ended and "exit" or how, status
end

-- How a run shows the fault that it has, in a word and the problem's name; or "missed", "does not compile".
local function verdict(output, how, status)
  local problem = output:match("WRONG%s+%d+%s+(%S+)") or output:match(":[FE]:%w+:([%w_]+):") or "?"
  for _, sign in ipairs { "CUDA_ERROR_INVALID_IMAGE", "generator:", "does not compile:" } do
    if output:find(sign, 1, true) then return "does not compile", problem end
  end
  if how == "exit" and status == 0 then return "missed", problem end
  if how == "signal" then return status == SIGXCPU and "no end" or "crash", problem end
  local finding = output:match("CUDA_ERROR_LAUNCH_FAILED [^:]*: ([^:]+):") or output:match("finding: ([^:]+):")
  return status > 1 and "crash" or finding or "numbers", problem
end

-- ---- faults behind switches

-- Items, by the numbers of their switches, that a variant's kernels of a pass hold: list of { variant, pass, has = number -> true }.
local function places_of(items)
  local by_path, texts, by_place, out = {}, {}, {}, {}
  for number, item in pairs(items) do
    by_path[item.path] = by_path[item.path] or {}
    by_path[item.path][number] = item.mutant
  end
  for path, mutants in pairs(by_path) do texts[path] = plant.switched(originals[path], mutants) end
  for _, kernel in ipairs(assert(kernels_reached(texts), "no switch changes what the generator does")) do
    local name = kernel.variant.name .. kernel.pass
    local place = by_place[name]
    if not place then
      place = { variant = kernel.variant, pass = kernel.pass, has = {} }
      by_place[name], out[#out + 1] = place, place
    end
    for number in kernel.text:gmatch("planted%((%d+)%)") do place.has[tonumber(number)] = true end
    for number in kernel.text:gmatch("Shifted{(%d+)}") do place.has[tonumber(number)] = true end
  end
  return out, texts
end

-- Runs a seed's problems at a place with each of the faults `numbers`; report(number, how, problem) for those that are found. Returns those
-- whose switches were come to, as a set.
local function run_switched(root, place, seed, numbers, report)
  local reached = {}
  local output, how, status = run(root, command_of(place.variant, place.pass, seed), numbers)
  for number, text, ending, value in output:gmatch("PLANTED (%d+)\n(.-)ENDED %d+ (%l*) ?(%d+)\n") do
    local word, problem = verdict(text, ending == "" and "exit" or ending, tonumber(value))
    reached[tonumber(number)] = true
    if word ~= "missed" then report(tonumber(number), word, problem) end
  end
  if how ~= "exit" or status ~= 0 then
    error(("%s seed %d fails without any fault, or its switches do not compile:\n%s"):format(place.variant.name, seed,
      output:match(".*ENDED[^\n]*\n(.*)") or output), 0)
  end
  return reached
end

-- Of the items `left` (number -> item) those that a place has and that may still be tried, sorted.
local function wanted(place, left, tries, most)
  local out = {}
  for number in pairs(left) do
    local tried = tries[number]
    if place.has[number] and not (tried and (tried[place] or tried[place.pass] >= most)) then out[#out + 1] = number end
  end
  table.sort(out)
  return out
end

-- The place to try next, and its items, or nil. One that has at least half of what any has, from the list's two ends in turns: the first
-- are fast, and the next is to be another kind of kernel. Before all a program that tests a kernel alone, which is faster still.
local function next_place(places, left, tries, seed, most, turn)
  local lists, most_left = {}, 0
  for i, place in ipairs(places) do
    lists[i] = is_tried(place.variant, place.pass, seed) and wanted(place, left, tries, most) or {}
    most_left = math.max(most_left, #lists[i])
    if place.pass == "alone" and #lists[i] > 0 then return place, lists[i] end
  end
  if most_left == 0 then return nil end
  local first, last, step = 1, #places, 1
  if turn % 2 == 0 then first, last, step = last, first, -1 end
  for i = first, last, step do
    if 2 * #lists[i] >= most_left then return places[i], lists[i] end
  end
end

-- All items, by the numbers of their switches: done(item, seed, how, where); seed nil: not found.
local function try_switched(items, done)
  local root = WORK .. "/switched"
  local places, texts = places_of(items)
  make_root(root)
  for path, text in pairs(texts) do runner.write_file(root .. "/" .. path, text) end
  local left = {}
  for number, item in pairs(items) do left[number] = item end
  for seed, most in ipairs(VARIANTS) do
    local tries = {}
    for turn = 1, math.maxinteger do
      local place, numbers = next_place(places, left, tries, seed, most, turn)
      if not place then break end
      local reached = run_switched(root, place, seed, numbers, function(number, how, problem)
        done(left[number], seed, how, ("%s of %s"):format(problem, place.variant.name))
        left[number] = nil
      end)
      for _, number in ipairs(numbers) do
        local tried = tries[number] or { fwd = 0, bwd = 0, check = 0, alone = 0 }
        tries[number] = tried
        tried[place], tried[place.pass] = true, tried[place.pass] + (reached[number] and 1 or 0)
      end
    end
  end
  for number, item in pairs(left) do
    local anywhere = false
    for _, place in ipairs(places) do anywhere = anywhere or place.has[number] end
    done(item, nil, anywhere and "missed" or "not reached")
  end
end

-- ---- faults planted one at a time

-- How a fault that stands in `root` is found at the places in question: the seed and in a word and where, or nil and why not.
local function run_all(root, places)
  for seed, most in ipairs(VARIANTS) do
    local tried = { fwd = 0, bwd = 0, check = 0, alone = 0 }
    for i, place in ipairs(places) do
      local variant, pass = place.variant, place.pass
      if is_tried(variant, pass, seed) and tried[pass] < most then
        tried[pass] = tried[pass] + 1
        -- Most likely the first problems show the fault: then what is compiled fast is best.
        local command = command_of(variant, pass, seed, seed == 1 and i == 1)
        local how, problem = verdict(run(root, command, {}, ("ulimit -St %d; "):format(LONGEST)))
        if how == "does not compile" then return nil, how end
        if how ~= "missed" then return seed, how, ("%s of %s"):format(problem, variant.name) end
      end
    end
  end
  return nil, "missed"
end

local function try_alone(root, item)
  local reached = kernels_reached({ [item.path] = item.mutant.text })
  if not reached then return nil, "does not compile" end
  if #reached == 0 then return nil, "not reached" end
  runner.write_file(root .. "/" .. item.path, item.mutant.text)
  local known, places, seed, how, where = {}, {}, nil, nil, nil
  for _, kernel in ipairs(reached) do
    local name = kernel.variant.name .. kernel.pass
    if not known[name] then places[#places + 1] = kernel end
    if item.mutant.kind == "narrow" and not known[kernel.text] and not how and #widths.faults(kernel.text, root) > 0 then
      seed, how = 0, "width of an offset"
    end
    known[name], known[kernel.text] = true, true
  end
  if not how then seed, how, where = run_all(root, places) end
  runner.write_file(root .. "/" .. item.path, originals[item.path])
  return seed, how, where
end

-- ---- all of them

local function digest(text)
  local hash = 0xcbf29ce484222325
  for i = 1, #text do hash = (hash ~ text:byte(i)) * 0x100000001b3 end
  return hash ~ hash >> 29
end

-- The mutants in question, as { path, mutant, key }, the n-th part that the commit chooses.
local function planted(share, only)
  local commit = share > 1 and runner.lines_of("git rev-parse HEAD 2>/dev/null")[1] or ""
  local choice = (digest(commit) >> 1) % share
  local out = {}
  for _, path in ipairs(runner.lines_of("ls templates/*.cu templates/attn/*.cuh templates/tile/*.cuh")) do
    if originals[path] then
      local counts = {}
      for _, mutant in ipairs(plant.mutants(originals[path])) do
        local key = key_of(path, mutant, counts)
        local inside = not only or ("%s:%d"):format(path, mutant.line):find(only, 1, true)
        if inside and (digest(key) >> 1) % share == choice then out[#out + 1] = { path = path, mutant = mutant, key = key } end
      end
    end
  end
  return out
end

-- The items of one of `count` workers: those of a template together, templates so that each has about as many.
local function part_of(items, index, count)
  local of, paths, loads, out = {}, {}, {}, {}
  for _, item in ipairs(items) do
    if not of[item.path] then
      of[item.path] = {}
      paths[#paths + 1] = item.path
    end
    table.insert(of[item.path], item)
  end
  table.sort(paths, function(a, b)
    if #of[a] ~= #of[b] then return #of[a] > #of[b] end
    return a < b
  end)
  for i = 1, count do loads[i] = 0 end
  for _, path in ipairs(paths) do
    local least = 1
    for i = 2, count do
      if loads[i] < loads[least] then least = i end
    end
    loads[least] = loads[least] + #of[path]
    for _, item in ipairs(least == index and of[path] or {}) do out[#out + 1] = item end
  end
  return out
end

-- A line for each of a worker's: "MUTANT<tab>seed<tab>how<tab>where<tab>path:line<tab>key".
local function worker(share, only, index, count)
  local equivalents, known, switched, alone = read_reasons(EQUIVALENTS), share > 1 and read_reasons(MISSED) or {}, {}, {}
  local function done(item, seed, how, where)
    print(table.concat({ "MUTANT", seed or "-", how, where or "-", ("%s:%d"):format(item.path, item.mutant.line), item.key }, "\t"))
    io.stdout:flush()
  end
  for number, item in ipairs(part_of(planted(share, only), index, count)) do
    if equivalents[item.key] then
      done(item, nil, "equivalent")
    elseif known[item.key] then
      done(item, nil, "missed")
    elseif item.mutant.switch then
      switched[number] = item
    else
      alone[#alone + 1] = item
    end
  end
  if next(switched) then try_switched(switched, done) end
  local root = WORK .. "/alone"
  make_root(root)
  for _, item in ipairs(alone) do done(item, try_alone(root, item)) end
end

local function count_up(counts, name) counts[name] = (counts[name] or 0) + 1 end

local function text_of(counts)
  local parts = {}
  for name, count in pairs(counts) do parts[#parts + 1] = ("%s %d"):format(name, count) end
  table.sort(parts, function(a, b) return tonumber(a:match("%d+$")) > tonumber(b:match("%d+$")) end)
  return table.concat(parts, ", ")
end

local function main(share, what)
  local commands = {}
  local part, parts = (what or ""):match("^(%d+)/(%d+)$")
  local only = not part and what or nil
  for index = part or 1, part or JOBS do
    commands[#commands + 1] = ("WORK=%s/mutants-%d lua5.4 tests/sim/mutants.lua worker %d '%s' %d %d || echo FAILED &"):format(WORK, index,
      share, only or "", index, parts or JOBS)
  end
  local found, missed, other, seeds, ways, equivalent, failed = 0, 0, {}, {}, {}, 0, false
  local equivalents, known, used = read_reasons(EQUIVALENTS), read_reasons(MISSED), {}
  local workers = assert(io.popen(table.concat(commands, " ") .. " wait"))
  for line in workers:lines() do
    local seed, how, where, place, key = line:match("^MUTANT\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$")
    if not seed then
      print(line)
      failed = failed or line == "FAILED"
    elseif seed ~= "-" then
      found = found + 1
      count_up(seeds, "seed " .. seed)
      count_up(ways, how)
      if known[key] then print(("%s: found, as %s: %s"):format(MISSED, how, key)) end
      if os.getenv("LIST") then print(("seed %s\t%s\t%s\t%s"):format(seed, how, where, key)) end
    elseif how == "equivalent" then
      equivalent, used[key] = equivalent + 1, true
      print(("equivalent %s: %s: %s"):format(place, key:match("^.- | (.*)$"), equivalents[key]))
    elseif how == "missed" then
      missed, used[key] = missed + 1, true
      print(("MISSED %s: %s: %s"):format(place, key:match("^.- | (.*)$"), known[key] or "new"))
      io.stdout:flush()
    else
      count_up(other, how)
    end
  end
  workers:close()
  if share == 1 and not what then
    for path, reasons in pairs { [EQUIVALENTS] = equivalents, [MISSED] = known } do
      for key in pairs(reasons) do
        if not used[key] then print(("%s: nothing planted is '%s'"):format(path, key)) end
      end
    end
  end
  print("needed: " .. text_of(seeds))
  print("found as: " .. text_of(ways))
  local more = next(other) and ", " .. text_of(other) or ""
  print(("found %d / planted %d; not counted: equivalent %d (each with its reason above and in %s)%s"):format(found, found + missed,
    equivalent, EQUIVALENTS, more))
  return not failed and found >= (part and ENOUGH_OF_A_PART or ENOUGH) * (found + missed)
end

if arg[1] == "worker" then
  worker(tonumber(arg[2]), arg[3] ~= "" and arg[3] or nil, tonumber(arg[4]), tonumber(arg[5]))
else
  local share = tonumber(arg[1])
  os.exit(main(share or 1, arg[share and 2 or 1]))
end
