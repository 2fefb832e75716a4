/* test_batches.c -- /v1/files and /v1/batches over HTTP: shapes, refusals, owners, and lines that run in the gaps. */
#define _GNU_SOURCE 1
#include <dirent.h>

#include "server/held.h"
#include "support/batch.h"

static test_server t;
static char dir[64];

static const char *const two_keys[] = { "key-of-ann", "key-of-bob" };
static const char ann[] = "Authorization: Bearer key-of-ann\r\n", bob[] = "Authorization: Bearer key-of-bob\r\n";

static int32_t max_batches = 64;

static void start(bool keys)
{
    rg_server_options o = test_server_options();

    o.batch_dir = dir;
    o.max_batches = max_batches;
    o.keys = two_keys;
    o.n_keys = keys ? 2 : 0;
    o.max_body = (size_t)16 << 20;
    test_server_start(&t, &o, 512, 16);
}

static _Atomic uint64_t ahead_ns; /* of the clocks that a test sets */

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ridge-batches-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

/* Nothing but the database was ever in it. */
static int remove_dir(void **state)
{
    char path[512];
    DIR *d = opendir(dir);

    (void)state;
    rg_clock_set(NULL, NULL);
    rg_clock_jump(0);
    ahead_ns = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        if (strncmp(e->d_name, "batches.db", 10) != 0)
            return -1;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    return rmdir(dir);
}

static json_t *new_batch(const char *more, const char *lines, const char *endpoint, char id[64])
{
    char file[64];

    test_upload(t.port, more, lines, file);
    json_t *v = test_batch_new(t.port, more, file, endpoint);
    snprintf(id, 64, "%s", test_text(v, "id"));
    return v;
}

/* Of the server's figures. */
static double figure(const char *name)
{
    test_reply r = test_web_ask(t.port, "GET", "/metrics", NULL, NULL);
    size_t n = strlen(name);
    const char *at = r.body;

    assert_int_equal(r.status, 200);
    while ((at = strstr(at, name)) && !(at[-1] == '\n' && at[n] == '{'))
        at++;
    assert_non_null(at);
    double v = atof(strchr(at, '}') + 1);
    test_reply_free(&r);
    return v;
}

/* n lines of so many tokens. */
static char *make_lines(int n, int tokens)
{
    char *s = malloc((size_t)n * 200 + 1), *to = s;

    assert_non_null(s);
    for (int i = 0; i < n; i++)
        to += sprintf(to, "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":"
                          "\"The %d\",\"max_tokens\":%d,\"ignore_eos\":true}}\n", i, i, tokens);
    return s;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void without_a_folder_there_are_none(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    test_server_start(&t, &o, 256, 4);
    json_t *v = test_ask_json(t.port, "GET", "/v1/files", NULL, NULL, 501);
    assert_string_equal(test_text(json_object_get(v, "error"), "code"), "batches_off");
    json_decref(v);
    json_decref(test_ask_json(t.port, "POST", "/v1/batches", NULL, "{}", 501));
    json_decref(test_ask_json(t.port, "DELETE", "/v1/files/x", NULL, NULL, 501));
    test_server_stop(&t);
}

static void upload_as(const char *name, int want)
{
    size_t n;
    char *form = test_form("batch", name, "x", 1, &n);
    test_reply r = test_post_form(t.port, NULL, form, n);

    if (r.status != want)
        fail_msg("%.40s: %d %s", name, r.status, r.body);
    if (want == 200) {
        json_t *v = test_reply_json(&r);
        assert_string_equal(test_text(v, "filename"), name);
        assert_string_equal(test_text(v, "object"), "file");
        assert_string_equal(test_text(v, "purpose"), "batch");
        assert_int_equal(json_integer_value(json_object_get(v, "bytes")), 1);
        json_decref(v);
    }
    test_reply_free(&r);
    free(form);
}

static void names_mean_nothing(void **state)
{
    static char long_name[4700];

    (void)state;
    start(false);
    upload_as("../../etc/passwd", 200);
    upload_as("/etc/passwd", 200);
    upload_as("..", 200);
    upload_as("", 200);
    upload_as("\xef\xbc\x8e\xef\xbc\x8e/\xef\xbc\x8f", 200); /* full-width dots and a slash */
    upload_as("batches.db", 200);
    upload_as("%2e%2e%2f", 200);
    memset(long_name, 'a', 4096);
    upload_as(long_name, 200);
    long_name[4096] = 'a';
    upload_as(long_name, 400);
    static const char *const ids[] = { "..", "../../../etc/passwd", "%2e%2e%2f%2e%2e", "batches.db", "a/b/content",
                                       "file-0/content", "\xef\xbc\x8e\xef\xbc\x8e", "file-00000000000000000000000000000000" };
    for (size_t i = 0; i < RG_LEN(ids); i++) {
        char path[128];
        snprintf(path, sizeof path, "/v1/files/%s", ids[i]);
        test_reply r = test_web_ask(t.port, "GET", path, NULL, NULL);
        assert_int_equal(r.status, 404);
        test_reply_free(&r);
        json_decref(test_ask_json(t.port, "DELETE", path, NULL, NULL, 404));
    }
    test_server_stop(&t);
}

static void forms_that_are_refused(void **state)
{
    static const char no_file[] = "--" TEST_BOUNDARY "\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
                                  "--" TEST_BOUNDARY "--";
    size_t n;
    char *form = test_form("fine-tune", "x", "x", 1, &n);
    test_reply r;

    (void)state;
    start(false);
    r = test_post_form(t.port, NULL, form, n);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "\"param\":\"purpose\""));
    test_reply_free(&r);
    r = test_post_form(t.port, NULL, no_file, sizeof no_file - 1);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "\"param\":\"file\""));
    test_reply_free(&r);
    r = test_post_form(t.port, NULL, "nothing", 7);
    assert_int_equal(r.status, 400);
    test_reply_free(&r);
    json_decref(test_ask_json(t.port, "POST", "/v1/files", NULL, "{}", 400));
    free(form);
    test_server_stop(&t);
}

