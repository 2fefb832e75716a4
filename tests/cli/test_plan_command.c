/* test_plan_command.c -- `ridge plan`, `ridge machine` and `bench --no-cache` as users rely on them: JSON, files, errors of
 * one line.  What is known of this machine is made up (support/profile.h), so that nothing is measured but the model. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/profile.h"

#define SHAPE RG_TEST_DATA "/shapes/llama-2-13b.json"

static json_t *row(json_t *j, size_t i)
{
    json_t *r = json_array_get(json_object_get(j, "rows"), i);

    assert_non_null(r);
    return r;
}

static double number(json_t *r, const char *key)
{
    json_t *v = json_object_get(r, key);

    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void is_about(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want))) {
        print_error("%.12g is not %.12g\n", got, want);
        fail();
    }
}

/* Ordered machine, seq, batch; every promised key there. */
static void rows(void **state)
{
    static const char *const keys[] = { "machine", "batch", "seq", "memory_bytes", "fits", "latency_ms", "throughput_tok_s",
                                        "intensity", "bound_by" };

    (void)state;
    json_t *j = command_json("plan " SHAPE " --machine h100,v5e --batch 1,64 --seq 128,1024 --json --what-if");
    assert_int_equal(json_array_size(json_object_get(j, "rows")), 8);
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = 0; k < RG_LEN(keys); k++)
            assert_non_null(json_object_get(row(j, i), keys[k]));
        assert_string_equal(json_string_value(json_object_get(row(j, i), "machine")), i < 4 ? "h100" : "v5e");
        assert_true(number(row(j, i), "seq") == (i / 2 % 2 ? 1024 : 128));
        assert_true(number(row(j, i), "batch") == (i % 2 ? 64 : 1));
    }
    assert_true(json_is_false(json_object_get(row(j, 4), "fits")));
    assert_true(json_array_size(json_object_get(j, "what_if")) > 8);
    assert_true(json_array_size(json_object_get(j, "operations")) > 8);
    json_decref(j);
}

/* Five sets of K/V for twelve layers: one of 16 columns in bf16 for each full layer, and windows. */
static void state_is_told(void **state)
{
    (void)state;
    json_t *j = command_json("plan " RG_TEST_DATA "/character-ai --machine h100 --json");
    assert_true(number(j, "bytes_per_position") == 64);
    json_decref(j);
    j = command_json("plan " RG_TEST_DATA "/cla3/config.json --machine h100 --json");
    assert_true(number(j, "bytes_per_position") == 128);
    json_decref(j);
    assert_int_equal(command_run("plan " RG_TEST_DATA "/cla3/config.json --machine h100"), 0);
    assert_non_null(strstr(command_out, "state: 128 bytes per position, 0 per sequence (bf16 K/V)"));
}

static void goldens(void **state)
{
    (void)state;
    json_t *j = command_json("plan " SHAPE " --machine h100 --method closed-form --batch 64 --dtype bf16 --json");
    assert_true(fabs(number(row(j, 0), "latency_ms") - 23.80) < 0.01);
    json_decref(j);
    j = command_json("plan --params 30e9 --kv-bytes 100e3 --seq 8192 --machine v5e --chips 16 --dtype int8 --batch 4,256 --json");
    assert_string_equal(json_string_value(json_object_get(j, "method")), "general");
    assert_true(fabs(number(row(j, 0), "latency_ms") - 2.57) < 0.01 && fabs(number(row(j, 1), "latency_ms") - 21.05) < 0.01);
    json_decref(j);
    j = command_json("plan " SHAPE " --machine h100 --dtype int8 --kv-type f16 --batch 1 --json"); /* fewer bytes, same K/V */
    assert_true(number(row(j, 0), "memory_bytes") < 16e9);
    double kv = number(json_object_get(row(j, 0), "memory"), "kv");
    json_decref(j);
    j = command_json("plan " SHAPE " --machine h100 --dtype int8 --kv-type q8 --batch 1 --json"); /* a byte, and two for 32 */
    assert_true(fabs(number(json_object_get(row(j, 0), "memory"), "kv") / kv - 1.0625 / 2) < 1e-9);
    json_decref(j);
    j = command_json("plan " SHAPE " --machine h100 --dtype int8 --kv-type q4 --batch 1 --json"); /* and a block as f32 */
    double seq = number(row(j, 0), "seq");
    assert_true(fabs(number(json_object_get(row(j, 0), "memory"), "kv") / kv - (0.625 / 2 + 64 * 4 / (2 * seq))) < 1e-9);
    json_decref(j);
    command_refuses("plan " RG_TEST_DATA "/llada/config.json --machine h100 --kv-type q4", 1, "q4");
}

