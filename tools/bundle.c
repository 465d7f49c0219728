// bundle.c - `varflash bundle`: what is in a bundle, whether it is sound, how two differ, its images as files.
#include "bundle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "bundle_manifest.h"
#include "command.h"
#include "embedded.h"
#include "fs.h"
#include "output.h"
#include "source_plan.h"

static char *copy_text(struct bundle_text text) {
    char *copy = output_realloc(NULL, text.size + 1);
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    return copy;
}

static bool same(struct bundle_text a, struct bundle_text b) {
    return a.size == b.size && !memcmp(a.data, b.data, a.size);
}

static bool filtered_out(const struct options *options, struct bundle_text spec) {
    return options->filter && !memmem(spec.data, spec.size, options->filter, strlen(options->filter));
}

// ---- list ------------------------------------------------------------------------------------------------------------

static int list(const struct options *options, const struct bundle *bundle) {
    char version[COMMAND_VERSION];
    size_t packed = 0, unpacked = 0;
    if (options->json) {
        const struct bundle_text manifest = bundle_manifest(bundle);
        printf("%.*s\n", (int)manifest.size, manifest.data);
        return CODE_OK;
    }
    struct table table;
    table_open(&table, "rrl");
    table_cell(&table, "packed");
    table_cell(&table, "bytes");
    table_cell(&table, "kernel");
    for (size_t i = 0; i < bundle_kernel_count(bundle); i++) {
        const struct bundle_kernel kernel = bundle_kernel_at(bundle, i);
        packed += kernel.frame.size;
        unpacked += (size_t)kernel.image_size;
        if (filtered_out(options, kernel.spec)) continue;
        table_cell(&table, "%zu", kernel.frame.size);
        table_cell(&table, "%zu", (size_t)kernel.image_size);
        table_cell(&table, "%.*s", (int)kernel.spec.size, kernel.spec.data);
    }
    table_print(&table);
    table_close(&table);
    printf("%zu variants, %zu kernels: %.2f MB of %.2f MB; NVRTC %s, generator %s%s\n", bundle_plan_count(bundle),
           bundle_kernel_count(bundle), 1e-6 * (double)packed, 1e-6 * (double)unpacked,
           command_cuda_version(version, bundle_compiler(bundle)), bundle_generator(bundle),
           strcmp(bundle_generator(bundle), embedded_digest) ? " (not this version's)" : "");
    return CODE_OK;
}

// ---- verify ----------------------------------------------------------------------------------------------------------

static bool find_kernel(const struct bundle *bundle, const char *spec) {
    struct bundle_kernel kernel;
    return bundle_find_kernel(bundle, spec, &kernel);
}

// Null, or what is wrong with a plan.
static const char *verify_plan(const struct bundle *bundle, const struct bundle_plan *found) {
    struct source_plan plan;
    if (!source_plan_read(found->plan.data, found->plan.size, &plan)) return "has a plan that cannot be read";
    for (int i = 0; i < plan.kernel_count; i++) {
        if (!find_kernel(bundle, plan.kernels[i].spec)) return "lacks a kernel";
    }
    return NULL;
}

static size_t complain(const struct bundle *bundle, struct bundle_text spec, const char *fault) {
    output_error("%s: '%.*s' %s", bundle_name(bundle), (int)spec.size, spec.data, fault);
    return 1;
}

// The bundle as a draft, for its manifest to be made again. Counts what is wrong on the way.
static vf_status read_all(const struct bundle *bundle, struct bundle_draft *draft, size_t *faults) {
    vf_status status = VF_OK;
    for (size_t i = 0; i < bundle_plan_count(bundle) && !status; i++) {
        const struct bundle_plan plan = bundle_plan_at(bundle, i);
        const char *fault = verify_plan(bundle, &plan);
        char *spec = copy_text(plan.spec), *text = copy_text(plan.plan);
        if (fault) *faults += complain(bundle, plan.spec, fault);
        status = bundle_draft_plan(draft, spec, text);
        free(spec);
        free(text);
    }
    for (size_t i = 0; i < bundle_kernel_count(bundle) && !status; i++) {
        const struct bundle_kernel kernel = bundle_kernel_at(bundle, i);
        struct buf image = {0};
        const char *fault = bundle_image(&kernel, &image);
        char *spec = copy_text(kernel.spec), *text = copy_text(kernel.meta);
        if (fault) *faults += complain(bundle, kernel.spec, fault);
        status = bundle_draft_kernel(draft, spec, text, image.data, image.size);
        buf_free(&image);
        free(spec);
        free(text);
    }
    return status;
}

static int verify(const struct options *options, const struct bundle *bundle) {
    struct bundle_draft draft = {.generator = bundle_generator(bundle), .compiler = bundle_compiler(bundle)};
    size_t faults = 0;
    const vf_status status = read_all(bundle, &draft, &faults);
    int code = status ? command_failed(status) : CODE_OK;
    if (!code && !faults) {
        char *manifest = bundle_manifest_make(&draft);
        const struct bundle_text stored = bundle_manifest(bundle);
        if (!manifest || !same(stored, (struct bundle_text){manifest, strlen(manifest)})) {
            output_error("%s: the manifest is not that of its kernels", bundle_name(bundle));
            faults++;
        }
        cJSON_free(manifest);
    }
    if (!code && faults) code = CODE_CHECK_FAILED;
    if (!code && !options->quiet)
        printf("%s: %zu variants, %zu kernels, sound\n", bundle_name(bundle), draft.plan_count, draft.kernel_count);
    bundle_draft_free(&draft);
    return code;
}

