// finding.cpp - what is wrong, where, and what happened before it.
#include <dlfcn.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <deque>
#include <fstream>
#include <set>
#include <tuple>

#include "core.h"

namespace sim {

struct Stored {
    std::string kind, text, place, earlier;
    const void *pc, *earlier_pc;
    sim_finding view;
};
struct Allowed {
    std::string kind, place, reason;
};

static std::deque<Stored> findings;
static std::set<std::tuple<std::string, const void *, const void *>> seen;
static std::vector<Allowed> allow_list;
static std::deque<std::string> events;  // the last ones
static std::map<const void *, std::string> places;

// ---- places -----------------------------------------------------------------------------------------------------------

// "void Rows<8>::load<4>(unsigned)" -> "Rows::load"
static std::string short_name(const std::string &function) {
    std::string name;
    int depth = 0;
    for (const char c : function) {
        if (c == '(' && depth == 0) break;
        depth += c == '<';
        if (depth == 0) name += c;
        depth -= c == '>';
    }
    const size_t space = name.find_last_of(' ');
    return space == std::string::npos ? name : name.substr(space + 1);
}

// The chain of inlined calls, as function templates/x.cu:LINE < caller templates/y.cu:LINE ... The CPU versions of ptx/ have other lines than
// the real ones: of them only the function is named.
std::string where(const void *pc) {
    Dl_info object;
    if (!pc || !dladdr(pc, &object)) return "";
    std::string &out = places[pc];
    if (!out.empty()) return out;
    char command[600], line[600];
    const long offset = static_cast<const char *>(pc) - static_cast<const char *>(object.dli_fbase) - 1;
    snprintf(command, sizeof command, "addr2line -fCi -e '%s' 0x%lx 2>&1", object.dli_fname,
             static_cast<unsigned long>(offset));
    FILE *pipe = popen(command, "r");
    for (int n = 0; pipe && fgets(line, sizeof line, pipe); n++) {
        line[strcspn(line, "\n")] = 0;
        std::string text = line;
        if (n % 2 == 0) {
            out += (n ? " < " : "") + short_name(text);
            continue;
        }
        const size_t from = text.find("templates/");
        if (from != std::string::npos) text = text.substr(from);
        text = text.substr(0, text.find(" ("));
        if (text.find("templates/ptx/") == std::string::npos) out += " " + text;
    }
    if (pipe) pclose(pipe);
    return out;
}

// ---- findings ---------------------------------------------------------------------------------------------------------

// The running thread's block, or the one whose state is being worked on.
static std::string block_name() {
    const Block &b = self ? *self->home : *block;
    const std::string name = "block " + std::to_string(b.id);
    return b.cluster->blocks.size() == 1 ? name : name + " (rank " + std::to_string(b.rank) + ")";
}

void find(const char *kind, const void *pc, const void *earlier, const char *format, ...) {
    if (options.coverage && strcmp(kind, "hang") != 0) return;  // of plain accesses the machine knows nothing
    if (!seen.insert({kind, pc, earlier}).second) return;
    char text[800];
    int n = snprintf(text, sizeof text, "%s", now.kernel ? now.kernel->entry.c_str() : "");
    if (block) n += snprintf(text + n, sizeof text - static_cast<size_t>(n), " %s", block_name().c_str());
    if (self) n += snprintf(text + n, sizeof text - static_cast<size_t>(n), " thread %u", self->index);
    n += snprintf(text + n, sizeof text - static_cast<size_t>(n), ": ");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, sizeof text - static_cast<size_t>(n), format, arguments);
    va_end(arguments);
    findings.push_back({kind, text, "", "", pc, earlier, {}});
    for (const std::string &event : events) fprintf(stderr, "%s\n", event.c_str());
    events.clear();
    if (static_cast<int>(findings.size()) >= (options.finding_limit > 0 ? options.finding_limit : 20)) stop();
}

void trace(const char *format, ...) {
    char text[400];
    int n = snprintf(text, sizeof text, "%s", block ? block_name().c_str() : "");
    if (self) n += snprintf(text + n, sizeof text - static_cast<size_t>(n), " thread %u", self->index);
    n += snprintf(text + n, sizeof text - static_cast<size_t>(n), ": ");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, sizeof text - static_cast<size_t>(n), format, arguments);
    va_end(arguments);
    events.push_back(text);
    if (events.size() > static_cast<size_t>(options.trace)) events.pop_front();
}

// "0-31,64"
static std::string ranges(const std::vector<u32> &numbers) {
    std::string list;
    for (size_t i = 0; i < numbers.size();) {
        size_t j = i;
        while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) j++;
        list +=
            (list.empty() ? "" : ",") + std::to_string(numbers[i]) + (j > i ? "-" + std::to_string(numbers[j]) : "");
        i = j + 1;
    }
    return list;
}