/* The profile in the user's cache folder says what this machine does, exactly; another number of threads is another
 * machine. */
static void machine(void **state)
{
    rg_profile p;

    (void)state;
    test_profile_folder(1);
    test_profile(&p, 1);
    json_t *j = command_json("machine --json --threads 1");
    is_about(number(j, "read_gb_s"), p.roofs.read_bytes_s / 1e9);
    is_about(number(j, "f32_gflop_s"), p.roofs.f32_ops_s / 1e9);
    is_about(number(j, "bf16_gflop_s"), p.roofs.bf16_ops_s / 1e9);
    is_about(number(j, "int8_gop_s"), p.roofs.int8_ops_s / 1e9);
    is_about(number(j, "threads"), 1);
    is_about(number(j, "step_us"), 1e6 * p.rates.step_s);
    is_about(number(json_array_get(json_object_get(j, "sets"), 3), "read_gb_s"), p.rates.set_bytes_s[3] / 1e9);
    is_about(number(json_array_get(json_object_get(j, "operations"), RG_OP_ADD), "fixed_us"), 1e6 * p.rates.fixed_s[RG_OP_ADD]);
    assert_true(json_is_false(json_object_get(j, "busy")));
    assert_string_equal(command_err, "");
    json_decref(j);
}

/* A profile that is cut short is measured again, and --remeasure measures whatever there is; both are kept, unless the
 * machine was busy, which is told. */
static void machine_anew(void **state)
{
    const char *folder = test_profile_folder(1);
    char path[512];
    rg_profile made_up, got;
    rg_error err = { 0 };

    (void)state;
    if (TEST_SLOWER > 1 || !test_all())
        skip(); /* it takes ten seconds, of checked kernels minutes; test_profile measures too */
    test_profile(&made_up, 1);
    assert_true(rg_profile_path(path, sizeof path, folder, rg_backend_find("auto", &err), 1));
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(command_run("machine --threads 1"), 0);
    bool kept = rg_profile_load(&got, folder, rg_backend_find("auto", &err), 1);
    assert_true(kept ? got.rates.step_s != made_up.rates.step_s : strstr(command_err, "not kept") != NULL);
    assert_ok(rg_profile_save(&made_up, folder, rg_backend_find("auto", &err), &err), err);
    assert_int_equal(command_run("machine --threads 1 --remeasure"), 0);
    assert_true(rg_profile_load(&got, folder, rg_backend_find("auto", &err), 1));
    assert_true((got.rates.step_s != made_up.rates.step_s) == !strstr(command_err, "not kept"));
}

/* A limit that is far too low, as of a profile that was measured beside other work, is corrected by the first answer, in
 * what is told and in the profile that is kept; an answer never reaches more than all that the machine allows. */
static void a_low_limit_is_corrected(void **state)
{
    const char *folder = test_profile_folder(1), *told;
    const rg_backend *backend = rg_backend_find("auto", NULL);
    rg_profile p;
    rg_error err = { 0 };

    (void)state;
    test_profile(&p, 1);
    p.roofs.read_bytes_s = 1e6;
    for (int i = 0; i < RG_RATE_SETS; i++)
        p.rates.set_bytes_s[i] = 1e6;
    assert_ok(rg_profile_save(&p, folder, backend, &err), err);
    assert_int_equal(command_run("run " RG_SOURCE_DIR "/models/tales-1m -p Once -n 20 --ignore-eos --threads 1"), 0);
    assert_non_null(told = strstr(command_err, " GB/s read = "));
    assert_non_null(strstr(told, "% of what this machine allows"));
    assert_in_range(atoi(told + strlen(" GB/s read = ")), 1, 100);
    assert_true(rg_profile_load(&p, folder, backend, 1));
    assert_true(rg_rates_bandwidth(&p.rates, 1.5e6) > 10e6); /* about the model's size; any machine reads faster */
    assert_true(p.rates.set_bytes_s[RG_RATE_SETS - 1] == 1e6);
    for (int i = 1; i < RG_RATE_SETS; i++)
        assert_true(p.rates.set_bytes_s[i] <= p.rates.set_bytes_s[i - 1]);
}

