/* `ridge shrink`, `ridge study` and `quantize --importance` as people run them, on the shipped model. */
#include "support/command.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/model.h"

/* A short text that the model knows. */
static const char *short_text(void)
{
    static char path[600];

    snprintf(path, sizeof path, "%s", test_scratch("text.txt"));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 12; i++)
        fputs("Once upon a time there was a little dog who had a red ball. ", f);
    fclose(f);
    return path;
}

static double number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);

    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void methods_report_what_they_did(void **state)
{
    static const char *const methods[] = { "rtn --bits 4", "gptq --bits 3 --group 64 --act-order", "int8" };
    char args[2048];

    (void)state;
    for (size_t i = 0; i < RG_LEN(methods); i++) {
        const char *space = strchr(methods[i], ' ');
        char name[32];
        snprintf(name, sizeof name, "made-%zu", i);
        snprintf(args, sizeof args, "shrink %.*s tales-1m %s%s --samples 4 --ctx 64 --perplexity %s --json",
                 space ? (int)(space - methods[i]) : 20, methods[i], test_scratch(name), space ? space : "",
                 short_text());
        json_t *j = command_json(args);
        const json_t *layers = json_object_get(j, "layers");
        assert_int_equal(json_array_size(layers), 14);
        assert_true(number(json_array_get(layers, 0), "error") > 0 &&
                    number(json_array_get(layers, 0), "error") < 0.1);
        assert_true(number(j, "ppl_after") < 2 * number(j, "ppl_before"));
        assert_true(number(j, "bytes") < number(j, "bytes_before") && number(j, "seconds") >= 0);
        json_decref(j);
        snprintf(args, sizeof args, "run %s -p Once -n 2 --temperature 0 --json", test_scratch(name));
        json_decref(command_json(args));
    }
}

static void the_whole_model_is_looked_at(void **state)
{
    char args[2048];

    (void)state;
    snprintf(args, sizeof args, "shrink sparsity tales-1m %s --samples 2 --ctx 64 --sparsity 0.5 --json",
             test_scratch("thresholds.json"));
    json_t *j = command_json(args), *file = json_load_file(test_scratch("thresholds.json"), 0, NULL);
    assert_true(number(j, "sparsity") > 0.4 && number(j, "sparsity") < 0.6);
    assert_int_equal(json_object_size(json_object_get(file, "thresholds")), 14);
    assert_true(json_is_null(json_object_get(j, "warning")));
    json_decref(file);
    json_decref(j);
    snprintf(args, sizeof args, "shrink prune tales-1m %s --neurons 256 --heads 2 --samples 2 --ctx 64 --json "
             "--perplexity %s", test_scratch("pruned"), short_text());
    json_decref(command_json(args));
    snprintf(args, sizeof args, "run %s -p Once -n 2 --temperature 0 --json", test_scratch("pruned"));
    json_decref(command_json(args));
}

/* Of a mixture thresholds are made for what is no expert, and that experts have none is said. */
static void experts_without_thresholds_are_told(void **state)
{
    const char *dir = test_variant("mixture", "mixtral", "config.json", NULL, NULL), *name;
    const char *const tokenizer = "{\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"model\": {\"type\": "
                                  "\"WordLevel\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"Once\": 1, \"upon\": 2, "
                                  "\"time\": 3, \"there\": 4, \"little\": 5, \"dog\": 6, \"red\": 7, \"ball.\": 8}}}";
    char path[600], args[2048];
    json_t *value;

    (void)state;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    test_write_text(path, tokenizer);
    snprintf(args, sizeof args, "shrink sparsity %s %s --calibration %s --perplexity none --samples 2 --ctx 32 "
             "--sparsity 0.5", dir, test_scratch("mixture.json"), short_text());
    assert_int_equal(command_run(args), 0);
    assert_non_null(strstr(command_err, "warning: experts get no thresholds"));
    strcat(args, " --json");
    json_t *j = command_json(args), *file = json_load_file(test_scratch("mixture.json"), 0, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(j, "warning")), "experts get no thresholds"));
    assert_int_equal(json_object_size(json_object_get(file, "thresholds")), 3 * 5); /* of a layer: q, k, v, o, router */
    json_object_foreach(json_object_get(file, "thresholds"), name, value)
        assert_true(!strchr(name, '[') && json_number_value(value) > 0);
    json_decref(file);
    json_decref(j);
}

