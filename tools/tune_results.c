// tune_results.c - what is made of a tuner's records: rows of configuration and the T4 file.
//
// Rows that only sizes tell apart must give equal bits (runtime/variant.c), so the candidates of a request are chosen together:
// those of the numeric class whose best add up to the least time.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "command.h"
#include "output.h"
#include "tune.h"
#include "tune_items.h"

#define NOT_MEASURED 1.5  // what a candidate counts for where a problem of its bucket has no time of it, over the best

// Records without those that later ones replace.
static cJSON *latest(const cJSON *records) {
    cJSON *out = cJSON_CreateArray();
    for (const cJSON *record = output_first(records); record; record = record->next) {
        if (tune_find_record(records, tune_text(record, "problem"), tune_text(record, "pass"),
                             tune_text(record, "knobs")) == record)
            cJSON_AddItemToArray(out, cJSON_Duplicate(record, true));
    }
    return out;
}

// ---- rows ------------------------------------------------------------------------------------------------------------

static const cJSON *find_in(const struct tune_item *item, const char *knobs) {
    for (size_t i = 0; i < item->count; i++) {
        if (!strcmp(tune_text(item->records[i], "knobs"), knobs)) return item->records[i];
    }
    return NULL;
}

// The problems of one request whose averages are the same powers of two get one row.
struct bucket {
    const struct tune_item **items;
    size_t count;
    const cJSON *winner;
    const struct tune_item *won;  // the item that the winner's record is of
    double score;                 // logarithm of its time over the best's, mean over the items
};

static const char *request_of(const struct bucket *bucket) {
    return tune_text(tune_first(bucket->items[0]), "request");
}

// How much slower than the best these knobs are in the problems of a bucket: the mean of logarithms.
static double score_of(const struct bucket *bucket, const char *knobs) {
    double sum = 0;
    for (size_t i = 0; i < bucket->count; i++) {
        const cJSON *record = find_in(bucket->items[i], knobs), *best = bucket->items[i]->best;
        sum += record && tune_is_correct(record) ? log(tune_number(record, "ms") / tune_number(best, "ms"))
                                                 : log(NOT_MEASURED);
    }
    return sum / (double)bucket->count;
}

// The best candidate of a bucket, of one numeric class or (any) of all.
static void choose(struct bucket *bucket, bool any, double numeric) {
    bucket->winner = NULL;
    bucket->score = 2 * log(NOT_MEASURED);
    for (size_t i = 0; i < bucket->count; i++) {
        const struct tune_item *item = bucket->items[i];
        for (size_t k = 0; k < item->count; k++) {
            const cJSON *record = item->records[k];
            if (!tune_is_correct(record) || (!any && tune_number(record, "numeric") != numeric)) continue;
            const double score = score_of(bucket, tune_text(record, "knobs"));
            if (bucket->winner && score >= bucket->score) continue;
            bucket->winner = record;
            bucket->won = item;
            bucket->score = score;
        }
    }
}

// Forward and deterministic backward promise the same bits in every batch.
static bool promises_bits(const char *request) {
    return strstr(request, "pass=fwd") || strstr(request, "deterministic=1");
}

static double total_score(struct bucket *buckets, size_t count, double numeric) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        choose(&buckets[i], false, numeric);
        sum += buckets[i].score;
    }
    return sum;
}

// For the buckets of one request.
static void choose_together(struct bucket *buckets, size_t count) {
    const bool any = !promises_bits(request_of(&buckets[0]));
    double best = INFINITY, numeric = 0, tried[64];
    size_t tried_count = 0;
    for (size_t i = 0; i < count && !any; i++) {
        const struct tune_item *item = buckets[i].items[0];
        for (size_t k = 0; k < item->count && tried_count < 64; k++) {
            const double value = tune_number(item->records[k], "numeric");
            bool known = !tune_is_correct(item->records[k]);
            for (size_t t = 0; t < tried_count; t++) known |= tried[t] == value;
            if (known) continue;
            tried[tried_count++] = value;
            const double sum = total_score(buckets, count, value);
            if (sum >= best) continue;
            best = sum;
            numeric = value;
        }
    }
    for (size_t i = 0; i < count; i++) choose(&buckets[i], any, numeric);
}

