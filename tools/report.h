// report.h - a page of plots: one HTML file that needs nothing else, to be looked at rather than read.
//
// Knows nothing of kernels: bars, points and tables with titles. Everything is text and SVG, no script. Invariant: the same calls
// give the same bytes.
#ifndef VF_REPORT_H
#define VF_REPORT_H

#include "buf.h"

struct report {
    struct buf html;
};

void report_begin(struct report *report, const char *title, const char *subtitle);

// A short fact among those on top: "device", "NVIDIA H200".
void report_fact(struct report *report, const char *name, const char *value);

// Horizontal bars with a whisker from low to high; bars of one group have one colour, named in a legend.
struct report_bar {
    const char *label, *group;
    double value, low, high;
};
void report_bars(struct report *report, const char *title, const char *unit, const struct report_bar *bars,
                 size_t count);

// A line for each row of dots that follow each other with the same label: how a field lies, and who is where when the pointer rests.
struct report_dot {
    const char *label, *group, *text;
    double value;
};
void report_strips(struct report *report, const char *title, const char *unit, const struct report_dot *dots,
                   size_t count);

// Points on two logarithmic axes; a label shows when the pointer rests on one. Roofs are drawn behind: y = slope * x, up to `flat` where
// that is not 0.
struct report_point {
    const char *label, *group;
    double x, y;
};
struct report_roof {
    const char *label;
    double slope, flat;
};
void report_scatter(struct report *report, const char *title, const char *x_label, const char *y_label,
                    const struct report_point *points, size_t count, const struct report_roof *roofs,
                    size_t roof_count);

// A table: the first row is its head. Cells are texts, row by row.
void report_table(struct report *report, const char *title, size_t columns, const char *const *cells, size_t rows);

// Writes the file and ends the report. 0 or an exit code, after a message.
int report_end(struct report *report, const char *path);

#endif
