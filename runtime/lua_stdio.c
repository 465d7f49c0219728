// lua_stdio.c - lets a static Lua become part of a shared library.
//
// A distribution's liblua5.4.a is compiled for executables: it reaches stdin, stdout and stderr with relocations that a shared object
// may not have. The Makefile joins the library's objects and Lua with `ld -r --wrap`, which turns those three names into the variables
// below. They are the only data of the C library that Lua touches. Everything else in this project reaches the streams normally.
#include <stdio.h>

extern FILE *real_stdin __asm__("__real_stdin");
extern FILE *real_stdout __asm__("__real_stdout");
extern FILE *real_stderr __asm__("__real_stderr");

extern FILE *lua_stdin __asm__("__wrap_stdin");
extern FILE *lua_stdout __asm__("__wrap_stdout");
extern FILE *lua_stderr __asm__("__wrap_stderr");

FILE *lua_stdin, *lua_stdout, *lua_stderr;

__attribute__((constructor)) static void lua_stdio_fill(void) {
    lua_stdin = real_stdin;
    lua_stdout = real_stdout;
    lua_stderr = real_stderr;
}
