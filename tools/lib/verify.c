// verify.c - see verify.h. What each kind of problem must come to; the further comparisons of a sound one stand in
// verify_again.c.
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "judge.h"
#include "status.h"
#include "varflash/varflash_dev.h"
#include "verify_again.h"

static const char *pass_name(bool backward) {
    return backward ? "vf_backward" : "vf_forward";
}

// Makes a refusal or failure of the library the verdict.
static void refused(struct verify_result *result, bool backward, vf_status status) {
    result->status = status;
    if (status != VF_ERROR_UNSUPPORTED) {
        judge_wrong(result, "%s: %s: %.400s", pass_name(backward), vf_status_name(status), vf_last_error());
        return;
    }
    result->verdict = VERIFY_REFUSED;
    snprintf(result->sentence, sizeof result->sentence, "%s: %.400s", pass_name(backward), vf_last_error());
}

static vf_status run_pass(struct harness *harness, bool backward) {
    return backward ? harness_backward(harness) : harness_forward(harness);
}

static vf_status judge_intact(struct harness *harness, bool outputs, struct verify_result *result) {
    const char *changed;
    VF_TRY(harness_intact(harness, outputs, &changed));
    if (changed) judge_wrong(result, "%s: the call wrote to it, or beyond it", changed);
    return VF_OK;
}

// ---- sound problems ------------------------------------------------------------------------------------------------

static vf_status verify_sound(struct harness *harness, const struct verify_options *options,
                              struct verify_result *result) {
    const struct problem *problem = harness->problem;
    for (int backward = 0; backward <= (int)problem->backward; backward++) {
        const vf_status status = run_pass(harness, backward);
        if (status) {
            refused(result, backward, status);
            return VF_OK;
        }
        VF_TRY(judge_intact(harness, backward, result));
        VF_TRY(harness_fetch(harness, backward));
    }
    VF_TRY(judge_exact(problem, &harness->host, problem->backward, options->threads, result));
    VF_TRY(judge_accuracy(problem, &harness->host, problem->backward, options->threads, options->full_flops, result));
    return verify_again(harness, options, result);
}

// ---- problems that must be refused ---------------------------------------------------------------------------------

// After a refusal no output of the pass holds anything but canaries.
static vf_status judge_unwritten(struct harness *harness, bool backward, int threads, struct verify_result *result) {
    VF_TRY(harness_fetch(harness, backward));
    for (int i = backward ? VERIFY_DQ : VERIFY_O; i < (backward ? VERIFY_TENSORS : VERIFY_DQ); i++)
        VF_TRY(judge_guards(&harness->host.images[judge_operands[i]], false, verify_tensor_names[i], threads, result));
    return VF_OK;
}

// One of the passes refuses as expected, and writes nothing.
static vf_status verify_refusal(struct harness *harness, const struct verify_options *options,
                                struct verify_result *result) {
    const struct problem *problem = harness->problem;
    for (int backward = 0; backward <= (int)problem->backward; backward++) {
        const vf_status status = run_pass(harness, backward);
        if (!status) continue;
        result->status = status;
        if (status != problem->expect)
            judge_wrong(result, "%s: %s, but %s was expected: %.300s", pass_name(backward), vf_status_name(status),
                        vf_status_name(problem->expect), vf_last_error());
        return judge_unwritten(harness, backward, options->threads, result);
    }
    judge_wrong(result, "%s: accepted, but %s was expected", pass_name(problem->backward),
                vf_status_name(problem->expect));
    return VF_OK;
}

// What the CPU backend, which reads the lengths on the host, says in checked mode.
static vf_status host_sentence(const struct problem *problem, const struct verify_options *options, bool backward,
                               char *sentence, size_t size) {
    const vf_options library = {.backend = VF_BACKEND_CPU};
    vf_context *context = NULL;
    struct harness harness;
    VF_TRY(vf_open(&library, &context));
    vf_status status = harness_create(context, problem, 0, options->threads, &harness);
    if (!status) {
        harness.checked = true;
        run_pass(&harness, backward);
        snprintf(sentence, size, "%s", vf_last_error());
        harness_free(&harness);
    }
    vf_close(context);
    return status;
}

