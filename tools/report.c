// report.c - see report.h.
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define WIDTH 960  // of a plot, in its own units; the page scales it
#define COLORS 6   // ORDER colors: .c0 ... of the style

static const char style[] =
    ":root{--ink:#1c2430;--dim:#667;--line:#d8dce4;--paper:#fff;--card:#f5f6f9}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ef;--dim:#99a;--line:#333b48;--paper:#12161d;--card:#1b212b}}"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1040px;margin:2em auto;"
    "padding:0 1em}"
    "h1{font-size:1.6em;margin:0}h2{font-size:1.15em;margin:2em 0 .4em}p{color:var(--dim);margin:.2em 0 1em}"
    "dl{display:flex;flex-wrap:wrap;gap:.5em;margin:1em 0}dl div{background:var(--card);border-radius:6px;padding:.4em "
    ".8em}"
    "dt{color:var(--dim);font-size:.8em}dd{margin:0;font-weight:600}"
    "svg{width:100%;height:auto;display:block}text{fill:var(--ink);font:12px system-ui,sans-serif}"
    ".dim{fill:var(--dim)}.grid{stroke:var(--line);stroke-width:1}.slope{stroke:var(--dim);stroke-dasharray:4 "
    "4;fill:none}"
    ".whisker{stroke:var(--ink);stroke-width:1.5;opacity:.7}"
    ".c0{fill:#2f6fde}.c1{fill:#e0662f}.c2{fill:#2c9c69}.c3{fill:#9a56d6}.c4{fill:#c9a227}.c5{fill:#4aa3b8}"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.9em}"
    "th{text-align:left;color:var(--dim);font-weight:500}td,th{padding:.25em .6em;border-bottom:1px solid var(--line)}"
    "td:not(:first-child),th:not(:first-child){text-align:right}";

// ---- pieces ----------------------------------------------------------------------------------------------------------

static void add_escaped(struct buf *html, const char *text) {
    for (; *text; text++) {
        if (*text == '<')
            buf_text(html, "&lt;");
        else if (*text == '>')
            buf_text(html, "&gt;");
        else if (*text == '&')
            buf_text(html, "&amp;");
        else if (*text == '"')
            buf_text(html, "&quot;");
        else
            buf_append(html, text, 1);
    }
}

