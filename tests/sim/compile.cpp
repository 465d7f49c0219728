// compile.cpp - from a kernel's source to a host library: expanded again with the CPU versions of ptx/, compiled by g++ with every access
// announced, kept by the digest of everything that decides it.
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core.h"

namespace sim {

static const char *const COMPILER = "g++";
static const char *const FLAGS =
    "-std=c++17 -O1 -g1 -fPIC -march=native -fvisibility=hidden -fno-strict-aliasing -fno-math-errno -ffp-contract=off "
    "-fno-exceptions"
    " -ftrivial-auto-var-init=pattern -fno-rtti -fno-gnu-unique -fno-stack-protector -fcf-protection=none -w "
    "-Wno-psabi";
static const char *const WATCHED =
    "-fsanitize=thread,bounds-strict,signed-integer-overflow,shift --param tsan-instrument-func-entry-exit=0";
static const char *const LINKED = "-shared -nostdlib -nostartfiles";
static const char *const WRAPPED = "-Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove";

static std::string root = ".", sim_root = ".", cache = "build/sim-cache";

static std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));
static std::string format(const char *text, ...) {
    char *out;
    va_list arguments;
    va_start(arguments, text);
    if (vasprintf(&out, text, arguments) < 0) abort();
    va_end(arguments);
    std::string result = out;
    free(out);
    return result;
}
static std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}
static std::string quoted(const std::string &path) {
    return "'" + path + "'";
}