// ---- diff ------------------------------------------------------------------------------------------------------------

static size_t tell(char sign, const char *what, struct bundle_text spec) {
    printf("%c %s %.*s\n", sign, what, (int)spec.size, spec.data);
    return 1;
}

// What `a` has and `b` has not, with `sign`; with `changes`, what both have and is not equal.
static size_t diff_one_way(const struct bundle *a, const struct bundle *b, char sign, bool changes) {
    size_t count = 0;
    for (size_t i = 0; i < bundle_plan_count(a); i++) {
        const struct bundle_plan plan = bundle_plan_at(a, i);
        struct bundle_plan other;
        char *spec = copy_text(plan.spec);
        if (!bundle_find_plan(b, spec, &other))
            count += tell(sign, "variant", plan.spec);
        else if (changes && !same(plan.plan, other.plan))
            count += tell('!', "variant", plan.spec);
        free(spec);
    }
    for (size_t i = 0; i < bundle_kernel_count(a); i++) {
        const struct bundle_kernel kernel = bundle_kernel_at(a, i);
        struct bundle_kernel other;
        char *spec = copy_text(kernel.spec);
        if (!bundle_find_kernel(b, spec, &other))
            count += tell(sign, "kernel", kernel.spec);
        else if (changes && (memcmp(kernel.digest, other.digest, HASH_SIZE) != 0 || !same(kernel.meta, other.meta)))
            count += tell('!', "kernel", kernel.spec);
        free(spec);
    }
    return count;
}

static int diff(const struct bundle *a, const struct bundle *b) {
    size_t count = diff_one_way(a, b, '-', true) + diff_one_way(b, a, '+', false);
    char x[COMMAND_VERSION], y[COMMAND_VERSION];
    command_cuda_version(x, bundle_compiler(a));
    command_cuda_version(y, bundle_compiler(b));
    if (strcmp(x, y) != 0) count += printf("! NVRTC %s, %s\n", x, y) > 0;
    if (strcmp(bundle_generator(a), bundle_generator(b)) != 0)
        count += printf("! generator %s, %s\n", bundle_generator(a), bundle_generator(b)) > 0;
    return count ? CODE_CHECK_FAILED : CODE_OK;
}

// ---- extract ---------------------------------------------------------------------------------------------------------

// "kernel=fwd_sm80 arch=sm_90a ..." -> "fwd_sm80"
static int extract_one(const struct options *options, const struct bundle *bundle, const struct bundle_kernel *kernel) {
    char path[4096], name[32] = "kernel", digest[HASH_TEXT_SIZE];
    struct buf image = {0};
    char *spec = copy_text(kernel->spec), *meta = copy_text(kernel->meta);
    const char *fault = bundle_image(kernel, &image);
    int code = CODE_OK;
    sscanf(spec, "kernel=%31[a-z0-9_]", name);
    hash_text(kernel->digest, digest);
    if (fault) {
        complain(bundle, kernel->spec, fault);
        code = CODE_CHECK_FAILED;
    } else if (snprintf(path, sizeof(path), "%s/%s-%.16s.%s", options->output, name, digest,
                        strstr(meta, "form=ptx") ? "ptx" : "cubin") < (int)sizeof(path)) {
        code = command_write_file(path, image.data, image.size);
        if (!code && !options->quiet) printf("%s  %s\n", path, spec);
    }
    buf_free(&image);
    free(spec);
    free(meta);
    return code;
}

static int extract(const struct options *options, const struct bundle *bundle) {
    int code = CODE_OK;
    const int fault = options->output ? fs_make_folder(options->output) : 0;
    if (!options->output || fault) {
        output_error("bundle: extract needs --output FOLDER%s%s", fault ? ": " : "", fault ? strerror(fault) : "");
        return fault ? CODE_FILE : CODE_USAGE;
    }
    for (size_t i = 0; i < bundle_kernel_count(bundle) && !code; i++) {
        const struct bundle_kernel kernel = bundle_kernel_at(bundle, i);
        if (!filtered_out(options, kernel.spec)) code = extract_one(options, bundle, &kernel);
    }
    return code;
}

// ---- the verb --------------------------------------------------------------------------------------------------------

static int run(const struct options *options, const char *action, const char *const *paths, size_t count) {
    struct bundle *bundles[2] = {NULL, NULL};
    vf_status status = VF_OK;
    for (size_t i = 0; i < count && !status; i++) status = bundle_open(paths[i], &bundles[i]);
    int code = status ? command_failed(status) : CODE_OK;
    if (code) goto out;
    if (!strcmp(action, "list")) code = list(options, bundles[0]);
    if (!strcmp(action, "verify")) code = verify(options, bundles[0]);
    if (!strcmp(action, "diff")) code = diff(bundles[0], bundles[1]);
    if (!strcmp(action, "extract")) code = extract(options, bundles[0]);
out:
    bundle_close(bundles[0]);
    bundle_close(bundles[1]);
    return code;
}

int verb_bundle(const struct options *options) {
    static const char *const actions[] = {"list", "verify", "diff", "extract"};
    const struct text_list *words = &options->arguments;
    const char *action = NULL;
    for (size_t i = 0; i < sizeof(actions) / sizeof(*actions) && words->count; i++) {
        if (!strcmp(words->items[0], actions[i])) action = actions[i];
    }
    const size_t files = action && !strcmp(action, "diff") ? 2 : 1;
    if (action && words->count == files + 1) return run(options, action, words->items + 1, files);
    output_error("bundle: takes list FILE, verify FILE, diff FILE FILE or extract FILE");
    return CODE_USAGE;
}
