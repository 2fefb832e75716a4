/* test_command_line.c -- what people type: words that are nearly right, other programs' options, prompts from pipes, and
 * settings from a file and the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/command.h"
#include "support/model.h"

/* "NAME=VALUE ... ridge ARGS": the environment stands before the program's name. */
static int run_with(const char *environment, const char *args)
{
    char command[4096];

    snprintf(command, sizeof command, "version >/dev/null; %s %s/ridge %s", environment, RG_BUILD_DIR, args);
    return command_run(command);
}

static void says(const char *args, int status, const char *about)
{
    int got = command_run(args);

    if (got != status || !strstr(status ? command_err : command_out, about)) {
        print_error("ridge %s: %d\n%s%s", args, got, command_out, command_err);
        fail();
    }
}

static void help_and_version(void **state)
{
    static char help[1 << 16];

    (void)state;
    says("help", 0, "\n  serve ");
    says("-h", 0, "\n  serve ");
    says("help run", 0, "--temperature");
    snprintf(help, sizeof help, "%s", command_out);
    says("run -h", 0, "--temperature");
    assert_string_equal(help, command_out);
    says("help study kbit", 0, "ridge study kbit");
    says("help study", 0, "sparsity");
    command_refuses("help srve", 2, "did you mean serve?");
    says("version", 0, "ridge 0.");
    says("--version", 0, "ridge 0.");
    json_t *j = command_json("version --json");
    assert_non_null(json_string_value(json_object_get(j, "version")));
    json_decref(j);
}

static void nearly_right_words(void **state)
{
    (void)state;
    command_refuses("srve", 2, "'srve' is not a command; did you mean serve?");
    command_refuses("rnu", 2, "did you mean run?");
    command_refuses("xyzzy", 2, "'xyzzy' is not a command; `ridge help` lists them");
    command_refuses("run --tempratur 1", 2, "'--tempratur'; did you mean --temperature?");
    command_refuses("run --ctxsize=5", 2, "did you mean --ctx-size?");
    command_refuses("serve --any-prot", 2, "did you mean --any-port?");
    command_refuses("run --completely-unknown-thing", 2, "see `ridge run --help`");
    command_refuses("machine --temperatur", 2, "see `ridge machine --help`"); /* it has none */
}

/* The same ids, however it is said. */
static void others_options(void **state)
{
    static const char *const ways[] = {
        "run tales-1m -p 'A dog' -n 6 --temperature 0 --ctx 256 --threads 1 --kv-type q8 --json",
        "run -m tales-1m --prompt 'A dog' --n-predict 6 --temp 0 -c 256 -t 1 -ctk q8_0 -ctv Q8_0 --json",
        "run --model=tales-1m 'A dog' --max-tokens 6 --temp=0 --ctx-size 256 -t 1 --cache-type-k Q8 --json",
        "run -hf tales-1m 'A dog' --predict 6 --temp 0 --max-model-len 256 --kv-cache-dtype Q8_0 --json",
        "run 'A dog' -m tales-1m --num-predict 6 --temp 0 -ctk q8 -ngl 99 -fa --no-mmap -tb 4 -fa on --json --quiet",
        "run tales-1m -n 6 --temp 0 -ctk q8 --json -- 'A dog'",
    };
    json_t *first = NULL;

    (void)state;
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        json_t *j = command_json(ways[i]), *ids = json_incref(json_object_get(j, "ids"));

        assert_int_equal(json_array_size(ids), 6);
        assert_true(!first || json_equal(first, ids));
        assert_int_equal(strlen(command_err), 0);
        json_decref(first);
        first = ids;
        json_decref(j);
    }
    json_decref(first);
    /* What changes nothing is told. */
    assert_int_equal(command_run("run tales-1m A -n 1 -ngl 99 --jinja"), 0);
    assert_non_null(strstr(command_err, "ridge: -ngl has no effect: ridge computes on the processor\n"));
    assert_non_null(strstr(command_err, "ridge: --jinja has no effect"));
    command_refuses("run tales-1m A -ctk q8_0 -ctv f16", 2, "'q8_0' and 'f16'");
    command_refuses("run tales-1m A -cnv", 2, "ridge chat");
    command_refuses("run tales-1m -j {}", 2, "--grammar FILE");
    command_refuses("run -m tales-1m -m tales-7m", 2, "named twice");
    command_refuses("run -m tales-1m tales-7m A", 2, "one argument too many");
    command_refuses("machine -m tales-1m", 2, "takes no model");
    command_refuses("run -b 4", 2, "--batch-rows in ridge");
    command_refuses("run tales-1m -ngl", 2, "-ngl needs a value");
    command_refuses("bench -s 4", 2, "--seed in ridge");
}

