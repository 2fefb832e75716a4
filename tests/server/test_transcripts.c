/* test_transcripts.c -- what the official clients sent (transcripts/, recorded by scripts/compare-clients), sent again:
 * the same status, the same shape, and where nothing is drawn the same words. */
#include "live.h"

#include "base/json.h"

static test_server t;

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    o.model = "tales-1m";
    /* The words of all machines: fast recipes are their processors' own. */
    test_server_start_with(&t, &o, test_engine_open(1024, 16, o.max_waiting, "exact"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

static bool is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(s, *words))
            return true;
    return false;
}

/* Keys whose values are new each time; and those that depend on what was drawn, or cached. */
static const char *const fresh[] = { "id", "created", "created_at", "item_id", "call_id", "request_id", "sequence_number", NULL };
static const char *const drawn[] = { "text", "content", "delta", "finish_reason", "stop_reason", "completion_tokens",
                                     "total_tokens",
                                     "cached_tokens", "uncached_reason", "output_tokens", "input_tokens",
                                     "cache_read_input_tokens", "size", NULL };

/* Members that the official clients do not know. */
static const char *const beside[] = { "timings", "capabilities", NULL };

typedef struct comparison {
    bool greedy;
    char path[400];
} comparison;

static void compare(comparison *c, const json_t *want, const json_t *got);

static void compare_objects(comparison *c, const json_t *want, const json_t *got)
{
    size_t n = strlen(c->path);
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)got, key, v)
        if (!json_object_get(want, key) && !is_one_of(key, beside))
            fail_msg("%s.%s: new", c->path, key);
    json_object_foreach((json_t *)(uintptr_t)want, key, v) {
        json_t *w = json_object_get(got, key);
        snprintf(c->path + n, sizeof c->path - n, ".%s", key);
        if (!w)
            fail_msg("%s: gone", c->path);
        bool uncached = !strcmp(key, "input_tokens") && json_object_get(want, "cache_read_input_tokens");
        bool any = is_one_of(key, fresh) || (is_one_of(key, drawn) && !c->greedy) || strstr(key, "cache") || uncached;
        if (!any || (json_is_object(v) && json_is_object(w)))
            compare(c, v, w);
        else if (json_typeof(v) != json_typeof(w) && !json_is_null(v) && !json_is_null(w))
            fail_msg("%s: of another type", c->path);
        c->path[n] = 0;
    }
}

static void compare(comparison *c, const json_t *want, const json_t *got)
{
    size_t n = strlen(c->path);

    if (json_is_real(want) && json_is_real(got)) {
        if (json_real_value(want) - json_real_value(got) > 1e-3 || json_real_value(got) - json_real_value(want) > 1e-3)
            fail_msg("%s: %g, not %g", c->path, json_real_value(got), json_real_value(want));
    } else if (json_typeof(want) != json_typeof(got)) {
        fail_msg("%s: of another type", c->path);
    } else if (json_is_object(want)) {
        compare_objects(c, want, got);
    } else if (json_is_array(want)) {
        if (json_array_size(want) != json_array_size(got))
            fail_msg("%s: %zu, not %zu", c->path, json_array_size(got), json_array_size(want));
        for (size_t i = 0; i < json_array_size(want); i++) {
            snprintf(c->path + n, sizeof c->path - n, ".%zu", i);
            compare(c, json_array_get(want, i), json_array_get(got, i));
            c->path[n] = 0;
        }
    } else if (!json_equal((json_t *)(uintptr_t)want, (json_t *)(uintptr_t)got)) {
        char *a = rg_json_dump(want, JSON_ENCODE_ANY), *b = rg_json_dump(got, JSON_ENCODE_ANY);
        fail_msg("%s: %.100s, not %.100s", c->path, b, a);
    }
}

/* Events put together: chunks may be cut elsewhere, so only the first and the last of each kind are compared. */
static json_t *summary(const json_t *events)
{
    json_t *out = json_object();

    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        const char *type = json_string_value(json_object_get(e, "type"));
        const json_t *usage = json_object_get(e, "usage");
        char key[100];
        snprintf(key, sizeof key, "%s", type ? type : json_is_object(usage) ? "usage" : "chunk");
        json_object_set(out, key, (json_t *)(uintptr_t)e);
    }
    return out;
}

static json_t *read_events(const char *body)
{
    json_t *list = json_array();

    for (const char *p = body; (p = strstr(p, "data: {")); ) {
        size_t n = strcspn(p + 6, "\n");
        json_array_append_new(list, json_loadb(p + 6, n, 0, NULL));
        p += 6 + n;
    }
    return list;
}

static void replay(const json_t *x, size_t i)
{
    const char *path = json_string_value(json_object_get(x, "path"));
    const json_t *body = json_object_get(x, "body"), *want = json_object_get(x, "reply");
    const json_t *temperature = json_object_get(body, "temperature");
    char *text = json_is_object(body) ? rg_json_dump(body, JSON_COMPACT) : NULL;
    test_reply r = test_web_ask(t.port, json_string_value(json_object_get(x, "method")), path, NULL, text);
    bool stream = json_is_array(want);
    comparison c = { .greedy = json_is_number(temperature) && json_number_value(temperature) == 0 };

    snprintf(c.path, sizeof c.path, "%zu %s", i, path);
    if (r.status != json_integer_value(json_object_get(x, "status")))
        fail_msg("%s: %d: %.300s", c.path, r.status, r.body);
    json_t *got = stream ? read_events(r.body) : test_reply_json(&r);
    if (stream) {
        json_t *a = summary(want), *b = summary(got);
        c.greedy = false;
        json_object_del(a, "response.output_text.delta"); /* may come in one piece or in many */
        json_object_del(b, "response.output_text.delta");
        compare(&c, a, b);
        json_decref(a);
        json_decref(b);
    } else {
        compare(&c, want, got);
    }
    json_decref(got);
    test_reply_free(&r);
    rg_free(text);
}

static void official_clients_find_what_they_found(void **state)
{
    json_t *all = json_load_file(RG_SOURCE_DIR "/tests/server/transcripts/clients.json", 0, NULL);

    (void)state;
    assert_true(json_array_size(all) > 15);
    for (size_t i = 0; i < json_array_size(all); i++)
        replay(json_array_get(all, i), i);
    json_decref(all);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(official_clients_find_what_they_found) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
