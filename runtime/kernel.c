// kernel.c - see kernel.h.
//
// Single flight: the first thread that wants a spec puts an entry in the table and works on it outside the lock; others
// wait for the entry to become ready. An entry whose making failed is taken out again, and whoever waited tries for
// itself, so that each caller gets a sentence of its own and a passing failure is not remembered.
//
// Only the compiler needs NVRTC. A cache key has its version, so that a process that may compile takes what this version
// made; one that may not, or cannot, takes what any version made that the driver can load.
#include "kernel.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "request.h"

#define OTHER_PROCESS_MS 60000  // how long another process may take over a kernel before it is compiled here as well

struct entry {
    struct kernel kernel;
    bool ready;
    struct entry *next;
};

struct kernels {
    struct kernels_parts parts;
    pthread_mutex_t lock;     // guards the list and every `ready`
    pthread_cond_t finished;  // an entry became ready or was taken out
    struct entry *entries;
    pthread_mutex_t compiler_lock;  // guards what follows
    bool has_compiler, owns_nvrtc;
    struct nvrtc_api nvrtc;
    struct compiler compiler;
    bool jit;
    atomic_uint_fast64_t compiled, from_cache, from_bundle;
};

vf_status kernels_open(const struct kernels_parts *parts, struct kernels **out) {
    struct kernels *kernels = calloc(1, sizeof *kernels);
    VF_REQUIRE(kernels, VF_ERROR_OUT_OF_MEMORY, "no memory for the table of kernels");
    kernels->parts = *parts;
    const char *jit = parts->environment->jit;
    kernels->jit = !jit || (strcmp(jit, "off") != 0 && strcmp(jit, "0") != 0);
    pthread_mutex_init(&kernels->lock, NULL);
    pthread_mutex_init(&kernels->compiler_lock, NULL);
    pthread_cond_init(&kernels->finished, NULL);
    *out = kernels;
    return VF_OK;
}

void kernels_close(struct kernels *kernels) {
    if (!kernels) return;
    for (struct entry *entry = kernels->entries; entry;) {
        struct entry *next = entry->next;
        module_unload(kernels->parts.cuda, &entry->kernel.module);
        free(entry);
        entry = next;
    }
    if (kernels->owns_nvrtc) nvrtc_close(&kernels->nvrtc);
    pthread_cond_destroy(&kernels->finished);
    pthread_mutex_destroy(&kernels->compiler_lock);
    pthread_mutex_destroy(&kernels->lock);
    free(kernels);
}

// ---- compiling -----------------------------------------------------------------------------------------------------

static vf_status open_compiler(struct kernels *kernels) {
    const struct kernels_parts *parts = &kernels->parts;
    const struct nvrtc_api *nvrtc = parts->nvrtc;
    if (!nvrtc && !kernels->owns_nvrtc) {
        VF_TRY(nvrtc_open(parts->environment, parts->cuda ? parts->cuda->version : 0, parts->logger, &kernels->nvrtc));
        kernels->owns_nvrtc = true;
    }
    VF_TRY(compile_open(nvrtc ? nvrtc : &kernels->nvrtc, &kernels->compiler));
    kernels->has_compiler = true;
    return VF_OK;
}

vf_status kernels_compiler(struct kernels *kernels, const struct compiler **compiler) {
    pthread_mutex_lock(&kernels->compiler_lock);
    const vf_status status = kernels->has_compiler ? VF_OK : open_compiler(kernels);
    pthread_mutex_unlock(&kernels->compiler_lock);
    *compiler = &kernels->compiler;
    return status;
}

// VARFLASH_DUMP: what is used, for the curious. A failure to write is not the call's.
static void dump(const struct kernels *kernels, const char *entry, const struct buf *text,
                 const struct compiled *compiled) {
    const char *folder = kernels->parts.environment->dump;
    if (!folder) return;
    const struct {
        const char *suffix;
        const struct buf *content;
    } files[] = {{"cu", text}, {compiled->ptx ? "ptx" : "cubin", &compiled->image}, {"log", &compiled->log}};
    unsigned char digest[HASH_SIZE];
    char hash[HASH_TEXT_SIZE];
    hash_bytes(compiled->image.data, compiled->image.size, digest);
    hash_text(digest, hash);
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        char name[256];
        if (!files[i].content->size) continue;  // an image that was not compiled here has no text or no log
        snprintf(name, sizeof name, "%s-%.16s.%s", entry, hash, files[i].suffix);
        const int fault = fs_publish(folder, name, buf_string(files[i].content), files[i].content->size);
        if (fault) {
            log_write(kernels->parts.logger, LOG_LEVEL_WARNING, "VARFLASH_DUMP: %s/%s: %s", folder, name,
                      strerror(fault));
        }
    }
}

// Text, its key, and what makes it an image.
struct recipe {
    const char *spec;
    char arch[ARCH_TEXT];
    struct buf text;
    struct cache_key key;
    const struct compiler *compiler;  // null: it must not or cannot be compiled here,
    vf_status refused;                // with this status and the thread's sentence
};

