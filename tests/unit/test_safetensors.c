// test_safetensors.c - files written and read back, and one sentence for every file that is not what it claims.
#include "loop_main.h"
#include "number.h"
#include "safetensors.h"
#include "unit.h"

// ---- round trips ----

START_TEST(tensors_come_back) {
    char folder[UNIT_PATH_SIZE], path[UNIT_PATH_SIZE + 16];
    unit_make_folder(folder);
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    uint16_t half[24];
    int32_t lengths[4] = {0, 3, 7, 9};
    int64_t wide[1] = {INT64_C(1) << 40};
    float one = 1.5f;
    for (int i = 0; i < 24; i++) half[i] = (uint16_t)(i * 257);
    const struct safetensors_item items[] = {
        {"q", {.data = half, .dtype = VF_BFLOAT16, .ndim = 3, .shape = {2, 3, 4}, .stride = {12, 4, 1}}},
        {"q.turned", {.data = half, .dtype = VF_FLOAT16, .ndim = 3, .shape = {3, 2, 4}, .stride = {4, 12, 1}}},
        {"backwards", {.data = half + 20, .dtype = VF_FLOAT16, .ndim = 2, .shape = {6, 2}, .stride = {-4, 1}}},
        {"column", {.data = half, .dtype = VF_FLOAT16, .ndim = 1, .shape = {6}, .stride = {4}}},
        {"cu", {.data = lengths, .dtype = VF_INT32, .ndim = 1, .shape = {4}, .stride = {1}}},
        {"wide", {.data = wide, .dtype = VF_INT64, .ndim = 1, .shape = {1}, .stride = {1}}},
        {"scalar", {.data = &one, .dtype = VF_FLOAT32}},
        {"empty", {.dtype = VF_FLOAT32, .ndim = 2, .shape = {0, 5}, .stride = {5, 1}}},
    };
    const size_t count = sizeof items / sizeof *items;
    unit_ok(safetensors_write(path, items, count));
    struct safetensors file;
    unit_ok(safetensors_read(path, &file));
    ck_assert_uint_eq(file.count, count);
    for (size_t i = 0; i < count; i++) {
        const vf_tensor *tensor = safetensors_find(&file, items[i].name);
        ck_assert_ptr_nonnull(tensor);
        ck_assert_int_eq(tensor->dtype, items[i].tensor.dtype);
        ck_assert_int_eq(tensor->ndim, items[i].tensor.ndim);
        ck_assert_mem_eq(tensor->shape, items[i].tensor.shape, sizeof tensor->shape);
        ck_assert_uint_eq((uintptr_t)tensor->data % 16, 0);
    }
    ck_assert_mem_eq(safetensors_find(&file, "q")->data, half, sizeof half);
    const uint16_t *turned = safetensors_find(&file, "q.turned")->data;
    ck_assert_uint_eq(turned[4], half[12]);
    ck_assert_uint_eq(turned[8], half[4]);
    const uint16_t *backwards = safetensors_find(&file, "backwards")->data;
    ck_assert_uint_eq(backwards[2], half[16]);
    ck_assert_uint_eq(((const uint16_t *)safetensors_find(&file, "column")->data)[5], half[20]);
    ck_assert_int_eq(*(const int64_t *)safetensors_find(&file, "wide")->data, wide[0]);
    ck_assert_float_eq(*(const float *)safetensors_find(&file, "scalar")->data, one);
    ck_assert_ptr_null(safetensors_find(&file, "k"));
    safetensors_free(&file);
    unit_remove_folder(folder);
}
END_TEST

#define ARENA 4096

