// check.c - `varflash check`: every variant that can serve a problem against the float64 oracle. What is judged, and how, stands
// in tools/lib/verify.h; here is the list of problems, the line for each result and the replay of what failed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "builder.h"
#include "command.h"
#include "options.h"
#include "output.h"
#include "precompile.h"
#include "varflash/varflash_dev.h"
#include "verify.h"

struct check {
    const struct options *options;
    const struct problem *problem;
    size_t number;  // of the problem in the list, from 1
    size_t passed, failed, refused;
};

static const char *const verdicts[] = {
    [VERIFY_RIGHT] = "right", [VERIFY_WRONG] = "WRONG", [VERIFY_REFUSED] = "refused"};

// The command that repeats this problem under the same conditions.
static void replay(const struct check *check, struct buf *out) {
    const struct options *options = check->options;
    buf_printf(out, "%s check ", options->driver ? options->argv[0] : "varflash");
    problem_write_flags(check->problem, out);
    if (options->driver)
        buf_printf(out, " --backend %s", options->driver);
    else if (options->backend)
        buf_text(out, options->backend == VF_BACKEND_CPU ? " --backend cpu" : " --backend cuda");
    if (options->repeat > 1) buf_printf(out, " --repeat %lld", (long long)options->repeat);
    if (options->checked) buf_text(out, " --checked");
    if (options->invariance) buf_text(out, " --invariance");
    if (options->contiguous) buf_text(out, " --contiguous");
    if (options->spoil) buf_text(out, " --spoil");
    if (options->served) buf_text(out, " --served");
    if (options->config) buf_printf(out, " --config %s", options->config);
    for (size_t i = 0; i < options->set.count; i++) buf_printf(out, " --set %s", options->set.items[i]);
}

static void print_line(const struct check *check, const char *knobs, const struct verify_result *result) {
    const bool right = result->verdict == VERIFY_RIGHT;
    char label[COMMAND_LABEL];
    printf("%s%-7s%s %4zu  %-28s %5.2f ", output_color(right ? OUTPUT_GREEN : OUTPUT_RED), verdicts[result->verdict],
           output_color(OUTPUT_PLAIN), check->number, command_label(check->problem, label), result->share);
    for (int i = 0; i < VERIFY_TENSORS; i++) {
        const struct verify_tensor *tensor = &result->tensors[i];
        if (tensor->compared) printf(" %s %.1e<%.1e", verify_tensor_names[i], tensor->max_error, tensor->tolerance);
    }
    printf("%s%s%s\n", result->sampled ? "  sampled" : "", *knobs ? "  " : "", knobs);
    if (right) return;
    printf("        %s\n", result->sentence);
    struct buf command = {0};
    replay(check, &command);
    if (result->verdict == VERIFY_WRONG) printf("        replay: %s\n", buf_string(&command));
    buf_free(&command);
}

static cJSON *tensor_json(const struct verify_tensor *tensor) {
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "compared", (double)tensor->compared);
    cJSON_AddNumberToObject(json, "max_error", tensor->max_error);
    cJSON_AddNumberToObject(json, "tolerance", tensor->tolerance);
    cJSON_AddNumberToObject(json, "rms_error", tensor->rms_error);
    cJSON_AddNumberToObject(json, "plain_error", tensor->plain_error);
    cJSON_AddNumberToObject(json, "scaled_error", tensor->scaled_error);
    cJSON_AddNumberToObject(json, "scaled_tolerance", tensor->scaled_tolerance);
    return json;
}

static void print_json(const struct check *check, const char *knobs, const struct verify_result *result) {
    static const char *const names[] = {
        [VERIFY_RIGHT] = "right", [VERIFY_WRONG] = "wrong", [VERIFY_REFUSED] = "refused"};
    struct buf text = {0};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "number", (double)check->number);
    cJSON_AddStringToObject(json, "name", check->problem->name);
    cJSON_AddStringToObject(json, "knobs", knobs);
    cJSON_AddStringToObject(json, "verdict", names[result->verdict]);
    cJSON_AddNumberToObject(json, "share", result->share);
    cJSON_AddBoolToObject(json, "sampled", result->sampled);
    cJSON *tensors = cJSON_AddObjectToObject(json, "tensors");
    for (int i = 0; i < VERIFY_TENSORS; i++)
        if (result->tensors[i].compared)
            cJSON_AddItemToObject(tensors, verify_tensor_names[i], tensor_json(&result->tensors[i]));
    if (result->verdict != VERIFY_RIGHT) cJSON_AddStringToObject(json, "sentence", result->sentence);
    replay(check, &text);
    cJSON_AddStringToObject(json, "replay", buf_string(&text));
    buf_free(&text);
    output_json(json, true);
}

