/* test_cli.c -- the command line as users and tests rely on it: exit statuses, JSON, errors of one line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/command.h"
#include "support/damaged.h"
#include "support/model.h"

#define GOLDEN RG_TEST_DATA

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

static void usage(void **state)
{
    static const char *const commands[] = { "run",      "embed",  "bench", "machine", "inspect",
                                            "tokenize", "logits", "eval",  "quantize" };

    (void)state;
    assert_int_equal(command_run("--help"), 0);
    for (size_t i = 0; i < RG_LEN(commands); i++)
        assert_non_null(strstr(command_out, commands[i]));
    for (size_t i = 0; i < RG_LEN(commands); i++) {
        char args[64];
        snprintf(args, sizeof args, "%s --help", commands[i]);
        assert_int_equal(command_run(args), 0);
        assert_non_null(strstr(command_out, "--threads"));
    }
    assert_int_equal(command_run(""), 2);
    command_refuses("sing", 2, "sing");
    command_refuses("run --no-such", 2, "--no-such");
    command_refuses("run -n many", 2, "-n");
    command_refuses("run --temperature -1", 2, "--temperature");
    command_refuses("run /nonexistent", 1, "/nonexistent");
    command_refuses("logits", 2, "MODEL");
    command_refuses("inspect", 2, "MODEL");
    command_refuses("inspect /", 1, "config.json");
    command_refuses("run -n 0", 2, "2147483647");
    command_refuses("serve --json --model-name x /nonexistent", 2, "--json");
    command_refuses("run -p a -f b", 2, "PROMPT");
    command_refuses("run tales-1m a --ids 1", 2, "PROMPT");
    command_refuses("tokenize tales-1m --ids 5,4096", 1, "id 4096");
    command_refuses("tokenize tales-1m --ids 5 -p a", 2, "--ids");
    command_refuses("run --isa sparc -n 1", 2, "sparc");
    command_refuses("run --recipe sloppy -n 1", 2, "sloppy");
    command_refuses("run " GOLDEN "/llama --ids 1,2,999999 -n 1", 1, "999999");
    command_refuses("run " GOLDEN "/llama -p hello -n 1", 1, "tokenizer");
}

static void what_is_no_number_is_an_error(void **state)
{
    char args[256];

    (void)state;
    snprintf(args, sizeof args, "run %s --ids 1,2,3 -n 4", damaged_model("llama", "blk.0.attn_q.weight", NAN, false));
    command_refuses(args, 1, "NaN or infinity");
    strcat(args, " --json");
    command_refuses(args, 1, "NaN or infinity");
}

/* tales-1m with a weight that is no number; its path. */
static const char *damaged_tales(void)
{
    static const char *const files[] = { "config.json", "tokenizer.json", "tokenizer_config.json",
                                         "model.safetensors" };
    const char *folder = test_scratch("damaged-tales");

    mkdir(folder, 0755);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        char from[600], to[600];

        snprintf(from, sizeof from, RG_SOURCE_DIR "/models/tales-1m/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        test_copy_file(from, to, NULL, NULL);
    }
    damage_file(folder, "model.norm.weight", INFINITY);
    return folder;
}

/* The tools that look inside name the first position whose numbers are none, and write nothing. */
static void tools_name_the_first_position(void **state)
{
    const char *out = test_scratch("not-finite.safetensors");
    char args[512], model[300];

    (void)state;
    /* In the embedding's row of id 160. */
    snprintf(model, sizeof model, "%s", damaged_folder("damaged", "llama", "model.embed_tokens.weight", NAN));
    snprintf(args, sizeof args, "logits %s --ids 1,2,3 -o %s", model, out);
    assert_int_equal(command_run(args), 0);
    remove(out);
    snprintf(args, sizeof args, "logits %s --ids 1,2,3,160,5 -o %s", model, out);
    command_refuses(args, 1, "position 3: the model computed NaN or infinity");
    assert_int_not_equal(access(out, F_OK), 0);
    snprintf(args, sizeof args, "logits %s --ids 1,2,3,160,5 --chunks 2", model);
    command_refuses(args, 1, "position 3: the model computed NaN or infinity");
    snprintf(args, sizeof args, "logits %s --ids 5,6,7",
             damaged_folder("damaged-bert", "bert", "encoder.layer.1.output.dense.weight", NAN));
    command_refuses(args, 1, "position 0: the model computed NaN or infinity");
    snprintf(args, sizeof args, "eval %s --perplexity " RG_SOURCE_DIR "/models/README.md --ctx 64", damaged_tales());
    command_refuses(args, 1, "README.md: position 0: the model computed NaN or infinity");
    /* How fast it is can be measured all the same. */
    snprintf(args, sizeof args, "bench %s --prefill 8 --decode 4 --batch 1 --context 8 --reps 1 --quiet", model);
    assert_int_equal(command_run(args), 0);
}