static void content_comes_back(void **state)
{
    size_t n = (3 << 20) + 17, n_form;
    char *data = malloc(n), path[128];
    rg_rng rng = { .seed = test_seed };

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = (char)rg_rng_u64(&rng); /* NULs too */
    start(false);
    char *form = test_form("batch", "large", data, n, &n_form);
    test_reply r = test_post_form(t.port, NULL, form, n_form);
    assert_int_equal(r.status, 200);
    json_t *v = test_reply_json(&r);
    snprintf(path, sizeof path, "/v1/files/%s/content", test_text(v, "id"));
    json_decref(v);
    test_reply_free(&r);
    r = test_web_ask(t.port, "GET", path, NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.n_body, n);
    assert_memory_equal(r.body, data, n);
    test_reply_free(&r);
    free(form);
    free(data);
    test_server_stop(&t);
}

static void lists_have_pages(void **state)
{
    char ids[5][64], path[160];

    (void)state;
    start(false);
    for (int i = 0; i < 5; i++)
        test_upload(t.port, NULL, "x", ids[i]);
    json_t *v = test_ask_json(t.port, "GET", "/v1/files?limit=2", NULL, NULL, 200);
    assert_string_equal(test_text(v, "first_id"), ids[4]);
    assert_string_equal(test_text(v, "last_id"), ids[3]);
    assert_true(json_is_true(json_object_get(v, "has_more")));
    json_decref(v);
    snprintf(path, sizeof path, "/v1/files?limit=2&order=asc&after=%s&purpose=batch", ids[2]);
    v = test_ask_json(t.port, "GET", path, NULL, NULL, 200);
    assert_string_equal(test_text(v, "first_id"), ids[3]);
    assert_true(json_is_false(json_object_get(v, "has_more")));
    json_decref(v);
    v = test_ask_json(t.port, "GET", "/v1/files?purpose=assistants", NULL, NULL, 200);
    assert_int_equal(json_array_size(json_object_get(v, "data")), 0);
    json_decref(v);
    json_decref(test_ask_json(t.port, "GET", "/v1/files?limit=0", NULL, NULL, 400));
    json_decref(test_ask_json(t.port, "GET", "/v1/files?order=up", NULL, NULL, 400));
    json_decref(test_ask_json(t.port, "GET", "/v1/batches?after=batch_no", NULL, NULL, 400));
    test_server_stop(&t);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static void check_error(const json_t *batch, size_t i, const char *code, int line)
{
    const json_t *e = json_array_get(json_object_get(json_object_get(batch, "errors"), "data"), i);

    assert_string_equal(test_text(e, "code"), code);
    assert_int_equal(json_integer_value(json_object_get(e, "line")), line);
}

static void lines_that_are_no_requests(void **state)
{
    static const char lines[] =
        "\xef\xbb\xbf{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\r\n"
        "\n"
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n"
        "{\"custom_id\":\"b\",\n"
        "[]\n"
        "{\"custom_id\":7,\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n"
        "{\"custom_id\":\"c\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}\n"
        "{\"custom_id\":\"d\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}\n"
        "{\"custom_id\":\"e\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":[]}";
    char id[64];
    json_t *v;

    (void)state;
    start(false);
    json_decref(new_batch(NULL, lines, "/v1/completions", id));
    v = test_batch_wait(t.port, NULL, id, "failed", TEST_WATCHDOG_S);
    check_error(v, 0, "duplicate_custom_id", 3);
    check_error(v, 1, "invalid_json_line", 4);
    check_error(v, 2, "invalid_json_line", 5);
    check_error(v, 3, "invalid_custom_id", 6);
    check_error(v, 4, "invalid_method", 7);
    check_error(v, 5, "invalid_url", 8);
    check_error(v, 6, "missing_required_parameter", 9);
    assert_int_equal(json_array_size(json_object_get(json_object_get(v, "errors"), "data")), 7);
    assert_true(json_is_null(json_object_get(v, "output_file_id")));
    json_decref(v);
    json_decref(new_batch(NULL, "\n \n", "/v1/completions", id));
    v = test_batch_wait(t.port, NULL, id, "failed", TEST_WATCHDOG_S);
    check_error(v, 0, "empty_file", 0);
    json_decref(v);
    test_server_stop(&t);
}

