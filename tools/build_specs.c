// build_specs.c - see build_specs.h. Requests come from four sources; from there on all is the same: request, variants,
// plans, kernels.
#include "build_specs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fs.h"
#include "output.h"
#include "source_plan.h"
#include "varflash/varflash_dev.h"

// ---- lists of words --------------------------------------------------------------------------------------------------
// "a,b" of every item; `fallback` where there is none.
static void split(const struct text_list *list, const char *fallback, struct texts *words) {
    for (size_t i = 0; i < (list->count ? list->count : 1); i++) {
        const char *text = list->count ? list->items[i] : fallback;
        while (text && *text) {
            const size_t length = strcspn(text, ",");
            char *word = output_copy(text);
            word[length] = 0;
            if (length) texts_add(words, word);
            free(word);
            text += length + (text[length] == ',');
        }
    }
}

static bool has_word(const struct text_list *list, const char *word) {
    struct texts words = {0};
    bool found = false;
    split(list, NULL, &words);
    for (size_t i = 0; i < words.count; i++) found |= !strcmp(words.items[i], word);
    texts_free(&words);
    return found;
}

// The one of --spec, those of --arch, else the device's own.
static int get_archs(const struct options *options, vf_context *context, struct texts *archs) {
    const struct text_list given = {.count = options->arch != NULL, .items = (const char *[]){options->arch}};
    const char *named = options->spec ? strstr(options->spec, "arch=") : NULL;
    vf_dev_device device;
    if (named) {
        char *arch = output_copy(named + strlen("arch="));
        arch[strcspn(arch, " ")] = 0;
        texts_add(archs, arch);
        free(arch);
        return CODE_OK;
    }
    split(&given, NULL, archs);
    if (archs->count) return CODE_OK;
    if (vf_dev_device_get(context, (int)options->device, &device)) {
        output_error("build: --arch is needed where there is no device: --arch sm_80,sm_90a,...");
        return CODE_USAGE;
    }
    texts_add(archs, device.arch);
    return CODE_OK;
}

// ---- requests --------------------------------------------------------------------------------------------------------

#define DEFAULT_HEAD_DIMS "64,96,128,192/128,256"

struct axes {
    struct texts passes, head_dims, dtypes, masks;
    int softcaps, alignments, deterministics;  // 2: both
};

static int add_request(const struct axes *axes, size_t index, struct texts *requests) {
    const struct texts *lists[] = {&axes->passes, &axes->dtypes, &axes->head_dims, &axes->masks};
    const char *words[4];
    for (size_t i = 0; i < 4; i++) {
        words[i] = lists[i]->items[index % lists[i]->count];
        index /= lists[i]->count;
    }
    const int softcap = (int)(index % (size_t)axes->softcaps);
    index /= (size_t)axes->softcaps;
    const int unaligned = (int)(index % (size_t)axes->alignments);
    const int deterministic = (int)(index / (size_t)axes->alignments);
    char *end;
    const long head_dim = strtol(words[2], &end, 10);
    const long head_dim_v = *end == '/' ? strtol(end + 1, &end, 10) : head_dim;
    if (*end || head_dim < 1 || head_dim_v < 1) {
        output_error("build: --head-dim is '%s', not D or D/DV", words[2]);
        return CODE_USAGE;
    }
    // A forward is always deterministic, and asks for nothing.
    if (deterministic && !strcmp(words[0], "fwd")) return CODE_OK;
    char text[256];
    snprintf(text, sizeof(text),
             "pass=%.8s dtype=%.8s head_dim=%ld head_dim_v=%ld mask=%.8s softcap=%d aligned=%d deterministic=%d",
             words[0], words[1], head_dim, head_dim_v, words[3], softcap, !unaligned, deterministic);
    texts_add(requests, text);
    return CODE_OK;
}

static int check_words(const struct options *options) {
    int code = command_known_words(options, "pass", &options->pass, "fwd,bwd");
    if (!code) code = command_known_words(options, "dtype", &options->dtype, "fp16,bf16");
    if (!code) code = command_known_words(options, "mask", &options->mask, "full,causal,window");
    if (!code) code = command_known_words(options, "features", &options->features, "softcap,unaligned,deterministic");
    return code;
}

static int requests_of_axes(const struct options *options, struct texts *requests) {
    struct axes axes = {.softcaps = 1 + has_word(&options->features, "softcap"),
                        .alignments = 1 + has_word(&options->features, "unaligned"),
                        .deterministics = 1 + has_word(&options->features, "deterministic")};
    int code = check_words(options);
    split(&options->pass, "fwd,bwd", &axes.passes);
    split(&options->head_dim, DEFAULT_HEAD_DIMS, &axes.head_dims);
    split(&options->dtype, "fp16,bf16", &axes.dtypes);
    split(&options->mask, "full,causal", &axes.masks);
    size_t count = axes.passes.count * axes.head_dims.count * axes.dtypes.count * axes.masks.count *
                   (size_t)(axes.softcaps * axes.alignments * axes.deterministics);
    for (size_t i = 0; i < count && !code; i++) code = add_request(&axes, i, requests);
    texts_free(&axes.passes);
    texts_free(&axes.head_dims);
    texts_free(&axes.dtypes);
    texts_free(&axes.masks);
    return code;
}

