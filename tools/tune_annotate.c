// tune_annotate.c - `tune --rows FILE`: what records say about rows that were written by hand. Changes no row's choice: each gets the
// member "measured", and a line of a table says whether another candidate would have been better for its shapes.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "buf.h"
#include "command.h"
#include "fs.h"
#include "output.h"
#include "tune.h"
#include "tune_items.h"
#include "tune_rows.h"

// ---- what a row's shapes say -----------------------------------------------------------------------------------------

// Whether a place, "configs/h200.json#/rows/3", is row `index` of a file of that name.
static bool is_place(const char *place, const char *path, size_t index) {
    char wanted[160];
    const char *file = strrchr(path, '/'), *end = strchr(place, '#');
    file = file ? file + 1 : path;
    const size_t length = strlen(file);
    snprintf(wanted, sizeof(wanted), "#/rows/%zu", index);
    return end && !strcmp(end, wanted) && (size_t)(end - place) >= length && !strncmp(end - length, file, length) &&
           (end - place == (long)length || end[-(long)length - 1] == '/');
}

// The shapes that a row serves.
static struct tune_bucket served_by(const struct options *options, const struct tune_items *items, size_t row) {
    struct tune_bucket bucket = {.items = output_realloc(NULL, (items->count + 1) * sizeof(*bucket.items))};
    for (size_t i = 0; i < items->count; i++) {
        const struct tune_item *item = &items->list[i];
        if (item->served && is_place(tune_text(item->served, "served_by"), options->rows, row))
            bucket.items[bucket.count++] = item;
    }
    return bucket;
}

// The candidate that would have been best for the row's shapes, the row itself left out.
static const cJSON *find_rival(const struct tune_bucket *bucket, const char *knobs, double *score) {
    const cJSON *rival = NULL;
    *score = INFINITY;
    for (size_t i = 0; i < bucket->count; i++) {
        for (size_t k = 0; k < bucket->items[i]->count; k++) {
            const cJSON *record = bucket->items[i]->records[k];
            if (!tune_is_correct(record) || !strcmp(tune_text(record, "knobs"), knobs)) continue;
            const double found = tune_score(bucket, tune_text(record, "knobs"));
            if (found >= *score) continue;
            *score = found;
            rival = record;
        }
    }
    return rival;
}

struct judgement {
    double median, most;  // what the row's shapes lose to their own best
    const cJSON *rival;
    double margin;                  // of the row over its rival; below 0: the rival is faster
    const struct tune_item *shown;  // the shape that takes longest
};

static struct judgement judge(const struct tune_bucket *bucket) {
    struct judgement out = {.shown = bucket->items[0]};
    const char *knobs = tune_text(bucket->items[0]->served, "knobs");
    double *losses = output_realloc(NULL, bucket->count * sizeof(*losses)), score;
    for (size_t i = 0; i < bucket->count; i++) {
        const struct tune_item *item = bucket->items[i];
        losses[i] = tune_number(item->served, "ms") / tune_number(item->best, "ms") - 1;
        out.most = fmax(out.most, losses[i]);
        if (tune_number(item->served, "ms") > tune_number(out.shown->served, "ms")) out.shown = item;
    }
    out.median = bench_median(losses, bucket->count);
    out.rival = find_rival(bucket, knobs, &score);
    if (out.rival) out.margin = exp(score - tune_score(bucket, knobs)) - 1;
    free(losses);
    return out;
}

static double rounded(double value) {
    return round(value * 1e4) / 1e4;
}

static cJSON *make_measured(const struct tune_bucket *bucket, const struct judgement *judgement) {
    static const char *const facts[] = {"device", "driver", "nvrtc", "generator"};
    const cJSON *served = judgement->shown->served;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "shapes", (double)bucket->count);
    cJSON_AddNumberToObject(json, "median_loss", rounded(judgement->median));
    cJSON_AddNumberToObject(json, "largest_loss", rounded(judgement->most));
    cJSON_AddStringToObject(json, "problem", tune_label(served));
    cJSON_AddNumberToObject(json, "ms", rounded(tune_number(served, "ms")));
    cJSON_AddNumberToObject(json, "low", rounded(tune_number(served, "low")));
    cJSON_AddNumberToObject(json, "high", rounded(tune_number(served, "high")));
    if (judgement->rival) {
        cJSON_AddStringToObject(json, "runner_up", tune_text(judgement->rival, "knobs"));
        cJSON_AddNumberToObject(json, "margin", rounded(judgement->margin));
    }
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
        cJSON_AddStringToObject(json, facts[i], tune_text(tune_where(served), facts[i]));
    cJSON_AddStringToObject(json, "date", tune_text(served, "timestamp"));
    tune_add_command(json, served);
    return json;
}

