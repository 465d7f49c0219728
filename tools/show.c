// show.c - `varflash show`: a generated kernel as CUDA text, PTX, budget or compiler's report, or its cubin into a file. Needs
// no device; PTX, report and cubin need NVRTC.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "command.h"
#include "options.h"
#include "output.h"
#include "varflash/varflash_dev.h"

#define DEFAULT_ARCH "sm_80"
#define DEFAULT_LENGTHS "1024"

// The variant that serves the options' problem. 0 or an exit code, after a message.
static int find_variant(vf_context *context, const struct options *options, bool backward, vf_dev_variant **variant) {
    struct problem problem;
    char *request = NULL, *set = NULL;
    struct options without_kernel = *options;  // of the arguments, the first is KERNEL, not a problem file
    without_kernel.arguments.items++;
    without_kernel.arguments.count--;
    int code = command_one_problem(&without_kernel, DEFAULT_LENGTHS, &problem);
    if (code) return code;
    problem.backward = backward;
    const char *arch = options->arch ? options->arch : DEFAULT_ARCH;
    vf_status status = command_request(context, options, &problem, backward, arch, &request);
    if (!status) {
        set = command_set(options);
        status = vf_dev_variant_create(context, request, set, variant);
    }
    if (status) code = command_failed(status);
    free(set);
    vf_dev_text_free(request);
    problem_free(&problem);
    return code;
}

// KERNEL is a kernel's whole name, or a pass, whose main kernel is then meant: fwd is fwd_sm80.
static bool names_kernel(const char *word, const char *name) {
    size_t length = strlen(word);
    return !strcmp(word, name) || (!strncmp(word, name, length) && !strncmp(name + length, "_sm", 3));
}

static const vf_dev_kernel *find_kernel(const vf_dev_variant *variant, const char *word) {
    for (size_t i = 0; i < variant->kernel_count; i++)
        if (names_kernel(word, variant->kernels[i].name)) return &variant->kernels[i];
    return NULL;
}

static void print_budget(const vf_dev_variant *variant, const vf_dev_kernel *kernel) {
    printf("%s\nrequest          %s\nknobs            %s\nrow              %s\n", kernel->entry, variant->request,
           variant->knobs, variant->row);
    printf(
        "threads          %d\nshared memory    %zu bytes a block\nblocks per SM    %d\nregisters        %d a thread\n",
        kernel->threads, kernel->shared_bytes, kernel->blocks_per_sm, kernel->registers);
}

static void print_report(const vf_dev_image *image) {
    fputs(image->log, stdout);
    if (*image->log && image->log[strlen(image->log) - 1] != '\n') putchar('\n');
    printf("registers %d, stack %lld bytes, spill stores %lld bytes, spill loads %lld bytes; compiled in %.3f s\n",
           image->registers, (long long)image->stack_bytes, (long long)image->spill_store_bytes,
           (long long)image->spill_load_bytes, image->seconds);
}

static void add_budget(cJSON *json, const vf_dev_kernel *kernel) {
    cJSON *budget = cJSON_AddObjectToObject(json, "budget");
    cJSON_AddNumberToObject(budget, "threads", kernel->threads);
    cJSON_AddNumberToObject(budget, "shared_bytes", (double)kernel->shared_bytes);
    cJSON_AddNumberToObject(budget, "blocks_per_sm", kernel->blocks_per_sm);
    cJSON_AddNumberToObject(budget, "registers", kernel->registers);
}

static void add_report(cJSON *json, const vf_dev_image *image) {
    cJSON *report = cJSON_AddObjectToObject(json, "report");
    cJSON_AddNumberToObject(report, "registers", image->registers);
    cJSON_AddNumberToObject(report, "stack_bytes", (double)image->stack_bytes);
    cJSON_AddNumberToObject(report, "spill_store_bytes", (double)image->spill_store_bytes);
    cJSON_AddNumberToObject(report, "spill_load_bytes", (double)image->spill_load_bytes);
    cJSON_AddNumberToObject(report, "seconds", image->seconds);
    cJSON_AddStringToObject(report, "log", image->log);
}

// `kernel` and `variant` are null with --spec.
static int show(vf_context *context, const struct options *options, const char *spec, const vf_dev_variant *variant,
                const vf_dev_kernel *kernel) {
    vf_dev_image cubin = {0}, ptx = {0};
    char *source = NULL;
    cJSON *json = NULL;
    int code = CODE_OK;
    bool want_cubin = options->log || options->cubin;
    bool want_source = !want_cubin && !options->ptx && !options->budget;
    vf_status status = want_source || options->json ? vf_dev_source(context, spec, options->lines, &source) : VF_OK;
    if (!status && want_cubin) status = vf_dev_compile(context, spec, 0, &cubin);
    if (!status && options->ptx) status = vf_dev_compile(context, spec, 1, &ptx);
    if (status) {
        code = command_failed(status);
        goto out;
    }
    if (options->cubin) code = command_write_file(options->cubin, cubin.data, cubin.size);
    if (code) goto out;
    if (options->json) {
        json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "spec", spec);
        if (kernel) {
            cJSON_AddStringToObject(json, "kernel", kernel->name);
            cJSON_AddStringToObject(json, "entry", kernel->entry);
            cJSON_AddStringToObject(json, "request", variant->request);
            cJSON_AddStringToObject(json, "knobs", variant->knobs);
            cJSON_AddStringToObject(json, "row", variant->row);
            add_budget(json, kernel);
        }
        cJSON_AddStringToObject(json, "source", source);
        if (options->log) add_report(json, &cubin);
        if (options->ptx) cJSON_AddStringToObject(json, "ptx", ptx.data);
        output_json(json, false);
        goto out;
    }
    if (source) fputs(source, stdout);
    if (options->budget) print_budget(variant, kernel);
    if (options->ptx) fwrite(ptx.data, 1, strnlen(ptx.data, ptx.size), stdout);
    if (options->log) print_report(&cubin);
    if (options->cubin) output_note("wrote %s (%zu bytes, %d registers)", options->cubin, cubin.size, cubin.registers);
out:
    vf_dev_text_free(source);
    vf_dev_image_free(&cubin);
    vf_dev_image_free(&ptx);
    return code;
}

int verb_show(const struct options *options) {
    vf_context *context = NULL;
    vf_dev_variant *variant = NULL;
    if (options->spec ? options->arguments.count > 0 : options->arguments.count < 1) {
        output_error("show: a KERNEL (fwd, bwd, schedule, bwd_pre, ...) or --spec SPEC is needed");
        return CODE_USAGE;
    }
    if (options->spec && options->budget) {
        output_error("show: --budget needs a kernel by name; the head of the text that --spec prints has its budget");
        return CODE_USAGE;
    }
    int code = command_open(options, &context);
    if (code) return code;
    if (options->spec) {
        code = show(context, options, options->spec, NULL, NULL);
        goto out;
    }
    const char *word = options->arguments.items[0];
    code = find_variant(context, options, !strncmp(word, "bwd", 3), &variant);
    if (!variant) goto out;
    const vf_dev_kernel *kernel = find_kernel(variant, word);
    if (kernel) {
        code = show(context, options, kernel->spec, variant, kernel);
    } else {
        struct buf names = {0};
        for (size_t i = 0; i < variant->kernel_count; i++)
            buf_printf(&names, "%s%s", i ? ", " : "", variant->kernels[i].name);
        output_error("show: '%s' is no kernel of this variant, which has %s", word, buf_string(&names));
        buf_free(&names);
        code = CODE_USAGE;
    }
out:
    vf_dev_variant_free(variant);
    vf_close(context);
    return code;
}