// Lines that are neither empty nor a comment.
static int requests_of_file(const char *path, struct texts *requests) {
    struct buf text = {0};
    if (fs_read(path, &text)) return command_failed(VF_ERROR_IO);
    char *rest = NULL;
    for (char *line = text.size ? strtok_r(text.data, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
        line += strspn(line, " ");
        if (*line && *line != '#') texts_add(requests, line);
    }
    buf_free(&text);
    return CODE_OK;
}

static int requests_of_problems(const struct options *options, vf_context *context, const struct texts *archs,
                                struct texts *requests) {
    struct problem_list list;
    const int code = command_problems(options, &list);
    if (code) return code;
    for (size_t i = 0; i < list.count * archs->count; i++) {
        const struct problem *problem = &list.items[i / archs->count];
        for (int backward = 0; backward <= (int)problem->backward; backward++) {
            char *request;
            // What describes no call is in a suite of refusals.
            if (command_request(context, options, problem, backward, archs->items[i % archs->count], &request))
                continue;
            texts_add(requests, request);
            vf_dev_text_free(request);
        }
    }
    problem_list_free(&list);
    return CODE_OK;
}

static int get_requests(const struct options *options, vf_context *context, const struct texts *archs,
                        struct texts *requests) {
    const bool problems = options->suite || options->arguments.count;
    const bool axes = options->pass.count || options->head_dim.count || options->dtype.count || options->mask.count ||
                      options->features.count;
    if ((options->spec != NULL) + (options->specs != NULL) + problems + axes > 1) {
        output_error(
            "build: --spec, --specs, problems and --pass, --head-dim, --dtype, --mask, --features exclude each other");
        return CODE_USAGE;
    }
    if (options->spec) {
        texts_add(requests, options->spec);
        return CODE_OK;
    }
    if (options->specs) return requests_of_file(options->specs, requests);
    return problems ? requests_of_problems(options, context, archs, requests) : requests_of_axes(options, requests);
}

// ---- variants and kernels --------------------------------------------------------------------------------------------

static vf_status add_variant(vf_context *context, const char *variant, struct build_specs *specs) {
    char *text;
    struct source_plan plan;
    const vf_status status = vf_dev_plan(context, variant, &text);
    if (status) return status;
    if (source_plan_read(text, strlen(text), &plan)) {
        for (int i = 0; i < plan.kernel_count; i++) texts_add(&specs->kernels, plan.kernels[i].spec);
        texts_add(&specs->variants, variant);
    }
    vf_dev_text_free(text);
    return VF_OK;
}

static vf_status add_variants(vf_context *context, const char *request, bool mapped, struct build_specs *specs) {
    char *lines, *rest = NULL;
    vf_status status = vf_dev_variants(context, request, mapped, &lines);
    if (status) return status;
    for (char *line = strtok_r(lines, "\n", &rest); line && !status; line = strtok_r(NULL, "\n", &rest))
        status = add_variant(context, line, specs);
    vf_dev_text_free(lines);
    return status;
}

// A kernel, a variant (which has a family), or a request, for which `arch` stands in where it names none.
static vf_status add_spec(vf_context *context, const char *text, const char *arch, bool unmapped,
                          struct build_specs *specs) {
    vf_status status = VF_OK;
    char *spec = NULL;
    if (asprintf(&spec, "%s%s%s", text, strstr(text, "arch=") ? "" : " arch=", strstr(text, "arch=") ? "" : arch) < 0)
        return VF_ERROR_OUT_OF_MEMORY;
    if (!strncmp(spec, "kernel=", 7))
        texts_add(&specs->kernels, spec);
    else if (strstr(spec, " family=") || !strncmp(spec, "pass=check ", 11))
        status = add_variant(context, spec, specs);
    else
        status = add_variants(context, spec, true, specs);
    if (!status && unmapped) status = add_variants(context, spec, false, specs);
    free(spec);
    return status;
}

static vf_status get_plans(vf_context *context, struct build_specs *specs) {
    vf_status status = VF_OK;
    for (size_t i = 0; i < specs->variants.count && !status; i++) {
        char *text;
        status = vf_dev_plan(context, specs->variants.items[i], &text);
        if (!status) texts_add(&specs->plans, text);
        if (!status) vf_dev_text_free(text);
    }
    return status;
}

// Prints why a request is refused, unless the one before it was for the same reason: a head_dim that nobody can do is in many requests.
static void complain(struct buf *before) {
    const char *why = strrchr(vf_last_error(), '\'');
    why = why ? why : vf_last_error();
    if (strcmp(buf_string(before), why) != 0) output_error("build: %s", vf_last_error());
    buf_clear(before);
    buf_text(before, why);
}

int build_specs_get(const struct options *options, vf_context *context, struct build_specs *specs, size_t *refused) {
    struct buf reason = {0};
    struct texts archs = {0}, requests = {0};
    vf_status status = VF_OK;
    const bool unmapped = has_word(&options->features, "unaligned");  // with the axes alone, whose specs are requests
    *refused = 0;
    int code = get_archs(options, context, &archs);
    if (!code) code = get_requests(options, context, &archs, &requests);
    texts_sort(&requests);
    for (size_t a = 0; a < archs.count && !code; a++) {
        char check[64];
        snprintf(check, sizeof(check), "pass=check arch=%.40s", archs.items[a]);
        // Checked mode's kernel, whose plan also has the limits of the architecture.
        if ((status = add_variant(context, check, specs))) code = command_failed(status);
        for (size_t i = 0; i < requests.count && !code; i++) {
            if (a && strstr(requests.items[i], "arch=")) continue;  // it was there the first time
            if (!add_spec(context, requests.items[i], archs.items[a], unmapped, specs)) continue;
            complain(&reason);
            ++*refused;
        }
    }
    texts_sort(&specs->variants);
    texts_sort(&specs->kernels);
    if (!code && (status = get_plans(context, specs))) code = command_failed(status);
    buf_free(&reason);
    texts_free(&archs);
    texts_free(&requests);
    return code;
}

void build_specs_free(struct build_specs *specs) {
    texts_free(&specs->variants);
    texts_free(&specs->plans);
    texts_free(&specs->kernels);
}
