// tune_journal.c - the journal of a sweep: a record a line, written at once, read to go on or to merge.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "command.h"
#include "fs.h"
#include "output.h"
#include "tune_sweep.h"
#include "varflash/varflash_dev.h"

const char *const tune_state_names[TUNE_STATES] = {"new", "correct", "compile", "runtime", "timeout", "correctness"};

// ---- reading ---------------------------------------------------------------------------------------------------------

static const char *text_of(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

int tune_read_journal(const char *path, cJSON *records) {
    struct buf text = {0};
    if (fs_read(path, &text)) return command_failed(VF_ERROR_IO);
    int code = CODE_OK;
    char *rest = NULL;
    for (char *line = text.size ? strtok_r(text.data, "\n", &rest) : NULL; line && !code;
         line = strtok_r(NULL, "\n", &rest)) {
        cJSON *record = cJSON_Parse(line);
        const bool last = !rest || !*rest;
        if (record && *text_of(record, "knobs"))
            cJSON_AddItemToArray(records, record);
        else
            cJSON_Delete(record);
        // The last line of a process that was killed may be cut.
        if (record || last) continue;
        output_error("%s: holds something that is no record of 'varflash tune'", path);
        code = CODE_FILE;
    }
    buf_free(&text);
    return code;
}

const cJSON *tune_find_record(const cJSON *records, const char *problem, const char *pass, const char *knobs) {
    const cJSON *found = NULL;
    for (const cJSON *record = output_first(records); record; record = record->next) {
        if (!strcmp(text_of(record, "knobs"), knobs) && !strcmp(text_of(record, "problem"), problem) &&
            !strcmp(text_of(record, "pass"), pass))
            found = record;  // the last one counts
    }
    return found;
}

// ---- writing ---------------------------------------------------------------------------------------------------------

static void add_where(const struct sweep *sweep, int device, cJSON *json) {
    vf_dev_device facts;
    const vf_dev_info *info;
    char text[COMMAND_VERSION];
    cJSON *where = cJSON_AddObjectToObject(json, "where");
    if (vf_dev_device_get(sweep->context, device, &facts) || vf_dev_info_get(sweep->context, &info)) return;
    cJSON_AddStringToObject(where, "device", facts.name);
    cJSON_AddStringToObject(where, "arch", facts.arch);
    cJSON_AddStringToObject(where, "driver", command_cuda_version(text, info->driver_version));
    cJSON_AddStringToObject(where, "nvrtc", command_cuda_version(text, info->nvrtc_version));
    cJSON_AddStringToObject(where, "generator", info->generator);
    cJSON_AddStringToObject(where, "signature", info->signature);
    cJSON_AddNumberToObject(where, "clock_mhz", facts.clock_mhz);
    cJSON_AddNumberToObject(where, "temperature", facts.temperature);
}

// Rows divided by sequences, as a row's conditions have it.
static double average(int64_t rows, bool batched, int64_t batch) {
    return batch ? (double)(batched ? rows * batch : rows) / (double)batch : 0;
}

static cJSON *make_record(const struct sweep *sweep, const struct item *item, const struct candidate *candidate,
                          int device) {
    const struct problem *problem = &sweep->list->items[item->index];
    struct buf flags = {0};
    char date[32];
    double bytes = 0;
    const time_t now = time(NULL);
    struct tm utc;
    cJSON *json = cJSON_CreateObject();
    problem_write_flags(problem, &flags);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    cJSON_AddStringToObject(json, "name", problem->name);
    cJSON_AddStringToObject(json, "problem", buf_string(&flags));
    cJSON_AddStringToObject(json, "pass", item->backward ? "bwd" : "fwd");
    cJSON_AddStringToObject(json, "request", item->request);
    cJSON_AddStringToObject(json, "knobs", candidate->knobs);
    cJSON_AddNumberToObject(json, "numeric", candidate->numeric);
    cJSON_AddBoolToObject(json, "row", candidate->row);
    cJSON_AddBoolToObject(json, "served", candidate->served);
    cJSON_AddStringToObject(json, "state", tune_state_names[candidate->state]);
    if (candidate->reason) cJSON_AddStringToObject(json, "reason", candidate->reason);
    if (candidate->count) {
        cJSON_AddNumberToObject(json, "ms", candidate->estimate.median);
        cJSON_AddNumberToObject(json, "low", candidate->estimate.low);
        cJSON_AddNumberToObject(json, "high", candidate->estimate.high);
        cJSON_AddItemToObject(json, "times", cJSON_CreateDoubleArray(candidate->times, (int)candidate->count));
    }
    if (!bench_bytes(problem, item->backward, &bytes)) cJSON_AddNumberToObject(json, "bytes", bytes);
    cJSON_AddNumberToObject(json, "flops", problem_flops(problem, item->backward));
    cJSON_AddNumberToObject(json, "average_q", average(problem->rows_q, problem->batched_q, problem->batch));
    cJSON_AddNumberToObject(json, "average_k", average(problem->rows_k, problem->batched_k, problem->batch));
    cJSON_AddStringToObject(json, "timestamp", date);
    add_where(sweep, device, json);
    buf_free(&flags);
    return json;
}

void tune_record(struct sweep *sweep, const struct item *item, struct candidate *candidate, int device) {
    cJSON *json = make_record(sweep, item, candidate, device);
    char *text = cJSON_PrintUnformatted(json);
    pthread_mutex_lock(&sweep->lock);
    if (text) fprintf(sweep->journal, "%s\n", text);
    fflush(sweep->journal);
    if (!candidate->timed) sweep->done++;
    candidate->timed = true;
    cJSON_AddItemToArray(sweep->records, json);
    pthread_mutex_unlock(&sweep->lock);
    cJSON_free(text);
}

// What an earlier sweep found out.
void tune_recall(struct sweep *sweep) {
    for (size_t i = 0; i < sweep->item_count; i++) {
        struct item *item = &sweep->items[i];
        struct buf flags = {0};
        problem_write_flags(&sweep->list->items[item->index], &flags);
        for (size_t k = 0; k < item->count; k++) {
            struct candidate *candidate = &item->candidates[k];
            const cJSON *found =
                tune_find_record(sweep->records, buf_string(&flags), item->backward ? "bwd" : "fwd", candidate->knobs);
            const cJSON *state = cJSON_GetObjectItemCaseSensitive(found, "state");
            const cJSON *times = cJSON_GetObjectItemCaseSensitive(found, "times");
            for (int s = TUNE_CORRECT; s < TUNE_STATES && cJSON_IsString(state); s++) {
                if (!strcmp(state->valuestring, tune_state_names[s])) candidate->state = (enum tune_state)s;
            }
            if (candidate->state == TUNE_NEW) continue;
            candidate->timed = true;
            sweep->done++;
            candidate->count = 0;
            for (const cJSON *time = output_first(times); time; time = time->next) {
                candidate->times = output_realloc(candidate->times, (candidate->count + 1) * sizeof(double));
                candidate->times[candidate->count++] = time->valuedouble;
            }
            candidate->estimate = tune_estimate(candidate->times, candidate->count);
        }
        buf_free(&flags);
    }
}

int tune_open_journal(struct sweep *sweep) {
    struct buf path = {0};
    buf_printf(&path, "%s" TUNE_JOURNAL, sweep->options->output);
    int code = buf_check(&path) ? command_failed(VF_ERROR_OUT_OF_MEMORY) : CODE_OK;
    if (!code && sweep->options->go_on) code = tune_read_journal(path.data, sweep->records);
    if (!code) sweep->journal = fopen(path.data, sweep->options->go_on ? "a" : "w");
    if (!code && !sweep->journal) {
        output_error("%s: cannot be written", path.data);
        code = CODE_FILE;
    }
    buf_free(&path);
    return code;
}
