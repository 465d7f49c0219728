// source.c - the embedded Lua state that runs gen/.
//
// The state has base, string, table and math without what could reach the world or chance: no io, os, debug, package,
// print, load of files, random. `require` serves gen.*, read_template(path) the templates. Every use of Lua stands in a
// function that `protect` calls, so that no error and no lack of memory gets past it; what such a function allocates
// belongs to the caller or to Lua.
#include "source.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "embedded.h"
#include "fs.h"
#include "status.h"

struct source {
    lua_State *lua;
    pthread_mutex_t mutex;  // a Lua state serves one thread at a time
    char *folder;           // null: the built-in files
    struct buf file;        // the file being read; kept here so that a Lua error cannot lose it
    char signature[64];
};

// One call of `protect`: in and out.
struct request {
    struct source *source;
    const char *spec;
    struct source_plan *plan;  // out of run_plan
    struct buf *text;          // out of run_text
    bool lines;                // with #line directives
    struct buf refusal;        // the generator's sentence, if it returned nil
};

// ---- files --------------------------------------------------------------------------------------------------------
// The bytes of "gen/init.lua" or "templates/...": valid until the next call. Null if there is no such file.
static const char *read_file(struct source *source, const char *path, size_t *size) {
    if (!source->folder) {
        for (size_t i = 0; i < embedded_file_count; i++) {
            if (strcmp(embedded_files[i].path, path) != 0) continue;
            *size = embedded_files[i].size;
            return (const char *)embedded_files[i].data;
        }
        return NULL;
    }
    struct buf full = {0};
    buf_printf(&full, "%s/%s", source->folder, path);
    buf_clear(&source->file);
    bool read = !buf_check(&full) && !fs_read(full.data, &source->file);
    buf_free(&full);
    *size = source->file.size;
    return read ? buf_string(&source->file) : NULL;
}

static struct source *source_of(lua_State *lua) {
    return lua_touserdata(lua, lua_upvalueindex(1));
}

// require "gen.name": runs gen/name.lua once. Upvalues: source, table of what was loaded.
static int lua_require(lua_State *lua) {
    const char *name = luaL_checkstring(lua, 1);
    if (lua_getfield(lua, lua_upvalueindex(2), name) != LUA_TNIL) {
        if (lua_isboolean(lua, -1)) return luaL_error(lua, "%s requires itself", name);
        return 1;
    }
    if (strncmp(name, "gen.", 4) != 0 || strpbrk(name + 4, "./"))
        return luaL_error(lua, "require: '%s' is not gen.NAME", name);
    const char *path = lua_pushfstring(lua, "gen/%s.lua", name + 4);
    size_t size;
    const char *text = read_file(source_of(lua), path, &size);
    if (!text)
        return luaL_error(lua, "%s: no such file in %s", path,
                          source_of(lua)->folder ? source_of(lua)->folder : "the library");
    lua_pushboolean(lua, true);  // being loaded
    lua_setfield(lua, lua_upvalueindex(2), name);
    if (luaL_loadbufferx(lua, text, size, lua_pushfstring(lua, "@%s", path), "t")) return lua_error(lua);
    lua_call(lua, 0, 1);
    if (!lua_istable(lua, -1)) return luaL_error(lua, "%s: does not return a table", path);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, lua_upvalueindex(2), name);
    return 1;
}

// read_template "templates/x.cu": its text or nil.
static int lua_read_template(lua_State *lua) {
    const char *path = luaL_checkstring(lua, 1);
    size_t size;
    bool inside = !strncmp(path, "templates/", 10) && !strstr(path, "..");
    const char *text = inside ? read_file(source_of(lua), path, &size) : NULL;
    if (!text) return 0;
    lua_pushlstring(lua, text, size);
    return 1;
}

// ---- running Lua --------------------------------------------------------------------------------------------------
// Runs `body` with the request as its only argument. A Lua error becomes VF_ERROR_COMPILE with Lua's message.
static vf_status protect(struct source *source, lua_CFunction body, struct request *request) {
    lua_State *lua = source->lua;
    pthread_mutex_lock(&source->mutex);
    lua_pushcfunction(lua, body);
    lua_pushlightuserdata(lua, request);
    vf_status status = VF_OK;
    int result = lua_pcall(lua, 1, 0, 0);
    if (result == LUA_ERRMEM) {
        status = status_fail(VF_ERROR_OUT_OF_MEMORY, "out of memory while generating a kernel");
    } else if (result) {
        const char *message = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "an error that is no text";
        status = status_fail(VF_ERROR_COMPILE, "generator: %s", message);
    }
    lua_settop(lua, 0);
    pthread_mutex_unlock(&source->mutex);
    return status;
}

