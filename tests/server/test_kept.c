/* test_kept.c -- responses and conversations that clients come back to: texts in memory and on the disk, histories, and
 * answers that nobody waits for. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <sys/stat.h>

#include "base/json.h"
#include "server/core.h"
#include "server/kept.h"

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static rg_kept_texts *open_kept(const char *dir, size_t bytes, double lasts_s)
{
    rg_error err = { 0 };
    rg_kept_texts *k = rg_kept_open(&(rg_kept_options){ dir, bytes, lasts_s }, &err);

    assert_ok(k, err);
    return k;
}

/* What is kept under this id is this text; NULL: nothing. */
static void is_kept(rg_kept_texts *k, const char *owner, const char *id, const char *want)
{
    size_t n = 0;
    char *got = rg_kept_get(k, owner, id, &n);

    if (want ? !got || strcmp(got, want) != 0 || n != strlen(want) : got != NULL)
        fail_msg("%s of '%s': %s", id, owner, got ? got : "nothing");
    rg_free(got);
}

static const char *folder_of(const char *name)
{
    static char path[600];

    snprintf(path, sizeof path, "%s/kept-%s", RG_BUILD_DIR, name);
    mkdir(path, 0777);
    char db[700];
    static const char *const ends[] = { "", "-wal", "-shm" };
    for (size_t i = 0; i < RG_LEN(ends); i++) {
        snprintf(db, sizeof db, "%s/responses.db%s", path, ends[i]);
        unlink(db);
    }
    return path;
}

static void texts_are_their_owners(void **state)
{
    (void)state;
    for (int disk = 0; disk < 2; disk++) {
        rg_kept_texts *k = open_kept(disk ? folder_of("owners") : NULL, 1 << 20, 3600);
        assert_true(rg_kept_put(k, "a", "resp_1", "one", 3) && rg_kept_put(k, "b", "resp_1", "two", 3));
        is_kept(k, "a", "resp_1", "one");
        is_kept(k, "b", "resp_1", "two");
        is_kept(k, "c", "resp_1", NULL);
        assert_true(rg_kept_put(k, "a", "resp_1", "", 0));
        is_kept(k, "a", "resp_1", "");
        assert_false(rg_kept_remove(k, "c", "resp_1"));
        assert_true(rg_kept_remove(k, "a", "resp_1"));
        assert_false(rg_kept_remove(k, "a", "resp_1"));
        is_kept(k, "a", "resp_1", NULL);
        is_kept(k, "b", "resp_1", "two");
        rg_kept_close(k);
    }
}

/* Memory alone lets go of the oldest; with a disk everything is still there, also for the next process. */
static void memory_is_bounded(void **state)
{
    char text[1000], id[20];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int disk = 0; disk < 2; disk++) {
        const char *dir = disk ? folder_of("bounds") : NULL;
        rg_kept_texts *k = open_kept(dir, 10000, 3600);
        for (int i = 0; i < 100; i++) {
            snprintf(id, sizeof id, "resp_%d", i);
            assert_true(rg_kept_put(k, "", id, text, strlen(text)));
            is_kept(k, "", "resp_0", i < 50 || disk ? text : NULL); /* read again and again, it is not the oldest */
            if (i == 49 && !disk)
                assert_true(rg_kept_remove(k, "", "resp_0"));
        }
        TEST_UNTIL(rg_kept_bytes(k) <= 10000);
        is_kept(k, "", "resp_99", text);
        is_kept(k, "", "resp_50", disk ? text : NULL);
        assert_true(!disk || rg_kept_remove(k, "", "resp_98"));
        rg_kept_close(k);
        if (!disk)
            continue;
        k = open_kept(dir, 10000, 3600);
        is_kept(k, "", "resp_0", text);
        is_kept(k, "", "resp_99", text);
        is_kept(k, "", "resp_98", NULL);
        rg_kept_close(k);
    }
    rg_kept_texts *k = open_kept(NULL, 10000, -1); /* older than that at once */
    assert_true(rg_kept_put(k, "", "resp_1", "x", 1));
    is_kept(k, "", "resp_1", NULL);
    rg_kept_close(k);
}

