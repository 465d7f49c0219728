// backend.c - `--backend sim:SETTINGS` of build/varflash-sim: linking this file adds the simulator to the command.
//
// Settings, all optional: seed=N (1), sms=N (2), cc=80|90 (90), resident=1...3 (the seed chooses), order=index|any (index), lanes=together|strict (together),
// hazards=0, trace=N (print the last N events before a finding), findings=N (a launch stops there), turns=N (a launch with more never ends), fail=N (the N-th driver call
// fails), banks=1, cache=FOLDER (of compiled kernels), unoptimised=1 (they are compiled fast), devices=1|2 (1), coverage=1 (they write gcov's files into that folder; engine.h).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "options.h"
#include "status.h"
#include "varflash/varflash_dev.h"

#define ALLOWED "tests/sim/allowed.txt"
#define CACHE "build/sim-cache"

struct setting {
    const char *name;
    long long low, high, value;
};

enum { SEED, SMS, CC, RESIDENT, HAZARDS, TRACE, FINDINGS, TURNS, FAIL, BANKS, FAST, COVERAGE, DEVICES, SETTINGS };

static const char *read_number(const char *text, struct setting *setting) {
    char *end;
    setting->value = strtoll(text, &end, 10);
    return end == text || *end || setting->value < setting->low || setting->value > setting->high ? setting->name
                                                                                                  : NULL;
}

// Null, or the word that is wrong.
static const char *read_settings(char *text, struct sim_device *device) {
    // ORDER the enumeration above
    struct setting settings[SETTINGS] = {
        {"seed", 0, INT64_MAX, 1}, {"sms", 1, 1024, 2},      {"cc", 80, 90, 90},       {"resident", 0, 3, 0},
        {"hazards", 0, 1, 1},      {"trace", 0, 1 << 20, 0}, {"findings", 0, 1000, 0}, {"turns", 0, INT32_MAX, 0},
        {"fail", 0, INT32_MAX, 0}, {"banks", 0, 1, 0},       {"unoptimised", 0, 1, 0}, {"coverage", 0, 1, 0},
        {"devices", 1, 2, 1}};
    const char *cache = CACHE;
    bool any = false, strict = false;
    for (char *word = strtok_r(text, ",", &text); word; word = strtok_r(NULL, ",", &text)) {
        char *value = strchr(word, '=');
        int i = 0;
        if (!value) return word;
        *value++ = 0;
        if (!strcmp(word, "order")) {
            any = !strcmp(value, "any");
            if (!any && strcmp(value, "index") != 0) return word;
            continue;
        }
        if (!strcmp(word, "lanes")) {
            strict = !strcmp(value, "strict");
            if (!strict && strcmp(value, "together") != 0) return word;
            continue;
        }
        if (!strcmp(word, "cache")) {
            cache = value;
            continue;
        }
        while (i < SETTINGS && strcmp(settings[i].name, word) != 0) i++;
        if (i == SETTINGS || read_number(value, &settings[i])) return word;
    }
    *device = (struct sim_device){.compute = (int)settings[CC].value,
                                  .multiprocessors = (int)settings[SMS].value,
                                  .count = (int)settings[DEVICES].value,
                                  .fail_at = (int)settings[FAIL].value,
                                  .options = {.seed = (uint64_t)settings[SEED].value,
                                              .resident = (int)settings[RESIDENT].value,
                                              .any_order = any,
                                              .strict_lanes = strict,
                                              .no_hazards = !settings[HAZARDS].value,
                                              .banks = settings[BANKS].value != 0,
                                              .unoptimised = settings[FAST].value != 0,
                                              .coverage = settings[COVERAGE].value != 0,
                                              .trace = (int)settings[TRACE].value,
                                              .finding_limit = (int)settings[FINDINGS].value,
                                              .turn_limit = (int)settings[TURNS].value,
                                              .root = getenv("VARFLASH_SOURCE"),
                                              .sim_root = ".",
                                              .cache = cache}};
    return NULL;
}

static struct sim_device device;

static void report_banks(void) {
    sim_report_banks(stderr);
}

static vf_status open_simulator(const char *text, const vf_options *options, vf_context **context) {
    static char settings[256];
    snprintf(settings, sizeof settings, "%s", text);
    const char *fault = read_settings(settings, &device);
    VF_REQUIRE(!fault, VF_ERROR_INVALID_ARGUMENT,
               "--backend sim: '%s' is no setting, or has a value that it cannot have", fault);
    fault = sim_read_allowed(ALLOWED);
    VF_REQUIRE(!fault, VF_ERROR_IO, "%s: %s; the simulator runs in the root of the source tree", ALLOWED, fault);
    sim_driver_reset(&device);
    if (device.options.banks) atexit(report_banks);
    // What the library keeps is source text: in a folder of its own, and never beside real images.
    vf_options own = *options;
    if (!own.cache_dir) own.cache_dir = CACHE "/library";
    return vf_dev_open_with_api(&own, sim_cuda(), sim_nvrtc(), context);
}

__attribute__((constructor)) static void bring_along(void) {
    static const struct options_driver simulator = {"sim", open_simulator};
    options_driver = &simulator;
}