static void importance_reaches_the_encoder(void **state)
{
    char args[4096];

    (void)state;
    snprintf(args, sizeof args, "eval tales-1m --perplexity %s/models/calibration.txt --first-bytes 2000 --ctx 64 "
             "--activations %s", RG_SOURCE_DIR, test_scratch("means.safetensors"));
    assert_int_equal(command_run(args), 0);
    snprintf(args, sizeof args, "quantize tales-1m %s --type iq4_nl --importance %s --json", test_scratch("weighed.gguf"),
             test_scratch("means.safetensors"));
    json_t *j = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(j, "important")), 15);
    json_decref(j);
    snprintf(args, sizeof args, "shrink rtn tales-1m %s --type iq4_nl --samples 2 --ctx 64 --perplexity %s --json",
             test_scratch("typed.gguf"), short_text());
    j = command_json(args);
    assert_true(number(j, "ppl_after") < 1.5 * number(j, "ppl_before") && number(j, "bytes") < 600000);
    json_decref(j);
}

static void a_study_goes_on(void **state)
{
    char args[4096];

    (void)state;
    snprintf(args, sizeof args, "study kbit tales-1m --perplexity %s --ctx 32 --csv %s --svg %s --json --resume", short_text(),
             test_scratch("study.csv"), test_scratch("study.svg"));
    json_t *j = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(j, "kept")), 0);
    const json_t *rows = json_object_get(j, "rows");
    assert_int_equal(json_array_size(rows), 19);
    assert_true(number(json_array_get(rows, 0), "total_bits") > number(json_array_get(rows, 18), "total_bits"));
    assert_true(number(json_array_get(rows, 0), "ppl") < number(json_array_get(rows, 17), "ppl"));
    json_decref(j);
    j = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(j, "kept")), 19);
    json_decref(j);
}

static void what_is_wrong_is_named(void **state)
{
    char args[2048];

    (void)state;
    command_refuses("shrink foo tales-1m /nowhere", 2, "method 'foo' is not one of rtn, gptq");
    snprintf(args, sizeof args, "shrink gptq tales-1m %s --samples 100000", test_scratch("short"));
    command_refuses(args, 1, "take a longer text");
    snprintf(args, sizeof args, "shrink rtn tales-1m %s --bits 4 --to gguf --group 48", test_scratch("g.gguf"));
    command_refuses(args, 1, "groups of a multiple of 32");
    command_refuses("study kbit", 2, "at least one MODEL");
}

/* Cut by a quarter, and repaired in a few steps: nearer to the whole model than before, and told beside it. */
static void what_was_pruned_heals(void **state)
{
    char args[2048];

    (void)state;
    snprintf(args, sizeof args,
             "shrink prune tales-1m %s --channels 96 --neurons 288 --samples 4 --ctx 64 --perplexity %s --heal %s "
             "--steps 12 --batch 2 --length 64 --lr 0.002 --warmup 2 --json",
             test_scratch("healed"), short_text(), RG_SOURCE_DIR "/models/calibration.txt");
    json_t *j = command_json(args);
    const json_t *heal = json_object_get(j, "heal");
    assert_int_equal((int)number(heal, "tokens"), 12 * 2 * 64);
    assert_true(number(heal, "ppl_damaged") > number(j, "ppl_before"));
    assert_true(number(j, "ppl_after") < number(heal, "ppl_damaged"));
    assert_true(number(heal, "won_back") > 0);
    assert_true(number(heal, "ppl_control") > 1 && number(heal, "won_back_of_control") > 0);
    json_decref(j);
    assert_int_equal(rg_path_look(test_scratch("healed.control")), RG_PATH_NONE);
    /* A folder of somebody else's in the place of the one that is made and removed. */
    assert_true(rg_dir_make(test_scratch("healed.control"), &(rg_error){ 0 }));
    snprintf(args, sizeof args, "shrink prune tales-1m %s --channels 96 --samples 4 --ctx 64 --perplexity none --heal %s",
             test_scratch("healed"), RG_SOURCE_DIR "/models/calibration.txt");
    command_refuses(args, 2, "healed.control");
    assert_int_equal(rg_path_look(test_scratch("healed.control")), RG_PATH_DIR);
    snprintf(args, sizeof args, "run %s -p Once -n 2 --temperature 0 --json", test_scratch("healed"));
    json_decref(command_json(args));
}

