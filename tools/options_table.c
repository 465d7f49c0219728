// options_table.c - the tables of verbs, options and exit codes. A problem's own options are rows of problem_options (tools/lib), which
// join the table here; what their values mean is not known in this file.
#include "options_table.h"

#include <string.h>

enum verb_bit {
    SHOW = 1,
    RUN = 2,
    CHECK = 4,
    BENCH = 8,
    EXPLAIN = 16,
    BUILD = 32,
    BUNDLE = 64,
    CACHE = 128,
    INFO = 256,
    PAGES = 512,
    TUNE = 1024,
    ALL = 2047,
    LIBRARY = ALL & ~(BUNDLE | CACHE | PAGES)  // what opens a context
};

// ORDER verbs: verb_bit.
const struct verb verbs[] = {
    {"show", "KERNEL [PROBLEM]|--spec SPEC",
     "print a generated kernel: its CUDA text, PTX, budget or the compiler's report",
     "KERNEL is fwd, bwd, or one kernel of a variant by name: schedule, bwd_pre, bwd_post, ... Without --arch: sm_80.\n"
     "Lengths need not be given: they decide the row, and with it the knobs, where rows differ by length.",
     verb_show},
    {"run", "--in FILE --out FILE", "compute attention on the tensors of a .safetensors file",
     "Reads q k v, cu_seqlens_q and cu_seqlens_k (without them: batched tensors), and, where present, seqused_q,\n"
     "seqused_k and, with --backward, dout; writes o and lse, with --backward dq, dk and dv as well.",
     verb_run},
    {"check", "PROBLEM...|--suite NAME", "compare every kernel that can serve a problem with a float64 oracle",
     "One line for each problem and variant: the largest error as a share of what is allowed, and the verdict. A "
     "failure\n"
     "names the first wrong element and prints the command that replays it.",
     verb_check},
    {"bench", "PROBLEM...|--suite NAME|--compare FILE FILE", "time problems: median, spread, TFLOP/s, GB/s",
     "Sustained: an equally long warm-up runs back to back with the measured calls. TFLOP/s count visible pairs only\n"
     "(4 * pairs * heads * dim forward, 2.5 times that backward); GB/s count every tensor once.",
     verb_bench},
    {"explain", "PROBLEM", "say which row and which variant serve a problem, or every constraint it fails",
     "Needs no device when --arch is given.", verb_explain},
    {"build", "[PROBLEM...|--suite NAME|--spec SPEC|--specs FILE]",
     "compile kernels ahead of time, into the cache or into a bundle",
     "Without a problem or a spec, the kernels of every combination of --pass, --head-dim, --dtype and --mask. A "
     "bundle\n"
     "serves a process that has neither NVRTC nor a cache (VARFLASH_BUNDLES, vf_options.bundles); the same versions "
     "build\n"
     "it byte for byte again. Needs no device when --arch is given. A request in a file of specs may leave out arch=.",
     verb_build},
    {"bundle", "list|verify|diff|extract FILE...", "look into bundles of kernels",
     "list prints its kernels, --json its manifest; verify reads everything and exits with 1 if something is wrong; "
     "diff\n"
     "exits with 1 if two bundles differ; extract writes images into --output FOLDER.",
     verb_bundle},
    {"cache", "list|verify|prune|clear|path", "look after the folder of compiled kernels",
     "verify names damaged entries and exits with 1 if there are any: they are rebuilt when they are needed. prune "
     "removes\n"
     "what exceeds --max-size or was not used for --max-age; clear removes every entry. Processes may go on meanwhile.",
     verb_cache},
    {"info", "", "print versions, devices, NVRTC, cache and environment, and what is missing",
     "Nothing is an error here: what is missing is described, with what to do about it.", verb_info},
    {"pages", "man|bash|zsh|fish", "print the manual page, or the completions of a shell",
     "For example: source <(varflash pages bash). 'make install' puts all of them where they are looked for.",
     verb_pages},
    {"tune", "PROBLEM...|--suite NAME|--merge JOURNAL", "measure variants and write the rows that choose the fastest",
     "Candidates are what the generator can make of a request, and the rows there are. They are compiled by processes "
     "while\n"
     "the device measures; each is checked against the oracle, then timed beside the others, with cold caches, in "
     "rounds\n"
     "that halve the field. One that crashes or hangs costs itself; who is slow at a smaller and at a larger size is "
     "not\n"
     "tried between. FILE gets rows for --config or configs/, FILE.t4.json all results in the auto-tuning community's\n"
     "format, FILE.journal every record: --resume goes on from there.",
     verb_tune},
};
const size_t verb_count = sizeof(verbs) / sizeof(*verbs);

