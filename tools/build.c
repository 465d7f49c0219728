// build.c - `varflash build`: kernels ahead of time, into the disk cache, a bundle or an object file. Needs no device.
#include <ctype.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "build_specs.h"
#include "builder.h"
#include "bundle_manifest.h"
#include "bundle_write.h"
#include "command.h"
#include "embedded.h"
#include "object.h"
#include "output.h"
#include "varflash/varflash_dev.h"

// ---- a folder for the images -----------------------------------------------------------------------------------------
// Where there is no cache folder, a bundle is built through one of its own.

static int remove_one(const char *path, const struct stat *facts, int type, struct FTW *place) {
    (void)facts, (void)type, (void)place;
    return remove(path);
}

static int make_folder(char *path, size_t size) {
    const char *parent = getenv("TMPDIR");
    snprintf(path, size, "%s/varflash-build-XXXXXX", parent ? parent : "/tmp");
    if (mkdtemp(path) && !setenv("VARFLASH_CACHE_DIR", path, 1)) return CODE_OK;
    output_error("build: there is no cache folder, and %s cannot be made: %s", path, strerror(errno));
    return CODE_FILE;
}

// ---- the bundle ------------------------------------------------------------------------------------------------------

static vf_status add_kernel(vf_context *context, const char *spec, struct bundle_draft *draft) {
    vf_dev_built built;
    vf_status status = vf_dev_build(context, spec, &built);
    if (!status) status = bundle_draft_kernel(draft, spec, built.facts, built.data, built.size);
    vf_dev_built_free(&built);
    return status;
}

static vf_status make_bundle(vf_context *context, const struct build_specs *specs, struct buf *file) {
    struct bundle_draft draft = {.generator = embedded_digest};
    const vf_dev_info *info;
    vf_status status = vf_dev_info_get(context, &info);
    if (!status) draft.compiler = info->nvrtc_version;
    for (size_t i = 0; i < specs->variants.count && !status; i++)
        status = bundle_draft_plan(&draft, specs->variants.items[i], specs->plans.items[i]);
    for (size_t i = 0; i < specs->kernels.count && !status; i++)
        status = add_kernel(context, specs->kernels.items[i], &draft);
    if (!status) {
        bundle_draft_sort(&draft);
        char *manifest = bundle_manifest_make(&draft);
        status = bundle_write(&draft, manifest ? manifest : "", file);
        cJSON_free(manifest);
    }
    bundle_draft_free(&draft);
    return status;
}

// ---- the object ------------------------------------------------------------------------------------------------------

// "out/my-kernels.o" -> "my_kernels"
static void symbol_of(const char *path, char *symbol, size_t size) {
    const char *name = strrchr(path, '/');
    snprintf(symbol, size, "%.*s", (int)strcspn(name ? name + 1 : path, "."), name ? name + 1 : path);
    for (char *c = symbol; *c; c++) {
        if (!isalnum((unsigned char)*c)) *c = '_';
    }
    if (isdigit((unsigned char)*symbol) || !*symbol) *symbol = '_';
}

static int write_object(const char *path, const struct buf *bundle) {
    char symbol[128];
    struct buf object = {0}, header = {0}, header_path = {0};
    const char *ending = strrchr(path, '.');
    symbol_of(path, symbol, sizeof(symbol));
    buf_printf(&header_path, "%.*s.h", (int)(ending && !strcmp(ending, ".o") ? ending - path : (long)strlen(path)),
               path);
    buf_printf(&header,
               "/* Kernels of varflash in the program itself; the object file beside this header holds them.\n *\n"
               " *     vf_options options = {.bundles = &%s, .bundle_count = 1};\n */\n"
               "#pragma once\n#include <varflash/varflash.h>\n\n"
               "#ifdef __cplusplus\nextern \"C\"\n#else\nextern\n#endif\n    const unsigned char %s_bytes[];\n"
               "static const vf_bundle %s = {NULL, %s_bytes, %zu};\n",
               symbol, symbol, symbol, symbol, bundle->size);
    char bytes[160];
    snprintf(bytes, sizeof(bytes), "%s_bytes", symbol);
    object_write(bytes, bundle->data, bundle->size, &object);
    int code = buf_check(&object) || buf_check(&header) ? command_failed(VF_ERROR_OUT_OF_MEMORY) : CODE_OK;
    if (!code) code = command_write_file(path, object.data, object.size);
    if (!code) code = command_write_file(header_path.data, header.data, header.size);
    buf_free(&object);
    buf_free(&header);
    buf_free(&header_path);
    return code;
}