// Checked mode names the fault that the host names, and writes nothing. Unchecked mode ends and writes nothing outside; the CPU backend, which reads
// the lengths anyway, may refuse as well.
static vf_status verify_broken(struct harness *harness, const struct verify_options *options, const char *fault,
                               struct verify_result *result) {
    const struct problem *problem = harness->problem;
    for (int backward = 0; backward <= (int)problem->backward; backward++) {
        harness->checked = true;
        vf_status status = run_pass(harness, backward);
        if (status == VF_ERROR_UNSUPPORTED) {
            refused(result, backward, status);
            return VF_OK;
        }
        if (status != VF_ERROR_LENGTHS)
            judge_wrong(result, "%s: checked mode said %s, but %s", pass_name(backward), vf_status_name(status), fault);
        char said[VERIFY_SENTENCE_SIZE], expected[VERIFY_SENTENCE_SIZE];
        snprintf(said, sizeof said, "%s", vf_last_error());
        VF_TRY(host_sentence(problem, options, backward, expected, sizeof expected));
        if (strcmp(said, expected) != 0)
            judge_wrong(result, "%s: checked mode said '%.160s', but '%.160s'", pass_name(backward), said, expected);
        VF_TRY(judge_unwritten(harness, backward, options->threads, result));
        harness->checked = false;
        status = run_pass(harness, backward);
        if (status && status != VF_ERROR_LENGTHS)
            judge_wrong(result, "%s: unchecked mode failed: %.400s", pass_name(backward), vf_last_error());
        VF_TRY(judge_intact(harness, false, result));
        VF_TRY(harness_fetch(harness, backward));
        for (int i = backward ? VERIFY_DQ : VERIFY_O; i < (backward ? VERIFY_TENSORS : VERIFY_DQ); i++)
            VF_TRY(judge_guards(&harness->host.images[judge_operands[i]], true, verify_tensor_names[i],
                                options->threads, result));
    }
    return VF_OK;
}

// ---- either --------------------------------------------------------------------------------------------------------

vf_status verify_problem(vf_context *context, const struct problem *problem, const struct verify_options *options,
                         struct verify_result *result) {
    const struct verify_options defaults = {0};
    if (!options) options = &defaults;
    char fault[160];
    struct harness harness;
    const bool sound = problem_sound(problem, fault, sizeof fault);
    *result = (struct verify_result){.verdict = VERIFY_RIGHT};
    vf_status status = harness_create(context, problem, options->device, options->threads, &harness);
    if (!status) {
        status = harness_force(&harness, options->knobs_forward, options->knobs_backward);
        if (status) harness_free(&harness);
    }
    if (status == VF_ERROR_UNSUPPORTED || status == VF_ERROR_INVALID_ARGUMENT) {
        refused(result, false, status);  // the workspace size was asked for
        return VF_OK;
    }
    VF_TRY(status);
    harness.checked = options->checked;
    status = problem->expect ? verify_refusal(&harness, options, result)
             : sound         ? verify_sound(&harness, options, result)
                             : verify_broken(&harness, options, fault, result);
    harness_free(&harness);
    return status;
}

// ---- every variant -------------------------------------------------------------------------------------------------

static vf_status candidates(vf_context *context, const struct problem *problem, bool backward, vf_dev_list *list) {
    char *request = NULL;
    vf_status status;
    if (backward) {
        vf_backward_args args;
        VF_TRY(tensors_describe_backward(problem, &args));
        status = vf_dev_request_backward(context, &args, NULL, &request);
    } else {
        vf_forward_args args;
        VF_TRY(tensors_describe_forward(problem, &args));
        status = vf_dev_request_forward(context, &args, NULL, &request);
    }
    if (!status) status = vf_dev_candidates(context, request, list);
    vf_dev_text_free(request);
    return status;
}

vf_status verify_variants(vf_context *context, const struct problem *problem, const struct verify_options *options,
                          verify_add *add, void *user) {
    struct verify_options each = options ? *options : (struct verify_options){0};
    struct verify_result result;
    vf_dev_list forward = {0}, backward = {0};
    vf_status status = VF_OK;
    const bool plain = vf_context_backend(context) == VF_BACKEND_CPU || problem->expect || each.knobs_forward;
    if (!plain) status = candidates(context, problem, false, &forward);
    if (!plain && !status && problem->backward) status = candidates(context, problem, true, &backward);
    if (status == VF_ERROR_UNSUPPORTED || plain || !forward.count) {
        status = verify_problem(context, problem, &each, &result);
        if (!status) add(user, each.knobs_forward ? each.knobs_forward : "", &result);
        goto out;
    }
    // Pairs of candidates, so that each of both passes has its turn once.
    const size_t turns = forward.count > backward.count ? forward.count : backward.count;
    for (size_t i = 0; i < turns && !status; i++) {
        char knobs[512];
        each.knobs_forward = forward.items[i % forward.count];
        each.knobs_backward = backward.count ? backward.items[i % backward.count] : NULL;
        status = verify_problem(context, problem, &each, &result);
        snprintf(knobs, sizeof knobs, "%s%s%s", each.knobs_forward, each.knobs_backward ? "; backward: " : "",
                 each.knobs_backward ? each.knobs_backward : "");
        if (!status) add(user, knobs, &result);
    }
out:
    vf_dev_list_free(&forward);
    vf_dev_list_free(&backward);
    return status;
}
