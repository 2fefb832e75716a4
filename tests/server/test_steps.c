/* test_steps.c -- GET /steps and GET /trace/ID: what steps did, and how an answer's time was spent, in counts. */
#include "live.h"

#include "server/steps.h"

/* ---- the rings --------------------------------------------------------------------------------------------------- */

static rg_steps *new_steps(void)
{
    rg_error err;
    rg_steps *s = rg_steps_new(&err);

    assert_ok(s, err);
    return s;
}

/* Add n steps of one row each to what an engine counted, noted at time `at`. */
static void step(rg_steps *s, rg_stats *engine, int n, uint64_t at)
{
    rg_stats then = *engine;

    engine->n_steps += (uint64_t)n;
    engine->n_rows += (uint64_t)n;
    engine->n_output += (uint64_t)n;
    engine->bytes_read += 100 * (uint64_t)n;
    rg_steps_add(s, &then, engine, at);
}

static void a_note_has_what_came_between_two_looks(void **state)
{
    rg_steps *s = new_steps();
    rg_stats then = { .n_steps = 7, .busy_s = 1, .limit_s = 0.5, .ops = 10, .bytes_read = 50, .n_rows = 20,
                      .n_output = 5, .n_draft_rows = 3, .n_draft_accepted = 1, .n_running = 9 };
    rg_stats now = { .n_steps = 9, .busy_s = 3, .limit_s = 1.5, .ops = 40, .bytes_read = 90, .n_rows = 26,
                     .n_output = 8, .n_draft_rows = 7, .n_draft_accepted = 3, .n_running = 4 };
    rg_step_note got[2];
    uint64_t last = 99;

    (void)state;
    assert_int_equal(rg_steps_read(s, 0, 0, got, 2, &last), 0);
    assert_int_equal(last, 0);
    rg_steps_add(s, &then, &now, 1000);
    rg_steps_add(s, &now, &now, 2000); /* no step ended */
    assert_int_equal(rg_steps_read(s, 0, 0, got, 2, &last), 1);
    assert_int_equal(last, 2);
    assert_int_equal(got[0].number, 2);
    assert_int_equal(got[0].end_ns, 1000);
    assert_int_equal(got[0].n_steps, 2);
    assert_int_equal(got[0].n_rows, 6);
    assert_int_equal(got[0].n_output, 3);
    assert_int_equal(got[0].n_drafted, 4);
    assert_int_equal(got[0].n_accepted, 2);
    assert_int_equal(got[0].n_running, 4);
    assert_int_equal(got[0].bytes, 40);
    assert_float_equal(got[0].ops, 30, 0);
    assert_float_equal(got[0].took_s, 2, 0);
    assert_float_equal(got[0].limit_s, 1, 0);
    rg_steps_free(s);
}

static void the_latest_are_read(void **state)
{
    enum { MORE = 10 };
    rg_step_note *got = malloc(sizeof *got * (RG_STEPS_KEPT + MORE));
    rg_steps *s = new_steps();
    rg_stats engine = { 0 };
    uint64_t last;

    (void)state;
    for (int i = 1; i <= RG_STEPS_KEPT + MORE; i++)
        step(s, &engine, 1, (uint64_t)i * 10);
    int n = rg_steps_read(s, 0, 0, got, RG_STEPS_KEPT + MORE, &last);
    assert_int_equal(n, RG_STEPS_KEPT); /* the oldest were overwritten */
    assert_int_equal(last, RG_STEPS_KEPT + MORE);
    for (int i = 0; i < n; i++)
        assert_int_equal(got[i].number, MORE + 1 + i);
    assert_int_equal(rg_steps_read(s, last - 3, 0, got, RG_STEPS_KEPT, NULL), 3);
    assert_int_equal(got[0].number, last - 2);
    assert_int_equal(rg_steps_read(s, 0, 0, got, 2, NULL), 2); /* of those that fit, the latest */
    assert_int_equal(got[0].number, last - 1);
    assert_int_equal(got[1].number, last);
    assert_int_equal(rg_steps_read(s, 0, (last - 4) * 10, got, RG_STEPS_KEPT, NULL), 4);
    assert_int_equal(rg_steps_read(s, last, 0, got, RG_STEPS_KEPT, NULL), 0);
    assert_int_equal(rg_steps_read(s, last + 1000, 0, got, RG_STEPS_KEPT, NULL), 0);
    rg_steps_free(s);
    free(got);
}