// ORDER exit_codes
const struct exit_meaning exit_codes[] = {
    {CODE_OK, "done"},
    {CODE_CHECK_FAILED, "check: a result was wrong"},
    {CODE_USAGE, "the command line, or the problem it describes, is wrong"},
    {CODE_UNSUPPORTED, "valid, but no kernel can do it (explain says why)"},
    {CODE_NO_DEVICE, "no CUDA driver or device"},
    {CODE_COMPILE, "a kernel could not be generated or compiled, or NVRTC is missing"},
    {CODE_FILE, "a file could not be read or written, or is malformed"},
    {CODE_FAILURE, "the driver failed, memory ran out, or a fault of varflash"},
    {CODE_INTERRUPTED, "interrupted"},
};

const size_t exit_code_count = sizeof(exit_codes) / sizeof(*exit_codes);

const char *const group_titles[GROUPS] = {"The problem", "This verb", "Where it runs", "Always"};

#define FIELD(name) offsetof(struct options, name)

static const struct option own_options[] = {
    {"pass", "P,...", LIST, GROUP_VERB, BUILD | TUNE, 0, FIELD(pass), "fwd, bwd (both)"},
    {"head-dim", "D[/DV],...", LIST, GROUP_VERB, BUILD, 0, FIELD(head_dim),
     "of q and k, and of v where it differs (64,96,128,192/128,256)"},
    {"dtype", "T,...", LIST, GROUP_VERB, BUILD, 0, FIELD(dtype), "fp16, bf16 (both)"},
    {"mask", "M,...", LIST, GROUP_VERB, BUILD, 0, FIELD(mask), "full, causal, window (full,causal)"},
    {"features", "F,...", LIST, GROUP_VERB, BUILD, 0, FIELD(features),
     "softcap, unaligned (or out of reach of tensor maps), deterministic: each with and without"},
    {"specs", "FILE", TEXT, GROUP_VERB, BUILD, 0, FIELD(specs), "requests, variants or kernels, one spec a line"},
    {"output", "FILE", TEXT, GROUP_VERB, BUILD | BUNDLE | TUNE, 'o', FIELD(output),
     "what is written: a bundle, a folder, rows"},
    {"emit", "FORM", TEXT, GROUP_VERB, BUILD, 0, FIELD(emit),
     "bundle, or object: an object file and a header to link into a program (bundle)"},
    {"dry-run", NULL, SWITCH, GROUP_VERB, BUILD | TUNE, 0, FIELD(dry_run), "print what would be compiled"},
    {"strategy", "NAME", TEXT, GROUP_VERB, TUNE, 0, FIELD(strategy),
     "halving: rounds that halve the field; exhaustive: everything, equally long; random: a sample, equally long "
     "(halving)"},
    {"budget", "TIME", TEXT, GROUP_VERB, TUNE, 0, FIELD(time_budget),
     "of the whole sweep, compiling included: 90s, 10m, 1h (none; a pass of a problem is timed for 20s at most)"},
    {"limit", "N", COUNT, GROUP_VERB, TUNE, 0, FIELD(limit),
     "candidates of a pass of a problem, rows not counted (64)"},
    {"set", "KNOB=N", LIST, GROUP_VERB, TUNE, 0, FIELD(set),
     "only candidates with this knob, and rows; may be repeated"},
    {"timeout", "S", SECONDS, GROUP_VERB, TUNE, 0, FIELD(timeout),
     "seconds without an answer until a candidate counts as one that hangs (60)"},
    {"devices", "N,...", TEXT, GROUP_VERB, TUNE, 0, FIELD(devices), "devices that share the problems (--device)"},
    {"merge", "FILE", TEXT, GROUP_VERB, TUNE, 0, FIELD(merge),
     "measure nothing: rows from a journal and those given as arguments"},
    {"rows", "FILE", TEXT, GROUP_VERB, TUNE, 0, FIELD(rows),
     "propose none, but write the rows of FILE with what was measured of each, and print how they did"},
    {"held-out", "TEXT", TEXT, GROUP_VERB, TUNE, 0, FIELD(held_out),
     "measure shapes whose name contains TEXT, but make no rows of them: print what they lose; 'each': every one in "
     "turn"},
    {"max-size", "MB", COUNT, GROUP_VERB, CACHE, 0, FIELD(max_size), "prune: megabytes that entries may take"},
    {"max-age", "DAYS", COUNT, GROUP_VERB, CACHE, 0, FIELD(max_age), "prune: days that an entry may be unused"},
    {"spec", "SPEC", TEXT, GROUP_VERB, SHOW | BUILD, 0, FIELD(spec),
     "the kernel by its spec, as generated files name it"},
    {"budget", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(budget), "print threads, shared memory, registers"},
    {"ptx", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(ptx), "print PTX (needs NVRTC)"},
    {"log", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(log), "print the compiler's report with its spills (needs NVRTC)"},
    {"cubin", "FILE", TEXT, GROUP_VERB, SHOW, 0, FIELD(cubin), "write the compiled kernel to FILE (needs NVRTC)"},
    {"lines", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(lines), "keep #line directives that name the templates"},
    {"set", "KNOB=N", LIST, GROUP_VERB, SHOW | CHECK | BENCH, 0, FIELD(set),
     "override a knob of the row; may be repeated"},
    {"in", "FILE", TEXT, GROUP_VERB, RUN, 0, FIELD(in), "the .safetensors file to read"},
    {"out", "FILE", TEXT, GROUP_VERB, RUN, 0, FIELD(out), "the .safetensors file to write"},
    {"suite", "NAME", TEXT, GROUP_VERB, CHECK | BENCH | BUILD | TUNE, 0, FIELD(suite),
     "a named list of problems; 'list' prints the names"},
    {"filter", "TEXT", TEXT, GROUP_VERB, CHECK | BENCH | BUILD | BUNDLE | CACHE | TUNE, 0, FIELD(filter),
     "only what has TEXT in its name or spec"},
    {"repeat", "N", COUNT, GROUP_VERB, CHECK, 0, FIELD(repeat),
     "run each variant N times and compare bits; the backward unless it is deterministic excepted"},
    {"contiguous", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(contiguous),
     "the same values without strides of their own must give the same bits"},
    {"spoil", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(spoil),
     "a NaN in one live token must change nothing outside its sequence and head"},
    {"served", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(served), "only the variant that a call would get"},
    {"checked", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(checked), "calls run in checked mode"},
    {"invariance", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(invariance),
     "run each sequence alone as well: its rows must have the same bits"},
    {"precompile", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(precompile),
     "first compile all kernels in parallel processes, timed apart"},
    {"jobs", "N", COUNT, GROUP_VERB, CHECK | BUILD | TUNE, 'j', FIELD(jobs), "processes that compile (all cores)"},
    {"worker", NULL, SWITCH, GROUP_VERB, CHECK | BUILD | TUNE, 0, FIELD(worker), NULL},  // one of these
    {"first", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(first), "stop at the first problem that is not right"},
    {"resume", "N", COUNT, GROUP_VERB, CHECK, 0, FIELD(resume), "start with problem N of the list, counted from 1"},
    {"resume", NULL, SWITCH, GROUP_VERB, TUNE, 0, FIELD(go_on), "go on from the journal of an interrupted sweep"},
    {"duration", "S", SECONDS, GROUP_VERB, BENCH, 0, FIELD(duration), "seconds of measuring for each pass (0.25)"},
    {"report", "FILE", TEXT, GROUP_VERB, BENCH | TUNE, 0, FIELD(report), "write a page of plots: one HTML file"},
    {"compare", "FILE", TEXT, GROUP_VERB, BENCH, 0, FIELD(compare),
     "compare FILE with a newer one, both of --json: ratios of times, exit code 1 if one is above 1.03"},
    {"host", NULL, SWITCH, GROUP_VERB, BENCH, 0, FIELD(host),
     "measure what a call costs the host: vf_forward, a plan, and bare launches of the same kernels"},
    {"arch", "ARCH", TEXT, GROUP_WHERE, SHOW | EXPLAIN | BUILD | TUNE, 0, FIELD(arch),
     "sm_80, sm_90a, ... (build: with commas between them): needs no device"},
    {"backend", "B", BACKEND, GROUP_WHERE, RUN | CHECK | BENCH | EXPLAIN | TUNE, 0, FIELD(backend),
     "auto, cuda or cpu (auto)"},
    {"device", "N", COUNT, GROUP_WHERE, RUN | CHECK | BENCH | EXPLAIN | BUILD | TUNE, 0, FIELD(device),
     "CUDA device, counted from 0 (0)"},
    {"threads", "N", COUNT, GROUP_WHERE, RUN | CHECK | BENCH | TUNE, 0, FIELD(threads),
     "of the CPU backend (all cores)"},
    {"config", "FILE", TEXT, GROUP_WHERE, LIBRARY, 0, FIELD(config),
     "rows that come before all others (VARFLASH_CONFIG)"},
    {"cache-dir", "DIR", TEXT, GROUP_WHERE, ALL & ~(BUNDLE | PAGES), 0, FIELD(cache_dir),
     "of compiled kernels (VARFLASH_CACHE_DIR)"},
    {"json", NULL, SWITCH, GROUP_COMMON, ALL, 0, FIELD(json), "JSON on stdout"},
    {"quiet", NULL, SWITCH, GROUP_COMMON, ALL, 'q', FIELD(quiet), "only errors on stderr"},
    {"verbose", NULL, SWITCH, GROUP_COMMON, ALL, 'v', FIELD(verbose), "the library's log on stderr"},
    {"help", NULL, SWITCH, GROUP_COMMON, ALL, 'h', FIELD(help), "this page"},
    {"version", NULL, SWITCH, GROUP_COMMON, ALL, 0, FIELD(version), "version of varflash, NVRTC and driver"},
};
enum { OWN_OPTIONS = sizeof(own_options) / sizeof(*own_options) };

// Of a problem's options, those that `run` has: the tensors say the rest.
static const char *const run_options[] = {"causal", "window", "scale", "softcap", "deterministic", "backward", "fill"};

size_t option_count(void) {
    return OWN_OPTIONS + problem_option_count;
}

// The table as one: the problem's options, then the command's own.
struct option option_at(size_t index) {
    if (index >= problem_option_count) return own_options[index - problem_option_count];
    const struct problem_option *row = &problem_options[index];
    unsigned at = SHOW | CHECK | BENCH | EXPLAIN | TUNE;
    for (size_t i = 0; i < sizeof(run_options) / sizeof(*run_options); i++)
        if (!strcmp(run_options[i], row->name)) at |= RUN;
    return (struct option){row->name, row->argument, PROBLEM, GROUP_PROBLEM, at, 0, 0, row->help};
}

bool option_belongs(const struct option *option, const struct verb *verb) {
    return option->verbs >> (verb - verbs) & 1;
}