static void recipe_free(struct recipe *recipe) {
    buf_free(&recipe->text);
    cache_key_free(&recipe->key);
}

// `jit`: it may be compiled.
static vf_status find_compiler(struct kernels *kernels, bool jit, struct recipe *recipe) {
    const int driver = kernels->parts.cuda ? kernels->parts.cuda->version : 0;
    recipe->key.newest = driver ? driver / 1000 * 1000 + 999 : INT_MAX;  // nvrtc_fits_driver
    recipe->refused = jit ? kernels_compiler(kernels, &recipe->compiler) : VF_ERROR_NO_COMPILER;
    if (recipe->refused == VF_ERROR_NO_COMPILER) {
        recipe->compiler = NULL;
        return VF_OK;
    }
    if (!recipe->refused) recipe->key.maker = compile_version(recipe->compiler);
    return recipe->refused;
}

static vf_status make_recipe(struct kernels *kernels, const char *spec, bool jit, struct recipe *recipe) {
    struct buf identity = {.data = NULL};
    recipe->spec = spec;
    VF_REQUIRE(kernels->parts.source, VF_ERROR_NO_COMPILER, "this build of varflash has no generator");
    VF_TRY(request_word(spec, "arch", recipe->arch, sizeof recipe->arch));
    VF_TRY(source_text(kernels->parts.source, spec, &recipe->text));
    vf_status status = compile_identity(recipe->arch, &identity);
    if (!status)
        status = cache_key_make(buf_string(&recipe->text), recipe->text.size, buf_string(&identity), &recipe->key);
    buf_free(&identity);
    return status ? status : find_compiler(kernels, jit, recipe);
}

static void store(struct kernels *kernels, const struct recipe *recipe, const struct compiled *compiled) {
    struct cache_entry entry = {.payload = compiled->image};
    buf_printf(&entry.meta, "spec=%s\n", recipe->spec);  // for people; who reads it has the spec already
    compile_write_meta(compiled, &entry.meta);
    if (!buf_check(&entry.meta)) cache_put(kernels->parts.cache, &recipe->key, &entry);
    buf_free(&entry.meta);
}

static bool fetch(struct kernels *kernels, const struct recipe *recipe, struct compiled *compiled) {
    struct cache_entry entry = {.meta = {.data = NULL}};
    if (!cache_get(kernels->parts.cache, &recipe->key, &entry)) return false;
    const bool readable = compile_read_meta(buf_string(&entry.meta), compiled);
    if (readable) {
        compiled->image = entry.payload;
        entry.payload = (struct buf){.data = NULL};
        atomic_fetch_add(&kernels->from_cache, 1);
    }
    cache_entry_free(&entry);
    return readable;
}

static vf_status compile(struct kernels *kernels, const struct recipe *recipe, struct compiled *compiled) {
    log_write(kernels->parts.logger, LOG_LEVEL_INFO, "compiling %s", recipe->spec);
    VF_TRY(compile_kernel(recipe->compiler, recipe->spec, buf_string(&recipe->text), recipe->arch, false, compiled));
    atomic_fetch_add(&kernels->compiled, 1);
    log_write(kernels->parts.logger, LOG_LEVEL_INFO, "compiled %s in %.0f ms", recipe->spec, compiled->milliseconds);
    store(kernels, recipe, compiled);
    return VF_OK;
}

vf_status kernels_compile(struct kernels *kernels, const char *spec, bool ptx, struct compiled *compiled) {
    struct recipe recipe = {.text = {.data = NULL}};
    vf_status status = make_recipe(kernels, spec, true, &recipe);
    if (!status) status = recipe.refused;
    if (!status && ptx) {
        status = compile_kernel(recipe.compiler, spec, buf_string(&recipe.text), recipe.arch, true, compiled);
    } else if (!status) {
        status = compile(kernels, &recipe, compiled);
    }
    recipe_free(&recipe);
    return status;
}

// ---- images --------------------------------------------------------------------------------------------------------
// From the cache or, one process at a time, from the compiler.
static vf_status make_image(struct kernels *kernels, const char *spec, bool jit, struct recipe *recipe,
                            struct compiled *compiled) {
    VF_TRY(make_recipe(kernels, spec, jit, recipe));
    if (fetch(kernels, recipe, compiled)) return VF_OK;
    VF_REQUIRE(jit, VF_ERROR_NO_COMPILER, "VARFLASH_JIT=off, and neither a bundle nor the cache has '%s'", spec);
    VF_TRY(recipe->refused);
    const int lock = cache_lock(kernels->parts.cache, &recipe->key, OTHER_PROCESS_MS);
    vf_status status = VF_OK;
    if (!fetch(kernels, recipe, compiled)) status = compile(kernels, recipe, compiled);
    cache_unlock(lock);
    return status;
}

vf_status kernels_image(struct kernels *kernels, const char *spec, struct compiled *compiled) {
    struct recipe recipe = {.text = {.data = NULL}};
    const struct compiler *compiler;
    *compiled = (struct compiled){.ptx = false};
    VF_TRY(kernels_compiler(kernels, &compiler));  // else the version that made it would not be known
    const vf_status status = make_image(kernels, spec, true, &recipe, compiled);
    recipe_free(&recipe);
    return status;
}

