/* test_batch_file.c -- `ridge batch IN OUT`: every line is answered once, also where the process is killed again and
 * again, where OUT ends in half a line, and where lines are wrong; and what is refused. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "support/command.h"

#define MODEL RG_SOURCE_DIR "/models/tales-1m"

enum { LINES = 120, KILLS = 6 };

static char dir[64], in[96], out[96], args[1024];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ridge-batch-file-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(in, sizeof in, "%s/in.jsonl", dir);
    snprintf(out, sizeof out, "%s/out.jsonl", dir);
    snprintf(args, sizeof args, "batch " MODEL " %s %s --json --quiet --threads 1 --ctx 256 --kv-memory 32M --max-seqs 4",
             in, out);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(in);
    unlink(out);
    return rmdir(dir);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static char *read_text(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *f = fopen(path, "r");

    assert_non_null(text);
    if (f) {
        assert_true(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
        fclose(f);
    }
    return text;
}

/* Most are answered, every seventh is refused by its endpoint. */
static void write_lines(void)
{
    FILE *f = fopen(in, "w");

    assert_non_null(f);
    for (int i = 0; i < LINES; i++)
        fprintf(f,
                "{\"custom_id\":\"line %d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":"
                "\"Once upon %d\",\"max_tokens\":%d,\"temperature\":%s}}\n",
                i, i, 6 + i % 20, i % 7 ? "1.0" : "-1");
    assert_int_equal(fclose(f), 0);
}

/* The answers by custom_id, each of which stands there once; a line without one by its id. */
static json_t *answers(size_t *n)
{
    char *text = read_text(out);
    json_t *all = json_object();

    *n = 0;
    for (char *line = text, *end; *line; line = end + 1, ++*n) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        json_t *v = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(v);
        const char *id = json_string_value(json_object_get(v, "custom_id"));
        id = id ? id : json_string_value(json_object_get(v, "id"));
        json_t *list = json_object_get(all, id);
        if (!list)
            json_object_set_new(all, id, list = json_array());
        json_array_append_new(list, v);
    }
    free(text);
    return all;
}

static const json_t *answer_of(const json_t *all, const char *id)
{
    const json_t *list = json_object_get(all, id);

    if (json_array_size(list) != 1)
        fail_msg("'%s' has %zu answers", id, json_array_size(list));
    return json_array_get(list, 0);
}

static int status_of(const json_t *answer)
{
    return (int)json_integer_value(json_object_get(json_object_get(answer, "response"), "status_code"));
}

static const json_t *body_of(const json_t *answer)
{
    return json_object_get(json_object_get(answer, "response"), "body");
}

static const char *code_of(const json_t *answer)
{
    return json_string_value(json_object_get(json_object_get(body_of(answer), "error"), "code"));
}

static void counts(int done, int failed, int before)
{
    json_t *v = command_json(args);

    assert_int_equal(json_integer_value(json_object_get(v, "done")), done);
    assert_int_equal(json_integer_value(json_object_get(v, "failed")), failed);
    assert_int_equal(json_integer_value(json_object_get(v, "answered_before")), before);
    json_decref(v);
}

/* The texts of all lines, which were each answered once. */
static json_t *texts(void)
{
    size_t n;
    json_t *all = answers(&n), *to = json_object();

    assert_int_equal(n, LINES);
    for (int i = 0; i < LINES; i++) {
        char name[32];
        snprintf(name, sizeof name, "line %d", i);
        const json_t *line = answer_of(all, name);
        assert_int_equal(status_of(line), i % 7 ? 200 : 400);
        json_object_set(to, name,
                        json_object_get(json_array_get(json_object_get(body_of(line), "choices"), 0), "text"));
    }
    json_decref(all);
    return to;
}

/* Run it and end it by a kill after so long. */
static void run_and_kill(double s)
{
    struct timespec t = { 0, (long)(s * 1e9) };
    pid_t pid = fork();
    int status;

    if (!pid) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        execl(RG_BUILD_DIR "/ridge", "ridge", "batch", MODEL, in, out, "--threads", "1", "--ctx", "256", "--kv-memory",
              "32M", "--max-seqs", "4", (char *)NULL);
        _exit(127);
    }
    nanosleep(&t, NULL);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

static void kills_lose_and_double_nothing(void **state)
{
    const int failed = (LINES + 6) / 7;
    rg_rng rng = { .seed = test_seed };

    (void)state;
    write_lines();
    counts(LINES - failed, failed, 0);
    json_t *whole = texts();
    counts(LINES - failed, failed, LINES); /* all is there: nothing runs again */
    unlink(out);
    for (int k = 0; k < KILLS; k++)
        run_and_kill((double)rg_rng_below(&rng, 300) / 1000.0);
    json_t *v = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(v, "done")), LINES - failed);
    json_t *killed = texts();
    assert_true(json_equal(whole, killed));
    json_decref(v);
    json_decref(whole);
    json_decref(killed);
}

