// roofline.h - speed against arithmetic intensity, under the roofs of the device where its data sheet is known.
#ifndef VF_ROOFLINE_H
#define VF_ROOFLINE_H

#include "report.h"

// Points of FLOP a byte and TFLOP/s, measured on a device of this name.
void roofline_add(struct report *report, const char *device, const struct report_point *points, size_t count);

#endif