/* How much drafts speed up is told only beside steps without drafts that were timed: with a fixed drafter there are
 * none. */
static void speed_up_needs_steps_without_drafts(void **state)
{
    (void)state;
    test_profile_folder(1);
    assert_int_equal(command_run("run tales-1m -p Once -n 60 --ignore-eos --threads 1 --draft suffix --verbose"), 0);
    assert_non_null(strstr(command_err, " ids drafted by suffix, "));
    assert_null(strstr(command_err, "as quick as"));
}

/* What is predicted for this machine follows from its profile: twice as slow a one, twice as long. */
static void here(void **state)
{
    const char *folder = test_profile_folder(1);
    rg_profile p;
    rg_error err = { 0 };
    double latency[2], ttft[2], *v = (double *)(void *)&p.rates;

    (void)state;
    test_profile(&p, 1);
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(rg_profile_save(&p, folder, rg_backend_find("auto", &err), &err), err);
        json_t *j = command_json("plan " RG_SOURCE_DIR "/models/tales-1m --machine h100,here --batch 2 --seq 64 --threads 1 "
                                 "--json");
        assert_null(json_object_get(row(j, 1), "measured_latency_ms"));
        latency[twice] = number(row(j, 1), "latency_ms");
        ttft[twice] = number(row(j, 1), "ttft_ms");
        json_decref(j);
        for (size_t i = 0; i < sizeof p.rates / sizeof *v; i++) /* seconds, but for bandwidths */
            v[i] *= i < RG_RATE_SETS ? 0.5 : 2;
    }
    is_about(latency[1], 2 * latency[0]);
    is_about(ttft[1], 2 * ttft[0]);
}

/* With --measure, the points of this machine have what was measured beside what was predicted. */
static void measured(void **state)
{
    size_t i;
    json_t *o;

    (void)state;
    test_profile_folder(1);
    json_t *j = command_json("plan " RG_SOURCE_DIR "/models/tales-1m --machine h100,here --batch 1,2 --seq 64 --threads 1 "
                             "--measure --rounds 2 --json --quiet");
    assert_true(json_is_null(json_object_get(row(j, 0), "measured_latency_ms"))); /* no h100 here */
    for (i = 2; i < 4; i++)
        assert_true(number(row(j, i), "measured_latency_ms") > 0);
    assert_true(number(row(j, 2), "measured_ttft_ms") > 0);
    json_decref(j);
    j = command_json("plan " RG_SOURCE_DIR "/models/tales-1m --machine here --batch 2 --seq 64 --threads 1 --measure "
                     "--rounds 2 --ops --json --quiet");
    json_array_foreach(json_object_get(j, "operations"), i, o)
        assert_true(number(o, "measured_s") > 0);
    json_decref(j);
}

/* Without a cache n tokens take n prompts: predicted so from the profile, and measured. */
static void without_cache(void **state)
{
    (void)state;
    test_profile_folder(1);
    json_t *j = command_json("bench " RG_SOURCE_DIR "/models/tales-1m --no-cache --context 100 --decode 8 --reps 1 --threads 1 "
                             "--json --quiet");
    json_t *one = json_array_get(json_object_get(j, "no_cache"), 0);
    assert_true(number(one, "no_cache_s") > 0 && number(one, "cached_s") > 0);
    assert_true(number(one, "no_cache_predicted_s") > 4 * number(one, "cached_predicted_s"));
    json_decref(j);
}

static void files(void **state)
{
    char args[1024], csv[256], svg[256];

    (void)state;
    snprintf(csv, sizeof csv, "%s/test_plan_command.csv", RG_BUILD_DIR);
    snprintf(svg, sizeof svg, "%s/test_plan_command.svg", RG_BUILD_DIR);
    snprintf(args, sizeof args, "plan " SHAPE " --machine h100 --csv %s --svg %s", csv, svg);
    assert_int_equal(command_run(args), 0);
    assert_int_equal(access(csv, R_OK), 0);
    assert_int_equal(access(svg, R_OK), 0);
    unlink(csv);
    unlink(svg);
    command_refuses("plan " SHAPE " --machine h100 --csv /nonexistent/x.csv", 1, "/nonexistent");
}

/* Every line below a "$ ridge plan" of docs/PLAN.md stands in what the command prints, in that order; "..." ends a line
 * early. */
