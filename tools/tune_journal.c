// tune_journal.c - the journal of a sweep: a record a line, written at once, read to go on or to merge.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

// By what a record is about, then as they were written.
struct tune_entry {
    const char *key[3];
    size_t order;
    const cJSON *record;
};

static int by_key(const void *a, const void *b) {
    const struct tune_entry *x = a, *y = b;
    for (size_t i = 0; i < 3; i++) {
        const int order = strcmp(x->key[i], y->key[i]);
        if (order) return order;
    }
    return (x->order > y->order) - (x->order < y->order);
}

static bool same_key(const struct tune_entry *x, const struct tune_entry *y) {
    return !strcmp(x->key[0], y->key[0]) && !strcmp(x->key[1], y->key[1]) && !strcmp(x->key[2], y->key[2]);
}

struct tune_index tune_index_make(const cJSON *records) {
    struct tune_index index = {NULL, 0};
    size_t count = 0, kept = 0;
    for (const cJSON *record = output_first(records); record; record = record->next) count++;
    index.list = output_realloc(NULL, (count + 1) * sizeof(*index.list));
    for (const cJSON *record = output_first(records); record; record = record->next, index.count++)
        index.list[index.count] = (struct tune_entry){
            {text_of(record, "problem"), text_of(record, "pass"), text_of(record, "knobs")}, index.count, record};
    if (count) qsort(index.list, count, sizeof(*index.list), by_key);
    for (size_t i = 0; i < count; i++) {
        if (i + 1 == count || !same_key(&index.list[i], &index.list[i + 1])) index.list[kept++] = index.list[i];
    }
    index.count = kept;
    return index;
}

const cJSON *tune_index_find(const struct tune_index *index, const char *problem, const char *pass, const char *knobs) {
    const struct tune_entry wanted = {{problem, pass, knobs}, 0, NULL};
    size_t first = 0, last = index->count;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (same_key(&index->list[middle], &wanted)) return index->list[middle].record;
        if (by_key(&index->list[middle], &wanted) < 0)
            first = middle + 1;
        else
            last = middle;
    }
    return NULL;
}

void tune_index_free(struct tune_index *index) {
    free(index->list);
}

// ---- writing ---------------------------------------------------------------------------------------------------------

static void add_where(const struct sweep *sweep, int device, cJSON *json) {
    vf_dev_device facts;
    const vf_dev_info *info;
    char text[COMMAND_VERSION];
    struct buf command = {0};
    cJSON *where = cJSON_AddObjectToObject(json, "where");
    if (vf_dev_device_get(sweep->context, device, &facts) || vf_dev_info_get(sweep->context, &info)) return;
    cJSON_AddStringToObject(where, "device", facts.name);
    cJSON_AddStringToObject(where, "arch", facts.arch);
    cJSON_AddStringToObject(where, "driver", command_cuda_version(text, info->driver_version));
    cJSON_AddStringToObject(where, "nvrtc", command_cuda_version(text, info->nvrtc_version));
    cJSON_AddStringToObject(where, "generator", info->generator);
    cJSON_AddStringToObject(where, "signature", info->signature);
    tune_write_command(sweep->options, &command);
    cJSON_AddStringToObject(where, "command", buf_string(&command));
    buf_free(&command);
    cJSON_AddNumberToObject(where, "ordinal", device);
    cJSON_AddNumberToObject(where, "clock_mhz", facts.clock_mhz);
    cJSON_AddNumberToObject(where, "temperature", facts.temperature);
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
    if (candidate->served && item->row) cJSON_AddStringToObject(json, "served_by", item->row);
    if (item->finished) cJSON_AddTrueToObject(json, "finished");
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
    cJSON_AddNumberToObject(json, "average_q", tune_average(problem, false));
    cJSON_AddNumberToObject(json, "average_k", tune_average(problem, true));
    cJSON_AddStringToObject(json, "timestamp", date);
    add_where(sweep, device, json);
    buf_free(&flags);
    return json;
}

static void write_line(FILE *journal, const cJSON *record) {
    char *text = cJSON_PrintUnformatted(record);
    if (text) fprintf(journal, "%s\n", text);
    fflush(journal);
    cJSON_free(text);
}

void tune_record(struct sweep *sweep, const struct item *item, struct candidate *candidate, int device) {
    cJSON *json = make_record(sweep, item, candidate, device);
    pthread_mutex_lock(&sweep->lock);
    write_line(sweep->journal, json);
    if (!candidate->timed) sweep->done++;
    candidate->timed = true;
    cJSON_AddItemToArray(sweep->records, json);
    pthread_mutex_unlock(&sweep->lock);
}

