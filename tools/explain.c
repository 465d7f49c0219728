// explain.c - `varflash explain`: which row and variant serve a problem and why, or every constraint that it fails. The answer is
// the library's (vf_explain_*), laid out for a reader or passed on as JSON.
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "options.h"
#include "output.h"
#include "varflash/varflash_dev.h"

// The library's answer about one pass; null if it gave none, with *status and vf_last_error saying why.
static cJSON *ask(vf_context *context, const struct options *options, const struct problem *problem, bool backward,
                  vf_status *status) {
    size_t length = 0, size = 0;
    char *text = NULL;
    struct command_call call;
    *status = command_describe(context, options, problem, backward, &call);
    if (*status) return NULL;
    for (int turn = 0; turn < 2; turn++) {  // the first turn tells how long the text is
        *status = backward ? vf_explain_backward(context, &call.backward, options->arch, text, size, &length)
                           : vf_explain_forward(context, &call.forward, options->arch, text, size, &length);
        if (!turn) text = output_realloc(NULL, size = length + 1);
    }
    cJSON *json = length ? cJSON_Parse(text) : NULL;
    free(text);
    return json;
}

static void line(const cJSON *json, const char *name, const char *label) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (cJSON_IsString(item)) printf("  %-10s %s\n", label, item->valuestring);
}

static void print_kernels(const cJSON *kernels) {
    static const char *const columns[] = {"threads", "shared_bytes", "blocks_per_sm", "registers"};
    struct table table;
    if (!cJSON_GetArraySize(kernels)) return;
    table_open(&table, "lrrrr");
    table_cell(&table, "  kernel");
    for (int i = 0; i < 4; i++) table_cell(&table, "%s", columns[i]);
    for (const cJSON *kernel = output_first(kernels); kernel; kernel = kernel->next) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(kernel, "name");
        table_cell(&table, "    %s", cJSON_IsString(name) ? name->valuestring : "");
        for (int i = 0; i < 4; i++) {
            const cJSON *value = cJSON_GetObjectItemCaseSensitive(kernel, columns[i]);
            table_cell(&table, "%d", cJSON_IsNumber(value) ? value->valueint : 0);
        }
    }
    table_print(&table);
    table_close(&table);
}

// What the row was measured by, and its rival.
static void print_measured(const cJSON *measured) {
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(measured, "ms");
    const cJSON *rival = cJSON_GetObjectItemCaseSensitive(measured, "runner_up");
    const cJSON *margin = cJSON_GetObjectItemCaseSensitive(measured, "margin");
    if (cJSON_IsNumber(ms)) printf("  %-10s %.4g ms\n", "measured", ms->valuedouble);
    line(measured, "problem", "");
    const cJSON *shapes = cJSON_GetObjectItemCaseSensitive(measured, "shapes");
    const cJSON *median = cJSON_GetObjectItemCaseSensitive(measured, "median_loss");
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(measured, "largest_loss");
    if (cJSON_IsNumber(shapes) && cJSON_IsNumber(median) && cJSON_IsNumber(most))
        printf("  %-10s %d shapes, %.1f %% behind their own best (median), %.1f %% at most\n", "", shapes->valueint,
               100 * median->valuedouble, 100 * most->valuedouble);
    line(measured, "device", "");
    line(measured, "date", "");
    if (cJSON_IsString(rival) && cJSON_IsNumber(margin))
        printf("  %-10s %s: %+.1f %%\n", "rival", rival->valuestring, 100 * margin->valuedouble);
}

static void print_text(const char *pass, const cJSON *json) {
    static const char *const lines[] = {"backend", "arch", "device", "vector", "request", "row", "knobs", "why"};
    printf("%s%s%s\n", output_color(OUTPUT_BOLD), pass, output_color(OUTPUT_PLAIN));
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) line(json, lines[i], lines[i]);
    print_measured(cJSON_GetObjectItemCaseSensitive(json, "measured"));
    print_kernels(cJSON_GetObjectItemCaseSensitive(json, "kernels"));
    const cJSON *workspace = cJSON_GetObjectItemCaseSensitive(json, "workspace_bytes");
    if (cJSON_IsNumber(workspace)) printf("  %-10s %.0f bytes\n", "workspace", workspace->valuedouble);
    const cJSON *item = output_first(cJSON_GetObjectItemCaseSensitive(json, "notes"));
    for (; item; item = item->next)
        if (cJSON_IsString(item)) printf("  %-10s %s\n", "note", item->valuestring);
    item = output_first(cJSON_GetObjectItemCaseSensitive(json, "faults"));
    for (; item; item = item->next) line(item, "sentence", "fails");
}

int verb_explain(const struct options *options) {
    vf_context *context = NULL;
    struct problem problem;
    int code = command_one_problem(options, NULL, &problem);
    if (code) return code;
    code = command_open(options, &context);
    cJSON *all = cJSON_CreateObject();
    for (int backward = 0; !code && backward <= (int)problem.backward; backward++) {
        const char *pass = backward ? "backward" : "forward";
        vf_status status;
        cJSON *json = ask(context, options, &problem, backward, &status);
        code = options_code(status);
        if (!json)
            command_failed(status);
        else if (!options->json)
            print_text(pass, json);
        cJSON_AddItemToObject(all, pass, json ? json : cJSON_CreateNull());
    }
    if (options->json && cJSON_GetArraySize(all))
        output_json(all, false);
    else
        cJSON_Delete(all);
    vf_close(context);
    problem_free(&problem);
    return code;
}