// Calls a module's function `name` with the request's spec. True: its result is on the stack. False: it returned nil and a
// sentence.
static bool call_generator(lua_State *lua, struct request *request, const char *module, const char *name) {
    lua_getglobal(lua, "require");
    lua_pushstring(lua, module);
    lua_call(lua, 1, 1);
    lua_getfield(lua, -1, name);
    lua_pushstring(lua, request->spec);
    lua_call(lua, 1, 2);
    if (!lua_isnil(lua, -2)) {
        lua_pop(lua, 1);
        return true;
    }
    buf_text(&request->refusal, lua_isstring(lua, -1) ? lua_tostring(lua, -1) : "refused without a reason");
    return false;
}

// Field `name` of the table on top, checked and copied.
static int read_integer(lua_State *lua, const char *name, bool needed) {
    int exact = 0;
    int type = lua_getfield(lua, -1, name);
    lua_Integer value = lua_tointegerx(lua, -1, &exact);
    if (type == LUA_TNIL && !needed) exact = 1;
    if (!exact || value < 0 || value > INT32_MAX) luaL_error(lua, "plan: %s is not an integer", name);
    lua_pop(lua, 1);
    return (int)value;
}

static void read_text(lua_State *lua, const char *name, bool needed, char *out, size_t size) {
    int type = lua_getfield(lua, -1, name);
    size_t length = 0;
    const char *text = type == LUA_TSTRING ? lua_tolstring(lua, -1, &length) : "";
    if (type != LUA_TSTRING && (needed || type != LUA_TNIL)) luaL_error(lua, "plan: %s is not a text", name);
    if (length >= size) luaL_error(lua, "plan: %s is longer than %d characters", name, (int)size - 1);
    memcpy(out, text, length);
    out[length] = 0;
    lua_pop(lua, 1);
}

static int run_plan(lua_State *lua) {
    struct request *request = lua_touserdata(lua, 1);
    struct source_plan *plan = request->plan;
    if (!call_generator(lua, request, "gen.init", "plan")) return 0;
    luaL_checktype(lua, -1, LUA_TTABLE);
#define TEXT(name, size) read_text(lua, #name, false, plan->name, size);
#define NUMBER(name) plan->name = read_integer(lua, #name, false);
    SOURCE_PLAN_TEXTS(TEXT)
    SOURCE_PLAN_NUMBERS(NUMBER)
#undef TEXT
#undef NUMBER
    if (lua_getfield(lua, -1, "kernels") != LUA_TTABLE) return luaL_error(lua, "plan: kernels is not a table");
    lua_Integer count = luaL_len(lua, -1);
    if (count < 1 || count > SOURCE_KERNELS_MAX) return luaL_error(lua, "plan: %d kernels", (int)count);
    for (int i = 0; i < (int)count; i++) {
        struct source_kernel *kernel = &plan->kernels[i];
        if (lua_geti(lua, -1, i + 1) != LUA_TTABLE) return luaL_error(lua, "plan: kernel %d is not a table", i + 1);
#define TEXT(name, size) read_text(lua, #name, true, kernel->name, size);
#define NUMBER(name) kernel->name = read_integer(lua, #name, true);
        SOURCE_KERNEL_TEXTS(TEXT)
        SOURCE_KERNEL_NUMBERS(NUMBER)
#undef TEXT
#undef NUMBER
        lua_pop(lua, 1);
    }
    plan->kernel_count = (int)count;
    return 0;
}

static void answer_text(lua_State *lua, struct request *request, const char *module, const char *function) {
    if (!call_generator(lua, request, module, function)) return;
    size_t size;
    const char *text = luaL_checklstring(lua, -1, &size);
    buf_append(request->text, text, size);
}

static int run_text(lua_State *lua) {
    struct request *request = lua_touserdata(lua, 1);
    answer_text(lua, request, "gen.init", request->lines ? "source_with_lines" : "source");
    return 0;
}

static int run_space(lua_State *lua) {
    answer_text(lua, lua_touserdata(lua, 1), "gen.space", "lines");
    return 0;
}