static void document(void **state)
{
    char line[512], args[512];
    const char *at = NULL;
    int n_commands = 0, n_lines = 0;

    (void)state;
    FILE *f = fopen(RG_SOURCE_DIR "/docs/PLAN.md", "r");
    assert_non_null(f);
    assert_int_equal(chdir(RG_SOURCE_DIR), 0);
    while (fgets(line, sizeof line, f)) {
        size_t n = strcspn(line, "\n");
        bool cut = n > 3 && !strncmp(line + n - 3, "...", 3);
        line[cut ? n - 3 : n] = 0;
        if (!strncmp(line, "$ ridge ", 8)) {
            snprintf(args, sizeof args, "%s", line + 8);
            assert_int_equal(command_run(args), 0);
            at = command_out;
            n_commands++;
        } else if (!strncmp(line, "```", 3)) {
            at = NULL;
        } else if (at) {
            const char *found = strstr(at, line);
            if (!found)
                print_error("ridge %s: no longer prints: %s\n", args, line);
            assert_non_null(found);
            at = found + strlen(line);
            n_lines++;
        }
    }
    fclose(f);
    assert_true(n_commands >= 8 && n_lines >= 20);
}

static void refusals(void **state)
{
    char path[256], args[512];

    (void)state;
    command_refuses("plan " SHAPE " --machine abacus", 2, "abacus");
    command_refuses("plan " SHAPE " --machine ''", 2, "--machine");
    command_refuses("plan " SHAPE " --machine h100 --batch 0", 2, "--batch");
    command_refuses("plan " SHAPE " --machine h100 --batch 0,1", 2, "--batch");
    command_refuses("plan " SHAPE " --machine h100 --batch -3", 2, "--batch");
    command_refuses("plan " SHAPE " --machine h100 --batch 99999999999", 2, "--batch");
    command_refuses("plan " SHAPE " --machine h100 --batch 2000000000", 2, "batch 2000000000");
    command_refuses("plan " SHAPE " --machine h100 --seq 0", 2, "--seq");
    command_refuses("plan " SHAPE " --machine h100 --seq 2000000000", 2, "2000000000");
    command_refuses("plan " SHAPE " --machine h100 --chips 0", 2, "--chips");
    command_refuses("plan " SHAPE " --machine h100 --dtype int3", 2, "int3");
    command_refuses("plan " SHAPE " --machine h100 --kv-type int3", 2, "int3");
    command_refuses("plan " SHAPE " --machine h100 --method guess", 2, "guess");
    command_refuses("plan " SHAPE " --machine h100 --measure", 2, "--measure");
    command_refuses("plan --params 0 --kv-bytes 1 --machine v5e", 2, "--params");
    command_refuses("plan --params 1e99 --kv-bytes 1 --machine v5e", 2, "--params");
    command_refuses("plan --params many --kv-bytes 1 --machine v5e", 2, "many");
    command_refuses("plan --params 1e9 --machine v5e", 2, "--kv-bytes");
    command_refuses("plan " SHAPE " --params 1e9 --kv-bytes 1 --machine v5e", 2, "--params");
    command_refuses("plan --params 1e9 --kv-bytes 1 --machine v5e --what-if", 2, "what-if");
    command_refuses("plan " RG_TEST_DATA "/mamba --machine h100 --method closed-form", 1, "closed-form");
    command_refuses("plan /nonexistent --machine h100", 1, "/nonexistent");
    snprintf(path, sizeof path, "%s/test_plan_command.%d.json", RG_BUILD_DIR, (int)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64, \"vocab_size\": 10, "
          "\"num_hidden_layers\": 2, \"num_attention_heads\": 4}", f);
    fclose(f);
    snprintf(args, sizeof args, "plan %s --machine h100", path);
    command_refuses(args, 1, "intermediate_size");
    unlink(path);
}