static void runs(void **state)
{
    (void)state;
    json_t *j = command_json("run -p 'Once upon a time' -n 12 --temperature 0 --json --logprobs 2 --quiet");
    wants(j, "prompt_ids ids text finish_reason logprobs ttft_ms prefill_tok_s decode_tok_s seed");
    assert_int_equal(json_array_size(json_object_get(j, "ids")), 12);
    assert_int_equal(json_array_size(json_object_get(j, "logprobs")), 12);
    assert_string_equal(json_string_value(json_object_get(j, "finish_reason")), "length");
    assert_non_null(strstr(json_string_value(json_object_get(j, "text")), "there was"));
    wants(json_array_get(json_object_get(j, "logprobs"), 0), "id logprob top");
    json_decref(j);

    j = command_json("run " GOLDEN "/llama --ids=1,2,3 -n 5 --temperature 0 --json --ignore-eos");
    assert_true(json_is_null(json_object_get(j, "text")));
    assert_int_equal(json_array_size(json_object_get(j, "prompt_ids")), 3);
    json_decref(j);

    j = command_json("run -n 6 --n 3 --seed 4 --json");
    assert_int_equal(json_array_size(json_object_get(j, "choices")), 3);
    json_decref(j);

    j = command_json("run -p 'Once upon a time' -n 40 --temperature 0 --stop 'little' --json");
    assert_string_equal(json_string_value(json_object_get(j, "finish_reason")), "stop");
    assert_null(strstr(json_string_value(json_object_get(j, "text")), "little"));
    json_decref(j);
}

static json_t *ids_of(const char *way)
{
    char args[256];

    snprintf(args, sizeof args, "run tales-1m -p 'A dog' -n 30 --seed 9 --json %s", way);
    json_t *j = command_json(args), *ids = json_incref(json_object_get(j, "ids"));
    json_decref(j);
    return ids;
}

/* One seed, one text: whatever the number of threads, and in the exact recipe the instruction set. */
static void runs_alike(void **state)
{
    static const char *const ways[][2] = { { "--threads 1", "--threads 2" }, { "--threads 2", "--threads 2 --whole-head" },
                                           { "--recipe exact", "--recipe exact --isa ref" } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        json_t *a = ids_of(ways[i][0]), *b = ids_of(ways[i][1]);
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
    }
}

static void looks_inside(void **state)
{
    (void)state;
    json_t *j = command_json("inspect " GOLDEN "/gemma3 --json");
    wants(j, "architecture parameters config ends tensors tokenizer metadata not_understood");
    assert_int_equal(json_object_size(json_object_get(j, "not_understood")), 0);
    wants(json_array_get(json_object_get(j, "tensors"), 0), "name dtype shape bytes");
    json_decref(j);

    j = command_json("tokenize tales-7m -p 'Hello world.' --json");
    assert_int_equal(json_array_size(json_object_get(j, "ids")), 4);
    assert_int_equal(json_array_size(json_object_get(j, "pieces")), 4);
    json_decref(j);
    j = command_json("tokenize tales-7m --ids 3998,1013,17 --json");
    assert_string_equal(json_string_value(json_object_get(j, "text")), "Hello world.");
    json_decref(j);
    j = command_json("tokenize tales-7m -p '<|user|>' --no-special --plain --json");
    assert_true(json_array_size(json_object_get(j, "ids")) > 1);
    json_decref(j);

    j = command_json("bench tales-1m --prefill 32 --decode 4 --batch 1,2 --context 16 --reps 1 --kv-type q8 --json");
    wants(j, "machine rows");
    assert_int_equal(json_array_size(json_object_get(j, "rows")), 3);
    wants(json_array_get(json_object_get(j, "rows"), 0),
          "what n batch context tok_s gb_s gflop_s of_roofline format kv_type isa threads");
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(j, "rows"), 0), "kv_type")),
                        "q8");
    json_decref(j);
}