static void batches_that_are_refused(void **state)
{
    static const char *const bodies[] = {
        "{}", "[]", "{\"input_file_id\":\"file-x\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\"}",
        "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/models\",\"completion_window\":\"24h\"}",
        "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"1h\"}",
        "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\",\"metadata\":[]}",
        "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\",\"metadata\":{\"a\":1}}",
    };
    char file[64], body[256];

    (void)state;
    start(false);
    test_upload(t.port, NULL, "x", file);
    for (size_t i = 0; i < RG_LEN(bodies); i++) {
        const char *hole = strstr(bodies[i], "%s");
        if (hole)
            snprintf(body, sizeof body, "%.*s%s%s", (int)(hole - bodies[i]), bodies[i], file, hole + 2);
        else
            snprintf(body, sizeof body, "%s", bodies[i]);
        json_decref(test_ask_json(t.port, "POST", "/v1/batches", NULL, body, 400));
    }
    test_server_stop(&t);
}

/* A line's answer is what the same request gets over HTTP. */
static void lines_are_requests(void **state)
{
    static const struct {
        const char *endpoint, *body;
        int want;
    } cases[] = {
        { "/v1/completions", "{\"prompt\":\"One day\",\"max_tokens\":9,\"seed\":4,\"logprobs\":1}", 200 },
        { "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":9,\"seed\":4}", 200 },
        { "/v1/responses", "{\"input\":\"Hi\",\"max_output_tokens\":9,\"temperature\":0}", 200 },
        { "/v1/embeddings", "{\"input\":[\"One day\",\"Hi\"]}", 200 },
        { "/v1/completions", "{\"prompt\":\"a\",\"model\":\"another\"}", 404 },
        { "/v1/completions", "{\"prompt\":7}", 400 },
        { "/v1/completions", "{\"prompt\":\"a\",\"stream\":true}", 400 },
    };
    static const char *const keys[] = { "choices", "output", "usage", "error", "data" };

    (void)state;
    start(false);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char line[512], id[64];
        snprintf(line, sizeof line, "{\"custom_id\":\"\xc3\xa4 \\u0000\",\"method\":\"POST\",\"url\":\"%s\",\"body\":%s}",
                 cases[i].endpoint, cases[i].body);
        json_decref(new_batch(NULL, line, cases[i].endpoint, id));
        json_t *v = test_batch_wait(t.port, NULL, id, "completed", TEST_WATCHDOG_S);
        assert_int_equal(test_count(v, cases[i].want == 200 ? "completed" : "failed"), 1);
        char path[160];
        snprintf(path, sizeof path, "/v1/files/%s/content",
                 test_text(v, cases[i].want == 200 ? "output_file_id" : "error_file_id"));
        json_t *got = test_ask_json(t.port, "GET", path, NULL, NULL, 200);
        const json_t *response = json_object_get(got, "response"), *body = json_object_get(response, "body");
        assert_int_equal(json_string_length(json_object_get(got, "custom_id")), 4);
        assert_int_equal(json_integer_value(json_object_get(response, "status_code")), cases[i].want);
        if (!strstr(cases[i].body, "stream")) {
            json_t *direct = test_web_json(t.port, cases[i].endpoint, cases[i].body, cases[i].want);
            for (size_t k = 0; k < RG_LEN(keys); k++) {
                json_t *a = json_object_get(body, keys[k]), *b = json_object_get(direct, keys[k]);
                json_t *item = json_array_get(a, 0), *other = json_array_get(b, 0);
                if (k == 1 && item) /* their ids differ */
                    json_object_del(item, "id"), json_object_del(other, "id");
                if (k == 2 && a) /* what was cached may, too */
                    for (int z = 0; z < 2; z++)
                        json_object_del(z ? b : a, "prompt_tokens_details"), json_object_del(z ? b : a, "input_tokens_details");
                assert_true(a == b || json_equal(a, b));
            }
            json_decref(direct);
        }
        json_decref(got);
        json_decref(v);
    }
    test_server_stop(&t);
}

