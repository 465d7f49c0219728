// source.h - the generator as C sees it: specs in, launch facts and CUDA text out. The only file that knows of Lua.
//
// Specs are `key=value` words separated by single spaces. gen/ and templates/ are the copies built into the library, or
// a folder's. The answers are pure functions of spec and files. Every function may be called by any number of threads;
// they take turns.
#ifndef VF_SOURCE_H
#define VF_SOURCE_H

#include "base.h"
#include "buf.h"
#include "source_plan.h"
#include "varflash/varflash.h"

struct source;

// `folder` null: the built-in files. VF_ERROR_COMPILE (gen/init.lua is missing or broken), VF_ERROR_OUT_OF_MEMORY.
vf_status source_open(const char *folder, struct source **source);
void source_close(struct source *source);  // null is ignored

// VF_ERROR_UNSUPPORTED with the generator's sentence when it refuses the request; VF_ERROR_COMPILE when it breaks.
vf_status source_plan(struct source *source, const char *spec, struct source_plan *plan);

// Appends the CUDA text of one kernel of a plan. VF_ERROR_COMPILE with the generator's sentence when it cannot.
vf_status source_text(struct source *source, const char *kernel_spec, struct buf *text);

// The same with #line directives that name the templates: to be read, not compiled.
vf_status source_text_with_lines(struct source *source, const char *kernel_spec, struct buf *text);

// Appends the knobs of every variant that a request can have, a line each. VF_ERROR_UNSUPPORTED with the last refusal if there is
// none.
vf_status source_space(struct source *source, const char *request, struct buf *lines);

// Short text over all knob names and values, which configuration files must match. Lives as long as `source`.
const char *source_signature(const struct source *source);

#endif