/* --record writes what --json prints, with all that is needed to know what was measured. */
static void bench_record(void **state)
{
    char path[256], args[512];

    (void)state;
    snprintf(path, sizeof path, "%s/test_cli.record.%d.json", RG_BUILD_DIR, (int)getpid());
    snprintf(args, sizeof args,
             "bench tales-1m --prefill 8 --decode 2 --batch 1 --context 0 --reps 1 --threads 2 --commit abc "
             "--record %s --json",
             path);
    json_t *printed = command_json(args), *kept = json_load_file(path, 0, NULL);
    assert_true(json_equal(printed, kept));
    wants(kept, "version commit model machine rows");
    assert_string_equal(json_string_value(json_object_get(kept, "commit")), "abc");
    wants(json_object_get(kept, "machine"),
          "processor isa threads cores read_gb_s f32_gflop_s bf16_gflop_s int8_gop_s");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kept, "machine"), "threads")), 2);
    json_decref(printed);
    json_decref(kept);
    unlink(path);
    command_refuses("bench tales-1m --prefill 8 --decode 0 --context 0 --reps 1 --record /nonexistent/f", 1,
                    "/nonexistent");
}

static int times_in(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* --svg draws the roofs, and a dot with its name for every row that was measured. */
static void bench_picture(void **state)
{
    char path[256], args[512];

    (void)state;
    snprintf(path, sizeof path, "%s", test_scratch("bench.svg"));
    snprintf(args, sizeof args,
             "bench tales-1m --prefill 8,16 --decode 2 --batch 1,2,3 --context 4 --reps 1 --threads 1 --svg %s", path);
    assert_int_equal(command_run(args), 0);
    char *svg = test_read_text(path);
    static const char *const dots[] = { "1 stream: ", "2 streams: ", "3 streams: ", "prompt of 8: ", "prompt of 16: " };
    for (size_t i = 0; i < RG_LEN(dots); i++) {
        char title[64], label[64];
        snprintf(title, sizeof title, "<title>%s", dots[i]);
        snprintf(label, sizeof label, "\">%s", dots[i]);
        assert_int_equal(times_in(svg, title), 1);
        assert_int_equal(times_in(svg, label), 1);
    }
    assert_int_equal(times_in(svg, "<circle class=\"decode\""), 3 + 1); /* and one of the legend */
    assert_int_equal(times_in(svg, "<rect class=\"prefill\""), 2 + 1);
    assert_true(times_in(svg, "<path class=\"roof\"") >= 1);
    assert_non_null(strstr(svg, "operations per byte of memory"));
    assert_null(strstr(svg, "nan"));
    assert_true(strlen(svg) < 30000);
    assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
    free(svg);
    unlink(path);
    command_refuses("bench tales-1m --no-cache --context 4 --decode 2 --reps 1 --svg x.svg", 2, "--svg");
    command_refuses("bench tales-1m --prefill 8 --decode 0 --context 0 --reps 1 --svg /nonexistent/f", 1,
                    "/nonexistent");
}

/* Windows let go of positions as a prompt or an answer goes on: there is room for those that are far longer. */
static void bench_goes_through_windows(void **state)
{
    static const char *const models[] = { "gemma3", "mistral-swa" }, *const what[] = {
        "--prefill 3900 --decode 4 --context 8", "--prefill 0 --decode 3900 --context 16"
    };
    char args[400];

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++)
        for (size_t k = 0; k < RG_LEN(what); k++) {
            snprintf(args, sizeof args, "bench " GOLDEN "/%s %s --batch 1 --reps 1 --json", models[i], what[k]);
            json_decref(command_json(args));
        }
}

/* Of models of diffusion an answer is evaluations: of its masks, of the model's own blocks with one that keeps each, and of
 * canvases likewise.  Prompts have no steps of their own. */
static void bench_fills(void **state)
{
    static const struct {
        const char *model, *flags;
        double evaluations; /* of 32 ids behind 16, two an evaluation */
    } models[] = { { "llada", "--block 8", 16 }, { "dream", "", 16 }, { "sdar-b4", "", 24 }, { "diffusion-gemma", "", 18 } };
    char args[400];

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        snprintf(args, sizeof args, "bench " GOLDEN "/%s --prefill 8 --decode 32 --context 16 --batch 1,3 --per-evaluation 2 %s "
                 "--reps 1 --threads 1 --json --quiet", models[i].model, models[i].flags);
        json_t *j = command_json(args), *rows = json_object_get(j, "rows");
        assert_int_equal(json_array_size(rows), 2);
        for (size_t k = 0; k < 2; k++) {
            json_t *r = json_array_get(rows, k);
            assert_string_equal(json_string_value(json_object_get(r, "what")), "fill");
            assert_int_equal(json_integer_value(json_object_get(r, "batch")), k ? 3 : 1);
            if (json_number_value(json_object_get(r, "evaluations")) != models[i].evaluations)
                fail_msg("%s: %g evaluations", models[i].model, json_number_value(json_object_get(r, "evaluations")));
            assert_true(json_number_value(json_object_get(r, "tok_s")) > 0);
        }
        json_decref(j);
    }
    command_refuses("bench " GOLDEN "/diffusion-gemma --block 8 --decode 32 --context 16 --reps 1 --threads 1", 2,
                    "blocks of 16");
    command_refuses("bench " GOLDEN "/dream --no-cache --context 4 --decode 2 --reps 1 --threads 1", 2, "--no-cache");
}

