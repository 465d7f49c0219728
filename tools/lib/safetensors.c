// safetensors.c - see safetensors.h. The header is JSON, and nothing in it is believed: names, shapes, offsets and
// sizes must fit each other and the file, byte for byte.
#include "safetensors.h"

#include <cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "fs.h"
#include "number.h"
#include "status.h"

#define INVALID VF_ERROR_INVALID_ARGUMENT
#define HEADER_LIMIT ((uint64_t)100 << 20)  // as the format's own reader has it
#define PREFIX_SIZE 8
#define DATA_ALIGNMENT 16

static const struct {
    const char *name;
    vf_dtype dtype;
} types[] = {{"F16", VF_FLOAT16}, {"BF16", VF_BFLOAT16}, {"F32", VF_FLOAT32}, {"I32", VF_INT32}, {"I64", VF_INT64}};

// ---- reading -------------------------------------------------------------------------------------------------------

// A whole number that a double carries exactly.
static bool read_count(const cJSON *item, int64_t *count) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 0x1p53)) return false;
    *count = (int64_t)item->valuedouble;
    return (double)*count == item->valuedouble;
}

static vf_status read_shape(const cJSON *shape, struct safetensors_entry *entry) {
    VF_REQUIRE(cJSON_IsArray(shape) && cJSON_GetArraySize(shape) <= 4, INVALID,
               "shape: must be an array of at most 4 dimensions");
    vf_tensor *tensor = &entry->tensor;
    for (const cJSON *item = shape->child; item; item = item->next) {
        VF_REQUIRE(read_count(item, &tensor->shape[tensor->ndim++]), INVALID, "shape: dimension %d is no whole number",
                   tensor->ndim - 1);
    }
    // Also an empty tensor has strides, whose product the zero may not hide.
    int64_t elements = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        tensor->stride[i] = elements;
        VF_REQUIRE(!__builtin_mul_overflow(elements, tensor->shape[i], &elements) && elements <= INT64_MAX / 8, INVALID,
                   "shape: more elements than any file holds");
    }
    entry->size = (size_t)elements * number_size(tensor->dtype);
    return VF_OK;
}

static vf_status read_entry(const cJSON *member, size_t data_size, struct safetensors_entry *entry, size_t *begin) {
    VF_REQUIRE(cJSON_IsObject(member), INVALID, "must be an object with dtype, shape and data_offsets");
    const size_t length = strlen(member->string);
    VF_REQUIRE(length && length < sizeof entry->name, INVALID, "a name has 1 to %zu characters",
               sizeof entry->name - 1);
    memcpy(entry->name, member->string, length + 1);
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(member, "dtype");
    VF_REQUIRE(cJSON_IsString(dtype), INVALID, "dtype: is missing or no text");
    for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
        if (!strcmp(types[i].name, dtype->valuestring)) entry->tensor.dtype = types[i].dtype;
    VF_REQUIRE(entry->tensor.dtype, INVALID, "dtype: %.20s is none of F16, BF16, F32, I32, I64", dtype->valuestring);
    VF_TRY(read_shape(cJSON_GetObjectItemCaseSensitive(member, "shape"), entry));
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(member, "data_offsets");
    int64_t from, to;
    VF_REQUIRE(
        cJSON_GetArraySize(offsets) == 2 && read_count(offsets->child, &from) && read_count(offsets->child->next, &to),
        INVALID, "data_offsets: must be two whole numbers");
    VF_REQUIRE(from <= to && (uint64_t)to <= data_size, INVALID,
               "data_offsets: [%" PRId64 ", %" PRId64 "] do not lie in the file's %zu bytes of data", from, to,
               data_size);
    VF_REQUIRE((uint64_t)(to - from) == entry->size, INVALID,
               "data_offsets: [%" PRId64 ", %" PRId64 "] are %" PRId64 " bytes, but shape and dtype need %zu", from, to,
               to - from, entry->size);
    *begin = (size_t)from;
    return VF_OK;
}

// Room for a tensor in the aligned copy.
static size_t padded(size_t size) {
    return (size + DATA_ALIGNMENT) / DATA_ALIGNMENT * DATA_ALIGNMENT;
}

// Entries may lie anywhere in the file, at odd addresses or on top of each other: each gets an aligned copy of its own.
static vf_status copy_data(struct safetensors *file, const size_t *begins, const char *data) {
    size_t total = 0;
    for (size_t i = 0; i < file->count; i++)
        VF_REQUIRE(!__builtin_add_overflow(total, padded(file->entries[i].size), &total), INVALID,
                   "more bytes than there are addresses");
    file->bytes = aligned_alloc(DATA_ALIGNMENT, total ? total : DATA_ALIGNMENT);
    VF_REQUIRE(file->bytes, VF_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes of tensors", total);
    char *to = file->bytes;
    for (size_t i = 0; i < file->count; i++) {
        memcpy(to, data + begins[i], file->entries[i].size);
        file->entries[i].tensor.data = to;
        to += padded(file->entries[i].size);
    }
    return VF_OK;
}

static vf_status read_entries(const cJSON *root, const char *data, size_t data_size, struct safetensors *file) {
    VF_REQUIRE(cJSON_IsObject(root), INVALID, "the header is no JSON object");
    const size_t count = (size_t)cJSON_GetArraySize(root);
    size_t *begins = calloc(count + 1, sizeof *begins), claimed = 0;
    file->entries = calloc(count + 1, sizeof *file->entries);
    vf_status status = VF_OK;
    if (!begins || !file->entries) {
        free(begins);
        VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "no memory for %zu entries", count);
    }
    for (const cJSON *member = root->child; member && !status; member = member->next) {
        if (!strcmp(member->string, "__metadata__")) continue;
        struct safetensors_entry *entry = &file->entries[file->count];
        status = read_entry(member, data_size, entry, &begins[file->count]);
        if (!status && safetensors_find(file, entry->name)) status = status_fail(INVALID, "the name stands twice");
        // Entries never overlap in a sound file, so together they are no larger than it.
        if (!status && (claimed += entry->size) > data_size)
            status = status_fail(INVALID, "data_offsets: overlap with those of an earlier tensor");
        if (status)
            status_prefix("%.40s: ", member->string);
        else
            file->count++;
    }
    if (!status) status = copy_data(file, begins, data);
    free(begins);
    return status;
}

