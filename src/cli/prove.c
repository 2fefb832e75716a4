/* prove.c -- `ridge prove`: one request in every company and by every way of computing it, and whether it got the same
 * ids and log-probabilities to the bit. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "cli/engine.h"

extern const cli_command cli_prove;

enum { OTHERS = 63, OTHER_IDS = 24, MORE_IDS = 160, HEX = 65 };

/* What the request meets.  Settings of one group must agree; the first of a group is what the others are compared
 * with. */
typedef struct setting {
    const char *name;
    int group;
    int32_t threads;  /* 0: as many as --threads says */
    const char *isa, *recipe, *draft; /* NULL: as the flags say, and no drafts */
    bool crowd;       /* others run beside it */
    bool tight;       /* so little memory that it has to give way to them */
    bool cached;      /* its prompt has been computed before */
} setting;

static const setting settings[] = {
    { .name = "alone" },
    { .name = "among 63 others", .crowd = true },
    { .name = "preempted", .crowd = true, .tight = true },
    { .name = "from a cached prefix", .cached = true },
    { .name = "drafted for", .draft = "ngram" },
    { .name = "on 1 thread", .threads = 1 },
    { .name = "on 2 threads", .threads = 2 },
    { .name = "exact, alone", .group = 1, .recipe = "exact" },
    { .name = "exact, on ref", .group = 1, .recipe = "exact", .isa = "ref" },
};

typedef struct result {
    char hex[HEX];
    rg_usage usage;
    bool same, met; /* met: what the setting is about did happen */
} result;

typedef struct prove_options {
    cli_args args;
    cli_engine engine;
    const char *text;
    int32_t n;
    uint64_t seed;
    cli_ints given;
    int32_t *made;      /* of the text, by the first engine that is opened; NULL: they were given */
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    rg_buf drawn; /* ids and log-probabilities of the request that runs */
} prove_options;

#define VERSE "One fish, two fish, red fish, blue fish. "
static const char *const default_text = VERSE VERSE VERSE VERSE VERSE "One fish, two fish,";

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static rg_params params_of(const prove_options *o)
{
    rg_params p = { .prompt = o->ids, .n_prompt = (int32_t)o->n_ids, .max_tokens = o->n, .n_samples = 1,
                    .sampling = rg_sampling_default() };

    p.sampling.temperature = 0.8f;
    p.sampling.seed = o->seed;
    p.sampling.ignore_eos = true;
    p.sampling.n_logprobs = 4;
    p.priority = 1; /* it is the one that gives way */
    return p;
}

/* The i-th of the others: another beginning of the prompt, and another seed. */
static rg_request *submit_other(const prove_options *o, rg_engine *e, int i, int32_t n_ids, rg_error *err)
{
    rg_params p = params_of(o);

    p.prompt += i % p.n_prompt;
    p.n_prompt -= i % p.n_prompt;
    p.sampling.seed = o->seed + (uint64_t)i + 1;
    p.sampling.n_logprobs = -1;
    p.max_tokens = n_ids;
    p.priority = 0;
    return rg_submit(e, &p, err);
}

static void add_event(rg_buf *b, const rg_token *t)
{
    if (t->id < 0)
        return;
    rg_buf_add(b, &t->id, sizeof t->id);
    rg_buf_add(b, &t->logprob, sizeof t->logprob);
    for (int32_t i = 0; i < t->n_top; i++) {
        rg_buf_add(b, &t->top[i].id, sizeof t->top[i].id);
        rg_buf_add(b, &t->top[i].logprob, sizeof t->top[i].logprob);
    }
}

static bool submit_others(const prove_options *o, rg_engine *e, const setting *s, rg_request *other[OTHERS],
                          rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && s->crowd && i < OTHERS; i++)
        ok = (other[i] = submit_other(o, e, i, s->tight ? MORE_IDS : OTHER_IDS, err)) != NULL;
    return ok;
}

static bool met(const prove_options *o, const setting *s, const rg_usage *u)
{
    return u->n_output == o->n && (!s->tight || u->n_preempted) && (!s->cached || u->n_cached) &&
           (!s->draft || u->n_drafted);
}

