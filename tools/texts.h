// texts.h - a growing list of texts that can become a set.
#ifndef VF_TEXTS_H
#define VF_TEXTS_H

#include <stddef.h>

struct texts {
    size_t count;
    char **items;
};

void texts_add(struct texts *texts, const char *text);  // copies
void texts_sort(struct texts *texts);                   // in order, each once
void texts_free(struct texts *texts);

#endif
