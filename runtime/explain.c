// explain.c - vf_explain_*: what would serve a call and why, or everything that is wrong with it, as JSON.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "context.h"
#include "cpu.h"

// ---- JSON ----------------------------------------------------------------------------------------------------------

static void add_string(struct buf *out, const char *text) {
    buf_text(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            buf_printf(out, "\\%c", *c);
        } else if (*c < 0x20) {
            buf_printf(out, "\\u%04x", *c);
        } else {
            buf_append(out, c, 1);
        }
    }
    buf_text(out, "\"");
}

static void add_member(struct buf *out, const char *name, const char *text) {
    buf_printf(out, ",\n  \"%s\": ", name);
    add_string(out, text);
}

// ---- parts ---------------------------------------------------------------------------------------------------------

// Collects what validation finds.
struct faults {
    struct validate_sink sink;  // first: the sink is found by its address
    struct buf text;
    size_t count;
};

static void add_fault(struct validate_sink *sink, vf_status status, const char *sentence) {
    struct faults *faults = (struct faults *)sink;
    buf_printf(&faults->text, "%s\n    {\"status\": \"%s\", \"sentence\": ", faults->count++ ? "," : "",
               vf_status_name(status));
    add_string(&faults->text, sentence);
    buf_text(&faults->text, "}");
}

static void add_kernels(struct buf *out, const struct source_plan *plan) {
    buf_text(out, ",\n  \"kernels\": [");
    for (int i = 0; i < plan->kernel_count; i++) {
        const struct source_kernel *kernel = &plan->kernels[i];
        buf_printf(out, "%s\n    {\"name\": ", i ? "," : "");
        add_string(out, kernel->name);
        buf_text(out, ", \"entry\": ");
        add_string(out, kernel->entry);
        buf_printf(out, ", \"threads\": %d, \"blocks_per_sm\": %d, \"registers\": %d, \"shared_bytes\": %d, \"spec\": ",
                   kernel->threads, kernel->blocks_per_sm, kernel->registers, kernel->shared_bytes);
        add_string(out, kernel->spec);
        buf_text(out, "}");
    }
    buf_text(out, "\n  ]");
}

// The rows that were passed over, and what about sizes decided.
static vf_status add_why(struct vf_context *context, const struct call *call, const char *arch, const char *device,
                         const struct choice *choice, struct buf *out) {
    char why[512];
    if (variants_forced(context->variants, &call->request)) {
        add_member(out, "why", "knobs are forced in this context");
        return VF_OK;
    }
    const struct config_row *rows[CONFIG_ROWS_MAX];
    size_t count = 0, passed = 0;
    VF_TRY(variants_rows(context->variants, &call->request, arch, device, false, rows, &count));
    while (passed < count && strcmp(rows[passed]->origin, choice->origin) != 0) passed++;
    snprintf(why, sizeof why,
             "first of the rows for this request that admits at most 2^%d rows of q and 2^%d of k a sequence, 2^%d "
             "query heads a "
             "key head; %zu row%s asked for smaller sizes",
             call->sizes.average_q, call->sizes.average_k, call->sizes.group, passed, passed == 1 ? "" : "s");
    add_member(out, "why", why);
    if (passed < count && rows[passed]->measured[0]) buf_printf(out, ",\n  \"measured\": %s", rows[passed]->measured);
    return VF_OK;
}

// What the operands, or the driver, keep from the call: aligned kernels, a row that reads through tensor maps.
static vf_status add_notes(struct vf_context *context, const struct call *call, const char *arch, const char *device,
                           struct buf *out) {
    const struct config_row *barred;
    const char *driver;
    VF_TRY(variants_barred_row(context->variants, &call->request, &call->sizes, arch, device, &barred, &driver));
    char note[CALL_OBSTACLE + CONFIG_ORIGIN + 128], why[CALL_OBSTACLE];
    buf_text(out, ",\n  \"notes\": [");
    const char *comma = "";
    for (int i = 0; i < CALL_TENSORS + (barred && driver[0]); i++) {
        if (i == CALL_TENSORS) {
            snprintf(note, sizeof note, "%s is passed over: it needs tensor maps, and %s", barred->origin, driver);
        } else if (call_obstacle(call, (enum call_tensor)i, CALL_ACCESS_ALIGNED, why)) {
            snprintf(note, sizeof note, "%s: unaligned kernels%s%s%s", why, barred ? "; " : "",
                     barred ? barred->origin : "", barred ? " is passed over" : "");
        } else if (barred && call_obstacle(call, (enum call_tensor)i, CALL_ACCESS_MAPPED, why)) {
            snprintf(note, sizeof note, "%s is passed over: it needs tensor maps, and %s", barred->origin, why);
        } else {
            continue;
        }
        buf_text(out, comma);
        add_string(out, note);
        comma = ", ";
    }
    buf_text(out, "]");
    return VF_OK;
}