static void a_line_of_ten_megabytes(void **state)
{
    static const char head[] = "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"max_tokens\":2,"
                               "\"prompt\":\"a\",\"padding\":\"";
    size_t n = (size_t)10 << 20;
    char *line = malloc(n + sizeof head + 8), id[64];

    (void)state;
    assert_non_null(line);
    strcpy(line, head);
    memset(line + sizeof head - 1, 'x', n);
    strcpy(line + sizeof head - 1 + n, "\"}}\n");
    start(false);
    json_decref(new_batch(NULL, line, "/v1/completions", id));
    json_t *v = test_batch_wait(t.port, NULL, id, "completed", TEST_WATCHDOG_S);
    assert_int_equal(test_count(v, "completed"), 1);
    json_decref(v);
    free(line);
    test_server_stop(&t);
}

static void owners_see_their_own(void **state)
{
    char file[64], id[64], path[160], *lines = make_lines(2, 2);

    (void)state;
    start(true);
    json_decref(test_ask_json(t.port, "GET", "/v1/files", NULL, NULL, 401));
    json_t *v = new_batch(ann, lines, "/v1/completions", id);
    snprintf(file, sizeof file, "%s", test_text(v, "input_file_id"));
    json_decref(v);
    snprintf(path, sizeof path, "/v1/files/%s", file);
    json_decref(test_ask_json(t.port, "GET", path, ann, NULL, 200));
    json_decref(test_ask_json(t.port, "GET", path, bob, NULL, 404));
    json_decref(test_ask_json(t.port, "DELETE", path, bob, NULL, 404));
    snprintf(path, sizeof path, "/v1/files/%s/content", file);
    json_decref(test_ask_json(t.port, "GET", path, bob, NULL, 404));
    snprintf(path, sizeof path, "/v1/batches/%s", id);
    json_decref(test_ask_json(t.port, "GET", path, bob, NULL, 404));
    snprintf(path, sizeof path, "/v1/batches/%s/cancel", id);
    json_decref(test_ask_json(t.port, "POST", path, bob, "", 404));
    char body[256];
    snprintf(body, sizeof body, "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\"}",
             file);
    json_decref(test_ask_json(t.port, "POST", "/v1/batches", bob, body, 400));
    v = test_ask_json(t.port, "GET", "/v1/batches", bob, NULL, 200);
    assert_int_equal(json_array_size(json_object_get(v, "data")), 0);
    json_decref(v);
    json_decref(test_batch_wait(t.port, ann, id, "completed", TEST_WATCHDOG_S));
    test_server_stop(&t);
    start(false); /* a server without keys shows nobody's */
    snprintf(path, sizeof path, "/v1/files/%s", file);
    json_decref(test_ask_json(t.port, "GET", path, NULL, NULL, 404));
    test_server_stop(&t);
    free(lines);
}

static long long n_completed(const char *id)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/batches/%s", id);
    json_t *v = test_ask_json(t.port, "GET", path, NULL, NULL, 200);
    long long n = test_count(v, "completed");
    json_decref(v);
    return n;
}

static void a_cancel_keeps_what_is_done(void **state)
{
    char id[64], path[160], file[64], body[256], *lines = make_lines(300, 30);

    (void)state;
    max_batches = 1;
    start(false);
    max_batches = 64;
    hold();
    json_t *v = new_batch(NULL, lines, "/v1/completions", id);
    snprintf(file, sizeof file, "/v1/files/%s", test_text(v, "input_file_id"));
    snprintf(body, sizeof body, "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\"}",
             test_text(v, "input_file_id"));
    json_decref(v);
    TEST_UNTIL(figure("ridge_batches") >= 1);
    json_decref(test_ask_json(t.port, "POST", "/v1/batches", NULL, body, 429)); /* one at a time */
    json_decref(test_ask_json(t.port, "DELETE", file, NULL, NULL, 409)); /* it is being read */
    atomic_store(&permits, 100); /* a line takes 30 */
    TEST_UNTIL(n_completed(id) >= 10);
    snprintf(path, sizeof path, "/v1/batches/%s/cancel", id);
    v = test_ask_json(t.port, "POST", path, NULL, "", 200);
    assert_string_equal(test_text(v, "status"), "cancelling");
    json_decref(v);
    let_go();
    v = test_batch_wait(t.port, NULL, id, "cancelled", TEST_WATCHDOG_S);
    assert_int_equal(figure("ridge_batch_lines_completed_total"), test_count(v, "completed"));
    assert_int_equal(figure("ridge_batch_lines_failed_total"), 0);
    json_t *good = test_answers(t.port, NULL, test_text(v, "output_file_id"));
    assert_int_equal(json_object_size(good), test_count(v, "completed"));
    assert_in_range(test_count(v, "completed"), 10, 299);
    json_decref(good);
    json_decref(test_ask_json(t.port, "POST", path, NULL, "", 409));
    json_decref(test_ask_json(t.port, "DELETE", file, NULL, NULL, 200));
    snprintf(file, sizeof file, "/v1/files/%s", test_text(v, "output_file_id"));
    json_decref(test_ask_json(t.port, "DELETE", file, NULL, NULL, 200));
    json_decref(test_ask_json(t.port, "GET", file, NULL, NULL, 404));
    json_decref(v);
    test_server_quiet(&t);
    free(lines);
    test_server_stop(&t);
}

