// bench_report.c - what is made of bench's records afterwards: a page of plots, and the comparison of two files. A record is the
// JSON line that bench prints for a pass of a problem.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "buf.h"
#include "command.h"
#include "fs.h"
#include "output.h"
#include "report.h"
#include "roofline.h"

#define REGRESSION 1.03

static const char *text_of(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static double number_of(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

// Its name, else its flags.
static const char *label_of(const cJSON *record) {
    const char *name = text_of(record, "name");
    return *name ? name : text_of(record, "problem");
}

// ---- the page --------------------------------------------------------------------------------------------------------

#define CELLS 7

static void add_facts(struct report *report, const cJSON *record) {
    const cJSON *where = cJSON_GetObjectItemCaseSensitive(record, "where");
    for (const cJSON *item = output_first(where); item; item = item->next) {
        char number[32];
        snprintf(number, sizeof(number), "%g", cJSON_IsNumber(item) ? item->valuedouble : 0);
        report_fact(report, item->string, cJSON_IsString(item) ? item->valuestring : number);
    }
}

static void add_table(struct report *report, const cJSON *records, size_t count) {
    static const char *const head[CELLS] = {"problem", "pass", "ms", "spread", "TFLOP/s", "GB/s", "calls"};
    static const char *const fields[CELLS] = {NULL, NULL, "ms", "spread", "tflops", "gbytes", "calls"};
    char **cells = output_realloc(NULL, (count + 1) * CELLS * sizeof(*cells));
    size_t used = 0;
    for (size_t i = 0; i < CELLS; i++) cells[used++] = output_copy(head[i]);
    for (const cJSON *record = output_first(records); record; record = record->next) {
        for (size_t i = 0; i < CELLS; i++) {
            char number[32];
            if (fields[i]) snprintf(number, sizeof(number), "%.4g", number_of(record, fields[i]));
            cells[used++] = output_copy(i == 0 ? label_of(record) : i == 1 ? text_of(record, "pass") : number);
        }
    }
    report_table(report, "All numbers", CELLS, (const char *const *)cells, count + 1);
    for (size_t i = 0; i < used; i++) free(cells[i]);
    free(cells);
}

static void time_range(const cJSON *record, double *fastest, double *slowest) {
    *fastest = *slowest = number_of(record, "ms");
    for (const cJSON *time = output_first(cJSON_GetObjectItemCaseSensitive(record, "times")); time; time = time->next) {
        *fastest = fmin(*fastest, time->valuedouble);
        *slowest = fmax(*slowest, time->valuedouble);
    }
}

int bench_report(const char *path, const cJSON *records) {
    const size_t count = (size_t)cJSON_GetArraySize(records);
    struct report_bar *bars = output_realloc(NULL, (count + 1) * sizeof(*bars));
    struct report_point *points = output_realloc(NULL, (count + 1) * sizeof(*points));
    struct report report;
    size_t used = 0;
    for (const cJSON *record = output_first(records); record; record = record->next, used++) {
        const double tflops = number_of(record, "tflops"), work = tflops * number_of(record, "ms");
        double fastest, slowest;
        time_range(record, &fastest, &slowest);
        bars[used] =
            (struct report_bar){label_of(record), text_of(record, "pass"), tflops, work / slowest, work / fastest};
        points[used] = (struct report_point){label_of(record), text_of(record, "pass"),
                                             1e3 * tflops / fmax(number_of(record, "gbytes"), 1e-9), tflops};
    }
    report_begin(&report, "varflash bench",
                 "Sustained speed; TFLOP/s count visible pairs only, GB/s every tensor once. Whiskers: slowest to "
                 "fastest batch.");
    add_facts(&report, output_first(records));
    roofline_add(&report, text_of(cJSON_GetObjectItemCaseSensitive(output_first(records), "where"), "device"), points,
                 used);
    report_bars(&report, "Arithmetic", "TFLOP/s", bars, used);
    add_table(&report, records, used);
    free(bars);
    free(points);
    return report_end(&report, path);
}

// ---- comparing -------------------------------------------------------------------------------------------------------

static int read_records(const char *path, cJSON **records) {
    struct buf text = {0};
    *records = cJSON_CreateArray();
    if (fs_read(path, &text)) return command_failed(VF_ERROR_IO);
    const char *at = buf_string(&text);
    int code = CODE_OK;
    while (!code && *(at += strspn(at, " \t\r\n"))) {
        const char *end = NULL;
        cJSON *record = cJSON_ParseWithOpts(at, &end, false);
        if (!record || !(number_of(record, "ms") > 0)) {
            output_error("%s: holds something that is no line of 'varflash bench --json'", path);
            cJSON_Delete(record);
            code = CODE_FILE;
        } else {
            cJSON_AddItemToArray(*records, record);
            at = end;
        }
    }
    buf_free(&text);
    return code;
}

static const cJSON *find_record(const cJSON *records, const cJSON *wanted) {
    for (const cJSON *record = output_first(records); record; record = record->next) {
        if (!strcmp(text_of(record, "problem"), text_of(wanted, "problem")) &&
            !strcmp(text_of(record, "pass"), text_of(wanted, "pass")))
            return record;
    }
    return NULL;
}

// Mean and variance of the mean of the logarithms of a record's times; a record without them has its spread alone.
static void log_moments(const cJSON *record, double *variance, double *freedom) {
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(record, "times");
    double sum = 0, squares = 0, count = 0;
    for (const cJSON *time = output_first(times); time; time = time->next) {
        const double value = log(fmax(time->valuedouble, 1e-12));
        sum += value;
        squares += value * value;
        count++;
    }
    const double half = number_of(record, "spread") / 2;
    *freedom = count > 1 ? count - 1 : 2;
    *variance = count > 1 ? fmax(squares - sum * sum / count, 0) / (count - 1) / count : half * half;
}

// The 97.5 % quantile of Student's distribution, to 1 %: Cornish and Fisher's expansion.
static double student(double freedom) {
    const double z = 1.959964;
    return z + (z * z * z + z) / (4 * freedom) + (5 * pow(z, 5) + 16 * pow(z, 3) + 3 * z) / (96 * freedom * freedom) +
           (3 * pow(z, 7) + 19 * pow(z, 5) + 17 * pow(z, 3) - 15 * z) / (384 * pow(freedom, 3));
}

struct ratio {
    double value, low, high;  // new time / old time, 95 % interval
};

static struct ratio compare(const cJSON *before, const cJSON *after) {
    double variance_a, variance_b, freedom_a, freedom_b;
    log_moments(before, &variance_a, &freedom_a);
    log_moments(after, &variance_b, &freedom_b);
    const double value = number_of(after, "ms") / number_of(before, "ms");
    const double half = student(fmin(freedom_a, freedom_b)) * sqrt(variance_a + variance_b);
    return (struct ratio){value, value * exp(-half), value * exp(half)};
}

static void print_ratio(const struct options *options, const cJSON *record, const struct ratio *ratio,
                        bool regression) {
    if (options->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "name", text_of(record, "name"));
        cJSON_AddStringToObject(json, "problem", text_of(record, "problem"));
        cJSON_AddStringToObject(json, "pass", text_of(record, "pass"));
        cJSON_AddNumberToObject(json, "ratio", ratio->value);
        cJSON_AddNumberToObject(json, "low", ratio->low);
        cJSON_AddNumberToObject(json, "high", ratio->high);
        cJSON_AddBoolToObject(json, "regression", regression);
        output_json(json, true);
    } else if (!options->quiet || regression) {
        const enum output_color color = regression ? OUTPUT_RED : ratio->high < 1 ? OUTPUT_GREEN : OUTPUT_PLAIN;
        printf("%-32s %-8s %s%6.3f%s  [%.3f, %.3f]%s\n", label_of(record), text_of(record, "pass"), output_color(color),
               ratio->value, output_color(OUTPUT_PLAIN), ratio->low, ratio->high, regression ? "  slower" : "");
    }
}

static int compare_all(const struct options *options, const cJSON *before, const cJSON *after) {
    size_t compared = 0, regressions = 0;
    double sum = 0;
    for (const cJSON *record = output_first(before); record; record = record->next) {
        const cJSON *other = find_record(after, record);
        if (!other) {
            output_note("%s, %s: only in the first file", label_of(record), text_of(record, "pass"));
            continue;
        }
        const struct ratio ratio = compare(record, other);
        const bool regression = ratio.value > REGRESSION && ratio.low > 1;
        print_ratio(options, record, &ratio, regression);
        regressions += regression;
        sum += log(ratio.value);
        compared++;
    }
    if (!compared) {
        output_error("bench: the two files have no pass of a problem in common");
        return CODE_USAGE;
    }
    if (!options->json)
        printf("%zu compared, geometric mean %.3f of the time, %zu slower by more than %.0f %%\n", compared,
               exp(sum / (double)compared), regressions, 100 * (REGRESSION - 1));
    return regressions ? CODE_CHECK_FAILED : CODE_OK;
}

int bench_compare(const struct options *options) {
    cJSON *before = NULL, *after = NULL;
    if (options->arguments.count != 1) {
        output_error("bench: --compare A.json takes one file more: the newer one");
        return CODE_USAGE;
    }
    int code = read_records(options->compare, &before);
    if (!code) code = read_records(options->arguments.items[0], &after);
    if (!code) code = compare_all(options, before, after);
    cJSON_Delete(before);
    cJSON_Delete(after);
    return code;
}
