// problem_json.c - problems as JSON. Every value is turned into the text that the flag of the same name takes, so that
// both forms allow the same and complain alike; only the member's name stands in front.
#include <cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "problem_options.h"
#include "status.h"

#define INVALID VF_ERROR_INVALID_ARGUMENT

// ---- reading -------------------------------------------------------------------------------------------------------

// Whole numbers as such: a double carries them exactly up to 2^53.
static bool number_text(const cJSON *value, struct buf *out) {
    const double number = value->valuedouble;
    if (number == (double)(int64_t)(number > -9e15 && number < 9e15 ? number : 0.5)) {
        buf_printf(out, "%" PRId64, (int64_t)number);
        return true;
    }
    buf_printf(out, "%.17g", number);
    return true;
}

static bool value_text(const cJSON *value, struct buf *out) {
    if (cJSON_IsString(value)) {
        buf_text(out, value->valuestring);
        return true;
    }
    if (cJSON_IsNumber(value)) return number_text(value, out);
    if (!cJSON_IsArray(value)) return false;
    for (const cJSON *item = value->child; item; item = item->next) {
        if (item != value->child) buf_text(out, ",");
        if (cJSON_IsArray(item) || !value_text(item, out)) return false;
    }
    return true;
}

static vf_status set_text(struct problem *problem, const char *name, const struct buf *text) {
    VF_TRY(buf_check(text));
    return problem_set(problem, name, buf_string(text));
}

static vf_status set_member(struct problem *problem, const cJSON *member, struct buf *text) {
    char name[32];
    const size_t length = strlen(member->string);
    VF_REQUIRE(length < sizeof name && !strchr(member->string, '-'), INVALID, "a problem has no such member");
    memcpy(name, member->string, length + 1);
    for (char *c = name; *c; c++)
        if (*c == '_') *c = '-';
    const int index = problem_option_find(name, length);
    VF_REQUIRE(index >= 0, INVALID, "a problem has no such member");
    const struct problem_option *option = &problem_options[index];
    if (!option->argument) {
        VF_REQUIRE(cJSON_IsBool(member), INVALID, "must be true or false");
        return cJSON_IsTrue(member) ? problem_set(problem, name, NULL) : VF_OK;
    }
    if (option->repeatable) {
        VF_REQUIRE(cJSON_IsObject(member), INVALID, "must be an object such as {\"dout\": \"9728,96\"}");
        for (const cJSON *item = member->child; item; item = item->next) {
            buf_clear(text);
            buf_printf(text, "%s=", item->string);
            VF_REQUIRE(value_text(item, text), INVALID, "%.40s must be a text such as \"9728,96+1\"", item->string);
            VF_TRY(set_text(problem, name, text));
        }
        return VF_OK;
    }
    buf_clear(text);
    VF_REQUIRE(value_text(member, text), INVALID, "must be a number, a text or an array of them");
    return set_text(problem, name, text);
}

static vf_status read_object(const cJSON *object, struct problem *problem) {
    struct buf text = {0};
    vf_status status = VF_OK;
    problem_begin(problem);
    for (const cJSON *member = object->child; member && !status; member = member->next) {
        status = set_member(problem, member, &text);
        if (status) status_prefix("%.40s: ", member->string);
    }
    if (!status) status = problem_finish(problem);
    if (status) problem_free(problem);
    buf_free(&text);
    return status;
}

static vf_status read_array(const cJSON *array, struct problem_list *list) {
    int64_t lengths = 0;
    int index = 0;
    for (const cJSON *item = array->child; item; item = item->next, index++) {
        struct problem problem;
        VF_REQUIRE(cJSON_IsObject(item), INVALID, "problems[%d]: is no object", index);
        const vf_status status = read_object(item, &problem);
        if (status) {
            status_prefix("problems[%d]: ", index);
            return status;
        }
        lengths += problem.batch;
        if (lengths > PROBLEM_COUNT_LIMIT) {
            problem_free(&problem);
            VF_FAIL(INVALID, "problems[%d]: more than %lld sequences in all; split the file", index,
                    (long long)PROBLEM_COUNT_LIMIT);
        }
        VF_TRY(problem_list_add(list, &problem));
    }
    return VF_OK;
}