// ---- the file --------------------------------------------------------------------------------------------------------

// JSON on one line, with blanks as a person would set them.
static void add_spaced(struct buf *out, const char *json) {
    bool quoted = false;
    for (const char *at = json; *at; at++) {
        const bool escaped = quoted && *at == '\\' && at[1];
        if (*at == '"') quoted = !quoted;
        if (!quoted && *at == '}' && at[-1] != '{') buf_text(out, " ");
        buf_printf(out, "%c", *at);
        if (escaped) buf_printf(out, "%c", *++at);
        if (!quoted && (*at == ':' || *at == ',' || (*at == '{' && at[1] != '}'))) buf_text(out, " ");
    }
}

static int write_file(const struct options *options, const cJSON *whole) {
    struct buf text = {0};
    buf_text(&text, "{\n");
    for (const cJSON *member = output_first(whole); member; member = member->next) {
        const bool rows = !strcmp(member->string, "rows");
        buf_printf(&text, "  \"%s\": %s", member->string, rows ? "[\n" : "");
        for (const cJSON *one = rows ? output_first(member) : member; one; one = rows ? one->next : NULL) {
            char *line = cJSON_PrintUnformatted(one);
            if (rows) buf_text(&text, "    ");
            if (line) add_spaced(&text, line);
            if (rows) buf_text(&text, one->next ? ",\n" : "\n  ]");
            cJSON_free(line);
        }
        buf_text(&text, member->next ? ",\n" : "\n");
    }
    buf_text(&text, "}\n");
    const int code = buf_check(&text) ? command_failed(VF_ERROR_OUT_OF_MEMORY)
                                      : command_write_file(options->output, text.data, text.size);
    buf_free(&text);
    return code;
}

static void add_line(struct table *table, size_t row, const struct tune_bucket *bucket,
                     const struct judgement *judgement) {
    table_cell(table, "%zu", row);
    table_cell(table, "%zu", bucket->count);
    table_cell(table, "%.1f %%", 100 * judgement->median);
    table_cell(table, "%.1f %%", 100 * judgement->most);
    table_cell(table, "%+.1f %%", 100 * judgement->margin);
    table_cell(table, "%s", judgement->rival ? tune_text(judgement->rival, "knobs") : "");
}

int tune_annotate(const struct options *options, const struct tune_items *items) {
    static const char *const heads[] = {"row", "shapes", "loss", "most", "margin", "runner-up"};
    struct buf text = {0};
    struct table table;
    size_t index = 0;
    if (fs_read(options->rows, &text)) return command_failed(VF_ERROR_IO);
    cJSON *whole = cJSON_Parse(buf_string(&text)), *rows = cJSON_GetObjectItemCaseSensitive(whole, "rows");
    buf_free(&text);
    if (!cJSON_IsArray(rows)) {
        output_error("%s: is no file of rows", options->rows);
        cJSON_Delete(whole);
        return CODE_FILE;
    }
    table_open(&table, "rrrrrl");
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) table_cell(&table, "%s", heads[i]);
    for (cJSON *row = rows->child; row; row = row->next, index++) {
        struct tune_bucket bucket = served_by(options, items, index);
        if (bucket.count) {
            const struct judgement judgement = judge(&bucket);
            cJSON_DeleteItemFromObjectCaseSensitive(row, "measured");
            cJSON_AddItemToObject(row, "measured", make_measured(&bucket, &judgement));
            add_line(&table, index, &bucket, &judgement);
        }
        free(bucket.items);
    }
    table_print(&table);
    table_close(&table);
    const int code = write_file(options, whole);
    cJSON_Delete(whole);
    return code;
}