/* A diffusion model is priced by evaluations x rows, and nothing is drafted for it. */
static void diffusion_is_priced_by_evaluations(void **state)
{
    static const char *const caches[] = { "none", "prefix", "dual" };
    (void)state;

    json_t *j = command_json("plan " RG_TEST_DATA "/llada --machine h100 --batch 2 --seq 96 --answer 32 --block 8 --json "
                             "--what-if");
    json_t *r = row(j, 0), *fills = json_object_get(j, "filling");
    assert_true(number(r, "evaluations") == 32 && number(r, "rows_per_evaluation") == 96);
    is_about(number(r, "throughput_tok_s") * number(r, "answer_ms") / 1e3, 64);
    assert_int_equal(json_array_size(fills), 12);
    for (size_t i = 0; i < 12; i++) {
        json_t *f = json_array_get(fills, i);
        const double each = 1 << i % 4;
        assert_string_equal(json_string_value(json_object_get(f, "cache")), caches[i / 4]);
        assert_true(number(f, "ids_per_evaluation") == each && number(f, "evaluations") == 32 / each);
        if (i < 4)
            assert_true(number(f, "rows_per_evaluation") == 96);
        else /* one of all rows for each of four blocks; the others of those from the block on, or of the block */
            is_about(number(f, "rows_per_evaluation") * 32 / each,
                     4 * 96 + (8 / each - 1) * (i < 8 ? 32 + 24 + 16 + 8 : 4 * 8));
    }
    json_t *change;
    size_t k;
    json_array_foreach(json_object_get(j, "what_if"), k, change)
        assert_null(strstr(json_string_value(json_object_get(change, "change")), "speculation"));
    json_decref(j);

    /* Blocks of the model: a block's evaluations, and one more that keeps it. */
    j = command_json("plan " RG_TEST_DATA "/sdar-b4 --machine h100 --batch 1 --seq 64 --answer 16 --per-evaluation 2 --json");
    assert_true(number(row(j, 0), "evaluations") == 4 * (2 + 1) && number(row(j, 0), "rows_per_evaluation") == 4);
    json_decref(j);
    command_refuses("plan " SHAPE " --machine h100 --answer 8", 2, "diffusion");
    command_refuses("plan " RG_TEST_DATA "/sdar-b4 --machine h100 --block 8", 2, "blocks of 4");
    command_refuses("plan " RG_TEST_DATA "/llada --machine h100 --method closed-form", 2, "counted");
}

/* Prompts together: later for each, never fewer a second; in chunks: more steps, smaller activations, no less time. */
static void prompts_together_and_in_chunks(void **state)
{
    (void)state;
    json_t *whole = command_json("plan " SHAPE " --machine h100 --batch 1 --seq 128 --prefill-batch 1,2,16 --json");
    json_t *cut = command_json("plan " SHAPE " --machine h100 --batch 1 --seq 128 --prefill-batch 1,2,16 --chunk 64 --json");
    json_t *a = json_object_get(whole, "prefill"), *b = json_object_get(cut, "prefill");

    is_about(number(json_array_get(a, 0), "ttft_ms"), number(row(whole, 0), "ttft_ms"));
    is_about(number(json_array_get(b, 0), "ttft_ms"), number(row(cut, 0), "ttft_ms"));
    for (size_t i = 0; i < 3; i++) {
        json_t *x = json_array_get(a, i), *y = json_array_get(b, i);

        assert_true(number(x, "steps") == 1 && number(y, "steps") == (i < 1 ? 2 : i < 2 ? 4 : 32));
        assert_true(number(y, "ttft_ms") >= number(x, "ttft_ms"));
        assert_true(number(y, "activation_bytes") < number(x, "activation_bytes"));
        if (i)
            assert_true(number(x, "ttft_ms") > number(json_array_get(a, i - 1), "ttft_ms") &&
                        number(x, "prompts_s") > number(json_array_get(a, i - 1), "prompts_s"));
    }
    json_decref(whole);
    json_decref(cut);
    json_t *train = command_json("plan " SHAPE " --machine h100 --train --batch 8 --seq 128 --tokens 1e9 --json");
    const json_t *one = json_array_get(json_object_get(train, "train"), 0);
    const double lecture = json_number_value(json_object_get(one, "lecture_ops"));
    assert_true(fabs(lecture / (6.0 * 8 * 128) / json_number_value(json_object_get(one, "params")) - 1) < 1e-6);
    assert_true(json_number_value(json_object_get(one, "ops")) > 0.5 * lecture);
    assert_true(fabs(json_number_value(json_object_get(one, "run_s")) *
                         json_number_value(json_object_get(one, "tokens_s")) / 1e9 - 1) < 1e-6);
    json_decref(train);
    command_refuses("plan " SHAPE " --machine h100 --train --precision f16", 2, "f16");
    command_refuses("plan " SHAPE " --machine h100 --precision bf16", 2, "--train");
    command_refuses("plan " SHAPE " --machine h100 --train --tokens many", 2, "many");
    command_refuses("plan " SHAPE " --machine h100 --prefill-batch 65 --chunk 64", 2, "65 prompts");
    command_refuses("plan " RG_TEST_DATA "/llada --machine h100 --prefill-batch 2", 2, "--prefill-batch");
}