static void add_result(void *user, const char *knobs, const struct verify_result *result) {
    struct check *check = user;
    size_t *const counts[] = {
        [VERIFY_RIGHT] = &check->passed, [VERIFY_WRONG] = &check->failed, [VERIFY_REFUSED] = &check->refused};
    ++*counts[result->verdict];
    output_clear();
    // --quiet: what needs attention, and the summary.
    if (check->options->quiet && result->verdict == VERIFY_RIGHT) return;
    if (check->options->json)
        print_json(check, knobs, result);
    else
        print_line(check, knobs, result);
    fflush(stdout);
}

// The knobs of the row that serves a pass, with --set applied. Null and a status if there are none.
static vf_status knobs_with_set(const struct check *check, vf_context *context, bool backward, char **knobs) {
    char *request = NULL, *set = command_set(check->options);
    vf_dev_variant *variant = NULL;
    *knobs = NULL;
    vf_status status = command_request(context, check->options, check->problem, backward, NULL, &request);
    if (!status) status = vf_dev_variant_create(context, request, set, &variant);
    if (!status) *knobs = output_copy(variant->knobs);
    vf_dev_variant_free(variant);
    vf_dev_text_free(request);
    free(set);
    return status;
}

static vf_status check_problem(struct check *check, vf_context *context) {
    const struct options *options = check->options;
    char *forward = NULL, *backward = NULL;
    struct verify_options how = {
        .device = (int)options->device,
        .threads = (int)options->threads,
        .repeat = (int)options->repeat,
        .checked = options->checked,
        .invariance = options->invariance,
        .contiguous = options->contiguous,
        .spoil = options->spoil,
    };
    vf_status status = VF_OK;
    if (options->served || vf_context_backend(context) == VF_BACKEND_CPU) {
        struct verify_result result;
        status = verify_problem(context, check->problem, &how, &result);
        if (!status) add_result(check, "", &result);
        return status;
    }
    if (options->set.count) {
        status = knobs_with_set(check, context, false, &forward);
        if (!status && check->problem->backward) status = knobs_with_set(check, context, true, &backward);
        how.knobs_forward = forward;
        how.knobs_backward = backward;
    }
    if (!status) status = verify_variants(context, check->problem, &how, add_result, check);
    free(forward);
    free(backward);
    return status;
}

static int check_all(struct check *check, const struct problem_list *list, vf_context *context) {
    char label[COMMAND_LABEL];
    int code = CODE_OK;
    const bool first = check->options->first;
    for (size_t i = (size_t)check->options->resume - 1; i < list->count && !(first && check->failed); i++) {
        if (command_interrupted()) {
            output_error("interrupted; --resume %zu goes on from here", i + 1);
            return CODE_INTERRUPTED;
        }
        output_progress("check", i, list->count);
        check->problem = &list->items[i];
        check->number = i + 1;
        const vf_status status = check_problem(check, context);
        if (!status) continue;
        check->failed++;
        output_error("problem %zu, %s: %s", i + 1, command_label(check->problem, label), vf_last_error());
        if (!code) code = options_code(status);
        if (status == VF_ERROR_NO_DEVICE) break;
    }
    output_progress("check", list->count, list->count);
    return code;
}

static void print_summary(const struct check *check) {
    if (check->options->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "passed", (double)check->passed);
        cJSON_AddNumberToObject(json, "failed", (double)check->failed);
        cJSON_AddNumberToObject(json, "refused", (double)check->refused);
        output_json(json, true);
        return;
    }
    printf("%zu passed, %zu failed", check->passed, check->failed);
    if (check->refused) printf(", %zu refused as unsupported", check->refused);
    putchar('\n');
}

int verb_check(const struct options *options) {
    struct check check = {.options = options};
    struct problem_list list;
    vf_context *context = NULL;
    if (options->worker) return builder_worker(options);
    if (options->suite && !strcmp(options->suite, "list")) return command_list_suites(options);
    int code = command_problems(options, &list);
    if (code) return code;
    if (!options->resume || (size_t)options->resume > list.count) {
        output_error("check: --resume is %lld, but there are problems 1 to %zu", (long long)options->resume,
                     list.count);
        code = CODE_USAGE;
        goto out;
    }
    code = command_open(options, &context);
    if (!code && options->precompile) code = precompile(options, context, &list);
    if (code) goto out;
    code = check_all(&check, &list, context);
    print_summary(&check);
    if (!code && check.failed) code = CODE_CHECK_FAILED;
    if (!code && check.refused && !check.passed) code = CODE_UNSUPPORTED;
out:
    vf_close(context);
    problem_list_free(&list);
    return code;
}