static uint64_t later(void *arg)
{
    struct timespec now;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ahead_ns;
}

static void time_runs_out(void **state)
{
    char id[64], *lines = make_lines(20, 30);
    rg_server_options o = test_server_options();
    rg_error err = { 0 };

    (void)state;
    rg_clock_set(later, NULL);
    o.batch_dir = dir;
    o.idle_timeout_s = o.watchdog_s = 0;
    t.s = rg_server_open(&o, &err); /* and no model ever comes */
    assert_ok(t.s, err);
    t.port = test_port(t.s);
    json_decref(new_batch(NULL, lines, "/v1/completions", id));
    json_t *v = test_batch_wait(t.port, NULL, id, "in_progress", TEST_WATCHDOG_S);
    assert_int_equal(test_count(v, "total"), 20);
    json_decref(v);
    ahead_ns = (uint64_t)25 * 3600 * 1000000000u;
    v = test_batch_wait(t.port, NULL, id, "expired", TEST_WATCHDOG_S);
    assert_int_equal(test_count(v, "failed"), 20);
    json_t *bad = test_answers(t.port, NULL, test_text(v, "error_file_id"));
    assert_int_equal(json_object_size(bad), 20);
    const json_t *one = json_object_get(bad, "7");
    assert_true(json_is_null(json_object_get(one, "response")));
    assert_string_equal(test_text(json_object_get(one, "error"), "code"), "batch_expired");
    json_decref(bad);
    json_decref(v);
    rg_server_close(t.s);
    rg_clock_set(NULL, NULL);
    free(lines);
}

/* ---- batches of messages ------------------------------------------------------------------------------------------ */

static bool has_ended(const char *headers, const char *path)
{
    json_t *v = test_ask_json(t.port, "GET", path, headers, NULL, 200);
    bool ended = !strcmp(test_text(v, "processing_status"), "ended");

    json_decref(v);
    return ended;
}