/* ---- histories --------------------------------------------------------------------------------------------------- */

static test_server t;

static json_t *ask(const char *path, const char *fmt, ...)
{
    char body[4000];
    va_list args;

    va_start(args, fmt);
    vsnprintf(body, sizeof body, fmt, args);
    va_end(args);
    return test_web_json(t.port, path, body, 200);
}

static json_t *get(const char *fmt, ...)
{
    char path[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    return test_web_json(t.port, path, NULL, 200);
}

static int status_of(const char *method, const char *headers, const char *fmt, ...)
{
    char path[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    test_reply r = test_web_ask(t.port, method, path, headers, NULL);
    int status = r.status;
    test_reply_free(&r);
    return status;
}

static long long int_at(const json_t *v, const char *path)
{
    return json_integer_value(test_json_at(v, path));
}

#define SHORT "\"max_output_tokens\":4,\"temperature\":0"

/* The prompt of a response that goes on is that of the whole conversation. */
static void responses_go_on(void **state)
{
    char id[64], text[200];

    (void)state;
    json_t *one = ask("/v1/responses", "{\"input\":\"Hi\",\"instructions\":\"Be kind.\"," SHORT "}");
    snprintf(id, sizeof id, "%s", test_json_text(one, "id"));
    snprintf(text, sizeof text, "%s", test_json_text(one, "output.0.content.0.text"));
    assert_true(json_is_true(json_object_get(one, "store")));
    for (int stream = 0; stream < 2; stream++) {
        json_t *want = ask("/v1/responses/input_tokens",
                           "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
                           "\"%s\"},{\"role\":\"user\",\"content\":\"More?\"}]}", text);
        json_t *two = ask("/v1/responses", "{\"input\":\"More?\",\"previous_response_id\":\"%s\"," SHORT "}", id);
        assert_int_equal(int_at(two, "usage.input_tokens"), int_at(want, "input_tokens"));
        assert_string_equal(test_json_text(two, "previous_response_id"), id);
        json_t *back = get("/v1/responses/%s", test_json_text(two, "id"));
        if (!json_equal(back, two))
            fail_msg("%s", json_dumps(back, 0));
        json_t *items = get("/v1/responses/%s/input_items?order=asc", test_json_text(two, "id"));
        assert_int_equal(json_array_size(json_object_get(items, "data")), 3);
        assert_string_equal(test_json_text(items, "data.2.content.0.text"), "More?");
        assert_string_equal(test_json_text(items, "data.1.role"), "assistant");
        assert_true(json_is_false(json_object_get(items, "has_more")));
        json_t *page = get("/v1/responses/%s/input_items?limit=1&after=%s", test_json_text(two, "id"),
                           test_json_text(items, "last_id"));
        assert_string_equal(test_json_text(page, "data.0.role"), "assistant");
        assert_true(json_is_true(json_object_get(page, "has_more")));
        json_decref(want);
        json_decref(two);
        json_decref(back);
        json_decref(items);
        json_decref(page);
    }
    assert_int_equal(status_of("DELETE", NULL, "/v1/responses/%s", id), 200);
    assert_int_equal(status_of("GET", NULL, "/v1/responses/%s", id), 404);
    assert_int_equal(status_of("DELETE", NULL, "/v1/responses/%s", id), 404);
    snprintf(text, sizeof text, "{\"input\":\"a\",\"previous_response_id\":\"%s\"}", id);
    json_t *gone = test_web_json(t.port, "/v1/responses", text, 400);
    assert_string_equal(test_json_text(gone, "error.code"), "previous_response_not_found");
    json_decref(gone);
    json_decref(one);
}

static void what_is_not_to_be_stored_is_not(void **state)
{
    (void)state;
    json_t *v = ask("/v1/responses", "{\"input\":\"Hi\",\"store\":false," SHORT "}");
    assert_true(json_is_false(json_object_get(v, "store")));
    assert_int_equal(status_of("GET", NULL, "/v1/responses/%s", test_json_text(v, "id")), 404);
    json_decref(v);
}

/* A stream's response is kept as its last event has it. */
static void streams_are_kept(void **state)
{
    test_reply r = test_web_ask(t.port, "POST", "/v1/responses", NULL, "{\"input\":\"Hi\",\"stream\":true," SHORT "}");
    const char *last = strstr(r.body, "\"type\":\"response.incomplete\"");

    (void)state;
    assert_non_null(last);
    last -= 1;
    json_t *event = json_loadb(last, strcspn(last, "\n"), 0, NULL), *response = json_object_get(event, "response");
    json_t *back = get("/v1/responses/%s", test_json_text(response, "id"));
    assert_true(json_equal(back, response));
    json_decref(back);
    json_decref(event);
    test_reply_free(&r);
}

/* An item can be referred to by its id. */
static void references_are_resolved(void **state)
{
    (void)state;
    json_t *one = ask("/v1/responses", "{\"input\":\"Hi\"," SHORT "}");
    json_t *got = ask("/v1/responses/input_tokens",
                      "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"type\":\"item_reference\",\"id\":\"%s\"},"
                      "{\"role\":\"user\",\"content\":\"More?\"}]}", test_json_text(one, "output.0.id"));
    json_t *want = ask("/v1/responses/input_tokens", "{\"input\":\"More?\",\"previous_response_id\":\"%s\"}",
                       test_json_text(one, "id"));
    assert_int_equal(int_at(got, "input_tokens"), int_at(want, "input_tokens"));
    json_decref(one);
    json_decref(got);
    json_decref(want);
}

/* ---- conversations ----------------------------------------------------------------------------------------------- */

static void conversations_grow(void **state)
{
    char id[64];

    (void)state;
    json_t *v = ask("/v1/conversations", "{\"metadata\":{\"a\":\"b\"},\"items\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    snprintf(id, sizeof id, "%s", test_json_text(v, "id"));
    assert_string_equal(test_json_text(v, "object"), "conversation");
    json_decref(v);
    v = ask("/v1/responses", "{\"input\":\"More?\",\"conversation\":{\"id\":\"%s\"}," SHORT "}", id);
    assert_string_equal(test_json_text(v, "conversation.id"), id);
    json_decref(v);
    v = ask("/v1/responses", "{\"input\":\"And?\",\"store\":false,\"conversation\":\"%s\"," SHORT "}", id);
    json_decref(v);
    char path[200];
    snprintf(path, sizeof path, "/v1/conversations/%s/items", id);
    v = ask(path, "{\"items\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
                  "\"Last\"}]}]}");
    assert_string_equal(test_json_text(v, "data.0.content.0.text"), "Last");
    json_decref(v);
    v = get("/v1/conversations/%s/items?order=asc", id); /* Hi, More?, its answer, And?, its answer, Last */
    assert_int_equal(json_array_size(json_object_get(v, "data")), 6);
    assert_string_equal(test_json_text(v, "data.0.content.0.text"), "Hi");
    assert_string_equal(test_json_text(v, "data.2.role"), "assistant");
    assert_string_equal(test_json_text(v, "data.3.content.0.text"), "And?");
    json_t *one = get("/v1/conversations/%s/items/%s", id, test_json_text(v, "data.3.id"));
    assert_true(json_equal(one, test_json_at(v, "data.3")));
    assert_int_equal(status_of("DELETE", NULL, "/v1/conversations/%s/items/%s", id, test_json_text(v, "data.3.id")), 200);
    assert_int_equal(status_of("GET", NULL, "/v1/conversations/%s/items/%s", id, test_json_text(v, "data.3.id")), 404);
    json_decref(one);
    json_decref(v);
    snprintf(path, sizeof path, "/v1/conversations/%s", id);
    v = ask(path, "{\"metadata\":{\"c\":\"d\"}}");
    assert_string_equal(test_json_text(v, "metadata.c"), "d");
    json_decref(v);
    v = get("/v1/conversations/%s/items?limit=100", id);
    assert_int_equal(json_array_size(json_object_get(v, "data")), 5);
    json_decref(v);
    assert_int_equal(status_of("DELETE", NULL, "/v1/conversations/%s", id), 200);
    assert_int_equal(status_of("GET", NULL, "/v1/conversations/%s", id), 404);
    snprintf(path, sizeof path, "{\"input\":\"a\",\"conversation\":\"%s\"}", id);
    json_decref(test_web_json(t.port, "/v1/responses", path, 400));
    json_decref(test_web_json(t.port, "/v1/responses",
                              "{\"input\":\"a\",\"conversation\":\"c\",\"previous_response_id\":\"r\"}", 400));
}

/* ---- in the background ------------------------------------------------------------------------------------------- */

static bool has_status(const char *id, const char *status)
{
    json_t *v = get("/v1/responses/%s", id);
    bool is = !strcmp(test_json_text(v, "status"), status);

    json_decref(v);
    return is;
}

static void responses_are_made_in_the_background(void **state)
{
    char id[64], path[100];

    (void)state;
    json_t *v = ask("/v1/responses", "{\"input\":\"Hi\",\"background\":true," SHORT "}");
    snprintf(id, sizeof id, "%s", test_json_text(v, "id"));
    assert_string_equal(test_json_text(v, "status"), "queued");
    json_decref(v);
    TEST_UNTIL(has_status(id, "incomplete"));
    v = get("/v1/responses/%s", id);
    assert_int_equal(int_at(v, "usage.output_tokens"), 4);
    json_decref(v);

    v = ask("/v1/responses", "{\"input\":\"Hi\",\"background\":true,\"ignore_eos\":true}"); /* all of the context */
    snprintf(id, sizeof id, "%s", test_json_text(v, "id"));
    json_decref(v);
    snprintf(path, sizeof path, "/v1/responses/%s/cancel", id);
    v = ask(path, "{}");
    bool cancelled = !strcmp(test_json_text(v, "status"), "cancelled"); /* else it was over already */
    json_decref(v);
    if (cancelled)
        TEST_UNTIL(has_status(id, "cancelled"));
    json_decref(test_web_json(t.port, "/v1/responses", "{\"input\":\"a\",\"background\":true,\"store\":false}", 400));
    v = ask("/v1/responses", "{\"input\":\"Hi\"," SHORT "}");
    snprintf(path, sizeof path, "/v1/responses/%s/cancel", test_json_text(v, "id"));
    json_decref(v);
    json_decref(test_web_json(t.port, path, "{}", 400));
}

/* ---- what is too long -------------------------------------------------------------------------------------------- */

static void the_oldest_turns_are_cut(void **state)
{
    static char body[40000];
    size_t n = (size_t)snprintf(body, sizeof body, "{" SHORT ",\"instructions\":\"Be kind.\",\"input\":[");

    (void)state;
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, "{\"role\":\"user\",\"content\":\"A question, number %d.\"},"
                                                         "{\"role\":\"assistant\",\"content\":\"An answer.\"},", i);
    n += (size_t)snprintf(body + n, sizeof body - n, "{\"role\":\"user\",\"content\":\"The last one.\"}]");
    snprintf(body + n, sizeof body - n, "}");
    json_t *v = test_web_json(t.port, "/v1/responses", body, 400);
    assert_string_equal(test_json_text(v, "error.code"), "context_length_exceeded");
    json_decref(v);
    snprintf(body + n, sizeof body - n, ",\"truncation\":\"auto\"}");
    test_reply r = test_web_ask(t.port, "POST", "/v1/responses", NULL, body);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(test_reply_header(&r, "X-Ridge-Warning"), "turns were left out"));
    v = test_reply_json(&r);
    assert_string_equal(test_json_text(v, "truncation"), "auto");
    assert_true(int_at(v, "usage.input_tokens") <= 256 - 4 && int_at(v, "usage.input_tokens") > 200);
    json_decref(v);
    test_reply_free(&r);
}

/* ---- owners and restarts ----------------------------------------------------------------------------------------- */

static void keys_do_not_see_each_other(void **state)
{
    static const char *const keys[] = { "one", "two" };
    rg_server_options o = test_server_options();
    char id[64];

    (void)state;
    test_server_stop(&t);
    o.keys = keys;
    o.n_keys = 2;
    o.store_dir = folder_of("keys");
    test_server_start(&t, &o, 256, 4);
    test_reply r = test_web_ask(t.port, "POST", "/v1/responses", "Authorization: Bearer one\r\n", "{\"input\":\"Hi\"," SHORT "}");
    json_t *v = test_reply_json(&r);
    snprintf(id, sizeof id, "%s", test_json_text(v, "id"));
    json_decref(v);
    test_reply_free(&r);
    for (int again = 0; again < 2; again++) { /* the second time from the disk, with the keys in another order */
        assert_int_equal(status_of("GET", "Authorization: Bearer one\r\n", "/v1/responses/%s", id), 200);
        assert_int_equal(status_of("GET", "Authorization: Bearer two\r\n", "/v1/responses/%s", id), 404);
        assert_int_equal(status_of("DELETE", "Authorization: Bearer two\r\n", "/v1/responses/%s", id), 404);
        if (again)
            break;
        static const char *const turned[] = { "two", "one" };
        test_server_stop(&t);
        o.keys = turned;
        test_server_start(&t, &o, 256, 4);
    }
}

/* Responses in the background whose server ended before them, as they are found on the disk by the next. */
static void what_nobody_makes_any_more_has_failed(void **state)
{
    static const struct {
        const char *id, *background, *status, *want;
    } cases[] = {
        { "resp_queued", "true", "queued", "failed" },
        { "resp_begun", "true", "in_progress", "failed" },
        { "resp_done", "true", "completed", "completed" },
        { "resp_streamed", "false", "in_progress", "in_progress" },
    };
    rg_server_options o = test_server_options();
    char text[300], path[100];

    (void)state;
    test_server_stop(&t);
    o.store_dir = folder_of("abandoned");
    test_server_start(&t, &o, 256, 4);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(text, sizeof text,
                 "{\"response\":{\"id\":\"%s\",\"background\":%s,\"status\":\"%s\",\"error\":null},\"items\":[]}", cases[i].id,
                 cases[i].background, cases[i].status);
        assert_true(rg_kept_put(t.s->kept, "", cases[i].id, text, strlen(text)));
    }
    test_server_stop(&t);
    test_server_start(&t, &o, 256, 4);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(path, sizeof path, "/v1/responses/%s", cases[i].id);
        json_t *v = test_web_json(t.port, path, NULL, 200);
        assert_string_equal(test_json_text(v, "status"), cases[i].want);
        assert_int_equal(json_is_object(test_json_at(v, "error")), !strcmp(cases[i].want, "failed"));
        json_decref(v);
    }
}

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    test_server_start(&t, &o, 256, 4);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_quiet(&t);
    test_server_stop(&t);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_their_owners),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(responses_go_on),
        cmocka_unit_test(what_is_not_to_be_stored_is_not),
        cmocka_unit_test(streams_are_kept),
        cmocka_unit_test(references_are_resolved),
        cmocka_unit_test(conversations_grow),
        cmocka_unit_test(responses_are_made_in_the_background),
        cmocka_unit_test(the_oldest_turns_are_cut),
        cmocka_unit_test(keys_do_not_see_each_other),
        cmocka_unit_test(what_nobody_makes_any_more_has_failed),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
