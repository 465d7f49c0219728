// banks.cpp - shared-memory bank conflicts, counted per access site. A report, not a finding.
//
// The accesses of a warp's lanes at one site between two gatherings belong together, the n-th of each lane with the n-th of the others.
// Cost is the hardware's rule: 32 banks of 4 bytes; accesses of 8 and 16 bytes go in halves and quarters of a warp; lanes that read
// the same word share it.
#include <algorithm>
#include <unordered_map>

#include "core.h"

namespace sim {

struct Group {
    const void *pc;
    u32 bytes, nth;
    u32 lanes;
    u32 address[WARP];
};
struct Site {
    u64 requests, cycles, fewest;
};

static std::map<std::string, Site> sites;
static std::unordered_map<const void *, Site> by_pc;
static std::unordered_map<const Warp *, std::vector<Group>> pending;

static void settle(const Group &group) {
    Site &site = by_pc[group.pc];
    const u32 together = std::max(1u, std::min(WARP, 128 / group.bytes));  // lanes a cycle
    for (u32 first = 0; first < WARP; first += together) {
        std::vector<u32> words[32];
        u32 deepest = 0;
        for (u32 lane = first; lane < first + together; lane++) {
            if (!(group.lanes >> lane & 1)) continue;
            for (u32 word = group.address[lane] / 4; word < (group.address[lane] + group.bytes + 3) / 4; word++) {
                auto &bank = words[word % 32];
                if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
                deepest = std::max(deepest, static_cast<u32>(bank.size()));
            }
        }
        site.cycles += deepest;
        site.fewest += deepest > 0;
    }
    site.requests++;
}

void count_banks(const Fiber &fiber, u32 address, u32 bytes, const void *pc) {
    if (!options.banks) return;
    std::vector<Group> &groups = pending[fiber.warp];
    u32 nth = 0;
    for (Group &g : groups) {
        if (g.pc != pc || g.bytes != bytes) continue;
        if (!(g.lanes >> fiber.lane() & 1)) {
            g.lanes |= 1u << fiber.lane();
            g.address[fiber.lane()] = address;
            return;
        }
        nth++;
    }
    groups.push_back({pc, bytes, nth, 1u << fiber.lane(), {}});
    groups.back().address[fiber.lane()] = address;
}

void settle_banks(Warp &warp) {
    if (!options.banks) return;
    const auto groups = pending.find(&warp);
    if (groups == pending.end()) return;
    for (const Group &g : groups->second) settle(g);
    pending.erase(groups);
}

void name_banks() {
    for (const auto &site : by_pc) {
        Site &sum = sites[where(site.first)];
        sum.requests += site.second.requests;
        sum.cycles += site.second.cycles;
        sum.fewest += site.second.fewest;
    }
    by_pc.clear();
}

}  // namespace sim

using namespace sim;

void sim_report_banks(FILE *file) {
    name_banks();
    fprintf(file, "%10s %10s %10s  %s\n", "requests", "cycles", "beyond", "shared-memory access");
    using Line = std::pair<std::string, Site>;
    std::vector<Line> lines(sites.begin(), sites.end());
    std::stable_sort(lines.begin(), lines.end(), [](const Line &a, const Line &b) {
        return a.second.cycles - a.second.fewest > b.second.cycles - b.second.fewest;
    });
    for (const Line &line : lines)
        fprintf(file, "%10llu %10llu %10llu  %s\n", line.second.requests, line.second.cycles,
                line.second.cycles - line.second.fewest, line.first.c_str());
}
