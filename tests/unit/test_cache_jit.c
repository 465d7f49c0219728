// test_cache_jit.c - the cache under the whole library, with the real compiler and the stub driver: many processes from
// cold, processes that are killed, damage, processes that have no compiler.
#include <dirent.h>
#include <elf.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "stub_context.h"

#define PROCESSES 32
#define THREADS 4  // of each of them
#define KILLS 8    // of a process that compiles; test_cache_race.c kills writers

static struct cuda_api driver;
static struct unit_log log_lines;

// The stub takes a text for an image, so it gets the names that stand in the cubin.
static int load_cubin(CUlibrary *library, const void *image, int *jit_options, void **jit_values, unsigned jit_count,
                      int *options, void **values, unsigned count) {
    static const unsigned char magic[SELFMAG] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3};
    Elf64_Ehdr header;
    if (memcmp(image, magic, sizeof magic) != 0) return STUB_FAILURE;
    memcpy(&header, image, sizeof header);
    const size_t size = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
    struct buf names = {.data = NULL};
    for (const char *at = image, *end = at + size; at + 3 < end; at++) {
        if (!memcmp(at, "vf_", 3)) buf_printf(&names, "%.*s ", (int)(end - at), at);
    }
    const int result = stub_cuda()->cuLibraryLoadData(library, buf_string(&names), jit_options, jit_values, jit_count,
                                                      options, values, count);
    buf_free(&names);
    return result;
}

static vf_context *open_real(void) {
    vf_context *context = NULL;
    log_lines = (struct unit_log){.lines = 0};
    const vf_options options = {.backend = VF_BACKEND_CUDA, .log = unit_take_line, .log_user = &log_lines};
    driver = *stub_cuda();
    driver.cuLibraryLoadData = load_cubin;
    unit_ok(vf_dev_open_with_api(&options, &driver, NULL, &context));
    return context;
}

static bool has_compiler(void) {
    const vf_dev_info *info;
    vf_context *context = open_real();
    unit_ok(vf_dev_info_get(context, &info));
    const bool found = info->nvrtc_version > 0;
    vf_close(context);
    if (!found) unit_skip("the cache with a real compiler: there is no NVRTC");
    return found;
}

// Calls `use` on the path of each entry and returns their number.
static int each_entry(void (*use)(const char *path)) {
    DIR *list = opendir(stub_folder);
    int count = 0;
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        char path[2 * UNIT_PATH_SIZE + 256];
        const size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length < 4 || strcmp(entry->d_name + length - 4, ".vfk") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", stub_folder, entry->d_name);
        if (use) use(path);
        count++;
    }
    if (list) closedir(list);
    return count;
}

// What a process does. The number of kernels that it compiled, or -1.
static int work(void) {
    const vf_forward_args args = sample_forward(stub_first);
    vf_context *context = open_real();
    const vf_status status = vf_prepare_forward(context, &args);
    const int compiled = (int)vf_dev_count(context).compiled;
    if (status || log_lines.lines) fprintf(stderr, "%s\n", status ? vf_last_error() : log_lines.last);
    vf_close(context);
    return status || log_lines.lines ? -1 : compiled;
}

// What threads share. The arguments are made before them: the stub's memory and its stack are every thread's.
struct shared_calls {
    vf_context *context;
    vf_forward_args forward;
    vf_backward_args backward;
    atomic_uint threads;
};
static void *prepare_in_thread(void *data) {
    struct shared_calls *calls = data;
    const bool backward = atomic_fetch_add(&calls->threads, 1) % 2 == 0;
    const vf_status status = backward ? vf_prepare_backward(calls->context, &calls->backward)
                                      : vf_prepare_forward(calls->context, &calls->forward);
    if (status) fprintf(stderr, "%s\n", vf_last_error());
    return status ? data : NULL;
}

