// tune_results.c - what is made of a tuner's records: rows of configuration; tune_t4.c, tune_held_out.c and tune_report.c do the rest.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "command.h"
#include "output.h"
#include "tune.h"
#include "tune_items.h"
#include "tune_rows.h"

// Records without those that later ones replace.
static cJSON *latest(const cJSON *records) {
    struct tune_index index = tune_index_make(records);
    cJSON *out = cJSON_CreateArray();
    for (const cJSON *record = output_first(records); record; record = record->next) {
        if (tune_index_find(&index, tune_text(record, "problem"), tune_text(record, "pass"),
                            tune_text(record, "knobs")) == record)
            cJSON_AddItemToArray(out, cJSON_Duplicate(record, true));
    }
    tune_index_free(&index);
    return out;
}

// ---- rows ------------------------------------------------------------------------------------------------------------

static cJSON *make_when(const struct tune_bucket *bucket) {
    static const char *const words[] = {"pass", "arch", "dtype", "mask", "softcap", "aligned", "deterministic"};
    static const char *const dims[] = {"head_dim", "head_dim_v"};
    const char *request = tune_request(bucket);
    cJSON *when = cJSON_CreateObject();
    tune_add_words(when, request, words, sizeof(words) / sizeof(*words));
    for (size_t i = 0; i < 2; i++) {
        char name[32], bound[40];
        snprintf(name, sizeof(name), " %s=", dims[i]);
        const char *at = strstr(request, name);
        const double value = at ? strtod(at + strlen(name), NULL) : 0;
        snprintf(bound, sizeof(bound), "%s_min", dims[i]);
        cJSON_AddNumberToObject(when, bound, value);
        snprintf(bound, sizeof(bound), "%s_max", dims[i]);
        cJSON_AddNumberToObject(when, bound, value);
    }
    if (!bucket->last) cJSON_AddNumberToObject(when, "avg_q_max", (double)(1ull << bucket->items[0]->size_q));
    if (!bucket->last) cJSON_AddNumberToObject(when, "avg_k_max", (double)(1ull << bucket->items[0]->size_k));
    return when;
}

static cJSON *make_measured(const struct tune_bucket *bucket) {
    static const char *const facts[] = {"device", "driver", "nvrtc", "generator"};
    const struct tune_item *item = bucket->won;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "problem", tune_text(bucket->winner, "problem"));
    cJSON_AddNumberToObject(json, "ms", tune_number(bucket->winner, "ms"));
    cJSON_AddNumberToObject(json, "low", tune_number(bucket->winner, "low"));
    cJSON_AddNumberToObject(json, "high", tune_number(bucket->winner, "high"));
    if (item->served) cJSON_AddNumberToObject(json, "served_before_ms", tune_number(item->served, "ms"));
    const cJSON *rival = item->best == bucket->winner ? item->second : item->best;
    if (rival) {
        cJSON_AddStringToObject(json, "runner_up", tune_text(rival, "knobs"));
        cJSON_AddNumberToObject(json, "margin", tune_number(rival, "ms") / tune_number(bucket->winner, "ms") - 1);
    }
    cJSON_AddNumberToObject(json, "candidates", (double)item->count);
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
        cJSON_AddStringToObject(json, facts[i], tune_text(tune_where(bucket->winner), facts[i]));
    cJSON_AddStringToObject(json, "date", tune_text(bucket->winner, "timestamp"));
    tune_add_command(json, bucket->winner);
    return json;
}

static cJSON *make_row(const struct tune_bucket *bucket) {
    cJSON *row = cJSON_CreateObject(), *use = cJSON_CreateObject();
    tune_add_words(use, tune_text(bucket->winner, "knobs"), NULL, 0);
    cJSON_AddItemToObject(row, "when", make_when(bucket));
    cJSON_AddItemToObject(row, "use", use);
    cJSON_AddItemToObject(row, "measured", make_measured(bucket));
    return row;
}

// What a row's shapes gain by it.
static void add_gains(const struct tune_bucket *bucket, struct tune_gains *gains) {
    for (size_t i = 0; i < bucket->count; i++) {
        const struct tune_item *item = bucket->items[i];
        const cJSON *record = tune_find_knobs(item, tune_text(bucket->winner, "knobs"));
        if (item->served && record && tune_is_correct(record))
            tune_gain(gains, tune_number(item->served, "ms"), tune_number(record, "ms"));
    }
}

static cJSON *make_rows(const struct tune_item *const *items, size_t count, struct tune_gains *gains) {
    struct tune_rows chosen = tune_rows_choose(items, count);
    cJSON *rows = cJSON_CreateArray();
    for (size_t i = 0; i < chosen.count; i++) {
        if (!chosen.list[i].winner) continue;
        cJSON_AddItemToArray(rows, make_row(&chosen.list[i]));
        add_gains(&chosen.list[i], gains);
    }
    tune_rows_free(&chosen);
    return rows;
}

// One row a line, as configs/ has them: a sweep's changes are lines of a diff.
static int write_rows(const struct options *options, const struct tune_items *items, struct tune_gains *gains) {
    const cJSON *where = tune_where(tune_first(&items->list[0]));
    const struct tune_item **shown = output_realloc(NULL, items->count * sizeof(*shown));
    size_t count = 0;
    for (size_t i = 0; i < items->count; i++) {
        if (!tune_is_held_out(options, &items->list[i])) shown[count++] = &items->list[i];
    }
    cJSON *rows = make_rows(shown, count, gains);
    free(shown);
    struct buf text = {0};
    buf_printf(
        &text,
        "{\n  \"comment\": \"Rows measured by varflash tune.\",\n  \"device\": \"%s\",\n  \"signature\": \"%s\",\n"
        "  \"rows\": [\n",
        tune_text(where, "device"), tune_text(where, "signature"));
    for (const cJSON *row = output_first(rows); row; row = row->next) {
        char *line = cJSON_PrintUnformatted(row);
        buf_printf(&text, "    %s%s\n", line ? line : "", row->next ? "," : "");
        cJSON_free(line);
    }
    buf_text(&text, "  ]\n}\n");
    int code = buf_check(&text) ? command_failed(VF_ERROR_OUT_OF_MEMORY) : CODE_OK;
    if (!code) code = command_write_file(options->output, text.data, text.size);
    if (!code) output_note("%s: %d rows", options->output, cJSON_GetArraySize(rows));
    if (!code && gains->count)
        output_note("with them %zu shapes are %.3f times as fast as before (geometric mean; %.3f to %.3f)",
                    gains->count, tune_mean_gain(gains), gains->least, gains->most);
    buf_free(&text);
    cJSON_Delete(rows);
    return code;
}

// ---- all -------------------------------------------------------------------------------------------------------------

int tune_write_results(const struct options *options, const cJSON *records) {
    cJSON *kept = latest(records);
    struct tune_items items = tune_items_make(kept);
    int code = CODE_OK;
    if (!items.count) {
        output_error("tune: nothing was measured");
        code = CODE_FAILURE;
    }
    struct tune_losses losses = {NULL, 0};
    struct tune_gains gains = {.count = 0};
    if (!code) code = options->rows ? tune_annotate(options, &items) : write_rows(options, &items, &gains);
    if (!code) code = tune_write_t4(options, kept);
    if (!code && options->held_out) code = tune_held_out(options, &items, &losses);
    if (!code && options->report) code = tune_report(options, &items, &losses, &gains);
    free(losses.list);
    tune_items_free(&items);
    cJSON_Delete(kept);
    return code;
}