static vf_status explain_cuda(struct vf_context *context, const struct call *call, const char *arch, const char *device,
                              struct buf *out) {
    struct choice choice;
    size_t workspace = 0;
    VF_TRY(variants_choose(context->variants, &call->request, &call->sizes, arch, device, &choice));
    VF_TRY(context_workspace(context, call, device ? NULL : arch, &workspace));
    add_member(out, "backend", "cuda");
    add_member(out, "arch", arch);
    if (device) add_member(out, "device", device);
    add_member(out, "request", choice.request);
    add_member(out, "row", choice.origin);
    add_member(out, "knobs", choice.knobs);
    VF_TRY(add_why(context, call, arch, device, &choice, out));
    add_kernels(out, &choice.plan);
    buf_printf(out, ",\n  \"workspace_bytes\": %zu", workspace);
    return add_notes(context, call, arch, device, out);
}

static vf_status explain_cpu(struct vf_context *context, const struct call *call, struct buf *out) {
    char request[REQUEST_TEXT];
    size_t workspace = 0;
    VF_TRY(context_workspace(context, call, NULL, &workspace));
    request_write(&call->request, "cpu", request);
    add_member(out, "backend", "cpu");
    add_member(out, "request", request);
    add_member(out, "vector", cpu_level_name(cpu_level()));
    buf_printf(out, ",\n  \"workspace_bytes\": %zu", workspace);
    return VF_OK;
}

static vf_status explain_valid(struct vf_context *context, const struct call *call, const char *arch, struct buf *out) {
    if (arch) return explain_cuda(context, call, arch, NULL, out);
    if (context->backend == VF_BACKEND_CPU) return explain_cpu(context, call, out);
    const struct device *device = NULL;
    if (call->problem->device == 0 && call->tensors[CALL_Q]->data) {
        struct scope scope;
        VF_TRY(context_enter(context, call, &scope));
        device = scope.device;
        scope_leave(&scope);
    } else {
        VF_TRY(devices_guess(context->devices, call->problem->device, &device));
    }
    return explain_cuda(context, call, device->arch, device->name, out);
}

// ---- the whole -----------------------------------------------------------------------------------------------------

static vf_status explain(struct vf_context *context, const void *args, bool backward, const char *arch, char *text,
                         size_t size, size_t *length) {
    VF_REQUIRE(context, VF_ERROR_INVALID_ARGUMENT, "context: is null");
    VF_REQUIRE(text || size == 0, VF_ERROR_INVALID_ARGUMENT, "text: is null, but size is %zu", size);
    struct faults faults = {.sink.add = add_fault};
    struct buf details = {.data = NULL}, all = {.data = NULL};
    const struct validate_rules rules = {
        .pointers = VALIDATE_GIVEN, .host = !arch && context->backend == VF_BACKEND_CPU, .sink = &faults.sink};
    struct call call;
    vf_status status = backward ? validate_backward(args, &rules, &call) : validate_forward(args, &rules, &call);
    if (!status) {
        status = explain_valid(context, &call, arch, &details);
        if (status) add_fault(&faults.sink, status, vf_last_error());
    }
    buf_printf(&all, "{\n  \"status\": \"%s\"", vf_status_name(status));
    buf_text(&all, buf_string(&details));
    buf_printf(&all, ",\n  \"faults\": [%s%s]\n}\n", buf_string(&faults.text), faults.count ? "\n  " : "");
    vf_status memory = buf_check(&faults.text);
    if (!memory) memory = buf_check(&details);
    if (!memory) memory = buf_check(&all);
    if (!memory && size > 0) snprintf(text, size, "%s", buf_string(&all));
    if (!memory && length) *length = all.size;
    buf_free(&faults.text);
    buf_free(&details);
    buf_free(&all);
    return memory ? memory : status;
}

vf_status vf_explain_forward(vf_context *context, const vf_forward_args *args, const char *arch, char *text,
                             size_t size, size_t *length) {
    return explain(context, args, false, arch, text, size, length);
}

vf_status vf_explain_backward(vf_context *context, const vf_backward_args *args, const char *arch, char *text,
                              size_t size, size_t *length) {
    return explain(context, args, true, arch, text, size, length);
}
