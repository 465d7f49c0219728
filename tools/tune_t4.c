// tune_t4.c - a tuner's records in T4, the format that auto-tuners share: schema 1.1.0 of the AutoTuning Association, whose rules
// tests/cli/t4.lua holds.
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "command.h"
#include "output.h"
#include "tune.h"
#include "tune_items.h"

static cJSON *t4_result(const cJSON *record) {
    cJSON *json = cJSON_CreateObject(), *configuration = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "timestamp", tune_text(record, "timestamp"));
    tune_add_words(configuration, tune_text(record, "knobs"), NULL, 0);
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
        cJSON_AddStringToObject(time, "unit", "milliseconds");
        cJSON_AddItemToArray(measurements, time);
    }
    return json;
}

static cJSON *t4_metadata(const cJSON *first) {
    char version[COMMAND_VERSION];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "compute_api", "CUDA");
    cJSON_AddStringToObject(json, "platform", "NVIDIA CUDA");
    cJSON_AddStringToObject(json, "device", tune_text(tune_where(first), "device"));
    cJSON_AddStringToObject(json, "autotuner", "varflash tune");
    cJSON_AddStringToObject(json, "autotuner_version", command_version(version));
    cJSON_AddStringToObject(json, "timestamp", tune_text(first, "timestamp"));
    cJSON_AddStringToObject(json, "timeunit", "milliseconds");
    return json;
}

int tune_write_t4(const struct options *options, const cJSON *records) {
    struct buf path = {0};
    const char *ending = strrchr(options->output, '.');
    const long stem = ending && !strcmp(ending, ".json") ? ending - options->output : (long)strlen(options->output);
    buf_printf(&path, "%.*s.t4.json", (int)stem, options->output);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "schema_version", "1.1.0");
    cJSON_AddItemToObject(json, "metadata", t4_metadata(output_first(records)));
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