// "head_dim=128" of a request as a member, numbers as numbers.
static void add_words(cJSON *json, const char *text, const char *const *only, size_t count) {
    char name[32], value[32];
    for (int used = 0; sscanf(text, " %31[^=]=%31s%n", name, value, &used) == 2; text += used) {
        bool wanted = !count;
        for (size_t i = 0; i < count; i++) wanted |= !strcmp(only[i], name);
        if (!wanted) continue;
        char *end;
        const double number = strtod(value, &end);
        const bool flag = !strcmp(name, "softcap") || !strcmp(name, "aligned") || !strcmp(name, "deterministic") ||
                          !strcmp(name, "q_registers");
        if (flag)
            cJSON_AddBoolToObject(json, name, number != 0);
        else if (*end)
            cJSON_AddStringToObject(json, name, value);
        else
            cJSON_AddNumberToObject(json, name, number);
    }
}

static cJSON *make_when(const struct bucket *bucket, bool last) {
    static const char *const words[] = {"pass", "arch", "dtype", "mask", "softcap", "aligned", "deterministic"};
    static const char *const dims[] = {"head_dim", "head_dim_v"};
    const char *request = request_of(bucket);
    cJSON *when = cJSON_CreateObject();
    add_words(when, request, words, sizeof(words) / sizeof(*words));
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
    if (!last) cJSON_AddNumberToObject(when, "avg_q_max", (double)(1ull << bucket->items[0]->size_q));
    if (!last) cJSON_AddNumberToObject(when, "avg_k_max", (double)(1ull << bucket->items[0]->size_k));
    return when;
}

static cJSON *make_measured(const struct options *options, const struct bucket *bucket) {
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
    struct buf command = {0};
    buf_text(&command, "varflash");
    for (int i = 1; i < options->argc; i++) buf_printf(&command, " %s", options->argv[i]);
    cJSON_AddStringToObject(json, "command", buf_string(&command));
    buf_free(&command);
    return json;
}

static int by_request_and_size(const void *a, const void *b) {
    const struct bucket *x = a, *y = b;
    const int order = strcmp(request_of(x), request_of(y));
    if (order) return order;
    const struct tune_item *p = x->items[0], *q = y->items[0];
    if (p->size_q != q->size_q) return p->size_q < q->size_q ? -1 : 1;
    return (p->size_k > q->size_k) - (p->size_k < q->size_k);
}

static struct bucket *make_buckets(const struct tune_items *items, size_t *count) {
    struct bucket *buckets = NULL;
    *count = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct tune_item *item = &items->list[i];
        struct bucket *found = NULL;
        if (!item->best) continue;
        for (size_t k = 0; k < *count && !found; k++) {
            const struct tune_item *other = buckets[k].items[0];
            if (other->size_q == item->size_q && other->size_k == item->size_k &&
                !strcmp(request_of(&buckets[k]), tune_text(tune_first(item), "request")))
                found = &buckets[k];
        }
        if (!found) {
            buckets = output_realloc(buckets, (*count + 1) * sizeof(*buckets));
            found = &buckets[(*count)++];
            *found = (struct bucket){.count = 0};
        }
        found->items = output_realloc(found->items, (found->count + 1) * sizeof(const struct tune_item *));
        found->items[found->count++] = item;
    }
    if (*count) qsort(buckets, *count, sizeof(*buckets), by_request_and_size);
    return buckets;
}

