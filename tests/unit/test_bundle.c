// test_bundle.c - bundles: what is written is found, nothing damaged is, and the library runs from one with neither a
// compiler nor a folder to write to.
#include "bundle.h"

#include "bundle_write.h"
#include "embedded.h"
#include "source_plan.h"
#include "stub_context.h"

static struct buf file;  // of the bundle under test

static void write_draft(struct bundle_draft *draft) {
    buf_free(&file);
    unit_ok(bundle_write(draft, "{}", &file));
    bundle_draft_free(draft);
}

// Three plans and 40 kernels, given in no order.
static void write_example(void) {
    struct bundle_draft draft = {.generator = embedded_digest, .compiler = 13000};
    char spec[32], image[3000];
    for (int i = 0; i < 40; i++) {
        const int k = i * 7 % 40;
        snprintf(spec, sizeof spec, "kernel=%d", k);
        for (size_t b = 0; b < sizeof image; b++) image[b] = (char)(b * (size_t)k >> 3);
        unit_ok(bundle_draft_kernel(&draft, spec, "form=cubin\n", image, 1000 + 50 * (size_t)k));
    }
    unit_ok(bundle_draft_plan(&draft, "pass=b", "plan b"));
    unit_ok(bundle_draft_plan(&draft, "pass=a", "plan a"));
    unit_ok(bundle_draft_plan(&draft, "pass=a", "dropped"));
    unit_ok(bundle_draft_plan(&draft, "pass=", ""));
    write_draft(&draft);
}

START_TEST(finds_what_was_written) {
    write_example();
    struct bundle *bundle;
    unit_ok(bundle_open_memory("x", file.data, file.size, &bundle));
    ck_assert_str_eq(bundle_generator(bundle), embedded_digest);
    ck_assert_int_eq(bundle_compiler(bundle), 13000);
    ck_assert_uint_eq(bundle_plan_count(bundle), 3);
    ck_assert_uint_eq(bundle_kernel_count(bundle), 40);
    for (int k = 0; k < 40; k++) {
        char spec[32];
        struct bundle_kernel kernel;
        struct buf image = {.data = NULL};
        snprintf(spec, sizeof spec, "kernel=%d", k);
        ck_assert(bundle_find_kernel(bundle, spec, &kernel));
        ck_assert_ptr_null(bundle_image(&kernel, &image));
        ck_assert_uint_eq(image.size, 1000 + 50 * (size_t)k);
        for (size_t b = 0; b < image.size; b++) ck_assert_int_eq(image.data[b], (char)(b * (size_t)k >> 3));
        ck_assert_int_eq(strncmp(kernel.meta.data, "form=cubin\n", kernel.meta.size), 0);
        buf_free(&image);
    }
    struct bundle_plan plan;
    struct bundle_kernel kernel;
    ck_assert(bundle_find_plan(bundle, "pass=a", &plan));
    ck_assert_int_eq(strncmp(plan.plan.data, "plan a", plan.plan.size), 0);
    ck_assert(bundle_find_plan(bundle, "pass=", &plan));
    ck_assert_uint_eq(plan.plan.size, 0);
    static const char *const missing[] = {"", "pass", "pass=aa", "pass=c", "kernel=1", "kernel=40"};
    for (size_t i = 0; i < ARRAY_LENGTH(missing); i++) ck_assert(!bundle_find_plan(bundle, missing[i], &plan));
    ck_assert(!bundle_find_kernel(bundle, "kernel=40", &kernel));
    bundle_close(bundle);
    buf_free(&file);
}
END_TEST

START_TEST(an_empty_bundle_is_one) {
    struct bundle_draft draft = {.generator = embedded_digest, .compiler = 13000};
    struct bundle_plan plan;
    struct bundle *bundle;
    write_draft(&draft);
    unit_ok(bundle_open_memory("x", file.data, file.size, &bundle));
    ck_assert(!bundle_find_plan(bundle, "", &plan));
    bundle_close(bundle);
    buf_free(&file);
}
END_TEST

// True if the damage is noticed: the bundle cannot be opened, or an image of it cannot be used.
static bool noticed(size_t size) {
    struct bundle *bundle;
    bool found = false;
    if (bundle_open_memory("x", file.data, size, &bundle)) return true;
    for (size_t i = 0; i < bundle_kernel_count(bundle) && !found; i++) {
        const struct bundle_kernel kernel = bundle_kernel_at(bundle, i);
        struct buf image = {.data = NULL};
        found = bundle_image(&kernel, &image) != NULL;
        buf_free(&image);
    }
    bundle_close(bundle);
    return found;
}

