/* test_train_command.c -- `ridge train`, `grad` and `tokenizer train` as programs: what they write, a run that is killed
 * and goes on, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/command.h"
#include "support/model.h"

#define MODEL RG_SOURCE_DIR "/models/tales-1m"
#define DATA  RG_SOURCE_DIR "/models/calibration.txt"
#define SMALL "--steps 6 --batch 2 --length 32 --save 2 --lr 0.0001 --quiet"

static void run(const char *format, const char *a, const char *b)
{
    char args[2048];

    snprintf(args, sizeof args, format, a, b);
    if (command_run(args))
        fail_msg("ridge %s: %s", args, command_err);
}

/* The first four columns of a log. */
static void read_log(const char *path, char *out, size_t room)
{
    char line[256];
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    out[0] = 0;
    while (fgets(line, sizeof line, f)) {
        char *last = strrchr(line, ',');

        assert_non_null(last);
        *last = 0;
        strncat(out, line, room - strlen(out) - 2);
        strcat(out, "\n");
    }
    fclose(f);
}

/* Killed at some moment, resumed: the same losses, and the same weights. */
static void a_killed_run_goes_on(void **state)
{
    char whole[512], killed[512], logs[2][1024], path[2][600];

    (void)state;
    snprintf(whole, sizeof whole, "%s", test_scratch("whole"));
    snprintf(killed, sizeof killed, "%s", test_scratch("killed"));
    run("train " MODEL " --data " DATA " " SMALL " -o %s --log %s.csv", whole, whole);
    snprintf(path[0], sizeof path[0],
             "train " MODEL " --data " DATA " " SMALL
             " -o %s --log %s.csv & P=$!; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do "
             "[ -f %s/checkpoint.safetensors ] && break; sleep 0.05; done; kill -9 $P; wait $P",
             killed, killed, killed);
    command_run(path[0]);
    run("train " MODEL " --data " DATA " " SMALL " --resume --threads 1 -o %s --log %s.csv", killed, killed);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s.csv", i ? killed : whole);
        read_log(path[i], logs[i], sizeof logs[i]);
    }
    assert_string_equal(logs[0], logs[1]);
    assert_non_null(strstr(logs[0], "step,loss,grad_norm,lr\n1,"));
}

static void json_has_every_step(void **state)
{
    char out[512], args[1200];
    size_t i;
    json_t *step;

    (void)state;
    snprintf(out, sizeof out, "%s", test_scratch("json"));
    snprintf(args, sizeof args, "train " MODEL " --data " DATA " " SMALL " --lora 4 --json -o %s --svg %s.svg", out,
             out);
    json_t *v = command_json(args);
    assert_int_equal(json_array_size(json_object_get(v, "steps")), 6);
    json_array_foreach(json_object_get(v, "steps"), i, step)
    {
        assert_int_equal(json_integer_value(json_object_get(step, "step")), i + 1);
        assert_true(json_real_value(json_object_get(step, "loss")) > 0);
        assert_true(json_real_value(json_object_get(step, "grad_norm")) > 0);
    }
    json_decref(v);
}

static void a_vocabulary_and_a_model_from_scratch(void **state)
{
    char tokens[512], config[512], out[512], args[2400];

    (void)state;
    snprintf(tokens, sizeof tokens, "%s", test_scratch("tokenizer.json"));
    snprintf(config, sizeof config, "%s", test_scratch("small.json"));
    snprintf(out, sizeof out, "%s", test_scratch("scratch"));
    snprintf(args, sizeof args, "tokenizer train " DATA " -o %s --size 400 --json", tokens);
    json_t *v = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(v, "size")), 400);
    json_decref(v);
    test_write_text(config,
                    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 32, "
                    "\"intermediate_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
                    "\"rms_norm_eps\": 1e-5, \"vocab_size\": 400, \"tie_word_embeddings\": true}");
    snprintf(args, sizeof args, "train %s --tokenizer %s --data " DATA " " SMALL " -o %s", config, tokens, out);
    assert_int_equal(command_run(args), 0);
    snprintf(args, sizeof args, "run %s -p \"Once\" -n 2 --quiet", out);
    assert_int_equal(command_run(args), 0);
}

