// config.c - see config.h. The format: configs/schema.json.
#include "config.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "embedded.h"

#define ARCHS_MAX 16

// Static conditions of a row. Each default admits everything.
struct when {
    int passes, dtypes, masks;            // bit sets
    int softcap, aligned, deterministic;  // -1: either
    int head_dim_min, head_dim_max, head_dim_v_min, head_dim_v_max, shared_kb_min;
    int arch_count;  // 0: any
    char archs[ARCHS_MAX][ARCH_TEXT];
};

struct rule {
    struct config_row row;
    struct when when;
};

struct file {
    char name[256];
    char device[128];  // "" = any
    size_t count;
    struct rule *rules;
};

struct config {
    size_t count;
    struct file *files;
};

// ---- reading: faults -----------------------------------------------------------------------------------------------

// A place in a file, as a JSON pointer grows.
struct place {
    const char *file;
    char pointer[128];
};

static vf_status fault(const struct place *place, const char *key, const char *format, ...) PRINTF_LIKE(3, 4);

static vf_status fault(const struct place *place, const char *key, const char *format, ...) {
    char sentence[512];
    va_list values;
    va_start(values, format);
    vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    return status_fail(VF_ERROR_CONFIG, "%s#%s%s%.64s: %s", place->file, place->pointer, key ? "/" : "", key ? key : "",
                       sentence);
}

// ---- reading: conditions -------------------------------------------------------------------------------------------

enum kind {
    WORD_SET,  // a word or a list of them, out of `words`
    FLAG,      // true or false
    NUMBER,    // an integer from 0
    POWER,     // a power of two, kept as its logarithm
    ARCHS      // a word or a list
};

static const char *const pass_words[] = {"fwd", "bwd", NULL};
static const char *const dtype_words[] = {"fp16", "bf16", NULL};
static const char *const mask_words[] = {"full", "causal", "window", NULL};

// THE table of conditions. Two offsets, because conditions on sizes are kept in the row.
static const struct condition {
    const char *name;
    enum kind kind;
    size_t offset;  // in struct rule
    const char *const *words;
} conditions[] = {
    {"pass", WORD_SET, offsetof(struct rule, when.passes), pass_words},
    {"arch", ARCHS, 0, NULL},
    {"dtype", WORD_SET, offsetof(struct rule, when.dtypes), dtype_words},
    {"head_dim_min", NUMBER, offsetof(struct rule, when.head_dim_min), NULL},
    {"head_dim_max", NUMBER, offsetof(struct rule, when.head_dim_max), NULL},
    {"head_dim_v_min", NUMBER, offsetof(struct rule, when.head_dim_v_min), NULL},
    {"head_dim_v_max", NUMBER, offsetof(struct rule, when.head_dim_v_max), NULL},
    {"mask", WORD_SET, offsetof(struct rule, when.masks), mask_words},
    {"softcap", FLAG, offsetof(struct rule, when.softcap), NULL},
    {"aligned", FLAG, offsetof(struct rule, when.aligned), NULL},
    {"deterministic", FLAG, offsetof(struct rule, when.deterministic), NULL},
    {"shared_kb_min", NUMBER, offsetof(struct rule, when.shared_kb_min), NULL},
    {"avg_q_max", POWER, offsetof(struct rule, row.average_q_max), NULL},
    {"avg_k_max", POWER, offsetof(struct rule, row.average_k_max), NULL},
    {"group_max", POWER, offsetof(struct rule, row.group_max), NULL},
};

static vf_status read_word(const struct place *place, const struct condition *condition, const cJSON *item, int *set) {
    for (int i = 0; cJSON_IsString(item) && condition->words[i]; i++) {
        if (!strcmp(item->valuestring, condition->words[i])) {
            *set |= 1 << i;
            return VF_OK;
        }
    }
    return fault(place, condition->name, "'%.40s' is not one of %s, %s%s%s",
                 cJSON_IsString(item) ? item->valuestring : "(no text)", condition->words[0], condition->words[1],
                 condition->words[2] ? ", " : "", condition->words[2] ? condition->words[2] : "");
}

