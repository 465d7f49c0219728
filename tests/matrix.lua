-- The compile matrix: what the rows of configs/ can ask for is generated and compiled with NVRTC, which needs no GPU.
--
--   lua5.4 tests/matrix.lua [--all]        BUILD= folder (build), JOBS= compilers at a time (2), LIST=1 prints a line per kernel
--
-- Per row and architecture: the smallest and the largest head size that the row serves, one that is no multiple of 16, one whose
-- v differs; the masks, types and flags rotate through the variants. To these come other variants for template branches that no row's
-- takes. --all: every architecture, and on two of them every combination of mask, type and flags.
--
-- Right means: no warnings, no advice of the assembler, registers within the budget (its shared memory is a static_assert in every
-- template), every row used, every branch of every template taken; in kernels that a row asks for hardly any spills. Reports are
-- kept in $BUILD/matrix by the digest of the source and of what compiles it, so that only what changed is compiled again.

package.path = "./?.lua;" .. package.path

local gen = require "gen.init"
local kernels = require "gen.kernels"
local knobs = require "gen.knobs"
local rows = require "tests.lua.rows"
local runner = require "tests.lua.runner"
local space = require "gen.space"
local template = require "gen.template"

local ALL = arg[1] == "--all"
local BUILD = os.getenv("BUILD") or "build"
local JOBS = tonumber(os.getenv("JOBS")) or 2
local FOLDER = BUILD .. "/matrix"
local ARCHS = ALL and rows.ARCHS or { "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_120" } -- one per class of limits

-- ---- choosing variants

local taken = {}   -- template path -> line -> times: the branches entered by what was chosen
local holders = {} -- template path -> name of a kernel that includes it -> true
local chosen = {}  -- kernel specs in order
local known = {}   -- kernel spec -> { facts, text }
local used = {}    -- row -> true

