/* embed.c -- `ridge embed`: the embedding of a text, and the score of a pair of texts by a reranker's head. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/engine.h"

extern const cli_command cli_embed;

typedef struct embed_options {
    cli_args args;
    cli_engine engine;
    const char *text, *file, *pair, *pool, *prompt;
    cli_ints ids;
    int32_t batch_rows;
    bool normalize, truncate;
} embed_options;

/* The prompt, and what it gives. */
typedef struct outcome {
    int32_t *ids; /* of rg_encode; NULL: they were given */
    rg_params params;
    rg_request *embedding, *score; /* NULL: not wanted */
} outcome;

static bool read_pool(const embed_options *o, rg_pooling *how, rg_error *err)
{
    static const struct {
        const char *word;
        rg_pooling how;
    } words[] = { { "mean", RG_POOLING_MEAN }, { "cls", RG_POOLING_CLS }, { "last", RG_POOLING_LAST } };

    *how = RG_POOLING_MODEL;
    for (size_t i = 0; o->pool && i < RG_LEN(words); i++)
        if (!strcmp(o->pool, words[i].word))
            *how = words[i].how;
    return !o->pool || *how != RG_POOLING_MODEL ||
           rg_fail(err, RG_E_USAGE, "embed: --pool '%.20s' is not one of mean, cls, last", o->pool);
}

/* Ids of a text, or of a pair, as the checkpoint says and the flags. */
static bool encode(const embed_options *o, const rg_engine *e, const char *text, size_t n, rg_text_ids *out,
                   rg_error *err)
{
    const rg_info info = rg_engine_info(e);
    const bool whole = info.is_encoder && info.max_whole_rows < info.max_embed_ids;
    const rg_text_options how = { .prompt = o->prompt,
                                  .max_ids = !o->truncate ? 0 : whole ? info.max_whole_rows : info.max_embed_ids };

    if (o->pair)
        return rg_encode_pair_to_score(e, (const char *const[]){ text, o->pair },
                                       (const size_t[]){ n, strlen(o->pair) }, &how, out, err);
    return rg_encode_to_embed(e, text, n, &how, out, err);
}

/* Names of prompts that there are. */
static bool unknown_prompt(const embed_options *o, const rg_engine *e, rg_error *err)
{
    char list[400] = "";
    const char *name;

    for (int32_t i = 0; (name = rg_engine_prompt(e, i)); i++) {
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, name, sizeof list - strlen(list) - 1);
    }
    return rg_fail(err, RG_E_USAGE, "embed: --prompt '%.60s' is not one of this model's prompts (%s)", o->prompt,
                   list[0] ? list : "it has none");
}

static bool make_prompt(const embed_options *o, const rg_engine *e, outcome *r, rg_error *err)
{
    rg_text_ids made = { 0 };
    size_t n = 0;

    if (o->ids.given) {
        r->params.prompt = o->ids.item;
        r->params.n_prompt = (int32_t)o->ids.n;
        r->params.second = rg_pair_second(e, o->ids.item, o->ids.n);
        return true;
    }
    char *text = cli_text(o->text, o->file, &n, err);
    bool ok = text && encode(o, e, text, n, &made, err);

    rg_free(text);
    if (!ok)
        return text && o->prompt && err->code == RG_E_INPUT ? unknown_prompt(o, e, err) : false;
    r->ids = made.ids;
    r->params.prompt = made.ids;
    r->params.n_prompt = (int32_t)made.n;
    r->params.second = made.second;
    r->params.pool_from = made.pool_from;
    return true;
}

/* A request with these parameters, run to its end. */
static rg_request *run_one(rg_engine *e, const rg_params *p, rg_error *err)
{
    rg_request *request = rg_submit(e, p, err);
    rg_token t = { .finish = RG_RUNNING };

    while (request && rg_next(request, &t))
        ;
    if (!request || cli_finished(t.finish, err))
        return request;
    rg_request_close(request);
    return NULL;
}

static bool compute(const embed_options *o, rg_engine *e, outcome *r, rg_error *err)
{
    rg_info info = rg_engine_info(e);
    bool scored = o->pair || (o->ids.given && r->params.second && info.n_labels);

    if (!read_pool(o, &r->params.embed, err))
        return false;
    if (!o->pair) {
        r->embedding = run_one(e, &r->params, err);
        if (!r->embedding)
            return false;
    }
    if (!scored)
        return true;
    r->params.embed = RG_POOLING_NONE;
    r->params.score = true;
    r->score = run_one(e, &r->params, err);
    return r->score;
}

/* What the numbers of an embedding are divided by. */
static double length_of(const embed_options *o, const float *v, int32_t n)
{
    double sum = 0;

    for (int32_t i = 0; o->normalize && i < n; i++)
        sum += (double)v[i] * (double)v[i];
    return sum > 0 ? sqrt(sum) : 1;
}