// ---- the verb --------------------------------------------------------------------------------------------------------

static bool wants_object(const struct options *options) {
    return options->emit && !strcmp(options->emit, "object");
}

static int write_output(const struct options *options, vf_context *context, const struct build_specs *specs,
                        size_t *bytes) {
    struct buf file = {0};
    const vf_status status = make_bundle(context, specs, &file);
    int code = status ? command_failed(status) : CODE_OK;
    *bytes = file.size;
    if (!code)
        code = wants_object(options) ? write_object(options->output, &file)
                                     : command_write_file(options->output, file.data, file.size);
    buf_free(&file);
    return code;
}

static void print_plan(const struct options *options, const struct build_specs *specs) {
    const struct texts *const lists[] = {&specs->variants, &specs->kernels};
    static const char *const names[] = {"variants", "kernels"};
    cJSON *json = cJSON_CreateObject();
    for (size_t i = 0; i < 2; i++) {
        cJSON *list = cJSON_CreateArray();
        for (size_t k = 0; k < lists[i]->count; k++) {
            if (!options->json) puts(lists[i]->items[k]);
            cJSON_AddItemToArray(list, cJSON_CreateString(lists[i]->items[k]));
        }
        cJSON_AddItemToObject(json, names[i], list);
    }
    if (options->json)
        output_json(json, false);
    else
        cJSON_Delete(json);
}

static void print_result(const struct options *options, const struct build_specs *specs, double seconds, size_t bytes) {
    if (options->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "variants", (double)specs->variants.count);
        cJSON_AddNumberToObject(json, "kernels", (double)specs->kernels.count);
        cJSON_AddNumberToObject(json, "seconds", seconds);
        if (options->output) cJSON_AddStringToObject(json, "output", options->output);
        if (options->output) cJSON_AddNumberToObject(json, "bytes", (double)bytes);
        output_json(json, true);
        return;
    }
    output_note("%zu kernels of %zu variants in %.1f s", specs->kernels.count, specs->variants.count, seconds);
    if (options->output) output_note("%s: %.1f MB", options->output, 1e-6 * (double)bytes);
}

static int build(const struct options *options, vf_context *context, const vf_dev_info *info) {
    struct build_specs specs = {.variants = {0}};
    size_t refused = 0, bytes = 0;
    const double start = output_seconds();
    int code = CODE_OK;
    if (options->output && strcmp(info->generator, embedded_digest) != 0) {
        output_error("build: VARFLASH_SOURCE is set, and a bundle belongs to the built-in generator");
        return CODE_USAGE;
    }
    code = build_specs_get(options, context, &specs, &refused);
    if (!code && options->dry_run)
        print_plan(options, &specs);
    else if (!code && (code = builder_run(options, "build", &specs.kernels)) == CODE_OK) {
        if (options->output) code = write_output(options, context, &specs, &bytes);
        if (!code) print_result(options, &specs, output_seconds() - start, bytes);
    }
    build_specs_free(&specs);
    return !code && refused ? CODE_UNSUPPORTED : code;
}

int verb_build(const struct options *options) {
    vf_context *context = NULL;
    const vf_dev_info *info;
    char folder[4096] = "";
    if (options->worker) return builder_worker(options);
    if (options->suite && !strcmp(options->suite, "list")) return command_list_suites(options);
    if (options->emit && !wants_object(options) && strcmp(options->emit, "bundle") != 0) {
        output_error("build: --emit is '%s', not bundle or object", options->emit);
        return CODE_USAGE;
    }
    if (options->emit && !options->output) {
        output_error("build: --emit needs --output FILE");
        return CODE_USAGE;
    }
    int code = options->dry_run ? CODE_OK : command_can_write(options->output);
    if (!code) code = command_open(options, &context);
    if (code) return code;
    if (vf_dev_info_get(context, &info)) {
        code = command_failed(VF_ERROR_OUT_OF_MEMORY);
    } else if (!*info->cache_dir && !options->output && !options->dry_run) {
        output_error("build: nothing would be kept: %s; --output FILE makes a bundle", info->cache_state);
        code = CODE_USAGE;
    } else if (!*info->cache_dir && !options->dry_run) {
        vf_close(context);
        context = NULL;
        code = make_folder(folder, sizeof(folder));
        if (!code) code = command_open(options, &context);
        if (!code && vf_dev_info_get(context, &info)) code = command_failed(VF_ERROR_OUT_OF_MEMORY);
    }
    if (!code) code = build(options, context, info);
    vf_close(context);
    if (*folder) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return code;
}
