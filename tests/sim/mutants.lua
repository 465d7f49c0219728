-- Can the simulator fail? Plants the faults of plant.lua one at a time in a copy of the templates and counts those that the suite's
-- problems find, with the first three seeds of variants whose kernels the change reaches.
--
--   lua5.4 tests/sim/mutants.lua [SHARE] [PLACE | I/N]    SHARE=n: an n-th of them, chosen by the commit's hash; PLACE: TEMPLATE or
--                                                         TEMPLATE:LINE, those alone; I/N: the I-th of N parts
--
-- The last line: found / planted, without those that do not compile and those that equivalents.txt says nobody can find. Fails below 95 %,
-- a part below 85 %.
-- JOBS= processes (2), SIM= and WORK= as suite.lua has them; LIST=1 prints how each one was found.

package.path = "./?.lua;" .. package.path

local gen = require "gen.init"
local plant = require "tests.sim.plant"
local runner = require "tests.lua.runner"
local suite = require "tests.sim.suite"
local cases = require "tests.sim.cases"
local variants = require "tests.sim.variants"
local widths = require "tests.sim.widths"

local VARIANTS = { 7, 2, 2 } -- of each seed, so many variants
local ENOUGH, ENOUGH_OF_A_PART = 0.95, 0.85 -- a part is a small sample
local LONGEST = 20 -- seconds of a core for the problems of a seed, a loop without accesses or waits
local TURNS = 500000 -- steps of a warp in a launch; the suite's largest has 121,155
local SIGXCPU = 24
local EQUIVALENTS = "tests/sim/equivalents.txt"
local WORK = os.getenv("WORK") or "build/sim" -- of a worker its own
local JOBS = tonumber(os.getenv("JOBS")) or 2

