-- The generator's face to the runtime: spec strings in, launch facts and source text out. Pure: the same spec and the same files give
-- the same bytes. A spec that cannot be served is answered with nil and one sentence; a fault in a template is a Lua error.
--
-- A request's spec:  pass=fwd arch=sm_90a dtype=bf16 ... family=sm80 tile_m=128 ...      (what is asked for, then the config row's knobs)
-- A kernel's spec:   kernel=fwd_sm80 arch=sm_90a dtype=bf16 ... tile_m=128 ...          (only what its text depends on)

-- luacheck: read globals read_template
-- read_template(path) -> text or nil: the caller's, so that templates come from a disk or out of the library.

local arch = require "gen.arch"
local args = require "gen.args"
local budget = require "gen.budget"
local kernels = require "gen.kernels"
local knobs = require "gen.knobs"
local ptx = require "gen.ptx"
local template = require "gen.template"

local gen = {}

gen.signature = knobs.signature

-- "a=1 b=2" -> { a = "1", b = "2" }
local function split(spec)
  local out = {}
  for item in spec:gmatch("%S+") do
    local key, value = item:match("^([%l_%d]+)=(.+)$")
    if not key then return nil, ("spec: '%s' is not key=value"):format(item) end
    if out[key] then return nil, ("spec: '%s' is given twice"):format(key) end
    out[key] = value
  end
  return out
end

