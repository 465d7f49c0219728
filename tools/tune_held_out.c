// tune_held_out.c - do rows generalise? What shapes lose that rows were not made of: the time of the row they get over their own best.
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "output.h"
#include "tune_items.h"
#include "tune_rows.h"

// Every shape in its turn, each with rows of all the others.
static bool each(const struct options *options) {
    return !strcmp(options->held_out, "each");
}

bool tune_is_held_out(const struct options *options, const struct tune_item *item) {
    return options->held_out && !each(options) && strstr(tune_text(tune_first(item), "name"), options->held_out);
}

// The record of what `item` would be served by; null if that has no time there.
static const cJSON *serve(const struct options *options, const struct tune_items *items, const struct tune_item *item,
                          bool *fresh) {
    const struct tune_item **others = output_realloc(NULL, items->count * sizeof(*others));
    size_t count = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct tune_item *other = &items->list[i];
        const bool alike = !strcmp(tune_text(tune_first(other), "request"), tune_text(tune_first(item), "request"));
        if (other != item && alike && !tune_is_held_out(options, other)) others[count++] = other;
    }
    struct tune_rows rows = tune_rows_choose(others, count);
    const struct tune_bucket *bucket = tune_rows_serve(&rows, item);
    *fresh = bucket && bucket->winner;
    const cJSON *record = *fresh ? tune_find_knobs(item, tune_text(bucket->winner, "knobs")) : item->served;
    tune_rows_free(&rows);
    free(others);
    return record && tune_is_correct(record) ? record : NULL;
}

static void print(const struct options *options, const struct tune_losses *losses, double median, double worst) {
    struct table table;
    cJSON *json = cJSON_CreateArray();
    table_open(&table, "lllrrr");
    static const char *const heads[] = {"held out", "pass", "row", "ms", "best", "loss"};
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) table_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < losses->count; i++) {
        const struct tune_loss *loss = &losses->list[i];
        const cJSON *first = tune_first(loss->item);
        const double best = tune_number(loss->item->best, "ms");
        table_cell(&table, "%s", tune_label(first));
        table_cell(&table, "%s", tune_text(first, "pass"));
        table_cell(&table, "%s", loss->fresh ? "new" : "there was");
        table_cell(&table, "%.4f", loss->ms);
        table_cell(&table, "%.4f", best);
        table_cell(&table, "%.1f %%", 100 * loss->loss);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "problem", tune_text(first, "problem"));
        cJSON_AddStringToObject(item, "pass", tune_text(first, "pass"));
        cJSON_AddStringToObject(item, "knobs", loss->knobs);
        cJSON_AddBoolToObject(item, "new_row", loss->fresh);
        cJSON_AddNumberToObject(item, "ms", loss->ms);
        cJSON_AddNumberToObject(item, "best_ms", best);
        cJSON_AddNumberToObject(item, "loss", loss->loss);
        cJSON_AddItemToArray(json, item);
    }
    if (options->json) {
        cJSON *whole = cJSON_CreateObject();
        cJSON_AddItemToObject(whole, "held_out", json);
        cJSON_AddNumberToObject(whole, "median_loss", median);
        cJSON_AddNumberToObject(whole, "largest_loss", worst);
        output_json(whole, false);
    } else {
        table_print(&table);
        cJSON_Delete(json);
    }
    table_close(&table);
}

int tune_held_out(const struct options *options, const struct tune_items *items, struct tune_losses *losses) {
    double *fresh = output_realloc(NULL, items->count * sizeof(*fresh)), worst = 0;
    size_t count = 0, unknown = 0;
    losses->list = output_realloc(NULL, items->count * sizeof(*losses->list));
    for (size_t i = 0; i < items->count; i++) {
        struct tune_loss loss = {.item = &items->list[i]};
        if (!loss.item->best || !(each(options) || tune_is_held_out(options, loss.item))) continue;
        const cJSON *record = serve(options, items, loss.item, &loss.fresh);
        if (!record) {
            unknown++;
            continue;
        }
        loss.knobs = tune_text(record, "knobs");
        loss.ms = tune_number(record, "ms");
        loss.loss = loss.ms / tune_number(loss.item->best, "ms") - 1;
        if (loss.fresh) {
            fresh[count++] = loss.loss;
            if (loss.loss > worst) worst = loss.loss;
        }
        losses->list[losses->count++] = loss;
    }
    const double median = count ? bench_median(fresh, count) : 0;
    if (losses->count) print(options, losses, median, worst);
    if (count)
        output_note("held out: %zu shapes lose %.1f %% to their own best (median), %.1f %% at most", count,
                    100 * median, 100 * worst);
    else
        output_note("held out: no shape gets a row that others made");
    if (unknown) output_note("held out: of %zu shapes the row they get has no time", unknown);
    free(fresh);
    return 0;
}