/* Cut and company never change the logits' hash. */
static void logits_hash(void **state)
{
    static const char *const ways[] = {
        "", "--chunks 1", "--chunks 7,1,16", "--threads 2 --chunks 3", "--isa ref", NULL
    };
    char others[256], args[1024], *first = NULL;

    (void)state;
    snprintf(others, sizeof others, "%s/test_cli.%d.json", RG_BUILD_DIR, (int)getpid());
    FILE *f = fopen(others, "w");
    assert_non_null(f);
    fputs("[[5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30], [3], [4, 4, 4, 4]]", f);
    fclose(f);
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        snprintf(args, sizeof args,
                 "logits " GOLDEN "/mixtral --ids 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 --json %s%s",
                 ways[i] ? ways[i] : "--chunks 2 --batch-with ", ways[i] ? "" : others);
        json_t *j = command_json(args);
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
    json_t *j = command_json("eval tales-1m --perplexity " RG_SOURCE_DIR
                             "/models/CREDITS-storybooks.md --first-bytes 4000 --ctx 128 --json");
    wants(j, "nll ppl bits_per_byte tokens bytes");
    double nll = json_number_value(json_object_get(j, "nll")), ppl = json_number_value(json_object_get(j, "ppl"));
    assert_true(nll > 1 && nll < 12 && fabs(ppl / exp(nll) - 1) < 1e-6);
    json_decref(j);
    command_refuses("eval tales-1m --perplexity /nonexistent", 1, "/nonexistent");
}

/* How far a recipe is from exact arithmetic: nowhere if it is exact, for all weights or for each by its name. */
static void distance_from_exact(void **state)
{
    static const struct { const char *flags; bool exact; } cases[] = {
        { "--recipe fast", false }, { "--recipe fast --exact-part down_proj,ffn_down", false }, { "--recipe exact", true },
        { "--recipe fast --exact-part ffn_,attn_,token_embd,output", true },
    };
    char path[256], args[1024];
    double kl[RG_LEN(cases)];

    (void)state;
    snprintf(path, sizeof path, "%s/test_cli.%d.gguf", RG_BUILD_DIR, (int)getpid());
    snprintf(args, sizeof args, "quantize tales-1m %s --type q4_0 --json", path);
    json_decref(command_json(args));
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(args, sizeof args, "eval %s --perplexity " RG_SOURCE_DIR "/models/CREDITS-storybooks.md --first-bytes 2000 "
                 "--ctx 64 --kl %s --json", path, cases[i].flags);
        json_t *j = command_json(args);
        wants(j, "nll kl top_logprobs_off other_best");
        kl[i] = json_number_value(json_object_get(j, "kl"));
        const double off = json_number_value(json_object_get(j, "top_logprobs_off"));
        assert_true(cases[i].exact ? fabs(kl[i]) < 1e-12 && off < 1e-12 : kl[i] > 1e-7 && kl[i] < 0.1 && off > 1e-4);
        json_decref(j);
    }
    assert_true(kl[1] != kl[0]);
    unlink(path);
}

/* What round16 loses is the distance from the weights as the file has them, which are F16 that bf16 cannot hold. */
static void distance_of_rounded_weights(void **state)
{
    static const struct { const char *recipe; bool exact; } cases[] = { { "fast", true }, { "round16", false } };
    char path[2][256], args[1024];

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/test_cli.%d.%d.gguf", RG_BUILD_DIR, (int)getpid(), i);
        snprintf(args, sizeof args, "quantize %s %s --type %s --json", i ? path[0] : "tales-1m", path[i], i ? "f16" : "q8_0");
        json_decref(command_json(args));
    }
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(args, sizeof args, "eval %s --perplexity " RG_SOURCE_DIR "/models/CREDITS-storybooks.md --first-bytes 2000 "
                 "--ctx 64 --kl --recipe %s --json", path[1], cases[i].recipe);
        json_t *j = command_json(args);
        const double kl = json_number_value(json_object_get(j, "kl"));
        assert_true(cases[i].exact ? fabs(kl) < 1e-12 : kl > 1e-7 && kl < 0.01);
        json_decref(j);
    }
    unlink(path[0]);
    unlink(path[1]);
}