static vf_status read_arch(const struct place *place, const cJSON *item, struct when *when) {
    if (!cJSON_IsString(item) || strncmp(item->valuestring, "sm_", 3) != 0 || strlen(item->valuestring) >= ARCH_TEXT) {
        return fault(place, "arch", "must be names such as \"sm_90a\"");
    }
    if (when->arch_count == ARCHS_MAX) return fault(place, "arch", "has more than %d names", ARCHS_MAX);
    memcpy(when->archs[when->arch_count++], item->valuestring, strlen(item->valuestring) + 1);
    return VF_OK;
}

static bool is_whole(const cJSON *item) {
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT_MAX &&
           item->valuedouble == (double)item->valueint;
}

static vf_status read_condition(const struct place *place, const struct condition *condition, const cJSON *item,
                                struct rule *rule) {
    int *const target = (int *)((char *)rule + condition->offset);
    const bool many = cJSON_IsArray(item);
    switch (condition->kind) {
        case WORD_SET:
            *target = 0;
            for (const cJSON *one = many ? item->child : item; one; one = many ? one->next : NULL) {
                VF_TRY(read_word(place, condition, one, target));
            }
            return VF_OK;
        case ARCHS:
            for (const cJSON *one = many ? item->child : item; one; one = many ? one->next : NULL) {
                VF_TRY(read_arch(place, one, &rule->when));
            }
            return VF_OK;
        case FLAG:
            if (!cJSON_IsBool(item)) return fault(place, condition->name, "must be true or false");
            *target = cJSON_IsTrue(item);
            return VF_OK;
        case NUMBER:
        case POWER:
            if (!is_whole(item)) return fault(place, condition->name, "must be a whole number");
            *target = item->valueint;
            if (condition->kind == NUMBER) return VF_OK;
            if (__builtin_popcount((unsigned)item->valueint) != 1)
                return fault(place, condition->name, "must be a power of two");
            *target = __builtin_ctz((unsigned)item->valueint);
            return VF_OK;
    }
    return VF_OK;
}

static vf_status read_when(struct place *place, const cJSON *when, struct rule *rule) {
    if (!cJSON_IsObject(when)) return fault(place, NULL, "must be an object of conditions");
    for (const cJSON *item = when->child; item; item = item->next) {
        const struct condition *found = NULL;
        for (size_t i = 0; i < ARRAY_LENGTH(conditions); i++) {
            if (!strcmp(conditions[i].name, item->string)) found = &conditions[i];
        }
        if (!found) return fault(place, item->string, "is not a condition");
        for (const cJSON *later = item->next; later; later = later->next) {
            if (!strcmp(later->string, item->string)) return fault(place, item->string, "is given twice");
        }
        VF_TRY(read_condition(place, found, item, rule));
    }
    return VF_OK;
}

// ---- reading: knobs, rows, files -----------------------------------------------------------------------------------

static bool is_name(const char *text) {
    return text[0] && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(text);
}