static void recall(struct item *item, struct candidate *candidate, const cJSON *record) {
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(record, "state");
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(record, "times");
    for (int s = TUNE_CORRECT; s < TUNE_STATES && cJSON_IsString(state); s++) {
        if (!strcmp(state->valuestring, tune_state_names[s])) candidate->state = (enum tune_state)s;
    }
    if (candidate->state == TUNE_NEW) return;
    candidate->verdict = candidate->state;
    candidate->timed = true;
    candidate->count = 0;
    for (const cJSON *time = output_first(times); time; time = time->next) {
        candidate->times = output_realloc(candidate->times, (candidate->count + 1) * sizeof(double));
        candidate->times[candidate->count++] = time->valuedouble;
    }
    candidate->estimate = tune_estimate(candidate->times, candidate->count);
    item->finished |= cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(record, "finished"));
}

// What an earlier sweep found out. What it finished is not measured again.
void tune_recall(struct sweep *sweep) {
    struct tune_index index = tune_index_make(sweep->records);
    for (size_t i = 0; i < sweep->item_count; i++) {
        struct item *item = &sweep->items[i];
        struct buf flags = {0};
        problem_write_flags(&sweep->list->items[item->index], &flags);
        for (size_t k = 0; k < item->count; k++) {
            const cJSON *found =
                tune_index_find(&index, buf_string(&flags), item->backward ? "bwd" : "fwd", item->candidates[k].knobs);
            if (found) recall(item, &item->candidates[k], found);
        }
        for (size_t k = 0; k < item->count; k++) sweep->done += item->finished || item->candidates[k].timed;
        item->taken = item->checked = item->raced = item->finished;
        sweep->left -= item->finished;
        buf_free(&flags);
    }
    tune_index_free(&index);
}

// Times of another device, and of kernels that another generator made, say nothing here.
static size_t drop_strangers(const struct sweep *sweep, const char *path) {
    vf_dev_device facts;
    const vf_dev_info *info;
    size_t dropped = 0;
    if (vf_dev_device_get(sweep->context, sweep->devices[0], &facts) || vf_dev_info_get(sweep->context, &info))
        return 0;
    for (cJSON *record = sweep->records->child, *next; record; record = next) {
        const cJSON *where = cJSON_GetObjectItemCaseSensitive(record, "where");
        next = record->next;
        if (!strcmp(text_of(where, "device"), facts.name) && !strcmp(text_of(where, "generator"), info->generator))
            continue;
        cJSON_Delete(cJSON_DetachItemViaPointer(sweep->records, record));
        dropped++;
    }
    if (dropped)
        output_note("%s: %zu records of another device, or of kernels as they were, do not count", path, dropped);
    return dropped;
}

// A journal that is not gone on from is an hour of somebody's device.
static int keep_old(const char *path) {
    struct buf kept = {0};
    int code = CODE_OK;
    buf_printf(&kept, "%s.old", path);
    if (buf_check(&kept)) {
        code = command_failed(VF_ERROR_OUT_OF_MEMORY);
    } else if (!access(path, F_OK)) {
        if (rename(path, kept.data)) {
            output_error("%s: cannot be moved to %s: %s", path, kept.data, strerror(errno));
            code = CODE_FILE;
        } else {
            output_note("%s: the one that was there is now %s", path, kept.data);
        }
    }
    buf_free(&kept);
    return code;
}

int tune_open_journal(struct sweep *sweep) {
    struct buf path = {0};
    buf_printf(&path, "%s" TUNE_JOURNAL, sweep->options->output);
    int code = buf_check(&path) ? command_failed(VF_ERROR_OUT_OF_MEMORY) : CODE_OK;
    if (!code && sweep->options->go_on) code = tune_read_journal(path.data, sweep->records);
    const size_t dropped = !code && sweep->options->go_on ? drop_strangers(sweep, path.data) : 0;
    const bool anew = !sweep->options->go_on || dropped;
    if (!code && anew) code = keep_old(path.data);
    if (!code) sweep->journal = fopen(path.data, anew ? "w" : "a");
    if (!code && !sweep->journal) {
        output_error("%s: cannot be written", path.data);
        code = CODE_FILE;
    }
    const cJSON *kept = sweep->journal && anew ? output_first(sweep->records) : NULL;
    for (; kept; kept = kept->next) write_line(sweep->journal, kept);
    buf_free(&path);
    return code;
}
