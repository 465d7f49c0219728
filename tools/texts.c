// texts.c - see texts.h.
#include "texts.h"

#include <stdlib.h>
#include <string.h>

#include "output.h"

void texts_add(struct texts *texts, const char *text) {
    if ((texts->count & (texts->count - 1)) == 0)  // full at every power of two
        texts->items = output_realloc(texts->items, (texts->count ? 2 * texts->count : 1) * sizeof(*texts->items));
    texts->items[texts->count++] = output_copy(text);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void texts_sort(struct texts *texts) {
    size_t kept = 0;
    if (texts->count) qsort(texts->items, texts->count, sizeof(*texts->items), by_text);
    for (size_t i = 0; i < texts->count; i++) {
        if (kept && !strcmp(texts->items[kept - 1], texts->items[i]))
            free(texts->items[i]);
        else
            texts->items[kept++] = texts->items[i];
    }
    texts->count = kept;
}

void texts_free(struct texts *texts) {
    for (size_t i = 0; i < texts->count; i++) free(texts->items[i]);
    free(texts->items);
    *texts = (struct texts){0};
}