static bool run_request(prove_options *o, rg_engine *e, const setting *s, result *to, rg_error *err)
{
    const rg_params p = params_of(o);
    uint8_t hash[32];

    rg_buf_reset(&o->drawn);
    rg_request *other[OTHERS] = { NULL }, *r = NULL;
    rg_token t = { .finish = RG_RUNNING };
    bool ok = submit_others(o, e, s, other, err) && (r = rg_submit(e, &p, err));
    while (ok && rg_next(r, &t))
        add_event(&o->drawn, &t);
    ok = ok && cli_finished(t.finish, err);
    if (ok && o->drawn.failed)
        ok = rg_fail_memory(err, o->drawn.n);
    if (ok) {
        rg_sha256(o->drawn.data, o->drawn.n, hash);
        for (int i = 0; i < 32; i++)
            snprintf(to->hex + 2 * i, 3, "%02x", hash[i]);
        to->usage = rg_request_usage(r);
        to->met = met(o, s, &to->usage);
    }
    for (int i = 0; i < OTHERS; i++)
        rg_request_close(other[i]);
    rg_request_close(r);
    return ok;
}

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static rg_engine *open_engine(prove_options *o, const setting *s, size_t kv_bytes, rg_error *err)
{
    rg_options e = cli_engine_options(&o->engine, &o->args.common);

    e.n_threads = s->threads ? s->threads : e.n_threads;
    e.isa = s->isa ? s->isa : e.isa;
    e.recipe = s->recipe ? s->recipe : e.recipe;
    e.draft = s->draft;
    e.kv_bytes = kv_bytes ? kv_bytes : e.kv_bytes;
    e.no_prefix_cache = !s->cached;
    e.max_seqs = OTHERS + 1;
    e.max_seq_len = (int32_t)o->n_ids + MORE_IDS + 64;
    e.pace = 0;
    return rg_open(o->engine.path, &e, err);
}

static bool run_on(prove_options *o, const setting *s, size_t kv_bytes, result *to, rg_error *err)
{
    rg_engine *e = open_engine(o, s, kv_bytes, err);
    bool ok = e && (!s->cached || run_request(o, e, s, to, err)) && run_request(o, e, s, to, err);

    rg_close(e);
    return ok;
}

/* The others come first, and the request gives way when they grow.  The least memory in which a sequence fits is found
 * by trying; then more, as long as the request did not give way. */
static bool run_tight(prove_options *o, const setting *s, result *to, rg_error *err)
{
    size_t bytes = 1 << 18;
    bool ok = false;

    for (int i = 0; i < 24 && !(ok = run_on(o, s, bytes, to, err)) && err->code == RG_E_LIMIT; i++)
        bytes *= 2;
    for (int i = 0; ok && i < 4 && !to->met; i++) {
        bytes += bytes / 2;
        ok = run_on(o, s, bytes, to, err);
    }
    return ok;
}

static bool make_prompt(prove_options *o, rg_error *err)
{
    if (!cli_ranks_start(&o->args.common, err))
        return false;
    rg_options with = cli_engine_options(&o->engine, &o->args.common);
    const char *text = o->text ? o->text : default_text;

    with.draft = NULL;
    rg_engine *e = rg_open(o->engine.path, &with, err);
    bool ok = e && cli_engine_generates(&o->engine, e, err) &&
              (o->given.given || rg_encode(e, text, strlen(text), RG_ENCODE_DEFAULT, &o->made, &o->n_ids, err));
    rg_close(e);
    o->ids = o->made;
    if (o->given.given) {
        o->ids = o->given.item;
        o->n_ids = o->given.n;
    }
    return ok && (o->n_ids || rg_fail(err, RG_E_USAGE, "prove: the prompt is empty"));
}

/* ---- what is printed --------------------------------------------------------------------------------------------- */

static void print_row(const setting *s, const result *r)
{
    printf("%-22s %.16s  %s", s->name, r->hex, r->same ? "same" : "DIFFERS");
    if (s->tight)
        printf(", preempted %d times", (int)r->usage.n_preempted);
    if (s->cached)
        printf(", %d of %d ids of the prompt cached", (int)r->usage.n_cached, (int)r->usage.n_prompt);
    if (s->draft)
        printf(", %d of %d guesses accepted", (int)r->usage.n_accepted, (int)r->usage.n_drafted);
    puts(r->met ? "" : "  (this did not come about)");
    fflush(stdout);
}