/* An engine that is opened anew counts from 0; the numbers of steps go on, so that who has read some misses none. */
static void numbers_go_on_with_another_engine(void **state)
{
    rg_steps *s = new_steps();
    rg_stats one = { 0 }, other = { 0 };
    rg_step_note got[4];
    uint64_t last;

    (void)state;
    step(s, &one, 40, 10);
    step(s, &other, 2, 20);
    assert_int_equal(rg_steps_read(s, 40, 0, got, 4, &last), 1);
    assert_int_equal(got[0].number, 42);
    assert_int_equal(got[0].n_steps, 2);
    assert_int_equal(last, 42);
    rg_steps_free(s);
}

static void answer(rg_steps *s, const char *id, int32_t tenant, int64_t n_output)
{
    rg_answer_note a = { .tenant = tenant, .n_output = n_output };

    snprintf(a.id, sizeof a.id, "%s", id);
    rg_steps_answered(s, &a, 0);
}

static void answers_are_found_by_id_and_key(void **state)
{
    rg_steps *s = new_steps();
    rg_answer_note a;
    char id[16];

    (void)state;
    answer(s, "one", 0, 1);
    answer(s, "one", 1, 2);
    answer(s, "one", 0, 3);
    assert_true(rg_steps_find(s, "one", 0, &a));
    assert_int_equal(a.n_output, 3); /* the latest of this id */
    assert_true(rg_steps_find(s, "one", 1, &a));
    assert_int_equal(a.n_output, 2);
    assert_false(rg_steps_find(s, "one", -1, &a));
    assert_false(rg_steps_find(s, "on", 0, &a));
    assert_false(rg_steps_find(s, "", 0, &a));
    for (int i = 0; i < RG_ANSWERS_KEPT - 1; i++) {
        snprintf(id, sizeof id, "%d", i);
        answer(s, id, 0, i);
    }
    assert_true(rg_steps_find(s, "one", 0, &a)); /* the oldest that is kept */
    answer(s, "last", 0, 9);
    assert_false(rg_steps_find(s, "one", 0, &a));
    assert_true(rg_steps_find(s, "0", 0, &a));
    rg_steps_free(s);
}

/* An answer ends with a step that may not have been noted yet, of an engine that counts from 0. */
static void an_answer_knows_its_last_step(void **state)
{
    rg_steps *s = new_steps();
    rg_stats one = { 0 }, other = { 0 };
    rg_answer_note a = { .id = "a" };

    (void)state;
    step(s, &one, 40, 10);
    step(s, &other, 0, 20);
    step(s, &other, 2, 30);
    rg_steps_answered(s, &a, 2);
    assert_true(rg_steps_find(s, "a", 0, &a));
    assert_int_equal(a.last_step, 42);
    rg_steps_answered(s, &a, 5);
    assert_true(rg_steps_find(s, "a", 0, &a));
    assert_int_equal(a.last_step, 45);
    rg_steps_free(s);
}

/* ---- the endpoints ----------------------------------------------------------------------------------------------- */

static json_t *get(int port, const char *headers, const char *path, int want)
{
    test_reply r = test_web_ask(port, "GET", path, headers, NULL);

    if (r.status != want)
        fail_msg("GET %s: %d %s", path, r.status, r.body);
    json_t *v = test_reply_json(&r);
    test_reply_free(&r);
    return v;
}

static void ask(int port, const char *headers, const char *body)
{
    test_reply r = test_web_ask(port, "POST", "/v1/completions", headers, body);

    if (r.status != 200)
        fail_msg("%d %s", r.status, r.body);
    test_reply_free(&r);
}

static int64_t int_of(const json_t *v, const char *path)
{
    const json_t *at = test_json_at(v, path);

    if (!json_is_integer(at))
        fail_msg("no integer at %s in %s", path, json_dumps(v, 0));
    return json_integer_value(at);
}

static int64_t sum_of(const json_t *steps, const char *key)
{
    int64_t sum = 0;

    for (size_t i = 0; i < json_array_size(steps); i++)
        sum += int_of(json_array_get(steps, i), key);
    return sum;
}

/* The reply to `path` once it tells so many steps in all: the pump looks at the engine after it has written an answer. */
static json_t *steps_once(int port, const char *path, int64_t n)
{
    json_t *v = NULL;

    TEST_UNTIL((json_decref(v), v = get(port, NULL, path, 200), sum_of(test_json_at(v, "steps"), "steps") >= n));
    return v;
}