static vf_status read_use(struct place *place, const cJSON *use, struct config_row *row) {
    if (!cJSON_IsObject(use)) return fault(place, NULL, "must be an object of knobs");
    size_t length = 0;
    for (const cJSON *item = use->child; item; item = item->next) {
        char value[32];
        if (!is_name(item->string)) return fault(place, item->string, "is not a knob");
        if (cJSON_IsString(item) && is_name(item->valuestring) && strlen(item->valuestring) < sizeof value) {
            snprintf(value, sizeof value, "%.31s", item->valuestring);
        } else if (cJSON_IsBool(item) || is_whole(item)) {
            snprintf(value, sizeof value, "%d", cJSON_IsBool(item) ? cJSON_IsTrue(item) : item->valueint);
        } else {
            return fault(place, item->string, "must be a whole number, true, false or a word");
        }
        const int added =
            snprintf(row->knobs + length, CONFIG_KNOBS - length, "%s%s=%s", length ? " " : "", item->string, value);
        length += (size_t)added;
        if (length >= CONFIG_KNOBS) return fault(place, NULL, "has too many knobs");
    }
    const cJSON *tile_m = cJSON_GetObjectItemCaseSensitive(use, "tile_m");
    const cJSON *tile_n = cJSON_GetObjectItemCaseSensitive(use, "tile_n");
    const cJSON *family = cJSON_GetObjectItemCaseSensitive(use, "family");
    if (!cJSON_IsString(family)) return fault(place, NULL, "needs a family");
    if (!tile_m || !is_whole(tile_m) || tile_m->valueint < 1) return fault(place, NULL, "needs a tile_m from 1");
    if (!tile_n || !is_whole(tile_n) || tile_n->valueint < 1) return fault(place, NULL, "needs a tile_n from 1");
    snprintf(row->family, sizeof row->family, "%.31s", family->valuestring);
    row->tile_m = tile_m->valueint;
    row->tile_n = tile_n->valueint;
    return VF_OK;
}

static vf_status read_row(struct place *place, const cJSON *json, struct rule *rule) {
    *rule = (struct rule){.when = {.passes = 3,
                                   .dtypes = 3,
                                   .masks = 7,
                                   .softcap = -1,
                                   .aligned = -1,
                                   .deterministic = -1,
                                   .head_dim_max = INT_MAX,
                                   .head_dim_v_max = INT_MAX},
                          .row = {.average_q_max = INT_MAX, .average_k_max = INT_MAX, .group_max = INT_MAX}};
    snprintf(rule->row.origin, sizeof rule->row.origin, "%.*s#%.*s", 180, place->file, 120, place->pointer);
    if (!cJSON_IsObject(json)) return fault(place, NULL, "must be an object: when, use and measured");
    const size_t length = strlen(place->pointer);
    bool has_use = false, has_when = false;
    vf_status status = VF_OK;
    for (const cJSON *item = json->child; item && !status; item = item->next) {
        snprintf(place->pointer + length, sizeof place->pointer - length, "/%.40s", item->string);
        if (!strcmp(item->string, "when") && !has_when) {
            has_when = true;
            status = read_when(place, item, rule);
        } else if (!strcmp(item->string, "use") && !has_use) {
            has_use = true;
            status = read_use(place, item, &rule->row);
        } else if (!strcmp(item->string, "measured") && !rule->row.measured[0]) {
            // Fails where there is no room, and leaves a part.
            if (!cJSON_PrintPreallocated((cJSON *)(uintptr_t)item, rule->row.measured, CONFIG_MEASURED, false))
                rule->row.measured[0] = 0;
        } else {
            status = fault(place, NULL, "is not one of when, use, measured, each once");
        }
        place->pointer[length] = 0;
    }
    VF_TRY(status);
    return has_use ? VF_OK : fault(place, NULL, "needs the knobs to use");
}

