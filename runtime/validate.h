// validate.h - is a call right? Every constraint on arguments that the host can see, each with a status and a sentence.
//
// It reads the argument structs and never what their pointers lead to. What depends on the device or on the chosen
// variant (whose memory it is, how large the workspace must be) is judged in device.c and launch.c. Invariant: a call
// that passes as VALIDATE_ALL gives sizes, offsets and products that fit their types everywhere further on.
#ifndef VF_VALIDATE_H
#define VF_VALIDATE_H

#include "request.h"

// Receives every failed constraint, in order.
struct validate_sink {
    void (*add)(struct validate_sink *sink, vf_status status, const char *sentence);
};

enum validate_pointers {
    VALIDATE_SHAPES,  // data pointers and workspace are not looked at
    VALIDATE_GIVEN,   // those that are not null are
    VALIDATE_ALL      // null is a fault where there is something to read or write
};

struct validate_rules {
    enum validate_pointers pointers;
    bool host;                   // the CPU backend: float32 operands too
    struct validate_sink *sink;  // null: the first fault is enough
};

// On VF_OK, *call is complete (call_read). Else the status and sentence are those of the first fault.
vf_status validate_forward(const vf_forward_args *args, const struct validate_rules *rules, struct call *call);
vf_status validate_backward(const vf_backward_args *args, const struct validate_rules *rules, struct call *call);

#endif