// True if a bundle has a sound image that the driver can load.
static bool unpack(struct kernels *kernels, const char *spec, struct compiled *compiled) {
    const int driver = kernels->parts.cuda ? kernels->parts.cuda->version : 0;
    for (size_t i = 0; i < kernels->parts.bundle_count; i++) {
        const struct bundle *bundle = kernels->parts.bundles[i];
        struct bundle_kernel kernel;
        if (!bundle_find_kernel(bundle, spec, &kernel)) continue;
        struct buf meta = {.data = NULL};
        buf_append(&meta, kernel.meta.data, kernel.meta.size);
        const char *fault = !nvrtc_fits_driver(bundle_compiler(bundle) / 1000, driver)
                                ? "was compiled for a newer driver"
                            : compile_read_meta(buf_string(&meta), compiled) ? bundle_image(&kernel, &compiled->image)
                                                                             : "has no facts";
        buf_free(&meta);
        if (!fault) {
            atomic_fetch_add(&kernels->from_bundle, 1);
            return true;
        }
        compiled_free(compiled);
        log_write(kernels->parts.logger, LOG_LEVEL_WARNING, "%s: '%s' %s; not used", bundle_name(bundle), spec, fault);
    }
    return false;
}

// Adds what to do about a kernel that nobody has.
static vf_status name_remedy(const char *variant) {
    VF_FAIL(VF_ERROR_NO_COMPILER, "%s; this builds it ahead of time: varflash build --spec '%s'", vf_last_error(),
            variant);
}

static vf_status make(struct kernels *kernels, const char *variant, struct kernel *kernel) {
    const char *spec = kernel->facts.spec, *entry = kernel->facts.entry;
    struct recipe recipe = {.text = {.data = NULL}};
    struct compiled compiled = {.ptx = false};
    vf_status status = VF_OK;
    if (!unpack(kernels, spec, &compiled)) status = make_image(kernels, spec, kernels->jit, &recipe, &compiled);
    if (!status) {
        dump(kernels, entry, &recipe.text, &compiled);
        status = module_load(kernels->parts.cuda, buf_string(&compiled.image), entry, &kernel->module);
    } else if (status == VF_ERROR_NO_COMPILER) {
        status = name_remedy(variant);
    }
    compiled_free(&compiled);
    recipe_free(&recipe);
    return status;
}

// ---- plans ---------------------------------------------------------------------------------------------------------

vf_status kernels_plan(struct kernels *kernels, const char *variant, struct source_plan *plan) {
    const struct kernels_parts *parts = &kernels->parts;
    for (size_t i = 0; i < parts->bundle_count; i++) {
        struct bundle_plan found;
        if (bundle_find_plan(parts->bundles[i], variant, &found) &&
            source_plan_read(found.plan.data, found.plan.size, plan))
            return VF_OK;
    }
    if (parts->source) return source_plan(parts->source, variant, plan);
    status_fail(VF_ERROR_NO_COMPILER, "this build of varflash has no generator, and no bundle has the variant");
    return name_remedy(variant);
}

// ---- the table -----------------------------------------------------------------------------------------------------

static struct entry *find(struct kernels *kernels, const char *spec) {
    struct entry *entry = kernels->entries;
    while (entry && strcmp(entry->kernel.facts.spec, spec) != 0) entry = entry->next;
    return entry;
}

static void take_out(struct kernels *kernels, const struct entry *entry) {
    struct entry **link = &kernels->entries;
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
}

vf_status kernels_get(struct kernels *kernels, const char *variant, const struct source_kernel *facts,
                      const struct kernel **kernel) {
    pthread_mutex_lock(&kernels->lock);
    struct entry *entry;
    while ((entry = find(kernels, facts->spec)) && !entry->ready) pthread_cond_wait(&kernels->finished, &kernels->lock);
    vf_status status = VF_OK;
    if (!entry) {
        entry = calloc(1, sizeof *entry);
        if (!entry) {
            pthread_mutex_unlock(&kernels->lock);
            VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "no memory for the kernel '%s'", facts->spec);
        }
        entry->kernel.facts = *facts;
        entry->next = kernels->entries;
        kernels->entries = entry;
        pthread_mutex_unlock(&kernels->lock);
        status = make(kernels, variant, &entry->kernel);
        pthread_mutex_lock(&kernels->lock);
        if (status) {
            take_out(kernels, entry);
            free(entry);
        } else {
            entry->ready = true;
        }
        pthread_cond_broadcast(&kernels->finished);
    }
    pthread_mutex_unlock(&kernels->lock);
    if (!status) *kernel = &entry->kernel;
    return status;
}

struct kernels_counters kernels_count(const struct kernels *kernels) {
    return (struct kernels_counters){atomic_load(&kernels->compiled), atomic_load(&kernels->from_cache),
                                     atomic_load(&kernels->from_bundle)};
}
