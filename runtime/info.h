// info.h - what vf_dev_info_get tells, gathered once for a context.
#ifndef VF_INFO_H
#define VF_INFO_H

#include "varflash/varflash_dev.h"

struct info;

vf_status info_make(struct vf_context *context, struct info **info);
const vf_dev_info *info_get(const struct info *info);
void info_free(struct info *info);  // null is ignored

#endif
