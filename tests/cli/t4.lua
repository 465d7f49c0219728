-- Standard input is a T4 file: the rules of the AutoTuning Association's results schema, 1.1.0 (T4.json in its autotuning_methodology),
-- as a table, and that every result has a time where it is correct. Prints what is wrong; exit code 1 then.

local json = dofile "tests/lua/json.lua"

local text, number, object = { type = "string" }, { type = "number" }, { type = "table" }
local function one_of(...)
  local values = {}
  for _, value in ipairs { ... } do values[value] = true end
  return { values = values }
end
local function list(items) return { items = items } end

local T4 = {
  required = { "schema_version", "metadata", "results" },
  members = {
    schema_version = { type = "string", pattern = "^%d+%.%d+%.%d+$" },
    metadata = {
      members = {
        compute_api = one_of("OpenCL", "CUDA", "Vulkan"), platform = text, device = text, autotuner = text, autotuner_version = text,
        timestamp = text, timeunit = one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
      },
    },
    results = list {
      required = { "configuration", "times", "invalidity", "correctness" },
      members = {
        timestamp = { type = "string", pattern = "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$" },
        configuration = object,
        objectives = list(text),
        times = {
          members = {
            compilation_time = number, runtimes = list(number), framework = number, search_algorithm = number, validation = number,
            data = number, kernel_overhead = number, profiling_runs = number, profiling_overhead = number,
          },
        },
        invalidity = one_of("timeout", "compile", "runtime", "correctness", "constraints", "correct"),
        correctness = one_of(0, 1),
        measurements = list { members = { name = text, value = number, unit = text } },
      },
    },
  },
}

local faults = {}
local function judge(value, rule, path)
  local function fault(what) faults[#faults + 1] = ("%s: %s"):format(path, what) end
  if rule.type and type(value) ~= rule.type then return fault("is a " .. type(value) .. ", not a " .. rule.type) end
  if rule.pattern and not value:match(rule.pattern) then fault(("'%s' does not fit"):format(value)) end
  if rule.values and not rule.values[value] then fault(("'%s' is no value of it"):format(tostring(value))) end
  if (rule.items or rule.members) and type(value) ~= "table" then return fault("holds nothing") end
  for i, item in ipairs(rule.items and value or {}) do judge(item, rule.items, path .. "/" .. i - 1) end
  for _, name in ipairs(rule.required or {}) do
    if value[name] == nil then fault("has no " .. name) end
  end
  for name, member in pairs(rule.members and value or {}) do
    -- Schemas allow more; what is not in this one has no place in the file, or is misspelt.
    if rule.members[name] then judge(member, rule.members[name], path .. "/" .. name) else fault("has " .. name) end
  end
end

local file = json.decode(io.read "a")
judge(file, T4, "")
for i, result in ipairs(file.results) do
  local time
  for _, measurement in ipairs(result.measurements) do time = time or measurement.name == result.objectives[1] end
  if (result.correctness == 1) ~= (result.invalidity == "correct" and time or false) then
    faults[#faults + 1] = ("/results/%d: its correctness, invalidity and times contradict each other"):format(i - 1)
  end
end
if #file.results == 0 then faults[#faults + 1] = "/results: none" end
print(table.concat(faults, "\n"))
os.exit(#faults == 0)
