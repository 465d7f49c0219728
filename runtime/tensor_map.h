// tensor_map.h - operands as Hopper's copy engine sees them: the maps that a kernel's plan asks for.
//
// Not whether a map can address an operand: call_obstacle says so before a kernel with maps is chosen. Invariant: a
// map's rows are two dimensions of one stride, the first as long as the box, counted from one box before the tensor, so
// that coordinates alone say how many rows of a box are real (templates/tile/panels.cuh).
#ifndef VF_TENSOR_MAP_H
#define VF_TENSOR_MAP_H

#include "cuda_api.h"
#include "request.h"

#define TENSOR_MAPS_MAX 8  // of one kernel

// A map that a kernel's arguments begin with: of which operand, and how many rows a box has.
struct tensor_map_box {
    enum call_tensor tensor;
    int rows;
};

// Reads "q:64,k:80,v:80", as plans have it, into at most TENSOR_MAPS_MAX boxes. VF_ERROR_INTERNAL.
vf_status tensor_map_read(const char *text, struct tensor_map_box *boxes, int *count);

// The map of a present operand. For an empty one, of which no box is ever moved, `elsewhere` stands as the address.
vf_status tensor_map_encode(const struct call *call, const struct tensor_map_box *box, const void *elsewhere,
                            const struct cuda_api *api, struct cuda_tensor_map *map);

#endif