/* Created, got, listed, read, deleted; a request that is wrong has an error of its own. */
static void messages_have_batches(void **state)
{
    static const char body[] =
        "{\"requests\":[{\"custom_id\":\"one\",\"params\":{\"max_tokens\":4,\"stream\":true,\"messages\":[{\"role\":\"user\","
        "\"content\":\"Hi\"}]}},{\"custom_id\":\"two\",\"params\":{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}}]}";
    static const char *const bad[] = {
        "{}",
        "{\"requests\":[]}",
        "{\"requests\":[{\"custom_id\":\"a b\",\"params\":{}}]}",
        "{\"requests\":[{\"custom_id\":\"a\"}]}",
        "{\"requests\":[{\"custom_id\":\"a\",\"params\":{}},{\"custom_id\":\"a\",\"params\":{}}]}",
    };
    char path[200], more[240], id[64];

    (void)state;
    start(true);
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        json_t *v = test_ask_json(t.port, "POST", "/v1/messages/batches", ann, bad[i], 400);
        assert_string_equal(test_text(json_object_get(v, "error"), "type"), "invalid_request_error");
        json_decref(v);
    }
    json_t *v = test_ask_json(t.port, "POST", "/v1/messages/batches", ann, body, 200);
    snprintf(id, sizeof id, "%s", test_text(v, "id"));
    assert_int_equal(strncmp(id, "msgbatch_", 9), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "request_counts"), "processing")), 2);
    json_decref(v);
    snprintf(path, sizeof path, "/v1/messages/batches/%s", id);
    TEST_UNTIL(has_ended(ann, path));
    v = test_ask_json(t.port, "GET", path, ann, NULL, 200);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "request_counts"), "succeeded")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "request_counts"), "errored")), 1);
    assert_non_null(strstr(test_text(v, "results_url"), id));
    json_decref(v);
    json_decref(test_ask_json(t.port, "GET", path, bob, NULL, 404));

    snprintf(more, sizeof more, "%s/results", path);
    test_reply r = test_web_ask(t.port, "GET", more, ann, NULL);
    char *second = strchr(r.body, '\n');
    json_t *one = json_loadb(r.body, (size_t)(second - r.body), 0, NULL), *two = json_loads(second + 1, 0, NULL);
    assert_string_equal(test_text(one, "custom_id"), "one");
    assert_string_equal(test_text(json_object_get(one, "result"), "type"), "succeeded");
    assert_string_equal(test_text(json_object_get(json_object_get(one, "result"), "message"), "type"), "message");
    assert_string_equal(test_text(two, "custom_id"), "two");
    assert_string_equal(test_text(json_object_get(two, "result"), "type"), "errored");
    assert_string_equal(test_text(json_object_get(json_object_get(two, "result"), "error"), "type"), "error");
    json_decref(one);
    json_decref(two);
    test_reply_free(&r);

    v = test_ask_json(t.port, "GET", "/v1/messages/batches?limit=5", ann, NULL, 200);
    assert_int_equal(json_array_size(json_object_get(v, "data")), 1);
    assert_string_equal(test_text(v, "first_id"), id);
    json_decref(v);
    v = test_ask_json(t.port, "GET", "/v1/batches", ann, NULL, 200); /* it is none of OpenAI's */
    for (size_t i = 0; i < json_array_size(json_object_get(v, "data")); i++)
        assert_string_not_equal(test_text(json_array_get(json_object_get(v, "data"), i), "id"), id);
    json_decref(v);
    v = test_ask_json(t.port, "DELETE", path, ann, NULL, 200);
    assert_string_equal(test_text(v, "type"), "message_batch_deleted");
    json_decref(v);
    json_decref(test_ask_json(t.port, "GET", path, ann, NULL, 404));
    test_server_stop(&t);
}

/* What did not run says so in the results. */
static void cancelled_messages_have_results(void **state)
{
    rg_server_options o = test_server_options();
    char path[200], more[240];
    rg_error err = { 0 };

    (void)state;
    o.batch_dir = dir;
    t.s = rg_server_open(&o, &err); /* and no model ever comes */
    assert_ok(t.s, err);
    t.port = test_port(t.s);
    json_t *v = test_ask_json(t.port, "POST", "/v1/messages/batches", NULL,
                              "{\"requests\":[{\"custom_id\":\"one\",\"params\":{}},{\"custom_id\":\"two\",\"params\":{}}]}", 200);
    snprintf(path, sizeof path, "/v1/messages/batches/%s", test_text(v, "id"));
    json_decref(v);
    json_decref(test_ask_json(t.port, "DELETE", path, NULL, NULL, 400)); /* it has not ended */
    snprintf(more, sizeof more, "%s/results", path);
    json_decref(test_ask_json(t.port, "GET", more, NULL, NULL, 400));
    snprintf(more, sizeof more, "%s/cancel", path);
    json_decref(test_ask_json(t.port, "POST", more, NULL, "{}", 200));
    TEST_UNTIL(has_ended(NULL, path));
    v = test_ask_json(t.port, "GET", path, NULL, NULL, 200);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "request_counts"), "canceled")), 2);
    json_decref(v);
    snprintf(more, sizeof more, "%s/results", path);
    test_reply r = test_web_ask(t.port, "GET", more, NULL, NULL);
    assert_string_equal(r.body, "{\"custom_id\":\"one\",\"result\":{\"type\":\"canceled\"}}\n"
                                "{\"custom_id\":\"two\",\"result\":{\"type\":\"canceled\"}}\n");
    test_reply_free(&r);
    rg_server_close(t.s);
}

/* The wall clock is set forward or back by days, while the server runs and between two servers: nothing ends but by time that
 * really passes, of which a batch keeps what it had left. */