/* OUT cut at any byte is gone on with: what was whole stays, the rest is made again. */
static void half_a_line_is_cut(void **state)
{
    rg_rng rng = { .seed = test_seed };

    (void)state;
    write_lines();
    unlink(out);
    assert_int_equal(command_run(args), 0);
    json_t *whole = texts();
    char *text = read_text(out);
    for (int k = 0; k < 4; k++) {
        size_t n = (size_t)rg_rng_below(&rng, (uint32_t)strlen(text)), kept = 0;
        for (size_t i = 0; i < n; i++)
            kept += text[i] == '\n';
        assert_int_equal(truncate(out, 0), 0);
        FILE *f = fopen(out, "w");
        assert_int_equal(fwrite(text, 1, n, f), n);
        fclose(f);
        counts(LINES - (LINES + 6) / 7, (LINES + 6) / 7, (int)kept);
        json_t *again = texts();
        assert_true(json_equal(whole, again));
        json_decref(again);
    }
    free(text);
    json_decref(whole);
}

#define REQUEST(id, url, body) "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"" url "\",\"body\":" body "}\n"

static void errors_are_told_by_line(void **state)
{
    static const struct {
        const char *id, *code;
    } wrong[] = { { "batch_req_3", "invalid_json_line" }, { "no method", "invalid_method" },
                  { "no body", "missing_required_parameter" }, { "elsewhere", "invalid_url" },
                  { "stream", "invalid_value" }, { "batch_req_9", "invalid_custom_id" } };
    size_t n;

    (void)state;
    unlink(out);
    write_text(in, "\xef\xbb\xbf" REQUEST("good", "/v1/completions", "{\"prompt\":\"One\",\"max_tokens\":3}") "\n"
                   "this is no JSON\n"
                   "{\"custom_id\":\"no method\",\"url\":\"/v1/completions\",\"body\":{}}\n"
                   "{\"custom_id\":\"no body\",\"method\":\"POST\",\"url\":\"/v1/completions\"}\n"
                   REQUEST("elsewhere", "/v1/files", "{}")
                   REQUEST("stream", "/v1/completions", "{\"prompt\":\"One\",\"stream\":true}")
                   REQUEST("good", "/v1/completions", "{\"prompt\":\"Two\",\"max_tokens\":3}")
                   "{\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\"}}\r\n"
                   REQUEST("chat", "/v1/chat/completions",
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":3}")
                   REQUEST("response", "/v1/responses", "{\"input\":\"Hi\",\"max_output_tokens\":16}")
                   REQUEST("embedding", "/v1/embeddings", "{\"input\":\"Hi\"}")
                   "{\"custom_id\":\"message\",\"method\":\"POST\",\"url\":\"/v1/messages\",\"body\":{\"messages\":[{\"role\":"
                   "\"user\",\"content\":\"Hi\"}],\"max_tokens\":3}}"); /* and no end */
    assert_int_equal(command_run(args), 0);
    json_t *all = answers(&n);
    assert_int_equal(n, 12);
    for (size_t i = 0; i < RG_LEN(wrong); i++) {
        const json_t *v = answer_of(all, wrong[i].id);
        assert_int_equal(status_of(v), 400);
        assert_string_equal(code_of(v), wrong[i].code);
    }
    const json_t *good = json_object_get(all, "good"); /* the second is refused */
    assert_int_equal(json_array_size(good), 2);
    assert_int_equal(status_of(json_array_get(good, 0)) + status_of(json_array_get(good, 1)), 600);
    assert_int_equal(status_of(answer_of(all, "chat")), 200);
    assert_int_equal(status_of(answer_of(all, "response")), 200);
    assert_int_equal(status_of(answer_of(all, "embedding")), 200);
    assert_true(json_array_size(json_object_get(json_array_get(json_object_get(body_of(answer_of(all, "embedding")),
                                                                               "data"), 0), "embedding")) > 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(answer_of(all, "message"), "result"), "type")),
                        "succeeded");
    json_decref(all);
    json_t *v = command_json(args); /* every one of them is known again */
    assert_int_equal(json_integer_value(json_object_get(v, "answered_before")), 12);
    json_decref(v);
}

static void what_does_not_fit_is_refused(void **state)
{
    char more[1100];

    (void)state;
    unlink(out);
    write_text(in, REQUEST("a", "/v1/completions", "{\"prompt\":\"One\",\"max_tokens\":3}"));
    assert_int_equal(command_run(args), 0);
    write_text(in, REQUEST("b", "/v1/completions", "{\"prompt\":\"One\",\"max_tokens\":3}"));
    command_refuses(args, 1, "--restart");
    snprintf(more, sizeof more, "%s --restart", args);
    assert_int_equal(command_run(more), 0);
    snprintf(more, sizeof more, "%s --restart --resume", args);
    command_refuses(more, 2, "--resume");
    write_text(in, "\n \n");
    command_refuses(args, 1, "no request");
    unlink(in);
    command_refuses(args, 1, "in.jsonl");
    command_refuses("batch " MODEL, 2, "OUT.jsonl");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kills_lose_and_double_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(half_a_line_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errors_are_told_by_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, set_up, tear_down),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