static vf_status read_rows(const char *name, const cJSON *rows, struct file *file) {
    struct place place = {name, "/rows"};
    if (!cJSON_IsArray(rows)) return fault(&place, NULL, "must be a list");
    const size_t count = (size_t)cJSON_GetArraySize(rows);
    if (count == 0) return VF_OK;
    file->rules = calloc(count, sizeof *file->rules);
    VF_REQUIRE(file->rules, VF_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu rows", name, count);
    for (const cJSON *row = rows->child; row; row = row->next) {
        snprintf(place.pointer, sizeof place.pointer, "/rows/%zu", file->count);
        VF_TRY(read_row(&place, row, &file->rules[file->count]));
        file->count++;
    }
    return VF_OK;
}

static vf_status read_file(const char *name, const cJSON *json, const char *signature, struct file *file) {
    struct place place = {name, ""};
    bool has_rows = false;
    if (!cJSON_IsObject(json)) return fault(&place, NULL, "must be an object with rows");
    snprintf(file->name, sizeof file->name, "%s", name);
    for (const cJSON *item = json->child; item; item = item->next) {
        if (!strcmp(item->string, "rows") && !has_rows) {
            has_rows = true;
            VF_TRY(read_rows(name, item, file));
        } else if (!strcmp(item->string, "signature")) {
            if (!cJSON_IsString(item)) return fault(&place, "signature", "must be a text");
            if (strcmp(item->valuestring, signature) != 0) {
                return fault(&place, "signature",
                             "is %.40s, but this version's knobs have %s: the rows were made for other knobs",
                             item->valuestring, signature);
            }
        } else if (!strcmp(item->string, "device")) {
            if (!cJSON_IsString(item) || strlen(item->valuestring) >= sizeof file->device) {
                return fault(&place, "device", "must be the name of a device");
            }
            snprintf(file->device, sizeof file->device, "%s", item->valuestring);
        } else if (strcmp(item->string, "$schema") != 0 && strcmp(item->string, "comment") != 0) {
            return fault(&place, item->string, "is not one of signature, device, rows, comment");
        }
    }
    return has_rows ? VF_OK : fault(&place, NULL, "has no rows");
}

static vf_status read_text(const char *name, const char *text, size_t size, const char *signature, struct file *file) {
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (!json) {
        int line = 1;
        for (const char *at = text; at < end && at < text + size; at++) line += *at == '\n';
        VF_FAIL(VF_ERROR_CONFIG, "%s: line %d is not JSON", name, line);
    }
    const vf_status status = read_file(name, json, signature, file);
    cJSON_Delete(json);
    return status;
}

vf_status config_check(const char *name, const char *text, size_t size, const char *signature) {
    struct file file = {.count = 0};
    const vf_status status = read_text(name, text, size, signature, &file);
    free(file.rules);
    return status;
}

// ---- layers --------------------------------------------------------------------------------------------------------

static vf_status add_text(struct config *config, const char *name, const char *text, size_t size,
                          const char *signature) {
    struct file *files = realloc(config->files, (config->count + 1) * sizeof *files);
    VF_REQUIRE(files, VF_ERROR_OUT_OF_MEMORY, "%s: no memory for its rows", name);
    config->files = files;
    files[config->count] = (struct file){.count = 0};
    return read_text(name, text, size, signature, &files[config->count++]);
}

static vf_status add_path(struct config *config, const char *path, const char *signature) {
    struct buf text = {.data = NULL};
    vf_status status = fs_read(path, &text);
    if (!status) status = add_text(config, path, buf_string(&text), text.size, signature);
    buf_free(&text);
    return status;
}

static int is_json(const struct dirent *entry) {
    const size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 5 && !strcmp(entry->d_name + length - 5, ".json");
}

// Every file of the user's folder, by name. No folder is no fault.
static vf_status add_folder(struct config *config, const struct environment *environment, const char *signature) {
    char folder[PATH_MAX - 300], path[PATH_MAX];
    if (environment->xdg_config_home) {
        snprintf(folder, sizeof folder, "%s/varflash", environment->xdg_config_home);
    } else if (environment->home) {
        snprintf(folder, sizeof folder, "%s/.config/varflash", environment->home);
    } else {
        return VF_OK;
    }
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_json, alphasort);
    vf_status status = VF_OK;
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (!status) status = add_path(config, path, signature);
        free(entries[i]);
    }
    free(entries);
    return status;
}

// Built-in files that name a device come before those that do not.
static vf_status add_embedded(struct config *config, const char *signature, bool with_device) {
    for (size_t i = 0; i < embedded_file_count; i++) {
        const struct embedded_file *file = &embedded_files[i];
        if (strncmp(file->path, "configs/", 8) != 0 || !strcmp(file->path, "configs/schema.json")) continue;
        VF_TRY(add_text(config, file->path, (const char *)file->data, file->size, signature));
        struct file *added = &config->files[config->count - 1];
        if ((added->device[0] != 0) != with_device) {
            free(added->rules);
            config->count--;
        }
    }
    return VF_OK;
}