// Runs a command; false with what it printed.
static bool run(const std::string &command, std::string &output) {
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    output.clear();
    char buffer[4096];
    for (size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
    return pipe && pclose(pipe) == 0;
}

// FNV-1a, twice 64 bits: a name for what decides a compiled file, not a defence.
static std::string digest(const std::string &text) {
    u64 a = 0xcbf29ce484222325, b = 0x9ae16a3b2f90404f;
    for (const char c : text) {
        a = (a ^ static_cast<u8>(c)) * 0x100000001b3;
        b = (b ^ static_cast<u8>(c)) * 0x100000001b3 + (a >> 32);
    }
    return format("%016llx%016llx", a, b);
}

// `make` writes its argument, a temporary name in the cache; then it gets its own name, at once and whole.
template <class F> static bool cached(const std::string &path, F make) {
    if (::access(path.c_str(), R_OK) == 0) return true;
    const std::string temporary = format("%s.%d", path.c_str(), static_cast<int>(getpid()));
    const bool made = make(temporary) && rename(temporary.c_str(), path.c_str()) == 0;
    unlink(temporary.c_str());
    return made;
}

// What a kernel is compiled with besides its text.
static std::string headers() {
    std::string text;
    for (const char *name : {"engine.h", "machine.h", "kernel.h", "planted.h"})
        text += read_file(sim_root + "/tests/sim/" + name);
    return text;
}

// The hooks' object, which all kernels share.
static bool make_hooks(std::string &path, std::string &message) {
    const std::string source = sim_root + "/tests/sim/ptx/hooks.cpp";
    const std::string command = format("%s %s -I%s -c -o ", COMPILER, FLAGS, quoted(sim_root + "/tests/sim").c_str());
    path = cache + "/hooks-" + digest(command + read_file(source) + headers()) + ".o";
    return cached(path,
                  [&](const std::string &out) { return run(command + quoted(out) + " " + quoted(source), message); });
}

static bool make_library(const char *source, size_t bytes, std::string &path, std::string &message) {
    std::string hooks;
    if (!make_hooks(hooks, message)) return false;
    const std::string text_path =
        format("%s/%s.%d", cache.c_str(), digest(std::string(source, bytes)).c_str(), static_cast<int>(getpid()));
    std::ofstream(text_path + ".cu", std::ios::binary).write(source, static_cast<std::streamsize>(bytes));
    std::string expanded;
    const bool fine = run(format("lua5.4 %s %s %s %s", quoted(sim_root + "/tests/sim/expand.lua").c_str(),
                                 quoted(root).c_str(), quoted(sim_root).c_str(), quoted(text_path + ".cu").c_str()),
                          expanded);
    unlink((text_path + ".cu").c_str());
    if (!fine) {
        message = expanded;
        return false;
    }
    const std::string compile =
        format("%s %s %s%s -I%s -x c++ -c -o ", COMPILER, FLAGS, options.coverage ? "--coverage" : WATCHED,
               options.unoptimised ? " -O0" : "", quoted(sim_root + "/tests/sim").c_str());
    const std::string link = format("%s %s -o ", COMPILER, LINKED);
    const std::string with =
        options.coverage ? " -lgcov -lgcc" : format(" %s %s -lgcc", quoted(hooks).c_str(), WRAPPED);
    path = cache + "/" + digest(compile + expanded + headers() + link + with) + ".so";
    return cached(path, [&](const std::string &out) {
        std::ofstream(text_path + ".cpp") << expanded;
        const bool made = run(compile + quoted(text_path + ".o") + " " + quoted(text_path + ".cpp"), message) &&
                          run(link + quoted(out) + " " + quoted(text_path + ".o") + with, message);
        unlink((text_path + ".o").c_str());
        unlink((text_path + ".cpp").c_str());
        return made;
    });
}

// Kernels find the machine among the process's global symbols, wherever it is linked.
static void make_machine_global() {
    Dl_info object;
    if (dladdr(reinterpret_cast<void *>(&sim_load), &object))
        dlopen(object.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

struct Extent {
    const char *name;
    char *low, *high;
};
static int find_extent(dl_phdr_info *info, size_t, void *argument) {
    Extent &extent = *static_cast<Extent *>(argument);
    if (strcmp(info->dlpi_name, extent.name) != 0) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        char *low = reinterpret_cast<char *>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
             *high = low + info->dlpi_phdr[i].p_memsz;
        extent.low = extent.low ? std::min(extent.low, low) : low;
        extent.high = std::max(extent.high, high);
    }
    return 1;
}

}  // namespace sim

using namespace sim;

struct sim_module {
    void *library;
    Kernel kernel;
};

void sim_configure(const struct sim_options *wanted) {
    root = wanted->root ? wanted->root : ".";
    sim_root = wanted->sim_root ? wanted->sim_root : root;
    cache = wanted->cache ? wanted->cache : "build/sim-cache";
    options = *wanted;
    options.root = options.sim_root = options.cache = nullptr;
}

struct sim_module *sim_load(const char *source, size_t bytes, char *message, size_t room) {
    std::string path, text;
    std::string ignored;
    run("mkdir -p " + quoted(cache), ignored);
    if (!make_library(source, bytes, path, text)) {
        snprintf(message, room, "%s", text.c_str());
        return nullptr;
    }
    make_machine_global();
    if (path[0] != '/') path = "./" + path;
    auto module = std::make_unique<sim_module>();
    module->library = dlopen(path.c_str(), RTLD_NOW);
    if (!module->library) {
        snprintf(message, room, "%s", dlerror());
        return nullptr;
    }
    Kernel &kernel = module->kernel;
    kernel.facts = *static_cast<const sim_facts *>(dlsym(module->library, "sim_about"));
    kernel.entry = kernel.facts.entry;
    kernel.spec = kernel.facts.spec;
    kernel.facts.entry = kernel.entry.c_str();
    kernel.facts.spec = kernel.spec.c_str();
    kernel.run = reinterpret_cast<void (*)(const void *)>(dlsym(module->library, "sim_run"));
    kernel.has_wgmma = dlsym(module->library, "sim_has_wgmma") != nullptr;
    kernel.has_async = dlsym(module->library, "sim_has_async") != nullptr;
    link_map *map;
    dlinfo(module->library, RTLD_DI_LINKMAP, &map);
    Extent extent = {map->l_name, nullptr, nullptr};
    dl_iterate_phdr(find_extent, &extent);
    kernel.image_low = extent.low;
    kernel.image_high = extent.high;
    return module.release();
}

void sim_unload(struct sim_module *module) {
    if (!module) return;
    leave_library();
    dlclose(module->library);
    delete module;
}

struct sim_kernel *sim_find(struct sim_module *module, const char *entry) {
    return module->kernel.entry == entry ? reinterpret_cast<sim_kernel *>(&module->kernel) : nullptr;
}
const struct sim_facts *sim_kernel_facts(const struct sim_kernel *kernel) {
    return &reinterpret_cast<const Kernel *>(kernel)->facts;
}
