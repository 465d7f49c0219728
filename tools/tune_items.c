// tune_items.c - see tune_items.h.
#include "tune_items.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

const char *tune_text(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

double tune_number(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

const cJSON *tune_where(const cJSON *record) {
    return cJSON_GetObjectItemCaseSensitive(record, "where");
}

bool tune_is_correct(const cJSON *record) {
    return !strcmp(tune_text(record, "state"), "correct") && tune_number(record, "ms") > 0;
}

static bool same_item(const cJSON *a, const cJSON *b) {
    return !strcmp(tune_text(a, "problem"), tune_text(b, "problem")) &&
           !strcmp(tune_text(a, "pass"), tune_text(b, "pass"));
}

const char *tune_label(const cJSON *record) {
    const char *name = tune_text(record, "name");
    return *name ? name : tune_text(record, "problem");
}

void tune_add_words(cJSON *json, const char *text, const char *const *only, size_t count) {
    char name[32], value[32];
    for (int used = 0; sscanf(text, " %31[^=]=%31s%n", name, value, &used) == 2; text += used) {
        bool wanted = !count;
        for (size_t i = 0; i < count; i++) wanted |= !strcmp(only[i], name);
        if (!wanted) continue;
        char *end;
        const double number = strtod(value, &end);
        const bool flag = !strcmp(name, "softcap") || !strcmp(name, "aligned") || !strcmp(name, "deterministic") ||
                          !strcmp(name, "q_registers") || !strcmp(name, "alternate") || !strcmp(name, "group_buffers");
        if (flag)
            cJSON_AddBoolToObject(json, name, number != 0);
        else if (*end)
            cJSON_AddStringToObject(json, name, value);
        else
            cJSON_AddNumberToObject(json, name, number);
    }
}

void tune_add_command(cJSON *json, const cJSON *record) {
    cJSON_AddStringToObject(json, "command", tune_text(tune_where(record), "command"));
}

static unsigned log2_up(double value) {
    unsigned bits = 0;
    while ((double)(1ull << bits) < value && bits < 40) bits++;
    return bits;
}

const cJSON *tune_first(const struct tune_item *item) {
    return item->records[0];
}

static void look(struct tune_item *item) {
    item->size_q = log2_up(tune_number(tune_first(item), "average_q"));
    item->size_k = log2_up(tune_number(tune_first(item), "average_k"));
    for (size_t i = 0; i < item->count; i++) {
        const cJSON *record = item->records[i];
        if (!tune_is_correct(record)) continue;
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(record, "served"))) item->served = record;
        if (!item->best || tune_number(record, "ms") < tune_number(item->best, "ms")) {
            item->second = item->best;
            item->best = record;
        } else if (!item->second || tune_number(record, "ms") < tune_number(item->second, "ms")) {
            item->second = record;
        }
    }
}

struct tune_items tune_items_make(const cJSON *records) {
    struct tune_items items = {NULL, 0};
    for (const cJSON *record = output_first(records); record; record = record->next) {
        struct tune_item *found = NULL;
        for (size_t i = items.count; i-- > 0 && !found;) {  // most records are about the last one
            if (same_item(tune_first(&items.list[i]), record)) found = &items.list[i];
        }
        if (!found) {
            items.list = output_realloc(items.list, (items.count + 1) * sizeof(*items.list));
            found = &items.list[items.count++];
            *found = (struct tune_item){.count = 0};
        }
        found->records = output_realloc(found->records, (found->count + 1) * sizeof(const cJSON *));
        found->records[found->count++] = record;
    }
    for (size_t i = 0; i < items.count; i++) look(&items.list[i]);
    return items;
}

void tune_gain(struct tune_gains *gains, double before, double after) {
    const double gain = before / after;
    if (!gains->count || gain < gains->least) gains->least = gain;
    if (!gains->count || gain > gains->most) gains->most = gain;
    gains->sum += log(gain);
    gains->count++;
}

double tune_mean_gain(const struct tune_gains *gains) {
    return exp(gains->count ? gains->sum / (double)gains->count : 0);
}

void tune_items_free(struct tune_items *items) {
    for (size_t i = 0; i < items->count; i++) free(items->list[i].records);
    free(items->list);
}
