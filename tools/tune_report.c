// tune_report.c - the page of plots about a sweep.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "report.h"
#include "roofline.h"
#include "texts.h"
#include "tune_items.h"
#include "tune_search.h"

// The share of the variance of an item's log times that a knob ("tile_m=") explains; -1: too few times.
static double explained(const struct tune_item *item, const char *name) {
    double *values = output_realloc(NULL, item->count * sizeof(*values));
    size_t *groups = output_realloc(NULL, item->count * sizeof(*groups)), count = 0;
    struct texts kinds = {0};
    for (size_t i = 0; i < item->count; i++) {
        if (!tune_is_correct(item->records[i])) continue;
        const char *at = strstr(tune_text(item->records[i], "knobs"), name);
        char *value = output_copy(at ? at : "");
        value[strcspn(value, " ")] = 0;
        size_t kind = 0;
        while (kind < kinds.count && strcmp(kinds.items[kind], value) != 0) kind++;
        if (kind == kinds.count) texts_add(&kinds, value);
        free(value);
        values[count] = log(tune_number(item->records[i], "ms"));
        groups[count++] = kind;
    }
    const double share = count > 2 ? tune_explained(values, groups, count, kinds.count) : -1;
    texts_free(&kinds);
    free(values);
    free(groups);
    return share;
}

// A bar for each knob: the mean over the items.
static size_t add_importance(const struct tune_items *items, struct report_bar *bars, size_t limit,
                             struct texts *names) {
    for (size_t i = 0; i < items->count; i++) {
        char name[32];
        const char *text = tune_text(tune_first(&items->list[i]), "knobs");
        for (int used = 0; sscanf(text, " %31[^=]=%*s%n", name, &used) == 1; text += used) texts_add(names, name);
    }
    texts_sort(names);
    size_t used = 0;
    for (size_t n = 0; n < names->count && used < limit; n++) {
        double sum = 0, count = 0;
        char name[48];
        snprintf(name, sizeof(name), "%s=", names->items[n]);
        for (size_t i = 0; i < items->count; i++) {
            const double share = explained(&items->list[i], name);
            if (share >= 0) sum += share, count++;
        }
        if (count > 0) bars[used++] = (struct report_bar){names->items[n], "knob", sum / count, 0, 0};
    }
    return used;
}

// The shape and the pass.
static const char *add_label(struct texts *words, const cJSON *first) {
    char text[160];
    snprintf(text, sizeof(text), "%s %s", tune_label(first), tune_text(first, "pass"));
    texts_add(words, text);
    return words->items[words->count - 1];
}

// Every candidate of every shape, the one that served before in a colour of its own.
static void add_field(struct report *report, const struct tune_items *items) {
    struct report_dot *dots = NULL;
    struct texts words = {0};  // labels and families
    size_t count = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct tune_item *item = &items->list[i];
        const cJSON *first = tune_first(item);
        const char *label = add_label(&words, first);
        char text[160];
        for (size_t k = 0; k <= item->count; k++) {
            // What served is drawn last, on top.
            const cJSON *record = k < item->count ? item->records[k] : item->served;
            const char *family = strstr(tune_text(record, "knobs"), "family=");
            if (!tune_is_correct(record) || (k < item->count && record == item->served)) continue;
            snprintf(text, sizeof(text), "%s", record == item->served ? "served before" : family ? family + 7 : "");
            text[family && record != item->served ? strcspn(text, " ") : strlen(text)] = 0;
            texts_add(&words, text);
            dots = output_realloc(dots, (count + 1) * sizeof(*dots));
            dots[count++] = (struct report_dot){label, words.items[words.count - 1], tune_text(record, "knobs"),
                                                tune_number(first, "flops") / 1e9 / tune_number(record, "ms")};
        }
    }
    report_strips(report, "Every candidate", "TFLOP/s", dots, count);
    texts_free(&words);
    free(dots);
}

static void add_losses(struct report *report, const struct tune_losses *losses) {
    struct report_bar *bars = output_realloc(NULL, (losses->count + 1) * sizeof(*bars));
    for (size_t i = 0; i < losses->count; i++) {
        const cJSON *first = tune_first(losses->list[i].item);
        bars[i] = (struct report_bar){tune_label(first), tune_text(first, "pass"), 100 * losses->list[i].loss, 0, 0};
    }
    if (losses->count) report_bars(report, "What held-out shapes lose to their own best", "%", bars, losses->count);
    free(bars);
}

int tune_report(const struct options *options, const struct tune_items *items, const struct tune_losses *losses,
                const struct tune_gains *gained) {
    struct report_bar *speeds = output_realloc(NULL, 2 * items->count * sizeof(*speeds));
    struct report_bar *gains = output_realloc(NULL, items->count * sizeof(*gains)), knobs[32];
    struct report_point *points = output_realloc(NULL, items->count * sizeof(*points));
    size_t speed_count = 0, gain_count = 0, point_count = 0;
    char mean[64];
    struct texts names = {0}, labels = {0};
    struct report report;
    for (size_t i = 0; i < items->count; i++) {
        const struct tune_item *item = &items->list[i];
        const cJSON *first = tune_first(item);
        if (!item->best) continue;
        const double work = tune_number(first, "flops") / 1e9;
        const char *label = add_label(&labels, first);
        for (int tuned = 0; tuned < 2; tuned++) {
            const cJSON *record = tuned ? item->best : item->served;
            if (!record) continue;
            speeds[speed_count++] =
                (struct report_bar){label, tuned ? "fastest" : "served before", work / tune_number(record, "ms"),
                                    work / tune_number(record, "high"), work / tune_number(record, "low")};
        }
        points[point_count++] = (struct report_point){
            tune_label(first), tune_text(first, "pass"),
            tune_number(first, "flops") / fmax(tune_number(first, "bytes"), 1), work / tune_number(item->best, "ms")};
        if (!item->served) continue;
        const double gain = 100 * (tune_number(item->served, "ms") / tune_number(item->best, "ms") - 1);
        gains[gain_count++] = (struct report_bar){tune_label(first), tune_text(first, "pass"), gain, 0, 0};
    }
    snprintf(mean, sizeof(mean), "%.3f (%.3f to %.3f, %zu shapes)", tune_mean_gain(gained), gained->least, gained->most,
             gained->count);
    report_begin(
        &report, "varflash tune",
        "Every candidate was checked against a float64 oracle before it was timed. Times are medians without outliers, "
        "whiskers 95 % intervals.");
    for (const cJSON *fact = output_first(tune_where(tune_first(&items->list[0]))); fact; fact = fact->next) {
        if (cJSON_IsString(fact)) report_fact(&report, fact->string, fact->valuestring);
    }
    report_fact(&report, "rows over those before, geometric mean", mean);
    // What fits on a screen first; then a line for each shape.
    roofline_add(&report, tune_text(tune_where(tune_first(&items->list[0])), "device"), points, point_count);
    const size_t importance = add_importance(items, knobs, sizeof(knobs) / sizeof(*knobs), &names);
    report_bars(&report, "What the knobs explain of the differences", "share of variance", knobs, importance);
    report_bars(&report, "How much faster the fastest is than what was served before", "%", gains, gain_count);
    add_losses(&report, losses);
    report_bars(&report, "Speed", "TFLOP/s", speeds, speed_count);
    add_field(&report, items);
    texts_free(&names);
    texts_free(&labels);
    free(speeds);
    free(gains);
    free(points);
    return report_end(&report, options->report);
}