static void add_text(struct buf *html, double x, double y, const char *attributes, const char *text) {
    buf_printf(html, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    add_escaped(html, text);
    buf_text(html, "</text>");
}

static void add_title(struct buf *html, const char *title) {
    buf_text(html, "<h2>");
    add_escaped(html, title);
    buf_text(html, "</h2>\n");
}

// The colours of groups, by first appearance.
struct groups {
    const char *names[COLORS];
    size_t count;
};

static size_t color_of(struct groups *groups, const char *name) {
    for (size_t i = 0; i < groups->count; i++) {
        if (!strcmp(groups->names[i], name)) return i;
    }
    if (groups->count == COLORS) return COLORS - 1;
    groups->names[groups->count] = name;
    return groups->count++;
}

static void add_legend(struct buf *html, const struct groups *groups, double y) {
    double x = WIDTH - 20;
    for (size_t i = groups->count; i-- > 0;) {
        x -= 7.0 * (double)strlen(groups->names[i]) + 30;
        buf_printf(html, "<rect class=\"c%zu\" x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" rx=\"2\"/>", i, x,
                   y - 10);
        add_text(html, x + 16, y, "class=\"dim\"", groups->names[i]);
    }
}

// ---- the page --------------------------------------------------------------------------------------------------------

void report_begin(struct report *report, const char *title, const char *subtitle) {
    *report = (struct report){.html = {.data = NULL}};
    struct buf *html = &report->html;
    buf_text(html,
             "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
             "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    add_escaped(html, title);
    buf_printf(html, "</title>\n<style>%s</style></head>\n<body><h1>", style);
    add_escaped(html, title);
    buf_text(html, "</h1>\n<p>");
    add_escaped(html, subtitle);
    buf_text(html, "</p>\n<dl>");
}

void report_fact(struct report *report, const char *name, const char *value) {
    buf_text(&report->html, "<div><dt>");
    add_escaped(&report->html, name);
    buf_text(&report->html, "</dt><dd>");
    add_escaped(&report->html, value);
    buf_text(&report->html, "</dd></div>");
}

int report_end(struct report *report, const char *path) {
    buf_text(&report->html, "</body></html>\n");
    const vf_status status = buf_check(&report->html);
    const int code = status ? command_failed(status) : command_write_file(path, report->html.data, report->html.size);
    buf_free(&report->html);
    return code;
}

// Ends the facts at the first plot.
static void begin_plot(struct report *report, const char *title) {
    static const char open[] = "</dd></div>";
    const size_t size = report->html.size, length = strlen(open);
    const bool after_facts = size >= length && !strcmp(report->html.data + size - length, open);
    if (after_facts || (size >= 4 && !strcmp(report->html.data + size - 4, "<dl>"))) buf_text(&report->html, "</dl>\n");
    add_title(&report->html, title);
}

// ---- bars ------------------------------------------------------------------------------------------------------------

// 1, 2 or 5 times a power of ten, so that about `steps` of them reach `high`.
static double nice_step(double high, double steps) {
    const double raw = high / steps, power = pow(10, floor(log10(raw)));
    const double digit = raw / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

// What bars and strips have in common: rows with labels, one linear axis from 0, which starts at `left`.
struct rows {
    double left, top, row, scale;
};

static double label_width(double left, const char *label) {
    return fmin(fmax(left, 6.8 * (double)strlen(label) + 14), WIDTH / 2.0);
}

static struct rows begin_rows(struct report *report, const char *title, const char *unit, double left, double high,
                              size_t count) {
    const struct rows rows = {left, count > 30 ? 50 : 34, 22, (WIDTH - left - 90) / high};
    struct buf *html = &report->html;
    const double bottom = rows.top + rows.row * (double)count, step = nice_step(high, 6);
    begin_plot(report, title);
    buf_printf(html, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\">\n", WIDTH, bottom + 26);
    for (int tick = 0; tick * step <= high * 1.0001; tick++) {
        const double at = tick * step, x = left + at * rows.scale;
        char number[32];
        snprintf(number, sizeof(number), "%g", at);
        buf_printf(html, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x, rows.top - 6,
                   bottom);
        add_text(html, x, bottom + 16, "class=\"dim\" text-anchor=\"middle\"", number);
        if (count > 30) add_text(html, x, rows.top - 10, "class=\"dim\" text-anchor=\"middle\"", number);
    }
    add_text(html, left, 14, "class=\"dim\"", unit);
    return rows;
}

void report_bars(struct report *report, const char *title, const char *unit, const struct report_bar *bars,
                 size_t count) {
    struct groups groups = {.count = 0};
    struct buf *html = &report->html;
    double high = 0, left = 60;
    for (size_t i = 0; i < count; i++) {
        high = fmax(high, fmax(bars[i].high, bars[i].value));
        left = label_width(left, bars[i].label);
    }
    if (!(high > 0)) return;
    const struct rows rows = begin_rows(report, title, unit, left, high, count);
    for (size_t i = 0; i < count; i++) {
        const struct report_bar *bar = &bars[i];
        const double y = rows.top + rows.row * (double)i, middle = y + rows.row / 2 - 2;
        char number[32];
        snprintf(number, sizeof(number), "%.4g", bar->value);
        add_text(html, left - 8, middle + 4, "text-anchor=\"end\"", bar->label);
        buf_printf(html, "<rect class=\"c%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\"/>",
                   color_of(&groups, bar->group), left, y, fmax(bar->value * rows.scale, 0.5), rows.row - 5);
        if (bar->high > bar->low)
            buf_printf(html, "<line class=\"whisker\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                       left + bar->low * rows.scale, left + bar->high * rows.scale, middle, middle);
        add_text(html, left + fmax(bar->value, bar->high) * rows.scale + 6, middle + 4, "class=\"dim\"", number);
        buf_text(html, "\n");
    }
    add_legend(html, &groups, 14);
    buf_text(html, "</svg>\n");
}

// ---- strips ----------------------------------------------------------------------------------------------------------

static bool starts_row(const struct report_dot *dots, size_t i) {
    return !i || strcmp(dots[i].label, dots[i - 1].label) != 0;
}

void report_strips(struct report *report, const char *title, const char *unit, const struct report_dot *dots,
                   size_t count) {
    struct groups groups = {.count = 0};
    struct buf *html = &report->html;
    double high = 0, left = 60;
    size_t lines = 0;
    for (size_t i = 0; i < count; i++) {
        high = fmax(high, dots[i].value);
        left = label_width(left, dots[i].label);
        lines += starts_row(dots, i);
    }
    if (!(high > 0)) return;
    const struct rows rows = begin_rows(report, title, unit, left, high, lines);
    double middle = rows.top - rows.row / 2 - 2;
    for (size_t i = 0; i < count; i++) {
        if (starts_row(dots, i)) {
            middle += rows.row;
            buf_printf(html, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
                       left + high * rows.scale, middle, middle);
            add_text(html, left - 8, middle + 4, "text-anchor=\"end\"", dots[i].label);
        }
        buf_printf(html, "<circle class=\"c%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\" opacity=\".6\"><title>",
                   color_of(&groups, dots[i].group), left + dots[i].value * rows.scale, middle);
        add_escaped(html, dots[i].text);
        buf_printf(html, ": %.4g</title></circle>\n", dots[i].value);
    }
    add_legend(html, &groups, 14);
    buf_text(html, "</svg>\n");
}

// ---- points ----------------------------------------------------------------------------------------------------------

struct axis {
    double low, high;    // logarithms to base 10
    double start, size;  // on the plot; size < 0: upwards
};

static double place(const struct axis *axis, double value) {
    return axis->start + axis->size * (log10(value) - axis->low) / (axis->high - axis->low);
}

static void widen(struct axis *axis, double value) {
    axis->low = fmin(axis->low, floor(log10(value) * 2) / 2);
    axis->high = fmax(axis->high, ceil(log10(value) * 2) / 2);
}

static void add_grid(struct buf *html, const struct axis *x, const struct axis *y) {
    static const double digits[] = {1, 2, 5};
    for (int vertical = 0; vertical < 2; vertical++) {
        const struct axis *axis = vertical ? y : x, *other = vertical ? x : y;
        for (int power = (int)floor(axis->low); power <= axis->high; power++) {
            for (size_t d = 0; d < 3; d++) {
                const double value = digits[d] * pow(10, power), at = place(axis, value);
                char number[32];
                if (log10(value) < axis->low - 1e-9 || log10(value) > axis->high + 1e-9) continue;
                snprintf(number, sizeof(number), "%g", value);
                const double end = other->start + other->size;
                if (vertical) {
                    buf_printf(html, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                               other->start, end, at, at);
                    add_text(html, other->start - 6, at + 4, "class=\"dim\" text-anchor=\"end\"", number);
                } else {
                    buf_printf(html, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", at, at,
                               other->start, end);
                    add_text(html, at, other->start + 16, "class=\"dim\" text-anchor=\"middle\"", number);
                }
            }
        }
    }
}

// The slope from the left edge, or where it comes in at the bottom, to the flat part, which goes on to the right edge, or to where the plot
// ends. The label lies along the slope.
static void add_roof(struct buf *html, const struct axis *x, const struct axis *y, const struct report_roof *roof) {
    const double offset = log10(roof->slope), flat = roof->flat > 0 ? log10(roof->flat) : INFINITY;
    const double first = fmax(x->low, y->low - offset), last = fmin(x->high, fmin(y->high, flat) - offset);
    const double right = x->start + x->size, top = place(y, fmax(roof->flat, 1e-300));
    if (first >= last && !isinf(flat)) {  // nothing but the flat part is in sight
        buf_printf(html, "<polyline class=\"slope\" points=\"%.1f,%.1f %.1f,%.1f\"/>", x->start, top, right, top);
        add_text(html, right, top - 5, "class=\"dim\" text-anchor=\"end\"", roof->label);
    }
    if (first >= last) return;
    const double x1 = place(x, pow(10, first)), y1 = place(y, pow(10, first + offset));
    const double x2 = place(x, pow(10, last)), y2 = place(y, pow(10, last + offset));
    buf_printf(html, "<polyline class=\"slope\" points=\"%.1f,%.1f %.1f,%.1f", x1, y1, x2, y2);
    if (last + offset >= flat) buf_printf(html, " %.1f,%.1f", right, top);
    char attributes[128];
    snprintf(attributes, sizeof(attributes),
             "class=\"dim\" text-anchor=\"end\" dy=\"-5\" transform=\"rotate(%.2f %.1f %.1f)\"",
             atan2(y2 - y1, x2 - x1) * 180 / acos(-1), x2, y2);
    buf_text(html, "\"/>");
    add_text(html, x2, y2, attributes, roof->label);
}

void report_scatter(struct report *report, const char *title, const char *x_label, const char *y_label,
                    const struct report_point *points, size_t count, const struct report_roof *roofs,
                    size_t roof_count) {
    struct axis x = {.low = 99, .high = -99, .start = 70, .size = WIDTH - 100};
    struct axis y = {.low = 99, .high = -99, .start = 400, .size = -370};
    struct groups groups = {.count = 0};
    struct buf *html = &report->html;
    size_t drawn = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(points[i].x > 0) || !(points[i].y > 0)) continue;
        widen(&x, points[i].x * 0.8), widen(&x, points[i].x * 1.25);
        widen(&y, points[i].y * 0.8), widen(&y, points[i].y * 1.25);
        drawn++;
    }
    if (!drawn) return;
    for (size_t i = 0; i < roof_count; i++) {
        if (roofs[i].flat > 0) widen(&y, roofs[i].flat);
    }
    begin_plot(report, title);
    buf_printf(html, "<svg viewBox=\"0 0 %d 450\" role=\"img\">\n", WIDTH);
    add_grid(html, &x, &y);
    for (size_t i = 0; i < roof_count; i++) add_roof(html, &x, &y, &roofs[i]);
    for (size_t i = 0; i < count; i++) {
        if (!(points[i].x > 0) || !(points[i].y > 0)) continue;
        buf_printf(html, "<circle class=\"c%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\" opacity=\".85\"><title>",
                   color_of(&groups, points[i].group), place(&x, points[i].x), place(&y, points[i].y));
        add_escaped(html, points[i].label);
        buf_printf(html, ": %.4g, %.4g</title></circle>\n", points[i].x, points[i].y);
    }
    add_text(html, WIDTH / 2.0, 440, "class=\"dim\" text-anchor=\"middle\"", x_label);
    add_text(html, 10, 16, "class=\"dim\"", y_label);
    add_legend(html, &groups, 16);
    buf_text(html, "</svg>\n");
}

// ---- tables ----------------------------------------------------------------------------------------------------------

void report_table(struct report *report, const char *title, size_t columns, const char *const *cells, size_t rows) {
    struct buf *html = &report->html;
    begin_plot(report, title);
    buf_text(html, "<table>\n");
    for (size_t row = 0; row < rows; row++) {
        const char *tag = row ? "td" : "th";
        buf_text(html, "<tr>");
        for (size_t column = 0; column < columns; column++) {
            buf_printf(html, "<%s>", tag);
            add_escaped(html, cells[row * columns + column]);
            buf_printf(html, "</%s>", tag);
        }
        buf_text(html, "</tr>\n");
    }
    buf_text(html, "</table>\n");
}