/* A student of another width learns from a shipped model; drawn ids are stored and found again. */
static void a_student_learns(void **state)
{
    char config[512], out[512], args[2400];

    (void)state;
    snprintf(config, sizeof config, "%s", test_scratch("student.json"));
    snprintf(out, sizeof out, "%s", test_scratch("student"));
    test_write_text(config,
                    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 32, "
                    "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                    "\"rms_norm_eps\": 1e-5, \"vocab_size\": 4096, \"tie_word_embeddings\": true}");
    for (int i = 0; i < 2; i++) {
        snprintf(args, sizeof args,
                 "distill %s --teacher " MODEL " --tokenizer " MODEL " --data " DATA
                 " --steps 6 --batch 2 --length 32 --lr 0.003 --warmup 1 --quiet --json -o %s %s%s",
                 config, out, i ? "--loss sampled --store " : "--hidden-loss", i ? out : "");
        if (i)
            strcat(args, ".draws");
        json_t *v = command_json(args);
        assert_int_equal(json_array_size(json_object_get(v, "steps")), 6);
        assert_true(json_real_value(json_object_get(v, "kl_after")) < json_real_value(json_object_get(v, "kl_before")));
        assert_int_equal(json_integer_value(json_object_get(v, "stored_positions")), i ? 6 * 2 * 32 : 0);
        json_decref(v);
    }
    snprintf(args, sizeof args, "run %s -p \"Once\" -n 2 --quiet", out);
    assert_int_equal(command_run(args), 0);
}

/* Heads of the shipped model, which draft for it afterwards; texts are those without them. */
static void heads_are_trained_and_draft(void **state)
{
    char out[512], args[1600], text[2][600] = { "" };

    (void)state;
    snprintf(out, sizeof out, "%s", test_scratch("medusa"));
    run("train " MODEL " --data " DATA " " SMALL " --medusa 3 --type bf16 -o %s", out, out);
    for (int i = 0; i < 2; i++) {
        snprintf(args, sizeof args, "run " MODEL " -p \"Once upon a time\" -n 16 --temperature 0 --quiet --draft %s%s",
                 i ? "medusa:" : "none", i ? out : "");
        assert_int_equal(command_run(args), 0);
        snprintf(text[i], sizeof text[i], "%s", command_out);
    }
    assert_string_equal(text[0], text[1]);
    command_refuses("train " MODEL " --data " DATA " -o nowhere --medusa 2 --lora 4", 2, "--medusa");
}

/* The network that lies beside tales-7m: ids are kept, and texts with it are those without. */
static void the_shipped_network_drafts(void **state)
{
    static const char *const drafters[] = { "none", "eagle:" RG_SOURCE_DIR "/models/tales-7m/eagle3" };
    char args[1200], text[2][600] = { "" };
    json_t *j = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        json_decref(j);
        snprintf(args, sizeof args,
                 "run " RG_SOURCE_DIR
                 "/models/tales-7m -p \"Once upon a time\" -n 48 --temperature 0 --json --quiet --draft %s",
                 drafters[i]);
        j = command_json(args);
        snprintf(text[i], sizeof text[i], "%s", json_string_value(json_object_get(j, "text")));
    }
    assert_string_equal(text[0], text[1]);
    const json_t *draft = json_object_get(j, "draft");
    assert_true(json_integer_value(json_object_get(draft, "steps")) < 32);
    assert_true(json_integer_value(json_object_get(draft, "accepted")) >= 16);
    json_decref(j);
}