/* ---- looking on -------------------------------------------------------------------------------------------------- */

static void same_rows(const rg_checkpoint *c, const char *a, const char *b)
{
    size_t n, m;
    float *x = test_floats(c, a, &n), *y = test_floats(c, b, &m);

    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n * sizeof *x);
    free(x);
    free(y);
}

/* A matrix of any format; free() it. */
static float *matrix(const rg_checkpoint *c, const char *name, size_t *n)
{
    const rg_tensor *t = rg_checkpoint_find(c, name);
    rg_error err = { 0 };

    assert_non_null(t);
    const rg_format *fmt = rg_format_of(t->type);
    void *raw = malloc(t->bytes);
    *n = (size_t)rg_tensor_count(t);
    float *out = malloc(*n * sizeof *out);
    assert_true(raw && out);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    fmt->decode(raw, (int64_t)*n / fmt->block_len, out);
    free(raw);
    return out;
}

/* What the projection makes of its input, as a sum in double. */
static void is_projected(const rg_checkpoint *weights, const char *name, const rg_checkpoint *c, const char *in,
                         const char *out, size_t n_rows)
{
    size_t n_w, n_in, n_out;
    float *w = matrix(weights, name, &n_w), *x = test_floats(c, in, &n_in), *y = test_floats(c, out, &n_out);

    assert_true(w && x && y);
    size_t cols = n_in / n_rows, rows = n_out / n_rows;
    assert_int_equal(n_w, rows * cols);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < rows; i++) {
            double sum = 0;
            for (size_t k = 0; k < cols; k++)
                sum += (double)w[i * cols + k] * (double)x[r * cols + k];
            assert_true(fabs(sum - (double)y[r * rows + i]) < 1e-5);
        }
    free(w);
    free(x);
    free(y);
}

/* Routes: experts in rising order, then their weights. */
static void are_routes(const rg_checkpoint *c, const char *name, int n_experts)
{
    size_t n;
    float *r = test_floats(c, name, &n);

    assert_non_null(r);
    for (size_t i = 0; i + 3 < n; i += 4) {
        assert_true(r[i] >= 0 && r[i] < r[i + 1] && r[i + 1] < (float)n_experts);
        assert_true(r[i] == floorf(r[i]) && r[i + 1] == floorf(r[i + 1]));
        assert_true(fabsf(r[i + 2] + r[i + 3] - 1) < 1e-5f);
    }
    free(r);
}

static rg_checkpoint *tensors(const char *path)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    return c;
}