static size_t head_size(void) {
    return (size_t)(unsigned char)file.data[BUNDLE_AT_HEAD_SIZE] |
           (size_t)(unsigned char)file.data[BUNDLE_AT_HEAD_SIZE + 1] << 8;
}

START_TEST(damage_is_noticed) {
    write_example();
    const size_t head = head_size();
    for (size_t size = 0; size < file.size; size += 61) ck_assert(noticed(size));
    ck_assert(noticed(file.size - 1));
    for (size_t bit = 0; bit < 8 * file.size; bit += bit < 8 * BUNDLE_HEADER_SIZE ? 1 : 89) {
        const char flipped = (char)(1 << bit % 8);
        file.data[bit / 8] = (char)(file.data[bit / 8] ^ flipped);
        // A frame has bits that say nothing; what is unpacked is right then, because its digest is.
        ck_assert_msg(noticed(file.size) || bit > 8 * head, "bit %zu", bit);
        file.data[bit / 8] = (char)(file.data[bit / 8] ^ flipped);
    }
    ck_assert(!noticed(file.size));
    buf_free(&file);
}
END_TEST

// Heads whose digest is right and whose content is not: made by somebody, not by chance.
START_TEST(hostile_heads) {
    static const size_t places[] = {BUNDLE_AT_PLANS,
                                    BUNDLE_AT_KERNELS,
                                    BUNDLE_AT_HEAD_SIZE,
                                    BUNDLE_AT_MANIFEST,
                                    BUNDLE_AT_MANIFEST_SIZE,
                                    BUNDLE_HEADER_SIZE + BUNDLE_PAIR_SPEC,
                                    BUNDLE_HEADER_SIZE + BUNDLE_PAIR_SPEC_SIZE,
                                    BUNDLE_HEADER_SIZE + BUNDLE_PAIR_TEXT,
                                    BUNDLE_HEADER_SIZE + 3 * BUNDLE_PAIR_SIZE + BUNDLE_KERNEL_FRAME,
                                    BUNDLE_HEADER_SIZE + 3 * BUNDLE_PAIR_SIZE + BUNDLE_KERNEL_FRAME_SIZE,
                                    BUNDLE_HEADER_SIZE + 3 * BUNDLE_PAIR_SIZE + BUNDLE_KERNEL_IMAGE_SIZE};
    static const unsigned char values[] = {0, 1, 0x40, 0x7f, 0x80, 0xff};
    write_example();
    const size_t head = head_size();
    for (size_t i = 0; i < ARRAY_LENGTH(places) * ARRAY_LENGTH(values) * 4; i++) {
        const size_t at = places[i % ARRAY_LENGTH(places)] + i / ARRAY_LENGTH(places) % 4;
        char kept[HASH_SIZE], byte = file.data[at];
        memcpy(kept, file.data + BUNDLE_AT_DIGEST, HASH_SIZE);
        file.data[at] = (char)values[i / ARRAY_LENGTH(places) / 4];
        memset(file.data + BUNDLE_AT_DIGEST, 0, HASH_SIZE);
        unsigned char digest[HASH_SIZE];
        hash_bytes(file.data, head, digest);
        memcpy(file.data + BUNDLE_AT_DIGEST, digest, HASH_SIZE);
        noticed(file.size);  // or not: no read goes outside
        memcpy(file.data + BUNDLE_AT_DIGEST, kept, HASH_SIZE);
        file.data[at] = byte;
    }
    buf_free(&file);
}
END_TEST

// ---- under the library --------------------------------------------------------------------------------------------

static void add_variant(vf_context *context, const char *variant, struct bundle_draft *draft) {
    char *text;
    struct source_plan plan;
    unit_ok(vf_dev_plan(context, variant, &text));
    ck_assert(source_plan_read(text, strlen(text), &plan));
    unit_ok(bundle_draft_plan(draft, variant, text));
    for (int i = 0; i < plan.kernel_count; i++) {
        vf_dev_built built;
        unit_ok(vf_dev_build(context, plan.kernels[i].spec, &built));
        unit_ok(bundle_draft_kernel(draft, plan.kernels[i].spec, built.facts, built.data, built.size));
        vf_dev_built_free(&built);
    }
    vf_dev_text_free(text);
}

static void add_request(vf_context *context, char *request, struct bundle_draft *draft) {
    char *lines, *rest = NULL;
    unit_ok(vf_dev_variants(context, request, 1, &lines));
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        add_variant(context, line, draft);
    vf_dev_text_free(lines);
    vf_dev_text_free(request);
}

