// config.h - which knobs serve a request: rows of JSON files, the first match wins.
//
// Layers: the user's file, the user's folder, built-in rows measured on one device, built-in defaults. Rows are read
// and checked when a context opens; selecting allocates nothing. What a knob may be is the generator's business
// (source_plan), not this file's. The only file of the runtime that knows of cJSON.
#ifndef VF_CONFIG_H
#define VF_CONFIG_H

#include "base.h"
#include "fs.h"
#include "log.h"
#include "request.h"

#define CONFIG_KNOBS 256
#define CONFIG_ORIGIN 320
#define CONFIG_MEASURED 1024
#define CONFIG_FAMILY 32

struct config_row {
    char origin[CONFIG_ORIGIN];  // "configs/sm80.json#/rows/3"
    char knobs[CONFIG_KNOBS];    // "family=sm80 tile_m=128 ...", as `use` has them
    char family[CONFIG_FAMILY];
    char measured[CONFIG_MEASURED];  // JSON, as the row has it; "" if it has none, or more than fits
    int tile_m, tile_n;
    int average_q_max, average_k_max, group_max;  // conditions on struct sizes; INT_MAX: none
};

// What a row's static conditions are asked about.
struct config_query {
    struct request request;
    const char *arch;
    const char *device;  // its name; null: no device, then rows measured on one do not apply
    int shared_kb;       // that a block may have on `arch`
    const char *barred;  // a family whose rows do not apply; null: none
};

struct config;

// `path` null: VARFLASH_CONFIG. `signature` is source_signature: a file that names another was written for other knobs.
// VF_ERROR_CONFIG names file and JSON pointer; VF_ERROR_IO, VF_ERROR_OUT_OF_MEMORY.
vf_status config_open(const char *path, const struct environment *environment, const char *signature,
                      const struct logger *logger, struct config **config);
void config_close(struct config *config);  // null is ignored

// The files in force, first match first. "" past the last.
const char *config_file(const struct config *config, size_t index);
// The device whose rows that file holds. "" if it is for any.
const char *config_device(const struct config *config, size_t index);

// Whether the sizes of a call fulfil the row's conditions on them.
bool config_row_fits(const struct config_row *row, const struct sizes *sizes);

// The rows that calls of any sizes can get, in order: up to the first that asks for no sizes. Returns their number, at
// most `limit`.
size_t config_reachable(const struct config *config, const struct config_query *query, const struct config_row **rows,
                        size_t limit);

// All rows whose static conditions hold, in order, those measured on other devices too.
size_t config_candidates(const struct config *config, const struct config_query *query, const struct config_row **rows,
                         size_t limit);

#define CONFIG_ROWS_MAX 64  // a sensible limit for both

// Reads one JSON text as a configuration, for config_open and the fuzzer: VF_OK or VF_ERROR_CONFIG, nothing kept.
vf_status config_check(const char *name, const char *text, size_t size, const char *signature);

#endif
