/* test_samplers.c -- llama.cpp's samplers through the HTTP API: each does what it says, as far as an answer shows it. */
#include <math.h>

#include "server/live.h"

static test_server t;

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
    test_server_stop(&t);
    return 0;
}

/* The text of a completion with these fields. */
static char *ask(const char *fields)
{
    char body[2048];
    json_t *v;
    char *text;

    snprintf(body, sizeof body, "{%s}", fields);
    v = test_web_json(t.port, "/v1/completions", body, 200);
    text = strdup(test_json_text(v, "choices.0.text"));
    json_decref(v);
    return text;
}

#define same(a, b) compare(a, b, true, __LINE__)
#define differ(a, b) compare(a, b, false, __LINE__)
static void compare(const char *a, const char *b, bool equal, int line)
{
    char *x = ask(a), *y = ask(b);

    if (!strcmp(x, y) != equal)
        fail_msg("line %d: %s gives '%s', and %s gives '%s'", line, a, x, b, y);
    free(x);
    free(y);
}

static void what_was_reported_is_answered(void **state)
{
    static const char *const all = "\"max_tokens\":4,\"dry_multiplier\":0.8,\"xtc_probability\":0.5,\"top_n_sigma\":1";
    char body[512];

    (void)state;
    snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", all);
    assert_int_equal(test_web_status(t.port, "/v1/completions", body), 200);
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}", all);
    assert_int_equal(test_web_status(t.port, "/v1/chat/completions", body), 200);
    assert_int_equal(test_web_status(t.port, "/v1/messages", body), 200);
}

/* Whether each id was the likeliest, by the log-probabilities: 'b', or else 's' if the second was likelier than the
 * threshold, or else '-'. */
static char *ranks(const char *fields, double threshold)
{
    char body[1024], *out;
    json_t *v;
    const json_t *l;
    size_t n;

    snprintf(body, sizeof body, "{\"prompt\":\"Once upon a time\",\"max_tokens\":40,\"ignore_eos\":true,\"logprobs\":2,%s}",
             fields);
    v = test_web_json(t.port, "/v1/completions", body, 200);
    l = test_json_at(v, "choices.0.logprobs");
    n = json_array_size(json_object_get(l, "tokens"));
    out = calloc(1, n + 1);
    for (size_t i = 0; i < n; i++) {
        double own = json_number_value(json_array_get(json_object_get(l, "token_logprobs"), i)), best = -INFINITY,
               second = -INFINITY;
        const char *key;
        json_t *p;

        json_object_foreach(json_array_get(json_object_get(l, "top_logprobs"), i), key, p) {
            double x = json_number_value(p);

            second = x > best ? best : x > second ? x : second;
            best = x > best ? x : best;
        }
        out[i] = own == best ? 'b' : second > log(threshold) ? 's' : '-';
    }
    json_decref(v);
    return out;
}

static void xtc_drops_the_best(void **state)
{
    char *with = ranks("\"seed\":3,\"xtc_probability\":1,\"xtc_threshold\":0.1", 0.1),
         *never = ranks("\"seed\":3,\"temperature\":0.01,\"xtc_probability\":0,\"xtc_threshold\":0.1", 0.1),
         *off = ranks("\"seed\":3,\"temperature\":0.5,\"top_k\":1,\"xtc_probability\":1,\"xtc_threshold\":0.1", 0.1);

    (void)state;
    assert_non_null(strchr(with, 's'));
    assert_int_equal(strspn(never, "b"), strlen(never));
    assert_int_equal(strspn(off, "b"), strlen(off)); /* one candidate is never dropped */
    free(with);
    free(never);
    free(off);
    for (int seed = 0; seed < 4; seed++) { /* where two reach the threshold, the best is not drawn */
        char fields[128], *r;

        snprintf(fields, sizeof fields, "\"seed\":%d,\"xtc_probability\":1,\"xtc_threshold\":0.2", seed);
        r = ranks(fields, 0.2);
        assert_non_null(strchr(r, 's'));
        free(r);
    }
}

static void few_sigmas_leave_the_best(void **state)
{
    char *r = ranks("\"seed\":5,\"temperature\":3,\"top_n_sigma\":0.001", 0.1),
         *off = ranks("\"seed\":5,\"temperature\":3,\"top_n_sigma\":-1", 0.1);

    (void)state;
    assert_int_equal(strspn(r, "b"), strlen(r));
    assert_true(strspn(off, "b") < strlen(off));
    free(r);
    free(off);
}

static void dynamic_temperature_makes_draws_of_greedy_ones(void **state)
{
    char *r = ranks("\"seed\":5,\"temperature\":0,\"dynatemp_range\":4", 0.1),
         *off = ranks("\"seed\":5,\"temperature\":0,\"dynatemp_range\":0", 0.1);

    (void)state;
    assert_true(strspn(r, "b") < strlen(r));
    assert_int_equal(strspn(off, "b"), strlen(off));
    free(r);
    free(off);
    differ("\"prompt\":\"Once\",\"seed\":1,\"temperature\":0.9,\"max_tokens\":40",
           "\"prompt\":\"Once\",\"seed\":1,\"temperature\":0.9,\"max_tokens\":40,\"dynatemp_range\":0.9,"
           "\"dynatemp_exponent\":3");
}