static void steps_count_what_was_computed(void **state)
{
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    test_server_start(&t, &o, 256, 8);
    json_t *v = get(t.port, NULL, "/steps", 200);
    assert_int_equal(json_array_size(test_json_at(v, "steps")), 0);
    assert_int_equal(int_of(v, "next"), 0);
    assert_string_equal(test_json_text(v, "model"), "tales");
    json_decref(v);
    ask(t.port, NULL, "{\"prompt\":[5,6,7,8],\"max_tokens\":9,\"ignore_eos\":true}");
    v = steps_once(t.port, "/steps", 9);
    const json_t *steps = test_json_at(v, "steps");
    const int64_t next = int_of(v, "next");
    assert_int_equal(sum_of(steps, "steps"), 9); /* the prompt gives the first id */
    assert_int_equal(next, 9);
    assert_int_equal(sum_of(steps, "output_tokens"), 9);
    assert_int_equal(sum_of(steps, "rows"), 4 + 8);
    assert_int_equal(sum_of(steps, "drafted_tokens"), 0);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *one = json_array_get(steps, i);
        assert_true(int_of(one, "bytes") > 0 && json_number_value(json_object_get(one, "ops")) > 0);
        assert_true(!i || int_of(one, "number") > int_of(json_array_get(steps, i - 1), "number"));
    }
    json_decref(v);
    v = get(t.port, NULL, "/steps?after=9", 200); /* nothing new */
    assert_int_equal(json_array_size(test_json_at(v, "steps")), 0);
    assert_int_equal(int_of(v, "next"), 9);
    json_decref(v);
    v = get(t.port, NULL, "/steps?limit=1&model=tales", 200);
    assert_int_equal(json_array_size(test_json_at(v, "steps")), 1);
    assert_int_equal(int_of(v, "steps.0.number"), 9);
    json_decref(v);
    test_server_stop(&t);
}

static void bad_queries_are_refused(void **state)
{
    static const struct {
        const char *path, *param;
    } bad[] = { { "/steps?after=x", "after" }, { "/steps?after=-1", "after" }, { "/steps?after=", "after" },
                { "/steps?after=1.5", "after" }, { "/steps?after=99999999999999999999", "after" },
                { "/steps?limit=0", "limit" }, { "/steps?limit=8193", "limit" }, { "/steps?limit=7%20", "limit" } };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    test_server_start(&t, &o, 256, 8);
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        json_t *v = get(t.port, NULL, bad[i].path, 400);
        assert_string_equal(test_json_text(v, "error.param"), bad[i].param);
        json_decref(v);
    }
    json_decref(get(t.port, NULL, "/steps?model=nobody", 404));
    json_decref(get(t.port, NULL, "/status?model=nobody", 404));
    json_decref(get(t.port, NULL, "/status?model=tales", 200));
    json_decref(get(t.port, NULL, "/trace/", 404));
    json_decref(get(t.port, NULL, "/trace/never", 404));
    test_server_stop(&t);
}

/* A server that has no engine yet has done no step. */
static void steps_before_the_model_is_there(void **state)
{
    rg_server_options o = test_server_options();
    rg_error err = { 0 };
    rg_server *s = rg_server_open(&o, &err);

    (void)state;
    assert_ok(s, err);
    rg_served_loading(rg_server_first(s), "reading weights", 0.25);
    json_t *v = get(test_port(s), NULL, "/steps", 200);
    assert_int_equal(json_array_size(test_json_at(v, "steps")), 0);
    json_decref(v);
    v = get(test_port(s), NULL, "/status", 200);
    assert_string_equal(test_json_text(v, "state"), "loading");
    assert_string_equal(test_json_text(v, "step"), "reading weights");
    assert_float_equal(json_number_value(test_json_at(v, "progress")), 0.25, 0);
    json_decref(v);
    rg_server_close(s);
}

/* The span of this name; it fails the test if there is none. */
static const json_t *span(const json_t *events, const char *name)
{
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        if (!strcmp(test_json_text(e, "ph"), "X") && !strcmp(test_json_text(e, "name"), name))
            return e;
    }
    fail_msg("no span '%s' in %s", name, json_dumps(events, 0));
    return NULL;
}

static double end_of(const json_t *e)
{
    return json_number_value(json_object_get(e, "ts")) + json_number_value(json_object_get(e, "dur"));
}