static vf_status add_layers(struct config *config, const char *path, const struct environment *environment,
                            const char *signature) {
    if (!path) path = environment->config;
    if (path) VF_TRY(add_path(config, path, signature));
    VF_TRY(add_folder(config, environment, signature));
    VF_TRY(add_embedded(config, signature, true));
    return add_embedded(config, signature, false);
}

vf_status config_open(const char *path, const struct environment *environment, const char *signature,
                      const struct logger *logger, struct config **out) {
    struct config *config = calloc(1, sizeof *config);
    VF_REQUIRE(config, VF_ERROR_OUT_OF_MEMORY, "no memory for the configuration");
    const vf_status status = add_layers(config, path, environment, signature);
    if (status) {
        config_close(config);
        return status;
    }
    for (size_t i = 0; i < config->count; i++) {
        log_write(logger, LOG_LEVEL_DEBUG, "configuration %s: %zu rows", config->files[i].name, config->files[i].count);
    }
    *out = config;
    return VF_OK;
}

void config_close(struct config *config) {
    if (!config) return;
    for (size_t i = 0; i < config->count; i++) free(config->files[i].rules);
    free(config->files);
    free(config);
}

const char *config_file(const struct config *config, size_t index) {
    return index < config->count ? config->files[index].name : "";
}

const char *config_device(const struct config *config, size_t index) {
    return index < config->count ? config->files[index].device : "";
}

// ---- selection -----------------------------------------------------------------------------------------------------

static bool admits(int condition, bool value) {
    return condition < 0 || condition == value;
}

static bool holds(const struct when *when, const struct config_query *query) {
    const struct request *request = &query->request;
    bool arch = when->arch_count == 0;
    for (int i = 0; i < when->arch_count; i++) arch |= !strcmp(when->archs[i], query->arch);
    return arch && (when->passes >> request->backward & 1) && (when->dtypes >> (request->dtype - VF_FLOAT16) & 1) &&
           (when->masks >> request->mask & 1) && admits(when->softcap, request->softcap) &&
           admits(when->aligned, request->aligned) && admits(when->deterministic, request->deterministic) &&
           request->head_dim >= when->head_dim_min && request->head_dim <= when->head_dim_max &&
           request->head_dim_v >= when->head_dim_v_min && request->head_dim_v <= when->head_dim_v_max &&
           query->shared_kb >= when->shared_kb_min;
}

bool config_row_fits(const struct config_row *row, const struct sizes *sizes) {
    return sizes->average_q <= row->average_q_max && sizes->average_k <= row->average_k_max &&
           sizes->group <= row->group_max;
}

static bool asks_for_sizes(const struct config_row *row) {
    return row->average_q_max != INT_MAX || row->average_k_max != INT_MAX || row->group_max != INT_MAX;
}

static size_t collect(const struct config *config, const struct config_query *query, bool all,
                      const struct config_row **rows, size_t limit) {
    size_t count = 0;
    for (size_t i = 0; i < config->count; i++) {
        const struct file *file = &config->files[i];
        const bool elsewhere = file->device[0] && (!query->device || strcmp(file->device, query->device) != 0);
        if (elsewhere && !all) continue;
        for (size_t r = 0; r < file->count && count < limit; r++) {
            const struct config_row *row = &file->rules[r].row;
            if (!holds(&file->rules[r].when, query) || (query->barred && !strcmp(row->family, query->barred))) continue;
            rows[count++] = row;
            if (!all && !asks_for_sizes(row)) return count;
        }
    }
    return count;
}

size_t config_reachable(const struct config *config, const struct config_query *query, const struct config_row **rows,
                        size_t limit) {
    return collect(config, query, false, rows, limit);
}

size_t config_candidates(const struct config *config, const struct config_query *query, const struct config_row **rows,
                         size_t limit) {
    return collect(config, query, true, rows, limit);
}