static int lines_of(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Standard error has one line of figures; with --verbose also what drafts and searches brought; none with --quiet. */
static void one_line_of_figures(void **state)
{
    static const struct {
        const char *args, *detail;
    } cases[] = { { "run tales-1m -p 'A dog' -n 24 --temperature 0 --draft ngram --ignore-eos", "by ngram" },
                  { "run tales-1m -p 'A dog' -n 6 --search mcts --simulations 4 --seed 1 --draft none",
                    "4 simulations" } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char args[300];
        assert_int_equal(command_run(cases[i].args), 0);
        assert_int_equal(lines_of(command_err), 1);
        assert_non_null(strstr(command_err, " output tokens, first after "));
        snprintf(args, sizeof args, "%s --verbose", cases[i].args);
        assert_int_equal(command_run(args), 0);
        assert_true(lines_of(command_err) > 1);
        assert_non_null(strstr(command_err, " output tokens, first after "));
        assert_non_null(strstr(command_err, cases[i].detail));
        snprintf(args, sizeof args, "%s --verbose --quiet", cases[i].args);
        assert_int_equal(command_run(args), 0);
        assert_int_equal(lines_of(command_err), 0);
    }
}

/* Nothing but the answer is on standard output. */
static void prompts_from_pipes(void **state)
{
    char piped[4096], file[300];

    (void)state;
    assert_int_equal(command_run("run tales-1m -p 'A dog' -n 8 --temperature 0 --quiet"), 0);
    snprintf(piped, sizeof piped, "%s", command_out);
    assert_null(strstr(piped, "A dog"));
    assert_int_equal(command_run("version >/dev/null; printf 'A dog' | " RG_BUILD_DIR "/ridge run tales-1m -n 8 "
                                 "--temperature 0"),
                     0);
    assert_string_equal(command_out, piped);
    assert_non_null(strstr(command_err, "prompt + 8 output tokens"));
    snprintf(file, sizeof file, "%s", test_scratch("prompt.txt"));
    test_write_text(file, "A dog");
    char args[700];
    snprintf(args, sizeof args, "run -m tales-1m -n 8 --temperature 0 --quiet <%s", file);
    assert_int_equal(command_run(args), 0);
    assert_string_equal(command_out, piped);
    /* What is said goes before what is piped; an empty pipe is no prompt. */
    assert_int_equal(command_run("version >/dev/null; echo Other | " RG_BUILD_DIR "/ridge run tales-1m 'A dog' -n 8 "
                                 "--temperature 0 --quiet"),
                     0);
    assert_string_equal(command_out, piped);
    assert_int_equal(command_run("version >/dev/null; printf '' | " RG_BUILD_DIR "/ridge run tales-1m -n 4 --json"), 0);
}

static void names_in_any_case(void **state)
{
    static const char *const types[][2] = {
        { "Q4_K_M", "q4_k_m" }, { "q8_0", "q8_0" }, { "Q5_0", "q5_0" }, { "BF16", "bf16" }
    };
    char args[700];

    (void)state;
    for (size_t i = 0; i < RG_LEN(types); i++) {
        snprintf(args, sizeof args, "quantize tales-7m %s --type %s --json", test_scratch("any.gguf"), types[i][0]);
        json_t *j = command_json(args);
        assert_string_equal(json_string_value(json_object_get(j, "type")), types[i][1]);
        json_decref(j);
    }
    json_decref(command_json("run tales-1m A -n 1 --isa REF --recipe Exact --kv-type BF16 --json"));
    command_refuses("quantize tales-1m /tmp/x --type q4_k_x", 2, "q4_k_x");
}

/* ---- settings ---- */

static const char *config_of(const char *text)
{
    static char path[400];

    snprintf(path, sizeof path, "%s", test_scratch("ridge.conf"));
    test_write_text(path, text);
    return path;
}

static json_int_t n_ids(void)
{
    json_t *j = json_loads(command_out, 0, NULL);
    json_int_t n = (json_int_t)json_array_size(json_object_get(j, "ids"));

    json_decref(j);
    return n;
}

/* Flag, environment, section of the file, the file's top, default. */
static void settings_have_an_order(void **state)
{
    const char *top = config_of("# settings\nmax-tokens = 3 # of an answer\ntemperature = 0\n");
    char args[600], with[700];

    (void)state;
    snprintf(args, sizeof args, "run tales-1m A --ignore-eos --json --config %s", top);
    assert_int_equal(command_run(args), 0);
    assert_int_equal(n_ids(), 3);
    config_of("max-tokens = 3\n[run]\nmax-tokens = 4\nseed=77\nmodel = \"tales-1m\"\n\n[chat]\nmax_tokens = 5\n");
    assert_int_equal(command_run(args), 0);
    assert_int_equal(n_ids(), 4);
    assert_int_equal(run_with("RIDGE_MAX_TOKENS=5 RIDGE_QUIET=1", args), 0);
    assert_int_equal(n_ids(), 5);
    snprintf(with, sizeof with, "%s -n 6", args);
    assert_int_equal(run_with("RIDGE_MAX_TOKENS=5", with), 0);
    assert_int_equal(n_ids(), 6);
    /* The file by the environment, and the one at its usual place; none: no file. */
    snprintf(with, sizeof with, "RIDGE_CONFIG=%s", top);
    assert_int_equal(run_with(with, "run -p A --ignore-eos --json"), 0);
    assert_int_equal(n_ids(), 4);
    snprintf(with, sizeof with, "%s", test_scratch("xdg"));
    mkdir(with, 0755);
    snprintf(with, sizeof with, "%s/ridge", test_scratch("xdg"));
    mkdir(with, 0755);
    snprintf(with, sizeof with, "%s/ridge/config", test_scratch("xdg"));
    test_write_text(with, "[run]\nmax-tokens = 7\n");
    snprintf(with, sizeof with, "XDG_CONFIG_HOME=%s", test_scratch("xdg"));
    assert_int_equal(run_with(with, "run tales-1m A --ignore-eos --json"), 0);
    assert_int_equal(n_ids(), 7);
    assert_int_equal(run_with(with, "run tales-1m A --ignore-eos --json --config none"), 0);
    assert_int_equal(n_ids(), 128);
    /* A flag that the file turns on can be turned off. */
    snprintf(args, sizeof args, "run tales-1m A -n 2 --json=false --config %s", config_of("json = true\n"));
    assert_int_equal(command_run(args), 0);
    assert_true(command_out[0] != '{');
}

static void lists_and_texts(void **state)
{
    char args[600];

    (void)state;
    snprintf(args, sizeof args, "run tales-1m 'Once upon a time' -n 40 --temperature 0 --json --config %s",
             config_of("[run]\nstop = [\"li\\u\", 'x']\n"));
    command_refuses(args, 2, "ridge.conf, line 2: an escape");
    config_of("[run]\nstop = [\"\\\"\\n\", 'little', zzz ]  # the second one comes\n");
    assert_int_equal(command_run(args), 0);
    assert_null(strstr(command_out, "little"));
    assert_non_null(strstr(command_out, "\"stop\""));
    /* Those of the environment take the place of the file's. */
    assert_int_equal(run_with("RIDGE_STOP='$$$\n@@@'", args), 0);
    assert_non_null(strstr(command_out, "little"));
}

static void wrong_settings_name_their_line(void **state)
{
    static const struct {
        const char *text, *about;
    } cases[] = {
        { "\n[run]\ntemprature = 1\n", "line 3: 'temprature' is not an option of run; did you mean temperature?" },
        { "[serve]\nprot = 1\n", "line 2: 'prot' is not an option of serve; did you mean port?" },
        { "nothing-like-it = 1\n", "line 1: 'nothing-like-it' is not an option of any command" },
        { "[srve]\n", "line 1: [srve] is not a command" },
        { "[run\n", "line 1: a section is [COMMAND]" },
        { "[run]\ntemperature\n", "line 2: want KEY = VALUE" },
        { "[run]\ntemperature =\n", "line 2: the value is missing" },
        { "[run]\ntemperature = # 1\n", "line 2: the value is missing" },
        { "[run]\ntemperature = hot\n", "line 2: --temperature takes a number from 0" },
        { "[run]\nignore-eos = maybe\n", "line 2: --ignore-eos" },
        { "[run]\nseed = 1\nseed = 2\n", "line 3: --seed is set twice" },
        { "[run]\nstop = \"a\n", "line 2: a string does not end" },
        { "[run]\nstop = \"a\" b\n", "line 2: something stands behind the string" },
        { "[run]\nstop = [\n", "line 2: a list is" },
        { "[run]\nstop = []\n", "line 2: the list is empty" },
        { "config = x\n", "line 1: a file cannot name another" },
    };
    char args[600];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(args, sizeof args, "run tales-1m A -n 1 --config %s", config_of(cases[i].text));
        command_refuses(args, 2, cases[i].about);
    }
    command_refuses("run tales-1m A -n 1 --config /no/such/file", 1, "/no/such/file");
    assert_int_equal(run_with("RIDGE_TEMPERATURE=hot", "run tales-1m A -n 1"), 2);
    assert_non_null(strstr(command_err, "ridge: RIDGE_TEMPERATURE: --temperature takes a number"));
    /* What only others take is no error. */
    snprintf(args, sizeof args, "run tales-1m A -n 1 --config %s",
             config_of("port = 9\nctx-size = 128\n[bench]\nreps = 2\n"));
    assert_int_equal(command_run(args), 0);
    assert_int_equal(run_with("RIDGE_PORT=nine", "run tales-1m A -n 1"), 0);
    snprintf(args, sizeof args, "study kbit --config %s",
             config_of("[study recall]\nlengths = 9\n[study kv]\ntypes = f32\n"));
    assert_int_equal(command_run(args), 2);
}