static bool print_json(const embed_options *o, const outcome *r)
{
    cli_json *j = cli_json_new();
    int32_t n = 0;
    const float *v = r->embedding ? rg_request_embedding(r->embedding, &n) : NULL;
    double by = length_of(o, v, n);

    cli_json_open(j, NULL, '{');
    if (v) {
        cli_json_open(j, "embedding", '[');
        for (int32_t i = 0; i < n; i++)
            cli_json_float(j, NULL, (double)v[i] / by);
        cli_json_close(j);
    }
    v = r->score ? rg_request_head_scores(r->score, &n) : NULL;
    if (v && n == 1)
        cli_json_float(j, "score", (double)v[0]);
    if (v && n > 1) {
        cli_json_open(j, "score", '[');
        for (int32_t i = 0; i < n; i++)
            cli_json_float(j, NULL, (double)v[i]);
        cli_json_close(j);
    }
    cli_json_int(j, "tokens", r->params.n_prompt);
    cli_json_close(j);
    return cli_json_print(j);
}

static void print_human(const embed_options *o, const outcome *r)
{
    int32_t n = 0;
    const float *v = r->embedding ? rg_request_embedding(r->embedding, &n) : NULL;
    double by = length_of(o, v, n);

    for (int32_t i = 0; v && i < n; i++)
        printf("%s%.9g", i ? " " : "", (double)v[i] / by);
    if (v)
        putchar('\n');
    v = r->score ? rg_request_head_scores(r->score, &n) : NULL;
    for (int32_t i = 0; v && i < n; i++)
        printf("%s%.9g", i ? " " : "score ", (double)v[i]);
    if (v)
        putchar('\n');
    if (!o->args.common.quiet)
        fprintf(stderr, "[%d tokens]\n", (int)r->params.n_prompt);
}

static bool embed(const embed_options *o, rg_engine *e, rg_error *err)
{
    outcome r = { 0 };
    bool ok = make_prompt(o, e, &r, err) && compute(o, e, &r, err);

    if (ok && o->args.common.json)
        ok = print_json(o, &r) || rg_fail(err, RG_E_IO, "embed: standard output cannot be written");
    else if (ok)
        print_human(o, &r);
    rg_request_close(r.embedding);
    rg_request_close(r.score);
    rg_ids_free(r.ids);
    return ok;
}

static int run(int argc, char **argv)
{
    static embed_options o = { .engine = { .max_seqs = 1 } };
    const cli_option options[] = {
        { "-p", CLI_STRING, &o.text, "TEXT", "the text" },
        { "-f", CLI_STRING, &o.file, "FILE", "the text from a file (- is standard input)" },
        { "--ids", CLI_INTS, &o.ids, "1,2,3", "the text as ids, used verbatim" },
        { "--pool", CLI_STRING, &o.pool, "HOW", "mean, cls or last (default: what the checkpoint says)" },
        { "--prompt", CLI_STRING, &o.prompt, "NAME", "which of the checkpoint's prompts stands in front of the text" },
        { "--truncate", CLI_FLAG, &o.truncate, NULL, "cut the text to what the model takes" },
        { "--normalize", CLI_FLAG, &o.normalize, NULL, "divide the embedding by its length" },
        { "--pair", CLI_STRING, &o.pair, "TEXT", "score the pair of the text and this one" },
        { "--batch-rows", CLI_INT, &o.batch_rows, "N", "rows of a step at most", 1, 65536 },
        CLI_ENGINE_OPTIONS(o.engine),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_embed, options, argc, argv);
    if (status >= 0)
        return status;
    if (!o.args.n_positional)
        return cli_usage("embed: MODEL is missing; see `ridge embed --help`");
    if ((o.text != NULL) + (o.file != NULL) + o.ids.given != 1)
        return cli_usage("embed: one of -p, -f and --ids must be the text");
    if (o.pair && (o.ids.given || o.pool || o.normalize))
        return cli_usage("embed: --pair makes a score, and takes neither --ids nor --pool nor --normalize");
    if ((o.prompt || o.truncate) && o.ids.given)
        return cli_usage("embed: --ids are used verbatim, and take neither --prompt nor --truncate");
    if (o.prompt && o.pair)
        return cli_usage("embed: --pair takes no --prompt");
    rg_engine *engine = cli_engine_open_rows(&o.engine, &o.args, o.batch_rows, &err);
    bool ok = engine && embed(&o, engine, &err);
    rg_close(engine);
    cli_ints_fini(&o.ids);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_embed = {
    .name = "embed", .arguments = "MODEL", .summary = "the embedding of a text, or the score of a pair", .run = run,
    .n_positional = 1, .recipe = "exact",
    .notes = "Ids with something behind their first separator are a pair: a model with a head that scores gives its\n"
             "score too.  The score is the head's own number, without a sigmoid.  With --pool the embedding is as\n"
             "pooled; without, it goes through what the checkpoint has behind the pooling (Dense, Normalize), a text\n"
             "has the checkpoint's default prompt in front, and is cut to its max_seq_length.",
};