/* Networks for a model of three layers or more, new ones and a model's own module: texts with them are those without. */
static void networks_are_trained_and_draft(void **state)
{
    static const struct {
        const char *model, *flags, *drafter; /* NULL: the module of what is written */
    } cases[] = {
        { RG_TEST_DATA "/llama", "--eagle --noise 0.1", "eagle:" },
        { RG_TEST_DATA "/llama", "--eagle3 --draft-vocab 50 --draft-ffn 48 --draft-steps 2", "eagle:" },
        { RG_TEST_DATA "/speculation/mtp-qwen", "--mtp", NULL },
    };
    char out[512], ids[600], args[1600], text[2][600] = { "" };

    (void)state;
    snprintf(ids, sizeof ids, "%s.jsonl", test_scratch("lists"));
    FILE *f = fopen(ids, "w");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fprintf(f, "{\"ids\": [%d, 5, 9, 14, 20, 27, 35, 5, 9, 14, 20, 27, 35, 5, 9, 14]}\n", i);
    fclose(f);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *model = cases[c].drafter ? cases[c].model : out;

        snprintf(out, sizeof out, "%s", test_scratch(c == 0 ? "eagle" : c == 1 ? "eagle3" : "mtp"));
        snprintf(args, sizeof args,
                 "train %s %s --data %s --steps 2 --batch 2 --length 16 --warmup 1 --type bf16 --quiet -o %s",
                 cases[c].model, cases[c].flags, ids, out);
        assert_int_equal(command_run(args), 0);
        for (int i = 0; i < 2; i++) {
            snprintf(args, sizeof args, "run %s --ids 1,5,9,14 -n 16 --temperature 0 --quiet --draft %s%s", model,
                     !i                 ? "none"
                     : cases[c].drafter ? cases[c].drafter
                                        : "mtp",
                     i && cases[c].drafter ? out : "");
            assert_int_equal(command_run(args), 0);
            snprintf(text[i], sizeof text[i], "%s", command_out);
        }
        assert_string_equal(text[0], text[1]);
    }
    command_refuses("train " RG_TEST_DATA "/llama --data " DATA " -o nowhere --eagle --medusa 2", 2, "--eagle");
    command_refuses("train " RG_TEST_DATA "/llama --data " DATA " -o nowhere --eagle3 --mtp", 2, "--eagle3");
}

static void what_cannot_be_trained_is_refused(void **state)
{
    (void)state;
    command_refuses("train " MODEL " --data " DATA, 2, "-o");
    command_refuses("train " MODEL " -o nowhere", 2, "--data");
    command_refuses("train " MODEL " --data nowhere.txt -o nowhere", 1, "nowhere.txt");
    command_refuses("train " RG_TEST_DATA "/llama/model.gguf --data " DATA " -o nowhere", 1, "GGUF");
    command_refuses("train " MODEL " --data " DATA " -o nowhere --schedule steps", 2, "schedule");
    command_refuses("train " MODEL " --data " DATA " -o nowhere --precision f16", 2, "precision");
    command_refuses("distill " MODEL " --data " DATA " -o nowhere", 2, "--teacher");
    command_refuses("distill " MODEL " --teacher " MODEL " --data " DATA " -o nowhere --loss l2", 2, "--loss");
    command_refuses("distill " MODEL " --teacher " MODEL " --data " DATA " -o nowhere --store x", 2, "--store");
    command_refuses("distill " MODEL " --teacher " RG_TEST_DATA "/llama --data " DATA " -o nowhere", 1, "vocabulary");
    command_refuses("tokenizer train", 2, "TEXT");
    command_refuses("grad " MODEL, 2, "BATCH");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_goes_on),
        cmocka_unit_test(json_has_every_step),
        cmocka_unit_test(a_vocabulary_and_a_model_from_scratch),
        cmocka_unit_test(a_student_learns),
        cmocka_unit_test(heads_are_trained_and_draft),
        cmocka_unit_test(networks_are_trained_and_draft),
        cmocka_unit_test(the_shipped_network_drafts),
        cmocka_unit_test(what_cannot_be_trained_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