static void intermediates_are_dumped(void **state)
{
    enum { N = 9, LAYERS = 3 };
    static const char *const cuts[] = { "", "--chunks 4,1", "--threads 2 --chunks 2 --batch-with " };
    char args[2048], path[512], others[512], a[64], b[64];

    (void)state;
    snprintf(others, sizeof others, "%s", test_scratch("others.json"));
    FILE *f = fopen(others, "w");
    assert_non_null(f);
    fputs("[[5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [3]]", f);
    fclose(f);
    rg_checkpoint *weights = tensors(GOLDEN "/mixtral/model.safetensors");
    for (size_t i = 0; i < RG_LEN(cuts); i++) {
        snprintf(path, sizeof path, "%s", test_scratch("watched.safetensors"));
        snprintf(args, sizeof args, "logits " GOLDEN "/mixtral --ids 1,2,3,4,5,6,7,8,9 --hidden --watch all -o %s %s%s",
                 path, cuts[i], i == 2 ? others : "");
        assert_int_equal(command_run(args), 0);
        rg_checkpoint *c = tensors(path);
        same_rows(c, "watch.hidden", "hidden.0");
        for (int layer = 0; layer < LAYERS; layer++) {
            snprintf(a, sizeof a, "watch.%d.hidden", layer);
            snprintf(b, sizeof b, "hidden.%d", layer + 1); /* what enters the next */
            same_rows(c, a, layer + 1 < LAYERS ? b : "watch.head_in.1");
            snprintf(a, sizeof a, "watch.%d.route", layer);
            are_routes(c, a, 4);
        }
        same_rows(c, "watch.head_in", "hidden.3");
        same_rows(c, "watch.logits", "logits");
        is_projected(weights, "model.layers.1.self_attn.q_proj.weight", c, "watch.1.attn_norm", "watch.1.q.1", N);
        is_projected(weights, "model.layers.2.self_attn.v_proj.weight", c, "watch.2.attn_norm", "watch.2.v", N);
        is_projected(weights, "model.layers.0.block_sparse_moe.gate.weight", c, "watch.0.ffn_norm", "watch.0.router",
                     N);
        rg_checkpoint_close(c);
    }
    rg_checkpoint_close(weights);
    snprintf(args, sizeof args, "logits " GOLDEN "/mixtral --ids 1,2 --watch 1.q,v -o %s", path);
    assert_int_equal(command_run(args), 0);
    rg_checkpoint *c = tensors(path);
    assert_int_equal(rg_checkpoint_n_tensors(c), 1 + 2 + LAYERS); /* q as it was made, and rotated */
    assert_null(rg_checkpoint_find(c, "watch.0.q"));
    rg_checkpoint_close(c);
    command_refuses("logits " GOLDEN "/mixtral --ids 1,2 --watch q,nothing -o /nonexistent/x", 2,
                    "'nothing'; there are hidden, attn_norm");
    command_refuses("logits " GOLDEN "/mixtral --ids 1,2 --watch q,7.q -o /nonexistent/x", 2, "'7.q'");
    command_refuses("logits " GOLDEN "/mixtral --ids 1,2 --watch q", 2, "-o");
}

/* Mean |x| of the rows of `act`, as `weight` read them. */
static void means_are_of(const rg_checkpoint *means, const char *weight, const rg_checkpoint *dump, const char *act)
{
    size_t n, n_all;
    float *mean = test_floats(means, weight, &n), *x = test_floats(dump, act, &n_all);

    assert_true(mean && x && n_all % n == 0);
    for (size_t k = 0; k < n; k++) {
        double sum = 0;
        for (size_t at = k; at < n_all; at += n)
            sum += fabs((double)x[at]);
        assert_true(sum > 0 && mean[k] == (float)(sum / (double)(n_all / n)));
    }
    free(mean);
    free(x);
}

/* One window of a text: the same ids through both. */
static void activations_are_means(void **state)
{
#define TEXT "Once upon a time there was a little dog who lived in a big house by the sea."
    char args[4096], ids[2048] = "", file[512], means[512], dump[512];

    (void)state;
    json_t *j = command_json("tokenize tales-1m -p '" TEXT "' --json");
    const json_t *list = json_object_get(j, "ids");
    size_t n = json_array_size(list), at = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(ids + at, sizeof ids - at, "%s%lld", i ? "," : "",
                               json_integer_value(json_array_get(list, i)));
    json_decref(j);
    snprintf(file, sizeof file, "%s", test_scratch("text"));
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(TEXT, f);
    fclose(f);
    snprintf(means, sizeof means, "%s", test_scratch("means.safetensors"));
    snprintf(dump, sizeof dump, "%s", test_scratch("dump.safetensors"));
    snprintf(args, sizeof args, "eval tales-1m --perplexity %s --ctx %zu --activations %s --json", file, n, means);
    j = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(j, "tokens")), n - 1);
    json_decref(j);
    snprintf(args, sizeof args, "logits tales-1m --ids %s --watch all -o %s", ids, dump);
    assert_int_equal(command_run(args), 0);
    rg_checkpoint *m = tensors(means), *d = tensors(dump);
    means_are_of(m, "model.layers.0.self_attn.q_proj", d, "watch.0.attn_norm");
    means_are_of(m, "model.layers.1.self_attn.v_proj", d, "watch.1.attn_norm");
    means_are_of(m, "model.layers.1.self_attn.o_proj", d, "watch.1.attn");
    means_are_of(m, "model.layers.0.mlp.up_proj", d, "watch.0.ffn_norm");
    means_are_of(m, "model.layers.0.mlp.down_proj", d, "watch.0.ffn");
    means_are_of(m, "model.embed_tokens", d, "watch.head_in");
    rg_checkpoint_close(m);
    rg_checkpoint_close(d);
    snprintf(args, sizeof args, "eval tales-1m --perplexity %s --ctx %zu --activations /nonexistent/x", file, n);
    command_refuses(args, 1, "/nonexistent");
}

