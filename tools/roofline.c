// roofline.c - see roofline.h. A device that is not in the table gets the slopes of some memories, and no flat roof.
#include "roofline.h"

#include <stdio.h>
#include <string.h>

// Data sheets: memory in TB/s, and TFLOP/s of dense 16-bit products with float32 sums, at boost clocks. The first whose name is part of
// the device's counts, so longer names come first.
static const struct {
    const char *name;
    double memory, products;
} devices[] = {
    {"A100-SXM4-80GB", 2.039, 312}, {"A100 80GB", 1.935, 312}, {"A100", 1.555, 312},
    {"H100 PCIe", 2.0, 756},        {"H100 NVL", 3.9, 835},    {"H100", 3.35, 989},
    {"H200 NVL", 4.8, 835},         {"H200", 4.8, 989},        {"B200", 8, 2250},
    {"L40S", 0.864, 362},           {"RTX 4090", 1.008, 165},  {"RTX 5090", 1.792, 209},
};

void roofline_add(struct report *report, const char *device, const struct report_point *points, size_t count) {
    static const struct report_roof memories[] = {{"1 TB/s", 1, 0}, {"3.35 TB/s", 3.35, 0}, {"8 TB/s", 8, 0}};
    struct report_roof roof = {.label = NULL};
    char label[64];
    for (size_t i = 0; i < sizeof(devices) / sizeof(*devices) && !roof.label; i++) {
        if (!strstr(device, devices[i].name)) continue;
        snprintf(label, sizeof(label), "%g TB/s, %g TFLOP/s", devices[i].memory, devices[i].products);
        roof = (struct report_roof){label, devices[i].memory, devices[i].products};
    }
    const bool is_gpu = strcmp(device, "CPU") != 0;
    report_scatter(report, roof.label ? "Under the roofs of the data sheet" : "Against the memory's roof",
                   "FLOP a byte, each operand read or written once", "TFLOP/s", points, count,
                   roof.label ? &roof : memories,
                   roof.label ? 1
                   : is_gpu   ? sizeof(memories) / sizeof(*memories)
                              : 0);
}
