// verify_again.h - a problem that was found right, run again under other circumstances that must not change a bit.
#ifndef VF_VERIFY_AGAIN_H
#define VF_VERIFY_AGAIN_H

#include "harness.h"
#include "verify.h"

// What the options ask for of: the same call again, each sequence alone, the same values without strides of their own,
// one spoiled token. `harness` holds inputs and fetched results; its device outputs may change.
vf_status verify_again(struct harness *harness, const struct verify_options *options, struct verify_result *result);

#endif