/* The commands that do without the engine refuse as it does what a model cannot embed. */
static void more_ids_than_rows_are_refused(void **state)
{
    const char *dir = test_variant("rows", "llama", "config.json", NULL, NULL);
    char path[600], args[1300];
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"w320\",\"vocab\":{");
    for (int i = 0; i < 321; i++)
        fprintf(f, "%s\"w%d\":%d", i ? "," : "", i, i);
    fprintf(f, "}}}");
    assert_int_equal(fclose(f), 0);
    snprintf(args, sizeof args, "eval %s --perplexity %s --ctx 2", dir, path);
    command_refuses(args, 1, "321 ids");
    snprintf(args, sizeof args, "run %s x", dir);
    command_refuses(args, 1, "321 ids");
}

/* A config that says fewer layers than there are: what is left over is named, and one line warns.  One of the nine is a
 * buffer that says nothing. */
static void tensors_left_over_are_told(void **state)
{
    const char *path =
        test_variant("fewer", "llama", "config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
    char args[1024], weights[600];

    (void)state;
    snprintf(weights, sizeof weights, "%s/model.safetensors", path);
    test_copy_file(GOLDEN "/llama/model.safetensors", weights, "model.layers.2.mlp.down_proj.weight",
                   "model.layers.2x.rotary_emb.inv_freq");
    snprintf(args, sizeof args, "inspect %s --json", path);
    json_t *j = command_json(args), *left = json_object_get(j, "not_used");
    assert_int_equal(json_array_size(left), 8);
    for (size_t i = 0; i < json_array_size(left); i++)
        assert_non_null(strstr(json_string_value(json_array_get(left, i)), "model.layers.2."));
    json_decref(j);
    snprintf(args, sizeof args, "inspect %s", path);
    assert_int_equal(command_run(args), 0);
    assert_non_null(strstr(command_out, "not used:\n  model.layers.2."));
    snprintf(args, sizeof args, "logits %s --ids 1,2,3", path);
    assert_int_equal(command_run(args), 0);
    assert_non_null(strstr(command_err, "fewer: 8 tensors are not used"));
    snprintf(args, sizeof args, "run %s --ids 1,2,3 -n 2", path);
    assert_int_equal(command_run(args), 0);
    assert_non_null(strstr(command_err, "fewer: 8 tensors are not used"));
    snprintf(args, sizeof args, "quantize %s %s --type f16 --json", path, test_scratch("fewer.gguf"));
    j = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(j, "left_out")), 8);
    assert_non_null(strstr(command_err, "fewer: 8 tensors are not used"));
    json_decref(j);
    snprintf(args, sizeof args, "run %s --ids 1,2,3 -n 2 --quiet", path);
    assert_int_equal(command_run(args), 0);
    assert_string_equal(command_err, "");
}

/* What run refuses, the others refuse in the same words. */
static void all_refuse(const char *dir, const char *about)
{
    char args[2048], want[sizeof command_err];

    snprintf(args, sizeof args, "run %s --ids 1,2 -n 1", dir);
    command_refuses(args, 1, about);
    strcpy(want, command_err);
    snprintf(args, sizeof args, "inspect %s", dir);
    command_refuses(args, 1, about);
    assert_string_equal(command_err, want);
    snprintf(args, sizeof args, "quantize %s %s --type f16 --quiet", dir, test_scratch("refused.gguf"));
    command_refuses(args, 1, about);
    assert_string_equal(command_err, want);
    snprintf(args, sizeof args, "quantize %s %s --to hf --type f16 --quiet", dir, test_scratch("refused"));
    command_refuses(args, 1, about);
    assert_string_equal(command_err, want);
}

/* The tensors' headers changed: a matrix lying down, also that of a later expert, one that is gone, one of integers. */
static void tensors_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *golden, *find, *replace, *about;
    } cases[] = {
        { "llama", "0.self_attn.k_proj.weight\":{\"dtype\":\"F32\",\"shape\":[32,64]",
          "0.self_attn.k_proj.weight\":{\"dtype\":\"F32\",\"shape\":[64,32]",
          "is [64, 32] where the config says [32, 64]" },
        { "deepseek-v2", "experts.1.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[64,32]",
          "experts.1.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[32,64]",
          "is [32, 64] where the config says [64, 32]" },
        { "deepseek-v2", "experts.1.down_proj.weight", "experts.1.down_proj.weighs",
          "experts.1.down_proj' is missing" },
        { "deepseek-v2", "experts.1.down_proj.weight\":{\"dtype\":\"BF16\"",
          "experts.1.down_proj.weight\":{\"dtype\":\"I16\" ", "which is no type of weights" },
    };
    char from[600], to[600];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *dir = test_variant("lying", cases[i].golden, "config.json", NULL, NULL);
        snprintf(from, sizeof from, GOLDEN "/%s/model.safetensors", cases[i].golden);
        snprintf(to, sizeof to, "%s/model.safetensors", dir);
        test_copy_file(from, to, cases[i].find, cases[i].replace);
        all_refuse(dir, cases[i].about);
    }
}