static void setting_the_clock_ends_nothing(void **state)
{
    static const int64_t jumps_s[] = { 26 * 3600, -48 * 3600, 0, 400 * 24 * 3600, 26 * 3600 };
    char id[64], path[128], *lines = make_lines(20, 30);
    rg_server_options o = test_server_options();
    rg_error err = { 0 };

    (void)state;
    ahead_ns = 0;
    o.batch_dir = dir;
    o.idle_timeout_s = o.watchdog_s = 0;
    for (size_t i = 0; i < RG_LEN(jumps_s); i++) {
        t.s = rg_server_open(&o, &err); /* no model ever comes */
        assert_ok(t.s, err);
        t.port = test_port(t.s);
        if (!i)
            json_decref(new_batch(NULL, lines, "/v1/completions", id));
        for (int within = 0; within < 2; within++) {
            if (!within && !i)
                json_decref(test_batch_wait(t.port, NULL, id, "in_progress", TEST_WATCHDOG_S));
            rg_clock_jump(within ? jumps_s[i] : i ? jumps_s[i - 1] + 3600 : 0); /* and again while it is open */
            test_nap(0.6); /* its thread has had a turn */
            snprintf(path, sizeof path, "/v1/batches/%s", id);
            json_t *v = test_ask_json(t.port, "GET", path, NULL, NULL, 200);
            assert_string_equal(test_text(v, "status"), "in_progress");
            assert_in_range(json_integer_value(json_object_get(v, "expires_at")) - rg_wall_s(), 24 * 3600 - 120, 24 * 3600 + 1);
            json_decref(v);
        }
        json_decref(test_ask_json(t.port, "GET", "/livez", NULL, NULL, 200));
        rg_server_close(t.s);
        rg_clock_jump(i % 2 ? -1000000 : 1000000); /* while nobody has it open */
    }
    rg_clock_jump(0);
    rg_clock_set(later, NULL);
    t.s = rg_server_open(&o, &err);
    assert_ok(t.s, err);
    t.port = test_port(t.s);
    ahead_ns += (uint64_t)(23 * 3600) * 1000000000u; /* hours that pass, an hour before its end */
    test_nap(0.6);
    json_decref(test_batch_wait(t.port, NULL, id, "in_progress", TEST_WATCHDOG_S));
    ahead_ns += (uint64_t)(2 * 3600) * 1000000000u;
    json_decref(test_batch_wait(t.port, NULL, id, "expired", TEST_WATCHDOG_S));
    rg_server_close(t.s);
    rg_clock_set(NULL, NULL);
    free(lines);
}

/* Beside somebody who waits for an answer one line runs; alone, many.  Each step gives the answer one token, so its steps
 * are the first N_TOKENS of the engine. */
static void lines_run_in_the_gaps(void **state)
{
    enum { N_TOKENS = 450, N_LINES = 60, LINE_TOKENS = 40 };
    char id[64], head[256], body[128], *lines = make_lines(N_LINES, LINE_TOKENS);
    json_int_t most = 0;
    json_t *step;
    size_t i;

    (void)state;
    start(false);
    hold();
    int fd = test_web_connect(t.port);
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":true}", N_TOKENS);
    int n = snprintf(head, sizeof head, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
    assert_true(test_web_send(fd, head, (size_t)n));
    TEST_UNTIL(rg_engine_stats(t.engine).n_waiting == 1);
    json_decref(new_batch(NULL, lines, "/v1/completions", id));
    let_go();
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"length\""));
    test_reply_free(&r);
    close(fd);
    json_t *v = test_batch_wait(t.port, NULL, id, "completed", TEST_WATCHDOG_S);
    assert_int_equal(test_count(v, "completed"), N_LINES);
    json_decref(v);
    v = test_ask_json(t.port, "GET", "/steps?limit=8000", NULL, NULL, 200);
    json_array_foreach(json_object_get(v, "steps"), i, step) {
        json_int_t running = json_integer_value(json_object_get(step, "running"));
        if (json_integer_value(json_object_get(step, "number")) < N_TOKENS && running > most)
            most = running;
    }
    assert_in_range(most, 1, 2);
    /* one line after the other would be as many steps as they have tokens */
    assert_true(json_integer_value(json_object_get(v, "next")) < N_TOKENS + N_LINES * LINE_TOKENS / 2);
    json_decref(v);
    free(lines);
    test_server_stop(&t);
}

/* While others wait no line is begun, but one after so many of their requests. */
static void lines_are_begun_while_others_wait_without_end(void **state)
{
    enum { ALL = RG_LINE_EVERY + 1 };
    static const char body[] = "{\"prompt\":\"a\",\"max_tokens\":1}";
    char id[64], head[256], *lines = make_lines(2, 3);
    const int n = snprintf(head, sizeof head, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                           strlen(body), body);
    int fd[ALL];

    (void)state;
    start(false);
    hold();
    for (int i = 0; i < ALL; i++) {
        fd[i] = test_web_connect(t.port);
        assert_true(test_web_send(fd[i], head, (size_t)n));
        TEST_UNTIL(rg_engine_stats(t.engine).n_waiting >= i + 1);
        if (!i)
            json_decref(new_batch(NULL, lines, "/v1/completions", id));
    }
    TEST_UNTIL(rg_engine_stats(t.engine).n_waiting == ALL + 1); /* the line */
    let_go();
    for (int i = 0; i < ALL; i++) {
        test_reply r = test_web_read(fd[i], TEST_WATCHDOG_S);
        assert_int_equal(r.status, 200);
        test_reply_free(&r);
        close(fd[i]);
    }
    json_decref(test_batch_wait(t.port, NULL, id, "completed", TEST_WATCHDOG_S));
    free(lines);
    test_server_stop(&t);
}

