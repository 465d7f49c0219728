// builder.c - see builder.h. A process opens the driver, which decides what NVRTC fits, but no device.
#include "builder.h"

#include <string.h>

#include "command.h"
#include "output.h"
#include "varflash/varflash_dev.h"
#include "worker.h"
#include "workers.h"

#define FAILURES_SHOWN ((size_t)20)

struct build {
    const char *what;
    const struct texts *kernels;
    size_t done, failed;
    int code;
    struct texts failures;
};

static void report(size_t index, int code, const char *sentence, void *user) {
    struct build *build = user;
    output_progress(build->what, ++build->done, build->kernels->count);
    if (!code) return;
    if (!build->code) build->code = code;
    build->failed++;
    texts_add(&build->failures, build->kernels->items[index]);
    texts_add(&build->failures, sentence);
}

static void tell_failures(const struct build *build) {
    for (size_t i = 0; i < build->failures.count && i < 2 * FAILURES_SHOWN; i += 2)
        output_error("%s: %s", build->failures.items[i], build->failures.items[i + 1]);
    if (build->failed > FAILURES_SHOWN) output_error("... and %zu more", build->failed - FAILURES_SHOWN);
    if (build->failed) output_error("%zu of %zu kernels failed", build->failed, build->kernels->count);
}

int builder_run(const struct options *options, const char *what, const struct texts *kernels) {
    struct build build = {.what = what, .kernels = kernels};
    output_progress(what, 0, kernels->count);
    int code = workers_run(options, kernels->items, kernels->count, report, &build);
    output_clear();
    tell_failures(&build);
    texts_free(&build.failures);
    if (!code) code = build.code;
    if (!command_interrupted()) return code;
    output_error("interrupted after %zu of %zu kernels; the same command goes on from here", build.done,
                 kernels->count);
    return CODE_INTERRUPTED;
}

static int build_one(const char *spec, struct buf *answer, void *context) {
    (void)answer;
    vf_dev_built built;
    const vf_status status = vf_dev_build(context, spec, &built);
    vf_dev_built_free(&built);
    return options_code(status);
}

int builder_worker(const struct options *options) {
    vf_context *context;
    int code = command_open(options, &context);
    if (code) return code;
    worker_serve(build_one, context);
    vf_close(context);
    return CODE_OK;
}
