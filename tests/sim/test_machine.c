// test_machine.c - the machine finds what it is there to find: each case of faults/templates/cases/ plants one fault. A case without one
// shows that the nearest right form is no finding.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "loop_main.h"
#include "unit.h"

#define GENERATOR "lua5.4 tests/sim/faults/gen/init.lua"
#define SEEDS 6
#define BYTES 8192  // of the buffer, of which half is written; of shared memory too
#define CASES 200

struct fault {
    char name[64], kind[80];  // kind: how it begins
    unsigned threads, blocks;
    int programmatic;
};
// Mirrors Arguments of faults.cu.
struct arguments {
    uint64_t data, reserved;
    _Alignas(64) uint64_t map[16];
};

static struct fault cases[CASES];
static int case_count;

static FILE *generate(const char *what, const char *name) {
    char command[200];
    snprintf(command, sizeof command, "%s %s %s", GENERATOR, what, name);
    FILE *pipe = popen(command, "r");
    if (!pipe) abort();
    return pipe;
}
static void read_cases(void) {
    FILE *pipe = generate("list", "");
    struct fault *f = cases;
    while (f < cases + CASES &&
           fscanf(pipe, "%63s %u %u %d %79[^\n]", f->name, &f->threads, &f->blocks, &f->programmatic, f->kind) == 5)
        f++;
    case_count = (int)(f - cases);
    pclose(pipe);
}
static struct sim_module *load_case(const struct fault *fault) {
    static char source[1 << 17], message[2000];
    FILE *pipe = generate("source", fault->name);
    const size_t bytes = fread(source, 1, sizeof source, pipe);
    pclose(pipe);
    struct sim_module *module = sim_load(source, bytes, message, sizeof message);
    ck_assert_msg(module != NULL, "%s: %s", fault->name, message);
    return module;
}

static void configure(const struct fault *fault, uint64_t seed) {
    const struct sim_options options = {.seed = seed,
                                        .resident = (int)fault->blocks,
                                        .root = "tests/sim/faults",
                                        .sim_root = ".",
                                        .cache = "build/sim-cache"};
    sim_configure(&options);
    sim_clear_findings();
}

static void run_case(const struct fault *fault, const struct sim_kernel *kernel) {
    void *data = sim_alloc(BYTES);
    memset(data, 0, BYTES / 2);
    sim_mark_written(data, BYTES / 2);
    struct arguments arguments = {.data = (uint64_t)(uintptr_t)data};
    const uint64_t dimensions[5] = {64, 16, 1, 1, 1}, strides[4] = {128, 128, 128, 128};
    const uint32_t box[5] = {64, 8, 1, 1, 1}, ones[5] = {1, 1, 1, 1, 1};
    ck_assert_ptr_null(sim_tensor_map(arguments.map, data, 5, dimensions, strides, box, ones, 2, 3));
    struct sim_grid grid = {fault->blocks, fault->threads, BYTES, false};
    sim_launch(kernel, &grid, &arguments);
    if (fault->programmatic) {  // after itself
        grid.programmatic = true;
        sim_launch(kernel, &grid, &arguments);
    }
    sim_free(data);
}

// Under every schedule.
START_TEST(case_is_judged) {
    const struct fault *fault = &cases[_i];
    configure(fault, 1);
    struct sim_module *module = load_case(fault);
    char entry[80];
    snprintf(entry, sizeof entry, "vf_%s", fault->name);
    const struct sim_kernel *kernel = sim_find(module, entry);
    ck_assert_ptr_nonnull(kernel);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        configure(fault, seed);
        run_case(fault, kernel);
        char found[2000] = "";
        bool hit = !strcmp(fault->kind, "nothing") && !sim_finding_count();
        for (size_t i = 0; i < sim_finding_count(); i++) {
            const struct sim_finding *finding = sim_get_finding(i);
            const size_t used = strlen(found);
            snprintf(found + used, sizeof found - used, "\n    %s: %s at %s", finding->kind, finding->text,
                     finding->place);
            hit = hit || !strncmp(finding->kind, fault->kind, strlen(fault->kind));
        }
        ck_assert_msg(hit, "%s, seed %d: '%s' was to be found; it was%s", fault->name, (int)seed, fault->kind,
                      found[0] ? found : " nothing");
    }
    sim_unload(module);
}
END_TEST

int main(void) {
    read_cases();
    const struct loop_test test = {case_is_judged, (size_t)case_count};
    return case_count < 70 ? EXIT_FAILURE : loop_main("sim_machine", UNIT_SECONDS, &test, 1);
}