// What a thread that can't go on waits for.
static std::string waited_for(const Block &b, const Fiber &f) {
    char text[200] = "";
    switch (f.wait) {
        case Wait::COLLECTIVE: {
            std::vector<u32> missing;
            for (u32 lane = 0; lane < WARP; lane++)
                if (!(f.warp->arrived >> lane & 1)) missing.push_back(lane);
            snprintf(text, sizeof text, "lanes %s of their warp%s", ranges(missing).c_str(),
                     f.warp->exited ? ", of which some have exited" : "");
            break;
        }
        case Wait::NAMED_BARRIER:
            snprintf(text, sizeof text, "named barrier %llu, where %u of %u are", f.waits_for,
                     b.named[f.waits_for].arrived, b.named[f.waits_for].expected);
            break;
        case Wait::CLUSTER:
            snprintf(text, sizeof text, "the cluster's barrier, where %u of %u are", b.cluster->barrier.arrived,
                     b.cluster->barrier.expected);
            break;
        case Wait::MBARRIER: {
            const MBarrier &m = b.mbarriers.at(static_cast<u32>(f.waits_for));
            snprintf(text, sizeof text,
                     "parity %llu of mbarrier %#llx (offset %llu), which is in phase %u, %u of %u arrivals and %lld "
                     "bytes short",
                     f.detail, f.waits_for, f.waits_for - WINDOW, m.phase, m.pending, m.count, m.bytes);
            break;
        }
        case Wait::REGISTERS:
            snprintf(text, sizeof text, "%llu registers; the block has %lld free", f.waits_for, b.free_registers);
            break;
        case Wait::GLOBAL:
            snprintf(text, sizeof text, "a word in global memory to become %llu; it is %llu", f.detail, f.waits_for);
            break;
        default:
            break;
    }
    return text;
}

void report_hang(const std::vector<Block *> &resident) {
    for (Block *b : resident) {
        if (!b->started) continue;
        block = b;
        // Lanes that wait for another lane come last: what that one waits for says more.
        std::map<std::tuple<bool, std::string, const void *>, std::vector<u32>> groups;
        for (const Fiber &f : b->fibers)
            if (f.wait != Wait::EXITED)
                groups[{f.wait == Wait::COLLECTIVE, waited_for(*b, f), f.pc}].push_back(f.index);
        for (const auto &[what, threads] : groups)
            find("hang", std::get<2>(what), nullptr, "threads %s wait for %s", ranges(threads).substr(0, 80).c_str(),
                 std::get<1>(what).c_str());
    }
}

static const char *reason_for(const Stored &f) {
    for (const Allowed &a : allow_list)
        if (a.kind == f.kind && f.place.find(a.place) != std::string::npos) return a.reason.c_str();
    return nullptr;
}

// Names a finding's places; a process runs for each, so only when they are asked for.
static const sim_finding &resolve(Stored &f) {
    if (!f.view.kind) {
        f.place = where(f.pc);
        f.earlier = where(f.earlier_pc);
        f.view = {f.kind.c_str(), f.text.c_str(), f.place.c_str(), f.earlier_pc ? f.earlier.c_str() : nullptr,
                  reason_for(f)};
    }
    return f.view;
}
void leave_library() {
    for (Stored &f : findings) resolve(f);
    name_banks();
    places.clear();
}

static std::string trimmed(const std::string &text) {
    const size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t");
    return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

}  // namespace sim

using namespace sim;

size_t sim_finding_count(void) {
    return findings.size();
}
const struct sim_finding *sim_get_finding(size_t index) {
    return index < findings.size() ? &resolve(findings[index]) : nullptr;
}

size_t sim_fault_count(void) {
    if (allow_list.empty()) return findings.size();
    return static_cast<size_t>(
        std::count_if(findings.begin(), findings.end(), [](Stored &f) { return !resolve(f).allowed; }));
}
void sim_clear_findings(void) {
    findings.clear();
    seen.clear();
    events.clear();
}

const char *sim_read_allowed(const char *path) {
    allow_list.clear();
    std::ifstream file(path);
    if (!file) return "the file cannot be read";
    for (std::string line; std::getline(file, line);) {
        if (trimmed(line).empty() || trimmed(line)[0] == '#') continue;
        const size_t at = line.find(" @ "), colon = at == std::string::npos ? at : line.find(": ", at);
        if (colon == std::string::npos || trimmed(line.substr(colon + 2)).empty())
            return "a line is not KIND @ PLACE: REASON";
        allow_list.push_back({trimmed(line.substr(0, at)), trimmed(line.substr(at + 3, colon - at - 3)),
                              trimmed(line.substr(colon + 2))});
    }
    return nullptr;
}