static int run_open(lua_State *lua) {
    struct request *request = lua_touserdata(lua, 1);
    lua_gc(lua, LUA_GCGEN, 0, 0);  // texts are made of many short-lived pieces: a third faster than incremental
    luaL_requiref(lua, LUA_GNAME, luaopen_base, true);
    luaL_requiref(lua, LUA_STRLIBNAME, luaopen_string, true);
    luaL_requiref(lua, LUA_TABLIBNAME, luaopen_table, true);
    luaL_requiref(lua, LUA_MATHLIBNAME, luaopen_math, true);
    static const char *const removed[] = {"dofile", "loadfile", "print", "warn", "collectgarbage"};
    for (size_t i = 0; i < ARRAY_LENGTH(removed); i++) {
        lua_pushnil(lua);
        lua_setglobal(lua, removed[i]);
    }
    static const char *const chance[] = {"random", "randomseed"};
    for (size_t i = 0; i < ARRAY_LENGTH(chance); i++) {
        lua_pushnil(lua);
        lua_setfield(lua, -2, chance[i]);  // math is on top
    }
    lua_pushlightuserdata(lua, request->source);
    lua_pushcclosure(lua, lua_read_template, 1);
    lua_setglobal(lua, "read_template");
    lua_pushlightuserdata(lua, request->source);
    lua_newtable(lua);
    lua_pushcclosure(lua, lua_require, 2);
    lua_pushvalue(lua, -1);
    lua_setglobal(lua, "require");

    lua_pushliteral(lua, "gen.init");
    lua_call(lua, 1, 1);
    lua_getfield(lua, -1, "signature");
    lua_call(lua, 0, 1);
    size_t length;
    const char *signature = luaL_checklstring(lua, -1, &length);
    if (length >= sizeof request->source->signature) return luaL_error(lua, "signature: longer than 63 characters");
    memcpy(request->source->signature, signature, length + 1);
    return 0;
}

// ---- the interface ------------------------------------------------------------------------------------------------

vf_status source_open(const char *folder, struct source **out) {
    struct source *source = calloc(1, sizeof *source);
    VF_REQUIRE(source, VF_ERROR_OUT_OF_MEMORY, "out of memory while opening the generator");
    pthread_mutex_init(&source->mutex, NULL);
    source->lua = luaL_newstate();
    if (folder) source->folder = strdup(folder);
    vf_status status;
    if (!source->lua || (folder && !source->folder)) {
        status = status_fail(VF_ERROR_OUT_OF_MEMORY, "out of memory while opening the generator");
    } else {
        status = protect(source, run_open, &(struct request){.source = source});
    }
    if (status) {
        source_close(source);
        return status;
    }
    *out = source;
    return VF_OK;
}

void source_close(struct source *source) {
    if (!source) return;
    if (source->lua) lua_close(source->lua);
    pthread_mutex_destroy(&source->mutex);
    buf_free(&source->file);
    free(source->folder);
    free(source);
}

// `refused`: the status of a nil from the generator.
static vf_status ask(struct source *source, lua_CFunction body, struct request *request, vf_status refused) {
    vf_status status = protect(source, body, request);
    if (!status) status = buf_check(&request->refusal);
    if (!status && request->refusal.size) status = status_fail(refused, "%s", request->refusal.data);
    buf_free(&request->refusal);
    return status;
}

vf_status source_plan(struct source *source, const char *spec, struct source_plan *plan) {
    *plan = (struct source_plan){0};
    return ask(source, run_plan, &(struct request){.spec = spec, .plan = plan}, VF_ERROR_UNSUPPORTED);
}

static vf_status make_text(struct source *source, const char *kernel_spec, bool lines, struct buf *text) {
    struct request request = {.spec = kernel_spec, .text = text, .lines = lines};
    VF_TRY(ask(source, run_text, &request, VF_ERROR_COMPILE));
    return buf_check(text);
}

vf_status source_text(struct source *source, const char *kernel_spec, struct buf *text) {
    return make_text(source, kernel_spec, false, text);
}

vf_status source_text_with_lines(struct source *source, const char *kernel_spec, struct buf *text) {
    return make_text(source, kernel_spec, true, text);
}

vf_status source_space(struct source *source, const char *spec, struct buf *lines) {
    VF_TRY(ask(source, run_space, &(struct request){.spec = spec, .text = lines}, VF_ERROR_UNSUPPORTED));
    return buf_check(lines);
}

const char *source_signature(const struct source *source) {
    return source->signature;
}