/* Start `ridge ARGS`, and kill it once this file is there. */
static void kill_when(const char *args, const char *file)
{
    char command[4096];
    const pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (!pid) {
        snprintf(command, sizeof command, "exec %s/ridge </dev/null %s >/dev/null 2>&1", RG_BUILD_DIR, args);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    while (rg_path_look(file) != RG_PATH_FILE && !waitpid(pid, &status, WNOHANG))
        usleep(1000);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    assert_int_equal(rg_path_look(file), RG_PATH_FILE); /* it did not end before */
}

/* Killed after a checkpoint, a repair goes on to the same weights, and leaves nothing beside them; so does training on a
 * grid.  What was not stopped begins anew. */
static void repairs_go_on_after_a_kill(void **state)
{
    static const struct { const char *method, *checkpoint, *weights; } of[] = {
        { "prune tales-1m %s --channels 96 --neurons 288 --samples 4", "repair", "/model.safetensors" },
        { "qat tales-1m %s --scheme q8_0 --samples 4", "training", "" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(of); i++) {
        char path[512], args[2048], saved[600], weights[600], *got[2];
        rg_error err = { 0 };
        size_t bytes[2];

        snprintf(path, sizeof path, "%s", test_scratch(of[i].checkpoint));
        snprintf(weights, sizeof weights, "%s%s", path, of[i].weights);
        snprintf(saved, sizeof saved, "%s.%s.safetensors", path, of[i].checkpoint);
        for (int k = 0; k < 2; k++) {
            int n = snprintf(args, sizeof args, "shrink ");

            n += snprintf(args + n, sizeof args - (size_t)n, of[i].method, path);
            snprintf(args + n, sizeof args - (size_t)n,
                     " --ctx 64 --perplexity none --heal %s --no-control --steps 30 --batch 2 --length 64 --save 4 "
                     "--warmup 2",
                     RG_SOURCE_DIR "/models/calibration.txt");
            if (k)
                kill_when(args, saved);
            strcat(args, k ? " --resume" : "");
            const int status = command_run(args);
            if (status)
                fail_msg("ridge %s: %s", args, command_err);
            assert_int_equal(rg_path_look(saved), RG_PATH_NONE);
            assert_ok(got[k] = rg_file_slurp(weights, (size_t)1 << 28, &bytes[k], &err), err);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(got[0], got[1], bytes[0]);
        rg_free(got[0]);
        rg_free(got[1]);
    }
    command_refuses("shrink rtn tales-1m nowhere --resume", 2, "--resume");
}

/* Models that keep less K/V, and what training wins back. */
static void models_keep_less(void **state)
{
    static const struct {
        const char *method, *name, *key, *value;
    } cases[] = {
        { "gqa --kv-heads 1", "gqa", "num_key_value_heads", "1" },
        { "cla --share 2", "cla", "kv_source_layers", NULL },
        { "window --window 2", "windowed", "sliding_window", "2" },
        { "mla --rank 8", "latents", "kv_lora_rank", "8" },
    };
    char args[2048], path[600];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *space = strchr(cases[i].method, ' ');
        json_error_t why;

        snprintf(args, sizeof args,
                 "shrink %.*s tales-1m %s%s --samples 8 --ctx 64 --heal %s --steps 8 --batch 2 --length 64 --no-control "
                 "--json",
                 (int)(space - cases[i].method), cases[i].method, test_scratch(cases[i].name), space,
                 RG_SOURCE_DIR "/models/calibration.txt");
        json_t *j = command_json(args);
        const json_t *heal = json_object_get(j, "heal");
        assert_true(number(heal, "ppl_damaged") > number(j, "ppl_before"));
        assert_true(number(j, "ppl_after") < number(heal, "ppl_damaged"));
        if (!cases[i].value || strncmp(cases[i].method, "window", 6) != 0)
            assert_true(number(j, "kv_bytes") < number(j, "kv_bytes_before"));
        json_decref(j);
        snprintf(path, sizeof path, "%s/config.json", test_scratch(cases[i].name));
        json_t *config = json_load_file(path, 0, &why);
        assert_non_null(json_object_get(config, cases[i].key));
        if (cases[i].value)
            assert_int_equal(json_integer_value(json_object_get(config, cases[i].key)), cases[i].value[0] - '0');
        json_decref(config);
        snprintf(args, sizeof args, "run %s -p Once -n 2 --temperature 0 --json", test_scratch(cases[i].name));
        json_decref(command_json(args));
    }
    command_refuses("shrink mla tales-1m nowhere", 2, "--rank");
    command_refuses("shrink gqa tales-1m nowhere", 2, "--kv-heads");
    command_refuses("shrink gqa tales-1m nowhere --kv-heads 3", 2, "K/V heads");
    snprintf(args, sizeof args, "shrink window " RG_TEST_DATA "/qwen2 %s --window 4", test_scratch("nowhere"));
    command_refuses(args, 1, "");
}

/* Trained on a grid, and stored on it: GGUF's own types, and codes with trained scales and zeros. */
static void models_are_trained_on_a_grid(void **state)
{
    static const struct {
        const char *scheme, *name;
    } cases[] = {
        { "q4_0", "qat.gguf" }, { "q8_0", "qat8.gguf" }, { "int4 --group 64", "qat4" }, { "lsq --stages end", "qatl" },
        { "int3 --block-steps 10", "qat3" },
    };
    char args[2048];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(args, sizeof args,
                 "shrink qat tales-1m %s --scheme %s --samples 8 --ctx 64 --perplexity %s --steps 6 --batch 2 "
                 "--length 64 --no-control --json",
                 test_scratch(cases[i].name), cases[i].scheme, short_text());
        json_t *j = command_json(args);
        const json_t *heal = json_object_get(j, "heal");
        assert_true(number(j, "ppl_after") < 1.5 * number(j, "ppl_before"));
        assert_true(number(heal, "ppl_damaged") > 1);
        if (i == 4) /* 3 bits lose much, and a layer at a time wins back most of it */
            assert_true(number(heal, "won_back") > 0.2);
        json_decref(j);
        snprintf(args, sizeof args, "run %s -p Once -n 2 --temperature 0 --json", test_scratch(cases[i].name));
        json_decref(command_json(args));
    }
    command_refuses("shrink qat tales-1m nowhere", 2, "--scheme");
    command_refuses("shrink qat tales-1m nowhere --scheme int5", 2, "int5");
    command_refuses("shrink qat tales-1m nowhere --scheme q4_0 --stages block,end", 2, "--stages");
    command_refuses("shrink rtn tales-1m nowhere --heal text.txt", 2, "--heal");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_report_what_they_did),  cmocka_unit_test(the_whole_model_is_looked_at),
        cmocka_unit_test(experts_without_thresholds_are_told), cmocka_unit_test(importance_reaches_the_encoder),
        cmocka_unit_test(a_study_goes_on),               cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_was_pruned_heals),
        cmocka_unit_test(repairs_go_on_after_a_kill),
        cmocka_unit_test(models_are_trained_on_a_grid),
        cmocka_unit_test(models_keep_less),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