-- Adds the kernels of a plan that are new.
local function choose(plan, by_row)
  for _, kernel in ipairs(plan.kernels) do
    if not known[kernel.spec] then
      local own = {}
      known[kernel.spec] = { facts = kernel, text = assert(gen.source(kernel.spec, { taken = own })), by_row = by_row }
      chosen[#chosen + 1] = kernel.spec
      for path, counts in pairs(own) do
        taken[path], holders[path] = taken[path] or {}, holders[path] or {}
        holders[path][kernel.name] = true
        for line, times in pairs(counts) do taken[path][line] = (taken[path][line] or 0) + times end
      end
    end
  end
end

-- The variant by which `row` serves a request, or nil.
local function variant_of(row, arch, features, head_dim, head_dim_v)
  local request = { arch = arch, head_dim = head_dim, head_dim_v = head_dim_v }
  for name, value in pairs(features) do request[name] = value end
  if not rows.admits(row, request) then return nil end
  for _, variant in ipairs(rows.variants(request)) do
    if variant.row == row then return variant end
  end
end

local UNEQUAL = { { 64, 128 }, { 160, 128 }, { 192, 128 }, { 64, 256 }, { 256, 64 } }

-- The shapes that stand for a row, as { head_dim, head_dim_v }, for one combination of features.
local function shapes_of(row, arch, features)
  local served = {}
  for head_dim = 8, 256, 8 do
    if variant_of(row, arch, features, head_dim, head_dim) then served[#served + 1] = head_dim end
  end
  if #served == 0 then -- a row for unequal sizes, if any
    local shapes = {}
    for _, shape in ipairs(UNEQUAL) do
      if variant_of(row, arch, features, shape[1], shape[2]) then shapes[#shapes + 1] = shape end
    end
    return shapes
  end
  local smallest, largest = served[1], served[#served]
  local shapes = { { smallest, smallest }, { largest, largest } }
  for i = (#served + 1) // 2, 1, -1 do
    if served[i] % 16 ~= 0 then
      shapes[#shapes + 1] = { served[i], served[i] }
      break
    end
  end
  for head_dim_v = largest - 24, 8, -8 do
    if variant_of(row, arch, features, largest, head_dim_v) then
      shapes[#shapes + 1] = { largest, head_dim_v }
      break
    end
  end
  return shapes
end

local turn = 0

-- Chooses a variant for each shape of a row; with `all` one for every combination of features.
local function choose_row(row, arch, all)
  for _, pass in ipairs { "fwd", "bwd" } do
    local features = rows.features(pass)
    for i = 1, all and #features or 1 do
      -- A stride without a common divisor visits all combinations, in an order that mixes them.
      local function combination() return features[all and i or turn * 7 % #features + 1] end
      local shapes = {}
      for _ = 1, all and 1 or #features do -- the first combination that the row serves
        shapes = shapes_of(row, arch, combination())
        if #shapes > 0 then break end
        turn = turn + 1
      end
      for _, shape in ipairs(shapes) do
        for _ = 1, all and 1 or #features do
          turn = turn + 1
          local variant = variant_of(row, arch, combination(), shape[1], shape[2])
          if variant then
            choose(variant.plan, true)
            used[row] = true
            break
          end
        end
      end
    end
  end
end

local branches = {} -- template path -> the lines that open one

-- Branches that are taken by nothing chosen, of the templates that are, as a sorted list of "templates/x.cu:LINE".
local function missing_branches()
  local out = {}
  for path, counts in pairs(taken) do
    if not branches[path] then
      local _, lines = template.translate(path, runner.read_file(path))
      branches[path] = lines
    end
    for _, line in ipairs(branches[path]) do
      if not counts[line] then out[#out + 1] = ("%s:%d"):format(path, line) end
    end
  end
  table.sort(out)
  return out
end

-- Whether the kernels of a plan take a branch that nothing chosen takes.
local function takes_new_branch(plan)
  local trial = {}
  for _, kernel in ipairs(plan.kernels) do
    if not known[kernel.spec] then gen.source(kernel.spec, { taken = trial }) end
  end
  for path, counts in pairs(trial) do
    for line in pairs(counts) do
      if not (taken[path] and taken[path][line]) then return true end
    end
  end
  return false
end

-- Whether a branch that nothing takes stands in a template of the family's kernels.
local function may_take_missing(family, pass)
  for _, place in ipairs(missing_branches()) do
    for _, name in ipairs(kernels.variants[family][pass] or {}) do
      if holders[place:match("^[^:]*")][name] then return true end
    end
  end
  return false
end

-- Tries what the rows do not ask for, until every branch is taken: a sample of all knobs that fit.
local function choose_for_branches()
  local shapes = { "family=sm80 arch=sm_80 head_dim=64 head_dim_v=64", "family=sm80 arch=sm_90 head_dim=72 head_dim_v=72",
    "family=sm90 arch=sm_90a head_dim=64 head_dim_v=64", "family=sm90 arch=sm_90a head_dim=136 head_dim_v=72",
    "family=sm90 arch=sm_90a head_dim=256 head_dim_v=256" }
  for _, pass in ipairs { "fwd", "bwd" } do
    for _, features in ipairs(rows.features(pass)) do
      for _, shape in ipairs(shapes) do
        local words = { "pass=" .. pass, shape }
        for name, value in pairs(features) do
          if name ~= "pass" then words[#words + 1] = name .. "=" .. knobs.write(value) end
        end
        -- To count what fits takes longer than all else here.
        local candidates = may_take_missing(shape:match("family=(%w+)"), pass) and space.candidates(table.concat(words, " ")) or {}
        for i = 1, #candidates, #candidates // 8 | 1 do -- odd, so that flags, the last of knobs, are seen both ways
          if #missing_branches() == 0 then return end
          local plan = gen.plan(candidates[i])
          if takes_new_branch(plan) then choose(plan) end
        end
      end
    end
  end
end

for _, arch in ipairs(ARCHS) do
  for _, row in ipairs(rows.list) do choose_row(row, arch) end
  choose(assert(gen.plan("pass=check arch=" .. arch)), true)
end
for _, arch in ipairs(ALL and { "sm_86", "sm_90a" } or {}) do
  for _, row in ipairs(rows.list) do choose_row(row, arch, true) end
end
choose_for_branches()

-- ---- compiling

local function digest(text)
  local hash = 0xcbf29ce484222325
  local padded = text .. ("\0"):rep(-#text % 8)
  for at = 1, #padded, 8 do
    hash = (hash ~ string.unpack("<I8", padded, at)) * 0x100000001b3
    hash = hash ~ (hash >> 29)
  end
  return ("%016x"):format(hash)
end

local function run(command)
  local _, _, status = os.execute(command)
  return status
end

local SOURCES = "tests/matrix_nvrtc.c runtime/compile.c runtime/cuda_api.c runtime/status.c runtime/buf.c runtime/fs.c runtime/log.c"
local compiler = FOLDER .. "/matrix_nvrtc"
local cc = os.getenv("CC") or "cc"
assert(run(("mkdir -p %s && %s -std=c11 -D_GNU_SOURCE -O1 -Iruntime -Iruntime/include -o %s %s -ldl -lpthread"):format(FOLDER, cc,
  compiler, SOURCES)) == 0, "tests/matrix_nvrtc.c does not compile")

-- What a report depends on besides the source: NVRTC, its options, and what reads its log.
local pipe = assert(io.popen(compiler .. " --identity 2>&1"))
local identity = pipe:read("a")
local _, _, status = pipe:close()
for file in SOURCES:gmatch("%S+") do identity = identity .. runner.read_file(file) end
if status ~= 0 then
  print((identity:match("^[^\n]*")))
  os.exit(status)
end

local reports_path = FOLDER .. "/reports"
local function read_reports()
  local reports = {}
  for line in (runner.read_file(reports_path) or ""):gmatch("[^\n]+") do
    local name, result = line:match("([^/ ]+)%.cu (.*)$")
    if name then reports[name] = result end
  end
  return reports
end

local compiler_digest = digest(identity)
local reports = read_reports()
local lists, count = {}, 0
for _, spec in ipairs(chosen) do
  local kernel = known[spec]
  kernel.digest = digest(compiler_digest .. kernel.text)
  kernel.path = ("%s/%s.cu"):format(FOLDER, kernel.digest)
  if not (reports[kernel.digest] or "failed"):find("^ok") then
    runner.write_file(kernel.path, kernel.text)
    local list = count % JOBS + 1
    lists[list] = (lists[list] or "") .. ("%s %s\n"):format(spec:match("arch=(%S+)"), kernel.path)
    count = count + 1
  end
end

local started = os.time()
local commands = {}
for i, list in ipairs(lists) do
  local path = ("%s/list.%d"):format(FOLDER, i)
  runner.write_file(path, list)
  commands[i] = ("%s < %s >> %s &"):format(compiler, path, reports_path)
end
run(table.concat(commands, " ") .. " wait")
local seconds = os.time() - started
reports = read_reports()

-- ---- judging

-- Zero is wanted. Kernels whose accumulators take three quarters of the 255 registers keep a few addresses and loop-invariant
-- values in local memory; docs/performance.md says which. More than this would be accumulators.
local MOST_SPILLED = 256

for _, spec in ipairs(chosen) do
  local kernel = known[spec]
  local report = reports[kernel.digest] or "was not compiled"
  if os.getenv("LIST") then print(("%s\n  budget registers=%d; %s"):format(spec, kernel.facts.registers, report)) end
  runner.test(spec, function()
    if not report:find("^ok") then error(runner.read_file(kernel.path .. ".log") or report, 0) end
    local none = { "shared_bytes", "advice", "warnings" }
    for _, name in ipairs(none) do
      local number = tonumber(report:match(" " .. name .. "=(%-?%d+)"))
      if number ~= 0 then error(("%s=%d, expected 0 (%s)"):format(name, number, report), 0) end
    end
    local spilled = tonumber(report:match(" spill_stores=(%-?%d+)"))
    if kernel.by_row and spilled > MOST_SPILLED then error(("%d bytes spilled (%s)"):format(spilled, report), 0) end
    local registers = tonumber(report:match(" registers=(%-?%d+)"))
    if registers > kernel.facts.registers then
      error(("%d registers, the budget has %d"):format(registers, kernel.facts.registers), 0)
    end
    os.remove(kernel.path)
    os.remove(kernel.path .. ".log")
  end)
end
runner.test("every branch of every template is taken", function()
  local missing = missing_branches()
  if #missing > 0 then error("not taken: " .. table.concat(missing, " "), 0) end
  for _, kernel in ipairs(kernels.rows) do
    if not taken["templates/" .. kernel.template] then error(kernel.name .. " was never generated", 0) end
  end
end)
for _, row in ipairs(rows.list) do
  runner.test(row.pointer, function()
    if not used[row] then error("serves no request: an earlier row takes all of its own", 0) end
  end)
end
print(("%d kernels on %d architectures, %d compiled now in %d s"):format(#chosen, #ARCHS, count, seconds))
runner.finish()