// A view somewhere inside the arena: any dimensions, strides of either sign, zero, or of other orders.
static vf_tensor draw_view(unsigned char *arena) {
    static const vf_dtype dtypes[] = {VF_FLOAT16, VF_BFLOAT16, VF_FLOAT32, VF_INT32, VF_INT64};
    vf_tensor view = {.dtype = dtypes[rand() % 5], .ndim = rand() % 5};
    int64_t low = 0, high = 0;
    for (int d = 0; d < view.ndim; d++) {
        view.shape[d] = rand() % 8 ? 1 + rand() % 4 : 0;
        view.stride[d] = rand() % 3 ? rand() % 20 - 9 : d == view.ndim - 1;
        const int64_t reach = (view.shape[d] - 1) * view.stride[d];
        if (view.shape[d] > 0 && reach < 0) low += reach;
        if (view.shape[d] > 0 && reach > 0) high += reach;
    }
    const int64_t elements = ARENA / 8;  // of the widest type
    ck_assert_int_lt(high - low, elements);
    view.data = arena + (-low + rand() % (elements - (high - low))) * (int64_t)number_size(view.dtype);
    return view;
}

// Element `index` in the order of the last dimension first.
static const unsigned char *element_of(const vf_tensor *view, int64_t index) {
    int64_t offset = 0;
    for (int d = view->ndim - 1; d >= 0; d--) {
        offset += index % view->shape[d] * view->stride[d];
        index /= view->shape[d];
    }
    return (const unsigned char *)view->data + offset * (int64_t)number_size(view->dtype);
}

START_TEST(any_views_come_back) {
    char folder[UNIT_PATH_SIZE], path[UNIT_PATH_SIZE + 16], names[12][24];
    unsigned char arena[ARENA];
    struct safetensors_item items[12];
    unit_make_folder(folder);
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    srand(3);
    for (size_t i = 0; i < sizeof arena; i++) arena[i] = (unsigned char)rand();
    for (int round = 0; round < 60; round++) {
        const size_t count = (size_t)(rand() % 13);
        for (size_t i = 0; i < count; i++) {
            snprintf(names[i], sizeof names[i], "t%zu", i);
            items[i] = (struct safetensors_item){names[i], draw_view(arena)};
        }
        struct safetensors file;
        unit_ok(safetensors_write(path, items, count));
        unit_ok(safetensors_read(path, &file));
        ck_assert_uint_eq(file.count, count);
        for (size_t i = 0; i < count; i++) {
            const vf_tensor *view = &items[i].tensor, *read = safetensors_find(&file, names[i]);
            const size_t element = number_size(view->dtype);
            int64_t elements = 1;
            for (int d = 0; d < view->ndim; d++) elements *= view->shape[d];
            ck_assert_ptr_nonnull(read);
            ck_assert(read->dtype == view->dtype && read->ndim == view->ndim);
            ck_assert_mem_eq(read->shape, view->shape, sizeof read->shape);
            ck_assert_uint_eq(file.entries[i].size, (size_t)elements * element);
            for (int64_t e = 0; e < elements; e++) {
                ck_assert_mem_eq((const unsigned char *)read->data + (size_t)e * element, element_of(view, e), element);
                ck_assert_mem_eq(element_of(read, e), element_of(view, e), element);
            }
        }
        safetensors_free(&file);
    }
    unit_remove_folder(folder);
}
END_TEST

START_TEST(files_that_are_not_there_are_named) {
    struct safetensors file;
    unit_fails(safetensors_read("/nowhere/q.safetensors", &file), VF_ERROR_IO, "/nowhere/q.safetensors");
    unit_fails(safetensors_write("/nowhere/q.safetensors", NULL, 0), VF_ERROR_IO, "/nowhere/q.safetensors");
    safetensors_free(&file);
}
END_TEST

// ---- malformed files ----

// The header, its real length in front, then `data` bytes of data.
static vf_status parse(const char *header, size_t data, struct safetensors *file) {
    const size_t length = strlen(header);
    unsigned char *bytes = calloc(1, 8 + length + data + 1);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, header, length + 1);  // its final zero is the first byte of data
    const vf_status status = safetensors_parse(bytes, 8 + length + data, "x", file);
    free(bytes);
    return status;
}