-- Reads `rows` out of the split spec `texts`; what else stands there must be in `others`. Adds the facts of the architecture.
local function read(rows, texts, others, what)
  local request, known = {}, {}
  for _, name in ipairs(others) do known[name] = true end
  for _, row in ipairs(rows) do
    known[row.name] = true
    local text = texts[row.name] or row.default ~= nil and knobs.write(row.default)
    if not text then return nil, ("%s: %s is missing"):format(what, row.name) end
    local value, fault = knobs.read(row, text)
    if value == nil then return nil, ("%s: %s"):format(what, fault) end
    request[row.name] = value
  end
  local unknown = {}
  for name in pairs(texts) do
    if not known[name] then unknown[#unknown + 1] = name end
  end
  if #unknown > 0 then
    table.sort(unknown)
    return nil, ("%s: does not have %s"):format(what, table.concat(unknown, ", "))
  end
  if request.arch then request.target = arch.parse(request.arch) end
  return request
end

local function kernel_spec(kernel, request)
  local parts = { "kernel=" .. kernel.name }
  for _, row in ipairs(kernel.uses) do
    local value = request[row.name]
    if row.default == nil or value ~= row.default then parts[#parts + 1] = row.name .. "=" .. knobs.write(value) end
  end
  return table.concat(parts, " ")
end

-- The part of a variant's request that a kernel depends on.
local function kernel_request(kernel, request)
  local out = { target = request.target }
  for _, row in ipairs(kernel.uses) do out[row.name] = request[row.name] end
  return out
end

local function kernel_facts(kernel, request)
  local facts, fault = budget[kernel.name](request)
  if not facts then return nil, fault end
  local boxes = {}
  for i, map in ipairs(facts.maps or {}) do boxes[i] = map.operand .. ":" .. map.rows end
  return {
    maps = facts.maps or {}, boxes = table.concat(boxes, ","),
    name = kernel.name, spec = kernel_spec(kernel, request), entry = kernels.entry(kernel, request), threads = facts.threads,
    shared_bytes = facts.shared_bytes, blocks_per_sm = facts.blocks_per_sm, cluster = facts.cluster or 1, registers = facts.registers,
    budget = facts,
  }
end

-- { name, family, tile_m, tile_n, numeric, shared_per_block, kernels = { { name, spec, entry, threads, shared_bytes, blocks_per_sm,
-- cluster, registers, maps, boxes, budget }, ... } } in launch order. cluster: blocks that start together. maps: the tensor maps that its
-- arguments begin with, { operand, rows of a box } each; boxes: the same as text, "q:64,k:80,v:80". Plans of one request whose `numeric` is
-- equal give equal bits; shared_per_block is the architecture's. pass=check arch=... is checked mode's kernel.
function gen.plan(spec)
  local texts, fault = split(spec)
  if not texts then return nil, fault end
  local pass, family = texts.pass, texts.family
  local names
  if pass == "check" then
    names = kernels.check
  else
    local variants = kernels.variants[family]
    if not variants then return nil, ("family=%s is not a kernel family"):format(tostring(family)) end
    names = variants[pass]
    if not names then return nil, ("pass=%s is not one of fwd, bwd (family %s)"):format(tostring(pass), family) end
  end
  local what = ("%s %s"):format(pass, family or "lengths")
  local request
  -- The request describes the problem, not the pass: a field that no kernel of the pass reads is no fault, a knob is.
  local others = { "pass", "family" }
  for _, row in ipairs(knobs.fields) do others[#others + 1] = row.name end
  request, fault = read(kernels.union(names), texts, others, what)
  if not request then return nil, fault end

  local plan = {
    name = kernels.variant_name(names, request), family = family, tile_m = request.tile_m, tile_n = request.tile_n, kernels = {},
    numeric = knobs.numeric(pass, family, request), shared_per_block = request.target.shared_per_block,
  }
  for i, name in ipairs(names) do
    local kernel = kernels.by_name[name]
    plan.kernels[i], fault = kernel_facts(kernel, kernel_request(kernel, request))
    if not plan.kernels[i] then return nil, fault end
  end
  return plan
end

-- A kernel's spec -> kernel row, request, facts; or nil, sentence.
local function open(spec)
  local texts, fault = split(spec)
  if not texts then return nil, fault end
  local kernel = kernels.by_name[texts.kernel]
  if not kernel then return nil, ("kernel=%s is not a kernel"):format(tostring(texts.kernel)) end
  local request
  request, fault = read(kernel.uses, texts, { "kernel" }, kernel.name)
  if not request then return nil, fault end
  local facts
  facts, fault = kernel_facts(kernel, request)
  if not facts then return nil, fault end
  return kernel, request, facts
end

-- The facts of one kernel, as in a plan.
function gen.kernel(spec)
  local kernel, fault, facts = open(spec)
  return kernel and facts, fault
end

local function header(kernel, facts)
  return table.concat({
    ("// %s: generated from templates/%s."):format(facts.entry, kernel.template),
    "//",
    ("//   varflash show --spec '%s'"):format(facts.spec),
    "//",
    ("// Budget: %d threads, %d bytes of shared memory, %d blocks per SM, %d registers per thread."):format(facts.threads,
      facts.shared_bytes, facts.blocks_per_sm, facts.registers),
    "", "" }, "\n")
end

-- A float32 constant as one token. 9 digits give back the same float.
local function f32(value)
  local text = ("%.9g"):format(value)
  return (text:find("[.e]") and text or text .. ".0") .. "f"
end

-- The names that a template of `kernel` sees besides the engine's: these and the rows that the kernel uses.
local function environment(kernel, request, facts)
  local constants = {}
  local names = {
    entry = facts.entry, budget = facts.budget, target = request.target, cc = request.target.cc, f32 = f32, ptx = ptx,
    args_structs = args.cuda,
    fault_enum = args.fault_enum,
    constants = function() return table.concat(constants, "\n") end,
  }
  for _, row in ipairs(kernel.uses) do
    names[row.name] = request[row.name]
    constants[#constants + 1] = knobs.constant(row, request[row.name])
  end
  return names
end

-- Every name that some template sees, sorted: what luacheck accepts in translated templates.
function gen.template_names()
  local names = template.names()
  for name in pairs(environment({ uses = {} }, { target = {} }, { entry = "", budget = {} })) do names[#names + 1] = name end
  names[#names + 1] = "cc"
  for _, row in ipairs(knobs.rows) do names[#names + 1] = row.name end
  table.sort(names)
  return names
end

-- The CUDA text of a kernel. options (optional): lines = true writes #line; taken = see template.expand.
function gen.source(spec, options)
  local kernel, request, facts = open(spec)
  if not kernel then return nil, request end
  options = options or {}
  local names = environment(kernel, request, facts)
  return header(kernel, facts) .. template.expand(kernel.template, names,
    { read = read_template, lines = options.lines, taken = options.taken })
end

-- The same with #line directives that name the templates: to be read, not compiled.
function gen.source_with_lines(spec)
  return gen.source(spec, { lines = true })
end

return gen