/* ---- completion ---- */

static void completes(const char *words, const char *want)
{
    char args[1024];

    snprintf(args, sizeof args,
             "completion bash >/dev/null; bash -c 'source <(%s/ridge completion bash); COMP_WORDS=(%s); "
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ridge; echo \"${COMPREPLY[@]}\"'",
             RG_BUILD_DIR, words);
    assert_int_equal(command_run(args), 0);
    command_out[strcspn(command_out, "\n")] = 0;
    assert_string_equal(command_out, want);
}

static void completion(void **state)
{
    static const char *const others[] = { "zsh", "fish" };
    char args[512];

    (void)state;
    completes("ridge ser", "serve");
    completes("ridge run --temp", "--temperature");
    completes("ridge serve --log-", "--log-level --log-format");
    completes("ridge shrink gp", "gptq");
    completes("ridge study kb", "kbit");
    completes("ridge study kbit --cs", "--csv");
    completes("ridge help comp", "completion");
    completes("ridge completion z", "zsh");
    command_refuses("completion tcsh", 2, "bash, zsh, fish");
    for (size_t i = 0; i < RG_LEN(others); i++) {
        snprintf(args, sizeof args, "completion %s", others[i]);
        says(args, 0, "temperature");
        /* Where that shell is installed, it can read the script. */
        snprintf(args, sizeof args, "completion %s >%s.%s; if command -v %s >/dev/null; then %s -n %s.%s; fi", others[i],
                 test_scratch("completion"), others[i], others[i], others[i], test_scratch("completion"), others[i]);
        assert_int_equal(command_run(args), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_version),
        cmocka_unit_test(nearly_right_words),
        cmocka_unit_test(others_options),
        cmocka_unit_test(one_line_of_figures),
        cmocka_unit_test(prompts_from_pipes),
        cmocka_unit_test(names_in_any_case),
        cmocka_unit_test(settings_have_an_order),
        cmocka_unit_test(lists_and_texts),
        cmocka_unit_test(wrong_settings_name_their_line),
        cmocka_unit_test(completion),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("command line", tests, NULL, NULL);
}