#define ENTRY(dtype, shape, offsets) \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *header;
    size_t data;
    const char *fragment;
} bad_headers[] = {
    {"", 0, "not JSON"},
    {"{", 0, "not JSON"},
    {"[]", 0, "no JSON object"},
    {"3", 0, "no JSON object"},
    {"{\"a\":3}", 0, "must be an object"},
    {"{\"a\":{}}", 0, "dtype: is missing"},
    {"{\"\":{}}", 0, "a name has 1 to"},
    {"{\"a\":{\"dtype\":3}}", 0, "dtype: is missing"},
    {ENTRY("F8", "[1]", "[0,1]"), 1, "none of F16"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "shape: must be"},
    {ENTRY("F32", "3", "[0,4]"), 4, "shape: must be"},
    {ENTRY("F32", "[1,1,1,1,1]", "[0,4]"), 4, "at most 4"},
    {ENTRY("F32", "[-1]", "[0,4]"), 4, "dimension 0"},
    {ENTRY("F32", "[1.5]", "[0,4]"), 4, "dimension 0"},
    {ENTRY("F32", "[\"1\"]", "[0,4]"), 4, "dimension 0"},
    {ENTRY("F32", "[1e300]", "[0,4]"), 4, "dimension 0"},
    {ENTRY("F32", "[4294967296,4294967296]", "[0,4]"), 4, "more elements"},
    {ENTRY("I64", "[9007199254740992,1024]", "[0,0]"), 4, "more elements"},
    {ENTRY("I32", "[0,41034746761,885206811]", "[0,0]"), 0, "more elements"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "two whole numbers"},
    {ENTRY("F32", "[1]", "[0]"), 4, "two whole numbers"},
    {ENTRY("F32", "[1]", "[0,2,4]"), 4, "two whole numbers"},
    {ENTRY("F32", "[1]", "[-4,0]"), 4, "two whole numbers"},
    {ENTRY("F32", "[1]", "[4,0]"), 4, "do not lie in"},
    {ENTRY("F32", "[1]", "[0,4]"), 3, "do not lie in"},
    {ENTRY("F32", "[1]", "[9007199254740988,9007199254740992]"), 4, "do not lie in"},
    {ENTRY("F32", "[2]", "[0,4]"), 8, "but shape and dtype need 8"},
    {ENTRY("F16", "[1]", "[0,4]"), 8, "but shape and dtype need 2"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},\"a\":{\"dtype\":\"F16\",\"shape\":[1],"
     "\"data_offsets\":[2,4]}}",
     4, "stands twice"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F16\",\"shape\":[2],"
     "\"data_offsets\":[0,4]}}",
     4, "overlap"},
};

START_TEST(malformed_headers_get_a_sentence) {
    struct safetensors file;
    unit_fails(parse(bad_headers[_i].header, bad_headers[_i].data, &file), VF_ERROR_INVALID_ARGUMENT,
               bad_headers[_i].fragment);
    ck_assert_ptr_null(file.entries);
    ck_assert_ptr_null(file.bytes);
}
END_TEST

START_TEST(files_too_short_for_their_header_are_refused) {
    static const unsigned char huge[12] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, '{', '}'};
    struct safetensors file;
    for (size_t size = 0; size < 8; size++)
        unit_fails(safetensors_parse(huge, size, "x", &file), VF_ERROR_INVALID_ARGUMENT, "too few");
    unit_fails(safetensors_parse(huge, sizeof huge, "x", &file), VF_ERROR_INVALID_ARGUMENT, "a header of");
    static const unsigned char longer[10] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    unit_fails(safetensors_parse(longer, sizeof longer, "x", &file), VF_ERROR_INVALID_ARGUMENT, "a header of 3");
}
END_TEST

START_TEST(metadata_and_spaces_are_passed_over) {
    struct safetensors file;
    unit_ok(parse(
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[1,3]}}   ", 3,
        &file));
    ck_assert_uint_eq(file.count, 1);
    safetensors_free(&file);
    unit_ok(parse("{}", 0, &file));
    ck_assert_uint_eq(file.count, 0);
    safetensors_free(&file);
}
END_TEST

LOOP_MAIN("safetensors", 10, {tensors_come_back, 0}, {any_views_come_back, 0}, {files_that_are_not_there_are_named, 0},
          {malformed_headers_get_a_sentence, sizeof bad_headers / sizeof *bad_headers},
          {files_too_short_for_their_header_are_refused, 0}, {metadata_and_spaces_are_passed_over, 0})