// Every kernel of the sample calls and of checked mode, into `file`.
static void build_samples(const char *generator) {
    struct bundle_draft draft = {.generator = generator, .compiler = 13000};
    const vf_forward_args forward = sample_forward(stub_first);
    const vf_backward_args backward = sample_backward(stub_first);
    char *request;
    vf_context *context = stub_open();
    unit_ok(vf_dev_request_forward(context, &forward, NULL, &request));
    add_request(context, request, &draft);
    unit_ok(vf_dev_request_backward(context, &backward, NULL, &request));
    add_request(context, request, &draft);
    add_variant(context, "pass=check arch=sm_100", &draft);
    vf_close(context);
    write_draft(&draft);
}

static vf_status run_from(const vf_bundle *bundles, size_t count, vf_dev_counters *counters,
                          const struct nvrtc_api *nvrtc) {
    vf_context *context = NULL;
    const vf_options options = {.backend = VF_BACKEND_CUDA, .bundles = bundles, .bundle_count = count};
    VF_TRY(vf_dev_open_with_api(&options, stub_cuda(), nvrtc, &context));
    vf_forward_args forward = sample_forward(stub_first);
    const vf_backward_args backward = sample_backward(stub_first);
    forward.problem.check = VF_CHECK_DEVICE;
    vf_status status = vf_forward(context, &forward);
    if (!status) status = vf_backward(context, &backward);
    *counters = vf_dev_count(context);
    vf_close(context);
    return status;
}

START_TEST(runs_with_neither_compiler_nor_folder) {
    vf_dev_counters counters;
    char path[2 * UNIT_PATH_SIZE];
    stub_set_up();
    build_samples(embedded_digest);
    snprintf(path, sizeof path, "%s/kernels.vfb", stub_folder);
    unit_write_file(path, file.data, file.size);
    static const char *const unset[] = {"VARFLASH_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
    for (size_t i = 0; i < ARRAY_LENGTH(unset); i++) unsetenv(unset[i]);
    setenv("VARFLASH_NVRTC", "/nonexistent", 1);
    const vf_bundle memory = {.data = file.data, .size = file.size}, named = {.path = path};
    unit_fails(run_from(NULL, 0, &counters, NULL), VF_ERROR_NO_COMPILER, "varflash build --spec");
    unit_ok(run_from(&memory, 1, &counters, NULL));
    ck_assert_uint_eq(counters.compiled + counters.from_cache, 0);
    ck_assert_uint_eq(counters.from_bundle, 6);  // schedule, fwd, bwd_pre, bwd, bwd_post, check_lengths
    unit_ok(run_from(&named, 1, &counters, NULL));
    setenv("VARFLASH_BUNDLES", path, 1);
    setenv("VARFLASH_JIT", "off", 1);
    unit_ok(run_from(NULL, 0, &counters, NULL));
    ck_assert_uint_eq(counters.from_bundle, 6);
    unsetenv("VARFLASH_BUNDLES");
    unsetenv("VARFLASH_NVRTC");
    buf_free(&file);
    stub_tear_down();
}
END_TEST

START_TEST(bundles_of_other_versions_and_damaged_images) {
    vf_dev_counters counters;
    stub_set_up();
    build_samples("another generator");
    vf_bundle memory = {.data = file.data, .size = file.size};
    unit_fails(run_from(&memory, 1, &counters, stub_nvrtc()), VF_ERROR_IO, "built by another version");
    build_samples(embedded_digest);
    memory = (vf_bundle){.data = file.data, .size = file.size};
    file.data[file.size - 3] ^= 1;
    unit_ok(run_from(&memory, 1, &counters, stub_nvrtc()));  // from the cache or the compiler
    ck_assert_uint_eq(counters.from_bundle, 5);
    ck_assert_uint_eq(counters.compiled + counters.from_cache, 1);
    // A good one behind it is looked into.
    struct buf damaged = file;
    file = (struct buf){.data = NULL};
    build_samples(embedded_digest);
    const vf_bundle both[] = {{NULL, damaged.data, damaged.size}, {NULL, file.data, file.size}};
    unit_ok(run_from(both, 2, &counters, stub_nvrtc()));
    ck_assert_uint_eq(counters.from_bundle, 6);
    // Kernels from a checkout are not the ones in a bundle.
    setenv("VARFLASH_SOURCE", ".", 1);
    unit_ok(run_from(both, 2, &counters, stub_nvrtc()));
    ck_assert_uint_eq(counters.from_bundle, 0);
    unsetenv("VARFLASH_SOURCE");
    buf_free(&damaged);
    buf_free(&file);
    stub_tear_down();
}
END_TEST

UNIT_MAIN("bundle", finds_what_was_written, an_empty_bundle_is_one, damage_is_noticed, hostile_heads,
          runs_with_neither_compiler_nor_folder, bundles_of_other_versions_and_damaged_images)
