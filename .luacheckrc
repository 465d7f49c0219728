-- Lua 5.4 and no globals of our own. Templates are checked in their translated form, with their knobs as read-only globals:
-- the list comes from gen/cli.lua (make lint).
std = "lua54"
max_line_length = 140
