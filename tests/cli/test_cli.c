/* test_cli.c -- the command line as users and tests rely on it: exit statuses, JSON, errors of one line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "support/test.h"

#define GOLDEN RG_TEST_DATA

/* Runs `ridge ARGS`; standard output to out (NULL: dropped), standard error to err.  Returns the exit status. */
static int ridge(const char *args, char *out, size_t room, char err[4096])
{
    char command[8192], path[256];

    snprintf(path, sizeof path, "%s/test_cli.%d.err", RG_BUILD_DIR, (int)getpid());
    snprintf(command, sizeof command, "%s/ridge %s 2>%s", RG_BUILD_DIR, args, path);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = 0, got;
    char sink[4096];
    while ((got = fread(out && n + 1 < room ? out + n : sink, 1, out && n + 1 < room ? room - 1 - n : sizeof sink, p)) > 0)
        n += out && n + 1 < room ? got : 0;
    if (out)
        out[n] = 0;
    int status = pclose(p);
    FILE *e = fopen(path, "r");
    err[e ? fread(err, 1, 4095, e) : 0] = 0;
    if (e)
        fclose(e);
    unlink(path);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The JSON document that a successful run prints, and nothing else. */
static json_t *json_of(const char *args)
{
    static char out[1 << 22];
    char err[4096];
    json_error_t why;
    int status = ridge(args, out, sizeof out, err);

    if (status)
        print_error("ridge %s: %s", args, err);
    assert_int_equal(status, 0);
    json_t *j = json_loads(out, JSON_REJECT_DUPLICATES, &why);
    assert_non_null(j);
    return j;
}

static void wants(json_t *j, const char *keys)
{
    char copy[512], *save, *key;

    snprintf(copy, sizeof copy, "%s", keys);
    for (key = strtok_r(copy, " ", &save); key; key = strtok_r(NULL, " ", &save))
        if (!json_object_get(j, key)) {
            print_error("no key '%s'\n", key);
            fail();
        }
}

/* A refusal: this status, one line that starts with "ridge: " and names `about`. */
static void refuses(const char *args, int status, const char *about)
{
    char err[4096];

    if (ridge(args, NULL, 0, err) != status || strncmp(err, "ridge: ", 7) || !strstr(err, about) ||
        strchr(err, '\n') != err + strlen(err) - 1) {
        print_error("ridge %s: %s", args, err);
        fail();
    }
}

static void usage(void **state)
{
    char out[8192], err[4096];
    static const char *const commands[] = { "run", "bench", "machine", "inspect", "tokenize", "logits", "eval", "quantize" };

    (void)state;
    assert_int_equal(ridge("--help", out, sizeof out, err), 0);
    for (size_t i = 0; i < RG_LEN(commands); i++) {
        char args[64];
        assert_non_null(strstr(out, commands[i]));
        snprintf(args, sizeof args, "%s --help", commands[i]);
        char help[8192];
        assert_int_equal(ridge(args, help, sizeof help, err), 0);
        assert_non_null(strstr(help, "--threads"));
    }
    assert_int_equal(ridge("", NULL, 0, err), 2);
    refuses("sing", 2, "sing");
    refuses("run --no-such", 2, "--no-such");
    refuses("run -n many", 2, "-n");
    refuses("run --temperature -1", 2, "--temperature");
    refuses("run /nonexistent", 1, "/nonexistent");
    refuses("logits", 2, "MODEL");
    refuses("inspect", 2, "MODEL");
    refuses("inspect /", 1, "config.json");
    refuses("run -n 0", 2, "2147483647");
    refuses("run -p a -f b", 2, "PROMPT");
    refuses("run tales-1m a --ids 1", 2, "PROMPT");
    refuses("tokenize tales-1m --ids 5,4096", 1, "id 4096");
    refuses("tokenize tales-1m --ids 5 -p a", 2, "--ids");
    refuses("run --isa sparc -n 1", 2, "sparc");
    refuses("run --recipe sloppy -n 1", 2, "sloppy");
    refuses("run " GOLDEN "/llama --ids 1,2,999999 -n 1", 1, "999999");
    refuses("run " GOLDEN "/llama -p hello -n 1", 1, "tokenizer");
}

static void runs(void **state)
{
    (void)state;
    json_t *j = json_of("run -p 'Once upon a time' -n 12 --temperature 0 --json --logprobs 2 --quiet");
    wants(j, "prompt_ids ids text finish_reason logprobs ttft_ms prefill_tok_s decode_tok_s seed");
    assert_int_equal(json_array_size(json_object_get(j, "ids")), 12);
    assert_int_equal(json_array_size(json_object_get(j, "logprobs")), 12);
    assert_string_equal(json_string_value(json_object_get(j, "finish_reason")), "length");
    assert_non_null(strstr(json_string_value(json_object_get(j, "text")), "there was"));
    wants(json_array_get(json_object_get(j, "logprobs"), 0), "id logprob top");
    json_decref(j);

    j = json_of("run " GOLDEN "/llama --ids=1,2,3 -n 5 --temperature 0 --json --ignore-eos");
    assert_true(json_is_null(json_object_get(j, "text")));
    assert_int_equal(json_array_size(json_object_get(j, "prompt_ids")), 3);
    json_decref(j);

    j = json_of("run -n 6 --n 3 --seed 4 --json");
    assert_int_equal(json_array_size(json_object_get(j, "choices")), 3);
    json_decref(j);

    j = json_of("run -p 'Once upon a time' -n 40 --temperature 0 --stop 'little' --json");
    assert_string_equal(json_string_value(json_object_get(j, "finish_reason")), "stop");
    assert_null(strstr(json_string_value(json_object_get(j, "text")), "little"));
    json_decref(j);
}

/* One seed, one text: whatever the number of threads and the instruction set. */
static void runs_alike(void **state)
{
    static const char *const ways[] = { "--threads 1", "--threads 2", "--isa ref" };
    json_t *first = NULL;

    (void)state;
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        char args[256];
        snprintf(args, sizeof args, "run tales-1m -p 'A dog' -n 30 --seed 9 --json %s", ways[i]);
        json_t *j = json_of(args);
        if (first)
            assert_true(json_equal(json_object_get(first, "ids"), json_object_get(j, "ids")));
        else
            first = json_incref(j);
        json_decref(j);
    }
    json_decref(first);
}

