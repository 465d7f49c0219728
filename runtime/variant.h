// variant.h - from a request to the kernels that serve it in one context, ready to launch.
//
// A variant is chosen by a configuration row, planned by the generator, and made of kernels. The hot path, a variant
// that variants_get has given before, is one lookup of a number: no text, no allocation, no Lua. Invariant: a variant
// never changes and lives as long as its table.
#ifndef VF_VARIANT_H
#define VF_VARIANT_H

#include "config.h"
#include "device.h"
#include "kernel.h"
#include "request.h"
#include "tensor_map.h"

// What a kernel does in a call, and so which arguments and grid it gets.
enum role {
    ROLE_SCHEDULE,
    ROLE_FORWARD,
    ROLE_FORWARD_SM90,
    ROLE_BACKWARD_PRE,
    ROLE_BACKWARD_PRE_SM90,
    ROLE_BACKWARD,
    ROLE_BACKWARD_SM90,
    ROLE_BACKWARD_POST,
    ROLE_CHECK
};

// The family whose kernels read operands through tensor maps: its rows are passed over for operands that no map can
// address (struct request) and where the driver makes no maps.
#define VARIANT_MAPPED_FAMILY "sm90"

// What is chosen for a request, device or not.
struct choice {
    char origin[CONFIG_ORIGIN];
    char request[REQUEST_TEXT];
    char knobs[CONFIG_KNOBS];
    struct source_plan plan;
};

struct variant {
    struct choice choice;
    uint64_t context;  // of struct scope
    int threads[SOURCE_KERNELS_MAX], shared_bytes[SOURCE_KERNELS_MAX];
    int grid[SOURCE_KERNELS_MAX];  // blocks that the device holds at once
    enum role roles[SOURCE_KERNELS_MAX];
    CUfunction functions[SOURCE_KERNELS_MAX];
    const struct kernel *kernels[SOURCE_KERNELS_MAX];
    struct {
        int count;
        struct tensor_map_box boxes[TENSOR_MAPS_MAX];
    } maps[SOURCE_KERNELS_MAX];
    struct variant *next;
};

struct variants;

// `maps`: whether the driver makes tensor maps; true where there is none.
vf_status variants_open(const struct config *config, struct kernels *kernels, bool maps, struct variants **variants);
void variants_close(struct variants *variants);  // null is ignored

// ---- choosing, without a device ------------------------------------------------------------------------------------

// One set of knobs for the request, whatever a row says. VF_ERROR_UNSUPPORTED with the generator's reason.
vf_status variants_choose_knobs(struct variants *variants, const struct request *request, const char *arch,
                                const char *origin, const char *knobs, struct choice *choice);

// The choice for a call of these sizes. `device` is a name or null.
vf_status variants_choose(struct variants *variants, const struct request *request, const struct sizes *sizes,
                          const char *arch, const char *device, struct choice *choice);

// The rows behind the choices: `all` of them, or those that calls of some size get. Sets *count, at most
// CONFIG_ROWS_MAX.
vf_status variants_rows(struct variants *variants, const struct request *request, const char *arch, const char *device,
                        bool all, const struct config_row **rows, size_t *count);

// The row that a call of these sizes is denied because its operands, or the driver, do not do tensor maps; null: none.
// `why`: a sentence about the driver, or "" if the operands are the reason.
vf_status variants_barred_row(struct variants *variants, const struct request *request, const struct sizes *sizes,
                              const char *arch, const char *device, const struct config_row **row, const char **why);

// ---- variants in a context: inside its scope -----------------------------------------------------------------------

// Finds, or chooses, makes and remembers. VF_ERROR_CAPTURE if kernels would have to be loaded while `stream` is
// captured.
vf_status variants_get(struct variants *variants, const struct request *request, const struct sizes *sizes,
                       const struct scope *scope, CUstream stream, const struct variant **variant);

// Checked mode's kernel.
vf_status variants_get_check(struct variants *variants, const struct scope *scope, CUstream stream,
                             const struct variant **variant);

// A variant for every row that calls of some size get, in the order of the rows.
struct prepared {
    size_t count;
    const struct config_row *rows[CONFIG_ROWS_MAX];  // null: knobs are forced
    const struct variant *variants[CONFIG_ROWS_MAX];
};
vf_status variants_prepare(struct variants *variants, const struct request *request, const struct scope *scope,
                           CUstream stream, struct prepared *prepared);

// Knobs of a pass that replace all its rows from now on; null or empty: none. Not while calls run.
vf_status variants_force(struct variants *variants, const char *forward, const char *backward);
const char *variants_forced(const struct variants *variants, const struct request *request);  // null: none

#endif