static bool print_json(const result *r, bool all)
{
    cli_json *j = cli_json_new();

    cli_json_open(j, NULL, '{');
    cli_json_bool(j, "same", all);
    cli_json_open(j, "settings", '[');
    for (size_t i = 0; i < RG_LEN(settings); i++) {
        cli_json_open(j, NULL, '{');
        cli_json_text(j, "name", settings[i].name);
        cli_json_text(j, "sha256", r[i].hex);
        cli_json_bool(j, "same", r[i].same);
        cli_json_bool(j, "met", r[i].met);
        cli_json_int(j, "output_tokens", r[i].usage.n_output);
        cli_json_int(j, "cached_tokens", r[i].usage.n_cached);
        cli_json_int(j, "preempted", r[i].usage.n_preempted);
        cli_json_int(j, "drafted", r[i].usage.n_drafted);
        cli_json_int(j, "accepted", r[i].usage.n_accepted);
        cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_close(j);
    return cli_json_print(j);
}

/* *all: every answer is the same as the first of its group.  False: some setting could not be run. */
static bool prove(prove_options *o, bool *all, rg_error *err)
{
    result results[RG_LEN(settings)] = { 0 };
    const result *first = results;

    *all = true;
    for (size_t i = 0; i < RG_LEN(settings); i++) {
        const setting *s = &settings[i];
        result *r = &results[i];

        if (!(s->tight ? run_tight(o, s, r, err) : run_on(o, s, 0, r, err)))
            return false;
        if (!i || s->group != settings[i - 1].group)
            first = r;
        r->same = !strcmp(r->hex, first->hex);
        *all = *all && r->same;
        if (!o->args.common.json)
            print_row(s, r);
    }
    return !o->args.common.json || print_json(results, *all) ||
           rg_fail(err, RG_E_IO, "prove: standard output cannot be written");
}

static int run(int argc, char **argv)
{
    static prove_options o = { .n = 48, .seed = 1 };
    const cli_option options[] = {
        { "-p", CLI_STRING, &o.text, "TEXT",
          "the prompt (default: a text that repeats itself, so that it can be guessed)" },
        { "--ids", CLI_INTS, &o.given, "1,2,3", "the prompt as ids, used verbatim" },
        { "-n", CLI_INT, &o.n, "N", "ids of the answer (default 48)", 2, 4096 },
        { "--seed", CLI_U64, &o.seed, "N", "of the answer's draws (default 1)" },
        CLI_KV_TYPE_OPTION(o.engine.kv_type, CLI_KV_AS_WEIGHTS),
        CLI_PACK_CACHE_OPTION(o.engine.pack_cache),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_prove, options, argc, argv);
    if (status >= 0)
        return status;
    if (o.text && o.given.given)
        return cli_usage("prove: -p and --ids are both the prompt");
    bool all = false;
    rg_buf_init(&o.drawn, (size_t)1 << 26);
    bool ok = cli_find_model(o.args.n_positional ? o.args.positional[0] : NULL, o.engine.path, sizeof o.engine.path,
                             &err) &&
              make_prompt(&o, &err) && prove(&o, &all, &err);
    rg_ids_free(o.made);
    cli_ints_fini(&o.given);
    rg_buf_fini(&o.drawn);
    return !ok ? cli_fail(&err) : all ? EXIT_DONE : EXIT_FAILED;
}

const cli_command cli_prove = {
    .name = "prove", .arguments = "[MODEL]", .summary = "one request in every company: the same bits", .run = run,
    .n_positional = 1,
    .notes = "The request runs alone, among others, preempted, from a cached prefix, drafted for, on 1 and on 2\n"
             "threads, and with exact arithmetic by this machine's kernels and by their definition in scalar C\n"
             "(`ref`).  Printed is the SHA-256 of its ids and log-probabilities each time; exit status 1: some differ.",
};