vf_status safetensors_parse(const void *bytes, size_t size, const char *name, struct safetensors *file) {
    const unsigned char *prefix = bytes;
    uint64_t header = 0;
    *file = (struct safetensors){0};
    VF_REQUIRE(size >= PREFIX_SIZE, INVALID, "%s: is no safetensors file: %zu bytes are too few", name, size);
    for (int i = PREFIX_SIZE - 1; i >= 0; i--) header = header << 8 | prefix[i];
    VF_REQUIRE(header <= HEADER_LIMIT && header <= size - PREFIX_SIZE, INVALID,
               "%s: is no safetensors file: a header of %" PRIu64 " bytes in a file of %zu", name, header, size);
    const char *text = (const char *)bytes + PREFIX_SIZE;
    cJSON *root = cJSON_ParseWithLength(text, (size_t)header);
    VF_REQUIRE(root, INVALID, "%s: the header is not JSON", name);
    const vf_status status = read_entries(root, text + header, size - PREFIX_SIZE - (size_t)header, file);
    cJSON_Delete(root);
    if (status) {
        status_prefix("%s: ", name);
        safetensors_free(file);
    }
    return status;
}

vf_status safetensors_read(const char *path, struct safetensors *file) {
    struct buf bytes = {0};
    *file = (struct safetensors){0};
    vf_status status = fs_read(path, &bytes);
    if (!status) status = safetensors_parse(buf_string(&bytes), bytes.size, path, file);
    buf_free(&bytes);
    return status;
}

void safetensors_free(struct safetensors *file) {
    free(file->entries);
    free(file->bytes);
    *file = (struct safetensors){0};
}

const vf_tensor *safetensors_find(const struct safetensors *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->entries[i].name, name)) return &file->entries[i].tensor;
    return NULL;
}

// ---- writing -------------------------------------------------------------------------------------------------------

static size_t tensor_bytes(const vf_tensor *tensor) {
    size_t size = number_size(tensor->dtype);
    for (int i = 0; i < tensor->ndim; i++) size *= (size_t)tensor->shape[i];
    return size;
}

static void append_data(const vf_tensor *tensor, int dim, const char *from, struct buf *out) {
    const size_t element = number_size(tensor->dtype);
    const bool last = dim >= tensor->ndim - 1;
    if (last && (!tensor->ndim || tensor->stride[dim] == 1)) {
        buf_append(out, from, element * (tensor->ndim ? (size_t)tensor->shape[dim] : 1));
        return;
    }
    for (int64_t i = 0; i < tensor->shape[dim]; i++) {
        if (last)
            buf_append(out, from, element);
        else
            append_data(tensor, dim + 1, from, out);
        from += tensor->stride[dim] * (int64_t)element;
    }
}

static void append_header(const struct safetensors_item *items, size_t count, struct buf *out) {
    size_t at = 0;
    buf_text(out, "{");
    for (size_t i = 0; i < count; i++) {
        const vf_tensor *tensor = &items[i].tensor;
        const char *type = "";
        for (size_t t = 0; t < ARRAY_LENGTH(types); t++)
            if (types[t].dtype == tensor->dtype) type = types[t].name;
        buf_printf(out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", items[i].name, type);
        for (int d = 0; d < tensor->ndim; d++) buf_printf(out, "%s%" PRId64, d ? "," : "", tensor->shape[d]);
        buf_printf(out, "],\"data_offsets\":[%zu,%zu]}", at, at + tensor_bytes(tensor));
        at += tensor_bytes(tensor);
    }
    buf_text(out, "}");
    while (out->size % PREFIX_SIZE && !out->failed) buf_text(out, " ");  // data begins aligned
}

vf_status safetensors_write(const char *path, const struct safetensors_item *items, size_t count) {
    struct buf header = {0}, file = {0};
    unsigned char prefix[PREFIX_SIZE];
    append_header(items, count, &header);
    for (int i = 0; i < PREFIX_SIZE; i++) prefix[i] = (unsigned char)((uint64_t)header.size >> 8 * i);
    buf_append(&file, prefix, sizeof prefix);
    buf_append(&file, buf_string(&header), header.size);
    for (size_t i = 0; i < count; i++)
        if (tensor_bytes(&items[i].tensor)) append_data(&items[i].tensor, 0, items[i].tensor.data, &file);
    vf_status status = buf_check(&header);
    if (!status) status = buf_check(&file);
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!status && !folder) status = status_fail(VF_ERROR_OUT_OF_MEMORY, "%s: no memory for a path", path);
    const int reason = status ? 0 : fs_publish(folder, slash ? slash + 1 : path, file.data, file.size);
    if (reason) status = status_fail(VF_ERROR_IO, "%s: cannot be written: %s", path, strerror(reason));
    free(folder);
    buf_free(&header);
    buf_free(&file);
    return status;
}