// The same of a process whose threads want the same kernels and different ones.
static int work_in_threads(void) {
    pthread_t threads[THREADS];
    struct shared_calls calls = {open_real(), sample_forward(stub_first), sample_backward(stub_first), 0};
    bool good = true;
    stub_push(stub_context(0));
    for (int i = 0; i < THREADS; i++) good &= !pthread_create(&threads[i], NULL, prepare_in_thread, &calls);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        good &= !pthread_join(threads[i], &failed) && !failed;
    }
    stub_pop();
    const int compiled = (int)vf_dev_count(calls.context).compiled;
    if (log_lines.lines) fprintf(stderr, "%s\n", log_lines.last);
    good &= !log_lines.lines;
    vf_close(calls.context);
    return good ? compiled : -1;
}

START_TEST(many_processes_compile_each_kernel_once) {
    stub_set_up();
    if (!has_compiler()) return;
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (!children[i]) _exit(work_in_threads() & 0xff);
    }
    int compiled = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int result;
        ck_assert_int_eq(waitpid(children[i], &result, 0), children[i]);
        ck_assert(WIFEXITED(result) && WEXITSTATUS(result) != 0xff);
        compiled += WEXITSTATUS(result);
    }
    ck_assert_int_gt(compiled, 1);
    ck_assert_int_eq(compiled, each_entry(NULL));
    stub_tear_down();
}
END_TEST

START_TEST(killed_while_compiling) {
    stub_set_up();
    if (!has_compiler()) return;
    unsigned random = 1;
    for (int i = 0; i < KILLS; i++) {
        const pid_t child = fork();
        if (!child) _exit(work() & 0xff);
        random = random * 1103515245 + 12345;
        nanosleep(&(struct timespec){.tv_nsec = (long)(random >> 16) % 500 * 1000000}, NULL);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
    }
    ck_assert_int_ge(work(), 0);
    ck_assert_int_eq(work(), 0);
    stub_tear_down();
}
END_TEST

static void flip_a_bit(const char *path) {
    struct stat facts;
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fstat(fileno(file), &facts), 0);
    ck_assert_int_eq(fseek(file, facts.st_size / 2, SEEK_SET), 0);
    const int byte = fgetc(file);
    ck_assert_int_eq(fseek(file, facts.st_size / 2, SEEK_SET), 0);
    fputc(byte ^ 4, file);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(damage_costs_a_compile_and_a_line) {
    stub_set_up();
    if (!has_compiler()) return;
    const int kernels = work();
    ck_assert_int_gt(kernels, 1);
    ck_assert_int_eq(each_entry(flip_a_bit), kernels);
    vf_context *context = open_real();
    const vf_forward_args args = sample_forward(stub_first);
    unit_ok(vf_prepare_forward(context, &args));
    ck_assert_int_eq((int)vf_dev_count(context).compiled, kernels);
    ck_assert_int_eq(log_lines.lines, kernels);
    ck_assert_ptr_nonnull(strstr(log_lines.last, "is damaged; not used"));
    vf_close(context);
    ck_assert_int_eq(work(), 0);  // mended
    stub_tear_down();
}
END_TEST

START_TEST(a_process_without_a_compiler_uses_what_others_made) {
    stub_set_up();
    if (!has_compiler()) return;
    const int kernels = work();
    static const char *const jit[] = {"on", "off"};
    setenv("VARFLASH_NVRTC", "/nonexistent", 1);
    for (int i = 0; i < 2; i++) {
        setenv("VARFLASH_JIT", jit[i], 1);
        vf_context *context = open_real();
        const vf_forward_args forward = sample_forward(stub_first);
        const vf_backward_args backward = sample_backward(stub_first);
        unit_ok(vf_prepare_forward(context, &forward));
        ck_assert_int_eq((int)vf_dev_count(context).from_cache, kernels);
        unit_fails(vf_prepare_backward(context, &backward), VF_ERROR_NO_COMPILER,
                   "varflash build --spec 'pass=bwd arch=sm_");
        vf_close(context);
    }
    unsetenv("VARFLASH_NVRTC");
    stub_tear_down();
}
END_TEST

UNIT_MAIN("cache_jit", many_processes_compile_each_kernel_once, killed_while_compiling,
          damage_costs_a_compile_and_a_line, a_process_without_a_compiler_uses_what_others_made)