#define WISH ",words=1e9,ttft=100ms --machine h100,a100,pi5 --top 40 --json"

/* Backwards: every offer keeps what was asked for, the cheapest first, and a tighter wish has no cheaper offer. */
static void backwards(void **state)
{
    double cheapest[2];

    (void)state;
    for (int tight = 0; tight < 2; tight++) {
        json_t *j = command_json(tight ? "plan " SHAPE " --for latency=12ms" WISH : "plan " SHAPE " --for latency=60ms" WISH);
        json_t *offers = json_object_get(j, "offers"), *o;
        size_t k;
        double last = 0;

        is_about(number(j, "tokens_s"), 1e9 * 4 / 3 / 86400);
        assert_true(json_array_size(offers) > 2 && number(j, "too_large") + number(j, "too_slow") > 0); /* the pi */
        json_array_foreach(offers, k, o) {
            assert_true(number(o, "latency_ms") <= (tight ? 12 : 60) && number(o, "ttft_ms") <= 100);
            assert_true(number(o, "copies") * number(o, "throughput_tok_s") >= number(j, "tokens_s"));
            assert_true(number(o, "cost") >= last);
            assert_true(number(o, "cost") == number(o, "copies") * number(o, "chips"));
            last = number(o, "cost");
        }
        cheapest[tight] = number(json_array_get(offers, 0), "cost");
        json_decref(j);
    }
    assert_true(cheapest[1] >= cheapest[0]);
    json_t *j = command_json("plan " SHAPE " --for words=1e6,budget=2.5 --machine h100,a100 --prices h100=3,a100=1 --json");
    json_t *o;
    size_t k;
    json_array_foreach(json_object_get(j, "offers"), k, o)
        assert_true(number(o, "cost") <= 2.5 && !strcmp(json_string_value(json_object_get(o, "machine")), "a100"));
    assert_true(k > 0 && number(j, "too_dear") > 0);
    json_decref(j);
    command_refuses("plan " SHAPE " --for speed=3", 2, "speed");
    command_refuses("plan " SHAPE " --for latency=-3ms", 2, "latency");
    command_refuses("plan " SHAPE " --for latency=50ms --batch 3", 2, "--batch");
    command_refuses("plan " SHAPE " --for words=1e9 --machine h100,a100 --prices h100=3", 2, "a100");
    command_refuses("plan " SHAPE " --prices h100=3", 2, "--for");
}

/* The lecture's printed figures, and where they are not those of its formulae. */
static void printed_figures_are_told(void **state)
{
    (void)state;
    json_t *j = command_json("plan " SHAPE " --machine h100 --batch 1,64,256 --method closed-form --json");
    static const bool differs[] = { true, false, true };

    for (size_t i = 0; i < 3; i++)
        assert_true(json_is_true(json_object_get(json_object_get(row(j, i), "printed"), "differs")) == differs[i]);
    json_decref(j);
    j = command_json("plan " RG_TEST_DATA "/shapes/llama-2-13b-gqa8.json --machine h100 --batch 64,256 --method closed-form "
                     "--json");
    assert_true(json_is_false(json_object_get(json_object_get(row(j, 0), "printed"), "differs")));
    assert_true(json_is_true(json_object_get(json_object_get(row(j, 1), "printed"), "differs")));
    json_decref(j);
    j = command_json("plan " SHAPE " --machine h100 --batch 1 --seq 2048 --method closed-form --json");
    assert_null(json_object_get(row(j, 0), "printed"));
    json_decref(j);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows),
        cmocka_unit_test(diffusion_is_priced_by_evaluations),
        cmocka_unit_test(backwards),
        cmocka_unit_test(prompts_together_and_in_chunks),
        cmocka_unit_test(printed_figures_are_told), cmocka_unit_test(state_is_told),
                                        cmocka_unit_test(goldens), cmocka_unit_test(machine),
                                        cmocka_unit_test(machine_anew), cmocka_unit_test(a_low_limit_is_corrected),
                                        cmocka_unit_test(speed_up_needs_steps_without_drafts),
                                        cmocka_unit_test(here), cmocka_unit_test(measured),
                                        cmocka_unit_test(without_cache), cmocka_unit_test(files),
                                        cmocka_unit_test(document), cmocka_unit_test(refusals) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