static vf_status read_root(const cJSON *root, struct problem_list *list) {
    const cJSON *problems = cJSON_IsObject(root) ? cJSON_GetObjectItemCaseSensitive(root, "problems") : NULL;
    if (cJSON_IsArray(root)) return read_array(root, list);
    if (problems) {
        VF_REQUIRE(cJSON_IsArray(problems), INVALID, "problems: is no array");
        VF_REQUIRE(problems == root->child && !problems->next, INVALID,
                   "problems: no other member can stand beside it");
        return read_array(problems, list);
    }
    VF_REQUIRE(cJSON_IsObject(root), INVALID, "a problem is an object, or {\"problems\": [...]}");
    struct problem problem;
    VF_TRY(read_object(root, &problem));
    return problem_list_add(list, &problem);
}

vf_status problem_from_json(const char *text, size_t size, struct problem_list *list) {
    const size_t before = list->count;
    const char *at = text;
    int64_t lengths = 0;
    vf_status status = VF_OK;
    do {
        const size_t read = list->count;
        const char *end = at;
        cJSON *root = cJSON_ParseWithLengthOpts(at, size - (size_t)(at - text), &end, 0);
        status = root ? read_root(root, list)
                      : status_fail(INVALID, "not JSON: malformed at byte %td of %zu", end - text, size);
        cJSON_Delete(root);
        for (size_t i = read; !status && i < list->count; i++) lengths += list->items[i].batch;
        if (lengths > PROBLEM_COUNT_LIMIT)
            status =
                status_fail(INVALID, "more than %lld sequences in all; split the file", (long long)PROBLEM_COUNT_LIMIT);
        for (at = end; !status && at < text + size && *at && strchr(" \t\r\n", *at);) at++;
    } while (!status && at < text + size && *at);
    while (status && list->count > before) problem_free(&list->items[--list->count]);
    return status;
}

// ---- writing -------------------------------------------------------------------------------------------------------
// No value
// needs escapes: names are checked, the rest are numbers and words of the table.

static void write_list(const char *text, struct buf *out) {
    if (!strcmp(text, "none")) text = "";
    buf_text(out, "[");
    while (*text) {
        const size_t length = strcspn(text, ",");
        const bool repeated = memchr(text, 'x', length) != NULL;  // 34x8192 stays short, as a text
        buf_printf(out, repeated ? "\"%.*s\"" : "%.*s", (int)length, text);
        text += length;
        if (*text) buf_text(out, *text++ ? ", " : "");
    }
    buf_text(out, "]");
}

static void write_value(const struct problem *problem, size_t index, const char *text, struct buf *out) {
    switch (problem_rules[index].kind) {
        case RULE_LENGTHS:
            write_list(text, out);
            break;
        case RULE_INTEGER:
        case RULE_ROWS:
        case RULE_REAL:
            buf_text(out, text);
            break;
        case RULE_SEED:  // beyond 2^53 a JSON number would lose digits
            buf_printf(out, problem->seed >> 53 ? "\"%s\"" : "%s", text);
            break;
        default:
            buf_printf(out, "\"%s\"", text);
    }
}

void problem_write_json(const struct problem *problem, struct buf *out) {
    struct buf value = {0};
    const char *comma = "";
    buf_text(out, "{");
    for (size_t i = 0; i < problem_option_count; i++) {
        const struct problem_option *option = &problem_options[i];
        const int turns = option->repeatable ? OPERAND_COUNT : 1;
        bool opened = false;
        for (int turn = 0; turn < turns; turn++) {
            buf_clear(&value);
            if (!problem_option_write(problem, i, turn, &value)) continue;
            if (!opened) {
                buf_printf(out, "%s\"", comma);
                for (const char *c = option->name; *c; c++) buf_append(out, *c == '-' ? "_" : c, 1);
                buf_text(out, option->repeatable ? "\": {" : "\": ");
                comma = ", ";
            }
            if (option->repeatable) {  // "dout=9728,96" is the member "dout": "9728,96"
                const char *text = buf_string(&value), *equals = strchr(text, '=');
                buf_printf(out, "%s\"%.*s\": \"%s\"", opened ? ", " : "", (int)(equals - text), text, equals + 1);
            } else if (option->argument) {
                write_value(problem, i, buf_string(&value), out);
            } else {
                buf_text(out, "true");
            }
            opened = true;
        }
        if (opened && option->repeatable) buf_text(out, "}");
    }
    buf_text(out, "}");
    if (value.failed) out->failed = true;
    buf_free(&value);
}