static void looks_inside(void **state)
{
    (void)state;
    json_t *j = json_of("inspect " GOLDEN "/gemma3 --json");
    wants(j, "architecture parameters config tensors tokenizer metadata not_understood");
    assert_int_equal(json_object_size(json_object_get(j, "not_understood")), 0);
    wants(json_array_get(json_object_get(j, "tensors"), 0), "name dtype shape bytes");
    json_decref(j);

    j = json_of("tokenize tales-7m -p 'Hello world.' --json");
    assert_int_equal(json_array_size(json_object_get(j, "ids")), 4);
    assert_int_equal(json_array_size(json_object_get(j, "pieces")), 4);
    json_decref(j);
    j = json_of("tokenize tales-7m --ids 3998,1013,17 --json");
    assert_string_equal(json_string_value(json_object_get(j, "text")), "Hello world.");
    json_decref(j);
    j = json_of("tokenize tales-7m -p '<|user|>' --no-special --plain --json");
    assert_true(json_array_size(json_object_get(j, "ids")) > 1);
    json_decref(j);

    j = json_of("bench tales-1m --prefill 32 --decode 4 --batch 1,2 --context 16 --reps 1 --kv-type q8 --json");
    wants(j, "machine rows");
    assert_int_equal(json_array_size(json_object_get(j, "rows")), 3);
    wants(json_array_get(json_object_get(j, "rows"), 0),
          "what n batch context tok_s gb_s gflop_s of_roofline format kv_type isa threads");
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(j, "rows"), 0), "kv_type")), "q8");
    json_decref(j);
}

static void measures_the_machine(void **state)
{
    (void)state;
    if (TEST_SLOWER > 1)
        skip(); /* checked kernels take minutes to be timed */
    json_t *j = json_of("machine --json --threads 1");
    wants(j, "read_gb_s f32_gflop_s bf16_gflop_s int8_gop_s isa cores");
    assert_true(json_number_value(json_object_get(j, "read_gb_s")) > 0.1);
    json_decref(j);
}

/* Cut and company never change the logits' hash. */
static void logits_hash(void **state)
{
    static const char *const ways[] = { "", "--chunks 1", "--chunks 7,1,16", "--threads 2 --chunks 3", "--isa ref", NULL };
    char others[256], args[1024], *first = NULL;

    (void)state;
    snprintf(others, sizeof others, "%s/test_cli.%d.json", RG_BUILD_DIR, (int)getpid());
    FILE *f = fopen(others, "w");
    assert_non_null(f);
    fputs("[[5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30], [3], [4, 4, 4, 4]]", f);
    fclose(f);
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        snprintf(args, sizeof args, "logits " GOLDEN "/mixtral --ids 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 --json %s%s",
                 ways[i] ? ways[i] : "--chunks 2 --batch-with ", ways[i] ? "" : others);
        json_t *j = json_of(args);
        wants(j, "rows vocab hash");
        assert_int_equal(json_integer_value(json_object_get(j, "rows")), 17);
        const char *hash = json_string_value(json_object_get(j, "hash"));
        if (first)
            assert_string_equal(first, hash);
        else
            first = strdup(hash);
        json_decref(j);
    }
    unlink(others);
    free(first);
}

static void perplexity(void **state)
{
    (void)state;
    json_t *j = json_of("eval tales-1m --perplexity " RG_SOURCE_DIR
                        "/models/CREDITS-storybooks.md --first-bytes 4000 --ctx 128 --json");
    wants(j, "nll ppl bits_per_byte tokens bytes");
    double nll = json_number_value(json_object_get(j, "nll")), ppl = json_number_value(json_object_get(j, "ppl"));
    assert_true(nll > 1 && nll < 12 && fabs(ppl / exp(nll) - 1) < 1e-6);
    json_decref(j);
    refuses("eval tales-1m --perplexity /nonexistent", 1, "/nonexistent");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage),        cmocka_unit_test(runs),        cmocka_unit_test(runs_alike),
        cmocka_unit_test(looks_inside), cmocka_unit_test(measures_the_machine), cmocka_unit_test(logits_hash),
        cmocka_unit_test(perplexity),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