local function lines_of(command)
  local pipe, out = assert(io.popen(command)), {}
  for line in pipe:lines() do out[#out + 1] = line end
  pipe:close()
  return out
end

-- "templates/x.cu | what stands there | the change" -> why nobody can find it.
local function read_equivalents()
  local out = {}
  for line in (runner.read_file(EQUIVALENTS) or ""):gmatch("[^\n]+") do
    local key, reason = line:match("^(templates/.-)%s+:: (.+)$")
    if key then
      out[key] = reason
    elseif not line:match("^#") then
      error(("%s: '%s' is not TEMPLATE | PLACE | CHANGE :: REASON"):format(EQUIVALENTS, line), 0)
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

for _, variant in ipairs(variants.list) do
  kernels[variant] = suite.kernels(variant)
  for _, kernel in ipairs(kernels[variant]) do
    kernel.includes = {}
    kernel.text = assert(gen.source(kernel.spec, { taken = kernel.includes }))
    for path in pairs(kernel.includes) do originals[path] = originals[path] or runner.read_file(path) end
  end
end

-- Lines of a variant's kernels that include a template, and how many of them are not in `known`.
local function lines_with(variant, path, known)
  local lines, new = {}, 0
  for _, kernel in ipairs(kernels[variant]) do
    for line in (kernel.includes[path] and kernel.text or ""):gmatch("[^\n]+") do
      if not known[line] and not lines[line] then new = new + 1 end
      lines[line] = true
    end
  end
  return lines, new
end

-- The variants whose kernels include a template: the first, then always the one whose kernels have most lines that those before it do
-- not have.
local orders = {} -- path -> list
local function variants_with(path)
  if orders[path] then return orders[path] end
  local order, left, known = {}, {}, {}
  for _, variant in ipairs(variants.list) do
    if variant.knobs.fwd and select(2, lines_with(variant, path, known)) > 0 then left[#left + 1] = variant end
  end
  while #left > 0 do
    local best, most = 1, -1
    for i, variant in ipairs(#order > 0 and left or {}) do
      local _, new = lines_with(variant, path, known)
      if new > most then best, most = i, new end
    end
    local variant = table.remove(left, best)
    order[#order + 1] = variant
    for line in pairs(lines_with(variant, path, known)) do known[line] = true end
  end
  orders[path] = order
  return order
end

local changed -- template path -> text in place of the file's
_G.read_template = function(path) return changed and changed[path] or originals[path] or runner.read_file(path) end

-- The first variants whose kernels differ with `text` in place of the template, as { variant, passes = that launch such kernels }, and
-- texts of such kernels; nil if it cannot be expanded.
local function variants_reached(path, text)
  local out, texts, fine = {}, {}, true
  changed = { [path] = text }
  for _, variant in ipairs(variants_with(path)) do
    local passes = {}
    for _, kernel in ipairs(#out < VARIANTS[1] and kernels[variant] or {}) do
      local expanded, now = pcall(gen.source, kernel.spec)
      fine = fine and expanded
      if fine and now ~= kernel.text then
        passes[kernel.pass] = true
        texts[#texts + 1] = now
      end
    end
    if next(passes) then out[#out + 1] = { variant = variant, passes = passes } end
  end
  changed = nil
  if fine then return out, texts end
end

-- Batches of a seed, without what does not launch a changed kernel.
local function batches_reached(reached, seed)
  local out, passes = {}, reached.passes
  for _, batch in ipairs(cases.batches(reached.variant, seed)) do
    local problems = {}
    for _, problem in ipairs(batch.problems) do
      if passes.fwd or passes.bwd and problem.backward or passes.check and batch.checked then
        problems[#problems + 1] = problem
      end
      if not passes.bwd then problem.backward, problem.dlse = nil, nil end
    end
    batch.problems = problems
    if #problems > 0 then out[#out + 1] = batch end
  end
  return out
end

-- ---- one mutant

local function write_file(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function make_root(folder)
  os.execute(("rm -rf %s && mkdir -p %s && cp -r templates gen %s"):format(folder, folder, folder))
end

-- What a batch makes of the templates in `root`. brief: most likely the first problems show the fault.
local function run_batch(root, variant, seed, batch, brief)
  local command = suite.command(variant, seed, batch,
    { cache = WORK .. "/cache", findings = 1, turns = TURNS, unoptimised = brief and 1 or 0 })
  local pipe = assert(io.popen(("ulimit -St %d; VARFLASH_SOURCE=%s exec %s --first 2>&1"):format(LONGEST, root, command)))
  local output = pipe:read("a")
  local ended, how, status = pipe:close()
  if output:find("build again, or set VARFLASH_SOURCE", 1, true) then error("the tree has changed under this run: start again", 0) end
  if output:find("CUDA_ERROR_INVALID_IMAGE", 1, true) or output:find("generator:", 1, true) then return "does not compile" end
  if ended then return "missed" end
  if how == "signal" then return status == SIGXCPU and "no end" or "crash" end
  return status > 1 and "crash" or output:match("CUDA_ERROR_LAUNCH_FAILED [^:]*: ([^:]+):") or "numbers"
end

-- How the suite finds the fault that stands in `root`: the seed, or nil, and in a word.
local function run_all(root, reached)
  for seed, count in ipairs(VARIANTS) do
    for i = 1, math.min(count, #reached) do
      for _, batch in ipairs(batches_reached(reached[i], seed)) do
        local how = run_batch(root, reached[i].variant, seed, batch, seed == 1 and i == 1)
        if how ~= "missed" then return how ~= "does not compile" and seed or nil, how end
      end
    end
  end
  return nil, "missed"
end

-- How a mutant was found: the seed (0: by reading) and in a word; or nil and why not: "missed", "does not compile", "not reached".
local function try(root, path, mutant)
  local reached, texts = variants_reached(path, mutant.text)
  if not reached then return nil, "does not compile" end
  if #reached == 0 then return nil, "not reached" end
  write_file(root .. "/" .. path, mutant.text)
  local seed, how
  for i = 1, mutant.kind == "narrow" and #texts or 0 do
    if not how and #widths.faults(texts[i], root) > 0 then seed, how = 0, "width of an offset" end
  end
  if not how then seed, how = run_all(root, reached) end
  write_file(root .. "/" .. path, originals[path])
  return seed, how
end

-- ---- all of them

local function digest(text)
  local hash = 0xcbf29ce484222325
  for i = 1, #text do hash = (hash ~ text:byte(i)) * 0x100000001b3 end
  return hash ~ hash >> 29
end

-- The mutants in question, as { path, mutant, key }, the n-th part that the commit chooses.
local function planted(share, only)
  local commit = share > 1 and lines_of("git rev-parse HEAD 2>/dev/null")[1] or ""
  local choice = (digest(commit) >> 1) % share
  local out = {}
  for _, path in ipairs(lines_of("ls templates/*.cu templates/attn/*.cuh templates/tile/*.cuh")) do
    if originals[path] then
      local counts = {}
      for _, mutant in ipairs(plant.mutants(originals[path])) do
        local key = key_of(path, mutant, counts)
        local wanted = not only or ("%s:%d"):format(path, mutant.line):find(only, 1, true)
        if wanted and (digest(key) >> 1) % share == choice then out[#out + 1] = { path = path, mutant = mutant, key = key } end
      end
    end
  end
  return out
end

-- Works on every JOBS-th one; a line each: "TAG<tab>seed<tab>how<tab>path:line<tab>key".
local function worker(share, only, index, count)
  local root = WORK .. "/root"
  make_root(root)
  local equivalents = read_equivalents()
  for i, item in ipairs(planted(share, only)) do
    if i % count == index then
      local seed, how
      if equivalents[item.key] then how = "equivalent" else seed, how = try(root, item.path, item.mutant) end
      print(table.concat({ "MUTANT", seed or "-", how, ("%s:%d"):format(item.path, item.mutant.line), item.key }, "\t"))
      io.stdout:flush()
    end
  end
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
  for index = part and part - 1 or 0, part and part - 1 or JOBS - 1 do
    commands[#commands + 1] = ("WORK=%s/mutants-%d lua5.4 tests/sim/mutants.lua worker %d '%s' %d %d &"):format(WORK, index, share,
      only or "", index, parts or JOBS)
  end
  local found, missed, other, seeds, ways, equivalent = 0, 0, {}, {}, {}, 0
  local equivalents, used = read_equivalents(), {}
  local workers = assert(io.popen(table.concat(commands, " ") .. " wait"))
  for line in workers:lines() do
    local seed, how, place, key = line:match("^MUTANT\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$")
    if not seed then
      print(line)
    elseif seed ~= "-" then
      found = found + 1
      count_up(seeds, "seed " .. seed)
      count_up(ways, how)
      if os.getenv("LIST") then print(("seed %s  %-40s %s"):format(seed, how, key)) end
    elseif how == "equivalent" then
      equivalent, used[key] = equivalent + 1, true
    elseif how == "missed" then
      missed = missed + 1
      print(("MISSED %s: %s"):format(place, key))
      io.stdout:flush()
    else
      count_up(other, how)
    end
  end
  workers:close()
  if share == 1 and not what then
    for key in pairs(equivalents) do
      if not used[key] then print(("%s: nothing planted is '%s'"):format(EQUIVALENTS, key)) end
    end
  end
  print("needed: " .. text_of(seeds))
  print("found as: " .. text_of(ways))
  print(("not counted: equivalent %d (reasons in %s)%s"):format(equivalent, EQUIVALENTS, next(other) and ", " .. text_of(other) or ""))
  print(("found %d / planted %d"):format(found, found + missed))
  return found >= (part and ENOUGH_OF_A_PART or ENOUGH) * (found + missed)
end

if arg[1] == "worker" then
  worker(tonumber(arg[2]), arg[3] ~= "" and arg[3] or nil, tonumber(arg[4]), tonumber(arg[5]))
else
  os.exit(main(tonumber(arg[1]) or 1, arg[2]))
end
