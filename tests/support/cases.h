/* cases.h -- goldens that are JSON: files, numbers by key, lists of numbers. */
#ifndef RG_TEST_CASES_H
#define RG_TEST_CASES_H

#include <jansson.h>

#include "support/test.h"

static inline json_t *cases_load(const char *name)
{
    json_error_t why;
    json_t *v = json_load_file(test_data(name), 0, &why);

    if (!v)
        fail_msg("%s: %s", name, why.text);
    return v;
}

/* A list into out, which has room for `most`; its length. */
static inline int32_t cases_ints(const json_t *list, int32_t *out, int32_t most)
{
    int32_t n = (int32_t)json_array_size(list);

    assert_true(n <= most);
    for (int32_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n;
}

static inline int32_t cases_int(const json_t *v, const char *key)
{
    return (int32_t)json_integer_value(json_object_get(v, key));
}

#endif