static void bad_indexes_are_refused(void **state)
{
    const char *dir = test_variant("indexed", "llama", "config.json", NULL, NULL);
    char from[600], to[600];
    FILE *f;

    (void)state;
    snprintf(from, sizeof from, "%s/model.safetensors", dir);
    snprintf(to, sizeof to, "%s/one.safetensors", dir);
    assert_int_equal(rename(from, to), 0);
    snprintf(to, sizeof to, "%s/model.safetensors.index.json", dir);
    f = fopen(to, "w");
    assert_non_null(f);
    fprintf(f, "{\"weight_map\":{\"lm_head.weight\":\"one.safetensors\",\"nothing\":\"one.safetensors\"}}");
    assert_int_equal(fclose(f), 0);
    all_refuse(dir, "tensor 'nothing' is not in one.safetensors");
}

#define HELLO RG_SOURCE_DIR "/tests/cli/hello.json"

/* What could not be written is a failure, whatever the command, and the reason is told. */
static void a_full_output_is_a_failure(void **state)
{
    static const char *const commands[] = { "run tales-1m -p Once -n 4",
                                            "chat tales-1m <" HELLO,
                                            "tokenize tales-1m -p Once",
                                            "tokenize tales-1m --ids 5",
                                            "inspect tales-1m",
                                            "embed tales-1m -p Once",
                                            "eval tales-1m --perplexity " RG_SOURCE_DIR "/README.md --ctx 64",
                                            "bench tales-1m --prefill 8 --decode 0 --reps 1",
                                            "plan tales-1m --machine h100",
                                            "--help",
                                            "--version",
                                            "run --help",
                                            "render tales-1m <" HELLO };

    (void)state;
    for (size_t i = 0; i < RG_LEN(commands); i++)
        for (int json = 0; json < 2; json++) {
            char args[512];
            if (json && (commands[i][0] == '-' || strstr(commands[i], "help") || !strncmp(commands[i], "chat", 4)))
                continue;
            snprintf(args, sizeof args, "%s%s >/dev/full", commands[i], json ? " --json" : "");
            if (command_run(args) != 1 || !strstr(command_err, "standard output cannot be written"))
                fail_msg("ridge %s: %s", args, command_err);
        }
}

#define WITH_SMALL_STACK "--version >/dev/null; ulimit -s 256; " RG_BUILD_DIR "/ridge "

/* Threads need more stack than some systems give by default. */
static void a_small_stack_is_enough(void **state)
{
    (void)state;
    assert_int_equal(command_run(WITH_SMALL_STACK "run tales-1m -p Once -n 4 --quiet"), 0);
    assert_int_equal(command_run(WITH_SMALL_STACK "bench tales-1m --prefill 8 --decode 2 --batch 2 --reps 1"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage),
        cmocka_unit_test(a_full_output_is_a_failure),
        cmocka_unit_test(a_small_stack_is_enough),
        cmocka_unit_test(what_is_no_number_is_an_error),
        cmocka_unit_test(tools_name_the_first_position),
        cmocka_unit_test(runs),
        cmocka_unit_test(runs_alike),
        cmocka_unit_test(looks_inside),
        cmocka_unit_test(bench_record),
        cmocka_unit_test(bench_picture),
        cmocka_unit_test(bench_goes_through_windows), cmocka_unit_test(bench_fills),
        cmocka_unit_test(logits_hash),
        cmocka_unit_test(perplexity),
        cmocka_unit_test(distance_from_exact),
        cmocka_unit_test(distance_of_rounded_weights),
        cmocka_unit_test(intermediates_are_dumped),
        cmocka_unit_test(activations_are_means),
        cmocka_unit_test(more_ids_than_rows_are_refused),
        cmocka_unit_test(tensors_left_over_are_told),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(bad_indexes_are_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