static void mirostat_replaces_the_filters(void **state)
{
#define TALE "\"prompt\":\"Once\",\"seed\":7,\"temperature\":1.5,\"max_tokens\":40"
    char *least = ranks("\"seed\":7,\"temperature\":1.5,\"mirostat\":2,\"mirostat_tau\":0,\"mirostat_eta\":0", 0.1);

    (void)state;
    assert_int_equal(strspn(least, "b"), strlen(least)); /* no surprise at all is wanted */
    free(least);
    differ(TALE ",\"top_k\":1,\"mirostat\":2", TALE ",\"top_k\":1");
    same(TALE ",\"top_k\":1,\"mirostat\":2", TALE ",\"mirostat\":2");
    same(TALE ",\"mirostat_mode\":1,\"mirostat_tau\":3", TALE ",\"mirostat\":1,\"mirostat_tau\":3");
    differ(TALE ",\"mirostat\":1,\"mirostat_tau\":3", TALE ",\"mirostat\":2,\"mirostat_tau\":3");
    differ(TALE ",\"mirostat\":2,\"mirostat_tau\":4,\"mirostat_eta\":0", TALE ",\"mirostat\":2,\"mirostat_tau\":4,"
           "\"mirostat_eta\":1");
    differ(TALE ",\"mirostat\":2,\"mirostat_tau\":1", TALE ",\"mirostat\":2,\"mirostat_tau\":4");
}

/* Ids 300 to 304 in a loop that goes on with 300, which a bias makes the likeliest by far. */
#define LOOP "\"prompt\":[300,301,302,303,304,300,301,302,303,304,300,301,302,303,304],\"temperature\":0,"                 \
             "\"max_tokens\":1,\"logit_bias\":{\"300\":25}"

static void dry_leaves_a_loop(void **state)
{
    char *last = ask("\"prompt\":\"a\",\"temperature\":0,\"max_tokens\":1,\"logit_bias\":{\"304\":100}"), fields[512];

    (void)state;
    differ(LOOP ",\"dry_multiplier\":5", LOOP);
    same(LOOP ",\"dry_multiplier\":5,\"dry_penalty_last_n\":0", LOOP);
    same(LOOP ",\"dry_multiplier\":5,\"dry_penalty_last_n\":4", LOOP);
    differ(LOOP ",\"dry_multiplier\":5,\"dry_penalty_last_n\":14,\"dry_base\":0", LOOP); /* the usual base */
    same(LOOP ",\"dry_multiplier\":5,\"dry_allowed_length\":11", LOOP);
    differ(LOOP ",\"dry_multiplier\":5,\"dry_sequence_breakers\":[]", LOOP);
    /* The last id ends a run: in every way to say so. */
    snprintf(fields, sizeof fields, LOOP ",\"dry_multiplier\":5,\"dry_sequence_breakers\":[\"%s\"]", last);
    same(fields, LOOP);
    snprintf(fields, sizeof fields, LOOP ",\"dry_multiplier\":5,\"dry_sequence_breakers\":\"[\\\"%s\\\",\\\"*\\\"]\"", last);
    same(fields, LOOP);
    snprintf(fields, sizeof fields, LOOP ",\"dry_multiplier\":5,\"dry_sequence_breakers\":\"\\\"*\\\", \\\"%s\\\"\"", last);
    same(fields, LOOP);
    snprintf(fields, sizeof fields, LOOP ",\"dry_multiplier\":5,\"dry_sequence_breakers\":\"%s\"", last);
    same(fields, LOOP);
    free(last);
}

static void breakers_that_are_no_texts_are_refused(void **state)
{
    static const char *const bad[] = { "1", "[1]", "[null]", "{}", "[[\"a\"]]", "true", "[\"a\\u0000\"]" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        char body[512];
        json_t *v;

        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"max_tokens\":1,\"dry_multiplier\":1,\"dry_sequence_breakers\":%s}",
                 bad[i]);
        v = test_web_json(t.port, "/v1/completions", body, 400);
        assert_string_equal(test_json_text(v, "error.param"), "dry_sequence_breakers");
        json_decref(v);
    }
}

/* A bias makes one id the likeliest by far, which stands in the prompt many times: until it is penalized for them. */
#define FAR "\"prompt\":[300,300,300,300,300,300,300,300,300,300,300,300,300,300,300,300,300,300,300,300,5],"              \
            "\"temperature\":0,\"ignore_eos\":true,\"logit_bias\":{\"300\":20}"
#define LONG ",\"max_tokens\":20"
#define ONE ",\"max_tokens\":1"
#define MANY FAR ",\"frequency_penalty\":2"

static void penalties_look_at_the_last_ids(void **state)
{
    (void)state;
    differ(MANY LONG, FAR LONG); /* the answer has it often in the end */
    differ(MANY LONG ",\"repeat_last_n\":-1", MANY LONG);
    differ(MANY ",\"repeat_last_n\":-1" ONE, MANY ONE);
    differ(MANY ",\"repeat_last_n\":20" ONE, MANY ONE);
    same(MANY LONG ",\"repeat_last_n\":1", FAR LONG);
    same(MANY LONG ",\"repeat_last_n\":0", FAR LONG);
    same(MANY LONG ",\"penalty_last_n\":12", MANY LONG ",\"repetition_penalty_range\":12");
    same(MANY LONG ",\"repetition_penalty_range\":0", MANY LONG); /* there 0 is all ids, which is how it is */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_reported_is_answered),
        cmocka_unit_test(xtc_drops_the_best),
        cmocka_unit_test(few_sigmas_leave_the_best),
        cmocka_unit_test(dynamic_temperature_makes_draws_of_greedy_ones),
        cmocka_unit_test(mirostat_replaces_the_filters),
        cmocka_unit_test(dry_leaves_a_loop),
        cmocka_unit_test(breakers_that_are_no_texts_are_refused),
        cmocka_unit_test(penalties_look_at_the_last_ids),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
