-- The manual page of section 3, varflash(3), out of the public header: its comments are the manual.
--
--   lua5.4 tools/man3.lua runtime/include/varflash/varflash.h > varflash.3
--   lua5.4 tools/man3.lua --names runtime/include/varflash/varflash.h       the functions, one a line: pages that lead here

local names_only = arg[1] == "--names"
local path = arg[names_only and 2 or 1]
local file = assert(io.open(path))
local header = file:read("a")
file:close()

if names_only then
  for name in header:gmatch("VF_API [%w_ *]-(vf_[%w_]+)%(") do print(name) end
  os.exit(0)
end

local function roff(text)
  text = text:gsub("\\", "\\e"):gsub("%-", "\\-")
  return (("\n" .. text):gsub("\n([.'])", "\n\\&%1"):sub(2))
end

-- "/* text\n * text */" -> lines without the frame
local function comment_text(comment)
  local lines = {}
  for line in (comment:gsub("^/%*%s?", ""):gsub("%s*%*/$", "") .. "\n"):gmatch("(.-)\n") do
    lines[#lines + 1] = (line:gsub("^%s?%*%s?", ""))
  end
  return lines
end

local out = {}
local function add(...) out[#out + 1] = table.concat { ... } end

-- Paragraphs are filled; indented lines stand as they are.
local function add_comment(comment)
  local fixed = false
  for _, line in ipairs(comment_text(comment)) do
    local indented = line:find("^%s%s%s") ~= nil
    if indented ~= fixed then add(indented and ".nf" or ".fi") end
    fixed = indented
    add(line:find("%S") and roff(line) or ".PP")
  end
  if fixed then add(".fi") end
end

local function add_code(code)
  add(".PP\n.nf\n", roff((code:gsub("%s+$", ""))), "\n.fi")
end

local version = {}
for name, value in header:gmatch("#define VF_VERSION_(%u+) (%d+)") do version[name] = value end
add(('.TH VARFLASH 3 "" "varflash %s.%s.%s" "Library Functions"'):format(version.MAJOR, version.MINOR, version.PATCH))
add(".SH NAME\nvarflash \\- attention over batches of sequences of different lengths, forward and backward")
add(".SH SYNOPSIS\n.B #include <varflash/varflash.h>\n.PP\nLink with \\fI\\-lvarflash\\fR (pkg\\-config varflash).")

local first = assert(header:match("^/%* varflash%.h %- .-%*/"), path .. ": does not begin with its manual")
add(".SH DESCRIPTION")
add_comment((first:gsub("^/%* varflash%.h %- ", "/* ")))

-- Sections "/* ---- name ---- */", each a row of comments and declarations.
local sections = {}
for at, name, stop in header:gmatch("()/%* %-%-%-%- ([^\n]-) %-%-%-[%-]* %*/\n()") do
  if #sections > 0 then sections[#sections].last = at - 1 end
  sections[#sections + 1] = { name = name, first = stop, last = header:find("\n#ifdef __cplusplus\n}", stop, true) }
end
for _, section in ipairs(sections) do
  add(".SH ", section.name:upper())
  local text = header:sub(section.first, section.last)
  -- Blocks between empty lines: a comment that leads, then code.
  for block in (text .. "\n\n"):gmatch("%s*(.-)\n%s*\n") do
    local comment, code = block:match("^(/%*.-%*/)\n?(.*)$")
    if comment and not comment:find("\n") and code == "" then comment, code = block, "" end
    if comment then add(".PP"); add_comment(comment) end
    code = comment and code or block
    if code:find("%S") then add_code((code:gsub("VF_API ", ""))) end
  end
end
add(".SH SEE ALSO\n.BR varflash (1)")
print(table.concat(out, "\n"))