static cJSON *make_row(const struct options *options, const struct bucket *bucket, bool last) {
    cJSON *row = cJSON_CreateObject(), *use = cJSON_CreateObject();
    add_words(use, tune_text(bucket->winner, "knobs"), NULL, 0);
    cJSON_AddItemToObject(row, "when", make_when(bucket, last));
    cJSON_AddItemToObject(row, "use", use);
    cJSON_AddItemToObject(row, "measured", make_measured(options, bucket));
    return row;
}

static cJSON *make_rows(const struct options *options, const struct tune_items *items) {
    size_t count;
    struct bucket *buckets = make_buckets(items, &count);
    cJSON *rows = cJSON_CreateArray();
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && !strcmp(request_of(&buckets[to]), request_of(&buckets[from]));) to++;
        choose_together(buckets + from, to - from);
        for (size_t i = from; i < to; i++) {
            if (buckets[i].winner) cJSON_AddItemToArray(rows, make_row(options, &buckets[i], i + 1 == to));
        }
    }
    for (size_t i = 0; i < count; i++) free(buckets[i].items);
    free(buckets);
    return rows;
}

// One row a line, as configs/ has them: a sweep's changes are lines of a diff.
static int write_rows(const struct options *options, const struct tune_items *items) {
    const cJSON *where = tune_where(tune_first(&items->list[0]));
    cJSON *rows = make_rows(options, items);
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
    buf_free(&text);
    cJSON_Delete(rows);
    return code;
}

// ---- T4 --------------------------------------------------------------------------------------------------------------

static cJSON *t4_result(const cJSON *record) {
    cJSON *json = cJSON_CreateObject(), *configuration = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "timestamp", tune_text(record, "timestamp"));
    add_words(configuration, tune_text(record, "knobs"), NULL, 0);
    cJSON_AddStringToObject(configuration, "request", tune_text(record, "request"));
    cJSON_AddStringToObject(configuration, "problem", tune_text(record, "problem"));
    cJSON_AddItemToObject(json, "configuration", configuration);
    cJSON *objectives = cJSON_AddArrayToObject(json, "objectives");
    cJSON_AddItemToArray(objectives, cJSON_CreateString("time"));
    cJSON *times = cJSON_AddObjectToObject(json, "times");
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(record, "times");
    cJSON_AddItemToObject(times, "runtimes", all ? cJSON_Duplicate(all, true) : cJSON_CreateArray());
    cJSON_AddStringToObject(json, "invalidity", tune_text(record, "state"));
    cJSON_AddNumberToObject(json, "correctness", tune_is_correct(record));
    cJSON *measurements = cJSON_AddArrayToObject(json, "measurements");
    if (tune_is_correct(record)) {
        cJSON *time = cJSON_CreateObject();
        cJSON_AddStringToObject(time, "name", "time");
        cJSON_AddNumberToObject(time, "value", tune_number(record, "ms"));
        cJSON_AddStringToObject(time, "unit", "ms");
        cJSON_AddItemToArray(measurements, time);
    }
    return json;
}

static int write_t4(const struct options *options, const cJSON *records) {
    struct buf path = {0};
    const char *ending = strrchr(options->output, '.');
    const long stem = ending && !strcmp(ending, ".json") ? ending - options->output : (long)strlen(options->output);
    buf_printf(&path, "%.*s.t4.json", (int)stem, options->output);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "schema_version", "1.0.0");
    cJSON *results = cJSON_AddArrayToObject(json, "results");
    for (const cJSON *record = output_first(records); record; record = record->next)
        cJSON_AddItemToArray(results, t4_result(record));
    char *text = cJSON_Print(json);
    int code = text && !buf_check(&path) ? command_write_file(path.data, text, strlen(text))
                                         : command_failed(VF_ERROR_OUT_OF_MEMORY);
    cJSON_free(text);
    cJSON_Delete(json);
    buf_free(&path);
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
    if (!code) code = write_rows(options, &items);
    if (!code) code = write_t4(options, kept);
    if (!code && options->report) code = tune_report(options, &items);
    tune_items_free(&items);
    cJSON_Delete(kept);
    return code;
}
