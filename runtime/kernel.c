// kernel.c - see kernel.h.
//
// Single flight: the first thread that wants a spec puts an entry in the table and works on it outside the lock; others
// wait for the entry to become ready. An entry whose making failed is taken out again, and whoever waited tries for
// itself, so that each caller gets a sentence of its own and a passing failure is not remembered.
#include "kernel.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "request.h"

#define OTHER_PROCESS_MS 20000  // how long another process may take over a kernel before it is compiled here as well

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
    atomic_uint_fast64_t compiled, from_cache;
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
static void dump(const struct kernels *kernels, const char *entry, const struct cache_key *key, const struct buf *text,
                 const struct compiled *compiled) {
    const char *folder = kernels->parts.environment->dump;
    if (!folder) return;
    const struct {
        const char *suffix;
        const struct buf *content;
    } files[] = {{"cu", text}, {compiled->ptx ? "ptx" : "cubin", &compiled->image}, {"log", &compiled->log}};
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        char name[256];
        snprintf(name, sizeof name, "%s-%.16s.%s", entry, key->name, files[i].suffix);
        if (fs_publish(folder, name, buf_string(files[i].content), files[i].content->size)) {
            log_write(kernels->parts.logger, LOG_LEVEL_WARNING, "VARFLASH_DUMP: %s", vf_last_error());
        }
    }
}

static void store(struct kernels *kernels, const struct cache_key *key, const struct compiled *compiled) {
    struct cache_entry entry = {.payload = compiled->image};
    compile_write_meta(compiled, &entry.meta);
    if (!buf_check(&entry.meta)) cache_put(kernels->parts.cache, key, &entry);
    buf_free(&entry.meta);
}

static bool fetch(struct kernels *kernels, const struct cache_key *key, struct compiled *compiled) {
    struct cache_entry entry = {.meta = {.data = NULL}};
    if (!cache_get(kernels->parts.cache, key, &entry)) return false;
    const bool readable = compile_read_meta(buf_string(&entry.meta), compiled);
    if (readable) {
        compiled->image = entry.payload;
        entry.payload = (struct buf){.data = NULL};
        atomic_fetch_add(&kernels->from_cache, 1);
    }
    cache_entry_free(&entry);
    return readable;
}

static vf_status compile_text(struct kernels *kernels, const struct compiler *compiler, const char *spec,
                              const char *arch, const struct buf *text, const struct cache_key *key,
                              struct compiled *compiled) {
    log_write(kernels->parts.logger, LOG_LEVEL_INFO, "compiling %s", spec);
    VF_TRY(compile_kernel(compiler, spec, buf_string(text), arch, false, compiled));
    atomic_fetch_add(&kernels->compiled, 1);
    log_write(kernels->parts.logger, LOG_LEVEL_INFO, "compiled %s in %.0f ms", spec, compiled->milliseconds);
    store(kernels, key, compiled);
    return VF_OK;
}

// Text, its key, and what makes it an image.
struct recipe {
    char arch[ARCH_TEXT];
    const struct compiler *compiler;
    struct buf text;
    struct cache_key key;
};

static vf_status make_recipe(struct kernels *kernels, const char *spec, struct recipe *recipe) {
    struct buf identity = {.data = NULL};
    VF_TRY(request_word(spec, "arch", recipe->arch, sizeof recipe->arch));
    VF_TRY(source_text(kernels->parts.source, spec, &recipe->text));
    VF_TRY(buf_check(&recipe->text));
    VF_TRY(kernels_compiler(kernels, &recipe->compiler));
    vf_status status = compile_identity(recipe->compiler, recipe->arch, &identity);
    if (!status)
        status = cache_key_make(buf_string(&recipe->text), recipe->text.size, buf_string(&identity), &recipe->key);
    buf_free(&identity);
    return status;
}

static void recipe_free(struct recipe *recipe) {
    buf_free(&recipe->text);
    cache_key_free(&recipe->key);
}

vf_status kernels_compile(struct kernels *kernels, const char *spec, bool ptx, struct compiled *compiled) {
    struct recipe recipe = {.text = {.data = NULL}};
    vf_status status = make_recipe(kernels, spec, &recipe);
    if (!status && ptx) {
        status = compile_kernel(recipe.compiler, spec, buf_string(&recipe.text), recipe.arch, true, compiled);
    } else if (!status) {
        status = compile_text(kernels, recipe.compiler, spec, recipe.arch, &recipe.text, &recipe.key, compiled);
    }
    recipe_free(&recipe);
    return status;
}

// From the cache or, one process at a time, from the compiler.
static vf_status find_image(struct kernels *kernels, const char *spec, const struct recipe *recipe,
                            struct compiled *compiled) {
    if (fetch(kernels, &recipe->key, compiled)) return VF_OK;
    VF_REQUIRE(kernels->jit, VF_ERROR_NO_COMPILER,
               "VARFLASH_JIT=off, and the cache does not have the kernel '%s'; this puts it there: varflash show --log "
               "--spec '%s'",
               spec, spec);
    const int lock = cache_lock(kernels->parts.cache, &recipe->key, OTHER_PROCESS_MS);
    vf_status status = VF_OK;
    if (!fetch(kernels, &recipe->key, compiled)) {
        status = compile_text(kernels, recipe->compiler, spec, recipe->arch, &recipe->text, &recipe->key, compiled);
    }
    cache_unlock(lock);
    return status;
}

static vf_status make(struct kernels *kernels, struct kernel *kernel) {
    const char *spec = kernel->facts.spec, *entry = kernel->facts.entry;
    struct recipe recipe = {.text = {.data = NULL}};
    struct compiled compiled = {.ptx = false};
    vf_status status = make_recipe(kernels, spec, &recipe);
    if (!status) status = find_image(kernels, spec, &recipe, &compiled);
    if (!status) {
        dump(kernels, entry, &recipe.key, &recipe.text, &compiled);
        memcpy(kernel->image, recipe.key.name, sizeof kernel->image);
        status = module_load(kernels->parts.cuda, buf_string(&compiled.image), entry, &kernel->module);
    }
    compiled_free(&compiled);
    recipe_free(&recipe);
    return status;
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

vf_status kernels_get(struct kernels *kernels, const struct source_kernel *facts, const struct kernel **kernel) {
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
        status = make(kernels, &entry->kernel);
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
    return (struct kernels_counters){atomic_load(&kernels->compiled), atomic_load(&kernels->from_cache)};
}