static void a_trace_has_the_phases_and_the_steps(void **state)
{
    rg_server_options o = test_server_options();
    test_server t;
    int64_t rows = 0, output = 0;

    (void)state;
    test_server_start(&t, &o, 256, 8);
    ask(t.port, "X-Request-Id: before\r\n", "{\"prompt\":[5,6],\"max_tokens\":3,\"ignore_eos\":true}");
    json_decref(steps_once(t.port, "/steps", 3));
    ask(t.port, "X-Request-Id: mine\r\n", "{\"prompt\":[5,6,7,8,9],\"max_tokens\":7,\"ignore_eos\":true}");
    json_decref(steps_once(t.port, "/steps", 3 + 7));
    json_t *v = get(t.port, NULL, "/trace/mine", 200);
    const json_t *events = test_json_at(v, "traceEvents");
    const json_t *waiting = span(events, "waiting"), *prefill = span(events, "prefill");
    const json_t *generation = span(events, "generation");
    assert_int_equal(int_of(prefill, "args.prompt_tokens"), 5);
    assert_int_equal(int_of(prefill, "args.cached_tokens"), 0);
    assert_int_equal(int_of(generation, "args.output_tokens"), 7);
    assert_int_equal(int_of(generation, "args.drafted_tokens"), 0);
    assert_float_equal(json_number_value(json_object_get(prefill, "ts")), end_of(waiting), 1e-3);
    assert_float_equal(json_number_value(json_object_get(generation, "ts")), end_of(prefill), 1e-3);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        if (!strcmp(test_json_text(e, "ph"), "X") && int_of(e, "tid") == 2) {
            assert_string_equal(test_json_text(e, "name"), "step");
            rows += int_of(e, "args.rows");
            output += int_of(e, "args.output_tokens");
        }
    }
    assert_int_equal(rows, 5 + 6); /* none of those of the request before */
    assert_int_equal(output, 7);
    json_decref(v);
    v = get(t.port, NULL, "/trace/before", 200);
    assert_int_equal(int_of(span(test_json_at(v, "traceEvents"), "prefill"), "args.prompt_tokens"), 2);
    json_decref(v);
    test_server_stop(&t);
}

static void drafts_are_told(void **state)
{
    rg_options eo = rg_options_default();
    rg_server_options o = test_server_options();
    rg_error err = { 0 };
    test_server t;

    (void)state;
    eo.draft = "ngram";
    eo.max_draft = 4;
    eo.max_seq_len = 256;
    eo.n_threads = 1;
    eo.kv_bytes = (size_t)64 << 20;
    rg_engine *engine = rg_open(RG_SOURCE_DIR "/models/tales-1m", &eo, &err);
    assert_ok(engine, err);
    test_server_start_with(&t, &o, engine);
    ask(t.port, "X-Request-Id: drafted\r\n", /* what comes again is guessed */
        "{\"prompt\":[5,6,7,8,5,6,7,8,5,6,7,8,5,6],\"max_tokens\":40,\"ignore_eos\":true,\"temperature\":0}");
    rg_stats s = rg_engine_stats(engine);
    assert_true(s.n_draft_rows > 0);
    json_t *v = steps_once(t.port, "/steps", (int64_t)s.n_steps);
    assert_int_equal(sum_of(test_json_at(v, "steps"), "drafted_tokens"), s.n_draft_rows);
    assert_int_equal(sum_of(test_json_at(v, "steps"), "accepted_tokens"), s.n_draft_accepted);
    json_decref(v);
    v = get(t.port, NULL, "/trace/drafted", 200);
    const json_t *generation = span(test_json_at(v, "traceEvents"), "generation");
    assert_int_equal(int_of(generation, "args.drafted_tokens"), s.n_draft_rows);
    assert_int_equal(int_of(generation, "args.accepted_tokens"), s.n_draft_accepted);
    assert_true(int_of(span(test_json_at(v, "traceEvents"), "step with drafts"), "args.drafted_tokens") > 0);
    json_decref(v);
    test_server_stop(&t);
}

/* Nobody sees the trace of another key's answer, or any without a key. */
static void traces_are_of_ones_own_key(void **state)
{
    static const char *const keys[] = { "key-of-ann", "key-of-bob" };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    o.keys = keys;
    o.n_keys = 2;
    test_server_start(&t, &o, 256, 8);
    ask(t.port, "Authorization: Bearer key-of-ann\r\nX-Request-Id: mine\r\n", "{\"prompt\":[5,6],\"max_tokens\":2}");
    json_decref(get(t.port, "Authorization: Bearer key-of-ann\r\n", "/trace/mine", 200));
    json_decref(get(t.port, "Authorization: Bearer key-of-bob\r\n", "/trace/mine", 404));
    json_decref(get(t.port, NULL, "/trace/mine", 401));
    json_decref(get(t.port, NULL, "/steps", 401));
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_has_what_came_between_two_looks),
        cmocka_unit_test(the_latest_are_read),
        cmocka_unit_test(numbers_go_on_with_another_engine),
        cmocka_unit_test(answers_are_found_by_id_and_key),
        cmocka_unit_test(an_answer_knows_its_last_step),
        cmocka_unit_test(steps_count_what_was_computed),
        cmocka_unit_test(bad_queries_are_refused),
        cmocka_unit_test(steps_before_the_model_is_there),
        cmocka_unit_test(a_trace_has_the_phases_and_the_steps),
        cmocka_unit_test(drafts_are_told),
        cmocka_unit_test(traces_are_of_ones_own_key),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
