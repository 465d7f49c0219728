// dev_info.h - what vf_dev_info_get tells, gathered once for a context.
#ifndef VF_DEV_INFO_H
#define VF_DEV_INFO_H

#include "varflash/varflash_dev.h"

struct dev_info;

vf_status dev_info_make(struct vf_context *context, struct dev_info **info);
const vf_dev_info *dev_info_get(const struct dev_info *info);
void dev_info_free(struct dev_info *info);  // null is ignored

#endif