enum { N_ASKERS = 8 };

static atomic_bool asks; /* the threads below go on */
static atomic_int n_asked;

/* One request after the other. */
static void *ask_on(void *arg)
{
    const char body[] = "{\"prompt\":\"a\",\"max_tokens\":8,\"ignore_eos\":true}";

    (void)arg;
    while (atomic_load(&asks)) {
        test_reply r = test_web_ask(t.port, "POST", "/v1/completions", NULL, body);
        test_reply_free(&r);
        atomic_fetch_add(&n_asked, 1);
    }
    return NULL;
}

/* Lines that began before others came, and those that begin among them, end though the others never do. */
static void a_flood_stops_no_batch(void **state)
{
    char id[2][64], *lines = make_lines(3, 200);
    rg_server_options o = test_server_options();
    pthread_t thread[N_ASKERS];

    (void)state;
    o.batch_dir = dir;
    test_server_start(&t, &o, 512, 2);
    atomic_store(&asks, true);
    json_decref(new_batch(NULL, lines, "/v1/completions", id[0]));
    for (int i = 0; i < N_ASKERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask_on, NULL), 0);
    TEST_UNTIL(rg_engine_stats(t.engine).n_waiting > 2);
    json_decref(new_batch(NULL, lines, "/v1/completions", id[1]));
    for (int i = 0; i < 2; i++)
        json_decref(test_batch_wait(t.port, NULL, id[i], "completed", TEST_WATCHDOG_S));
    atomic_store(&asks, false);
    for (int i = 0; i < N_ASKERS; i++)
        pthread_join(thread[i], NULL);
    assert_in_range(atomic_load(&n_asked), RG_LINE_EVERY, 6 * 4 * RG_LINE_EVERY); /* of six lines, each in its turn */
    free(lines);
    test_server_stop(&t);
}

/* An ordinary end gives up what runs, and the next start takes it up again. */
static void an_end_and_a_start_go_on(void **state)
{
    char id[64], *lines = make_lines(60, 30);

    (void)state;
    start(false);
    json_decref(new_batch(NULL, lines, "/v1/completions", id));
    for (int i = 0; i < 3; i++) {
        test_nap(0.05);
        test_server_stop(&t);
        start(false);
    }
    json_t *v = test_batch_wait(t.port, NULL, id, "completed", TEST_WATCHDOG_S);
    json_t *good = test_answers(t.port, NULL, test_text(v, "output_file_id"));
    assert_int_equal(json_object_size(good), 60);
    json_decref(good);
    json_decref(v);
    free(lines);
    test_server_stop(&t);
}

static _Atomic int n_allowed;

/* Every 150th allocation of anybody fails. */
static bool allow_most(void *arg, size_t bytes)
{
    (void)arg, (void)bytes;
    return ++n_allowed % 150 != 0;
}

static void scarce_memory_loses_nothing(void **state)
{
    char id[64], *lines = make_lines(100, 10);

    (void)state;
    start(false);
    json_decref(new_batch(NULL, lines, "/v1/completions", id));
    rg_mem_set_gate(allow_most, NULL);
    test_nap(0.5);
    rg_mem_set_gate(NULL, NULL);
    json_t *v = test_batch_wait(t.port, NULL, id, "completed", TEST_WATCHDOG_S);
    assert_int_equal(test_count(v, "completed"), 100);
    assert_int_equal(test_count(v, "failed"), 0);
    json_t *good = test_answers(t.port, NULL, test_text(v, "output_file_id"));
    assert_int_equal(json_object_size(good), 100);
    json_decref(good);
    json_decref(v);
    free(lines);
    test_server_stop(&t);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_folder_there_are_none), TEST(names_mean_nothing),      TEST(forms_that_are_refused),
        TEST(content_comes_back),              TEST(lists_have_pages),        TEST(lines_that_are_no_requests),
        TEST(batches_that_are_refused),        TEST(lines_are_requests),      TEST(a_line_of_ten_megabytes),
        TEST(owners_see_their_own),            TEST(a_cancel_keeps_what_is_done), TEST(time_runs_out),
        TEST(setting_the_clock_ends_nothing),  TEST(messages_have_batches),   TEST(cancelled_messages_have_results),
        TEST(lines_are_begun_while_others_wait_without_end), TEST(a_flood_stops_no_batch),
        TEST(lines_run_in_the_gaps),           TEST(an_end_and_a_start_go_on), TEST(scarce_memory_loses_nothing),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
