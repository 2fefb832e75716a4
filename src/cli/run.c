/* run.c -- `ridge run`: generate from a prompt, streaming.  The answer goes to standard output, figures to standard
 * error. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/votes.h"
#include "cli/engine.h"
#include "cli/diffusion.h"
#include "cli/constraint.h"
#include "cli/sampling.h"
#include "cli/searching.h"

static const char default_prompt[] = "Once upon a time";

enum { PATIENCE_MS = 1000 }; /* until a person is told that standard input is being waited for */

/* The result of one sample. */
typedef struct answer {
    rg_buf text, ids, logprobs; /* ids: int32_t; logprobs: entry */
    rg_buf tops;                /* rg_top */
    double score;               /* of a beam search */
    rg_finish finish;
    int n;
} answer;

typedef struct entry {
    float logprob;
    int n_top;
} entry;

typedef struct run_options {
    cli_args args;
    cli_sampling sampling;
    const char *prompt, *file;
    cli_ints ids;
    cli_engine engine;
    cli_diffusion diffusion;
    cli_searching searching;
    cli_constraint constraint;
    int32_t n, logprobs, n_samples;
    cli_strings stop;
    bool ignore_eos, has_budget, verbose;
    int32_t thinking_budget;
    const char *thinking_end;
} run_options;

typedef struct result {
    answer *answers;
    rg_usage usage;
    rg_stats stats;    /* of the engine, which had this request alone */
    int votes;         /* answers that agree with the one that is told; 0: nobody voted */
    rg_finish failure; /* why a sample ended, if that is a failure */
} result;

static const char *finish_name(rg_finish f)
{
    return f == RG_FINISH_STOP ? "stop" : f == RG_FINISH_LENGTH ? "length" : "cancelled";
}

static bool keep(answer *a, const rg_token *t)
{
    bool ok = rg_buf_add(&a->text, t->text, t->n_text);

    if (t->id >= 0) {
        entry e = { t->logprob, t->n_top };
        ok = ok && rg_buf_add(&a->ids, &t->id, sizeof t->id) && rg_buf_add(&a->logprobs, &e, sizeof e) &&
             (!t->n_top || rg_buf_add(&a->tops, t->top, (size_t)t->n_top * sizeof *t->top));
        a->n++;
    }
    if (t->finish != RG_RUNNING)
        a->finish = t->finish;
    return ok;
}

/* Wait for the next event of a request, which an interrupt cancels.  False: there is none. */
static bool next_event(rg_engine *e, rg_request *r, rg_token *t)
{
    const double wait_s = 0.05; /* a scorer's engine may be what is waited for */
    uint64_t seen = 0;
    int got;

    while (!(got = rg_poll(r, t))) {
        (void)rg_engine_wait(e, &seen, wait_s);
        if (cli_interrupted())
            rg_cancel(r);
    }
    if (cli_interrupted())
        rg_cancel(r);
    return got > 0;
}

/* Read a request to its end, streaming the text of sample 0. */
static bool collect(const run_options *o, rg_engine *e, rg_request *r, result *out, rg_error *err)
{
    rg_token t;
    bool stream = !o->args.common.json && o->n_samples == 1 && !o->searching.vote;

    while (next_event(e, r, &t)) {
        if (!cli_finished(t.finish, NULL))
            out->failure = t.finish;
        if (!keep(&out->answers[t.sample], &t))
            return rg_fail_memory(err, t.n_text);
        if (stream && t.n_text) {
            fwrite(t.text, 1, t.n_text, stdout);
            if (!cli_flush(NULL))
                rg_cancel(r); /* nobody sees what would come; main says so */
        } else if (stream && t.id >= 0 && !t.n_text && !o->args.common.quiet && o->ids.given) {
            printf("%d ", t.id); /* no tokenizer, or a piece that is not yet text */
            cli_flush(NULL);
        }
    }
    for (int i = 0; i < o->n_samples; i++)
        out->answers[i].score = rg_request_answer_score(r, i);
    out->usage = rg_request_usage(r);
    return cli_finished(out->failure, err);
}

static void print_choice(cli_json *j, const answer *a, bool has_text, bool logprobs)
{
    const int32_t *ids = (const int32_t *)(const void *)a->ids.data;
    const entry *e = (const entry *)(const void *)a->logprobs.data;
    const rg_top *top = (const rg_top *)(const void *)a->tops.data;

    cli_json_open(j, "ids", '[');
    for (int i = 0; i < a->n; i++)
        cli_json_int(j, NULL, ids[i]);
    cli_json_close(j);
    if (has_text)
        cli_json_string(j, "text", a->text.data ? a->text.data : "", a->text.n);
    else
        cli_json_null(j, "text");
    cli_json_text(j, "finish_reason", finish_name(a->finish));
    cli_json_open(j, "logprobs", '[');
    for (int i = 0; logprobs && i < a->n; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_int(j, "id", ids[i]);
        cli_json_float(j, "logprob", (double)e[i].logprob);
        cli_json_open(j, "top", '[');
        for (int k = 0; k < e[i].n_top; k++, top++) {
            cli_json_open(j, NULL, '{');
            cli_json_int(j, "id", top->id);
            cli_json_float(j, "logprob", (double)top->logprob);
            cli_json_close(j);
        }
        cli_json_close(j);
        cli_json_close(j);
    }
    cli_json_close(j);
}

static double prefill_rate(const result *r)
{
    double s = r->usage.ttft_s - r->usage.queue_s;

    return s > 0 ? (r->usage.n_prompt - r->usage.n_cached) / s : 0;
}

static double decode_rate(const result *r)
{
    return r->usage.n_paced > 0 && r->usage.paced_s > 0 ? r->usage.n_paced / r->usage.paced_s : 0;
}

static void print_draft(cli_json *j, const result *r, const rg_info *info)
{
    cli_json_open(j, "draft", '{');
    cli_json_text(j, "kind", info->draft);
    cli_json_int(j, "drafted", r->usage.n_drafted);
    cli_json_int(j, "accepted", r->usage.n_accepted);
    cli_json_int(j, "steps", r->usage.n_steps);
    cli_json_open(j, "accepted_at", '['); /* by their place on a draft's path */
    for (int i = 0; i < RG_DRAFT_PLACES && r->stats.draft_accepted_at[i]; i++)
        cli_json_int(j, NULL, (int64_t)r->stats.draft_accepted_at[i]);
    cli_json_close(j);
    cli_json_int(j, "drafts", (int64_t)r->stats.n_drafts);
    cli_json_close(j);
}

/* True if answers are the best of several. */
static bool is_chosen(const run_options *o)
{
    return o->searching.p.n_beams || o->searching.tree.simulations || o->searching.best_of > o->n_samples;
}

/* What a search held, and what it would have held without sharing. */
static void print_search(cli_json *j, const run_options *o, const rg_usage *u)
{
    cli_json_open(j, "search", '{');
    if (o->searching.p.n_beams) {
        cli_json_int(j, "beams", o->searching.p.n_beams);
        cli_json_int(j, "steps", u->n_steps);
    } else {
        cli_json_int(j, "simulations", u->n_simulations);
        cli_json_int(j, "nodes", u->n_nodes);
        cli_json_int(j, "prompt_positions", u->search_positions);
        cli_json_int(j, "cached_positions", u->search_positions - u->n_rows + u->n_steps - u->n_simulations);
    }
    cli_json_int(j, "rows", u->n_rows);
    cli_json_u64(j, "blocks", u->search_blocks);
    cli_json_u64(j, "blocks_unshared", u->search_blocks_unshared);
    cli_json_u64(j, "blocks_copied", u->search_blocks_copied);
    cli_json_float(j, "saved",
                   u->search_blocks_unshared ? 1 - (double)u->search_blocks / (double)u->search_blocks_unshared : 0);
    cli_json_close(j);
}

/* The ids of prompt and answer after every evaluation of a diffusion model. */
static void print_trace(cli_json *j, const rg_request *r)
{
    const int32_t *ids;
    int32_t n;

    cli_json_open(j, "trace", '[');
    for (int32_t k = 0; (ids = rg_request_trace(r, 0, k, &n)); k++) {
        cli_json_open(j, NULL, '[');
        for (int32_t i = 0; i < n; i++)
            cli_json_int(j, NULL, ids[i]);
        cli_json_close(j);
    }
    cli_json_close(j);
}

static bool print_json(const run_options *o, const rg_params *p, const result *r, const rg_info *info,
                       const rg_request *request)
{
    bool has_text = info->has_tokenizer;

    cli_json *j = cli_json_new();

    cli_json_open(j, NULL, '{');
    cli_json_open(j, "prompt_ids", '[');
    for (int i = 0; i < p->n_prompt; i++)
        cli_json_int(j, NULL, p->prompt[i]);
    cli_json_close(j);
    if (o->n_samples == 1 && !is_chosen(o)) {
        print_choice(j, &r->answers[0], has_text, o->logprobs >= 0);
    } else {
        cli_json_open(j, "choices", '[');
        for (int i = 0; i < o->n_samples; i++) {
            cli_json_open(j, NULL, '{');
            print_choice(j, &r->answers[i], has_text, o->logprobs >= 0);
            if (is_chosen(o))
                cli_json_float(j, "score", r->answers[i].score);
            cli_json_close(j);
        }
        cli_json_close(j);
    }
    if (r->votes)
        cli_json_int(j, "votes", r->votes);
    cli_json_u64(j, "seed", p->sampling.seed);
    cli_json_float(j, "ttft_ms", 1e3 * r->usage.ttft_s);
    cli_json_float(j, "prefill_tok_s", prefill_rate(r));
    cli_json_float(j, "decode_tok_s", decode_rate(r));
    cli_json_int(j, "cached_tokens", r->usage.n_cached);
    print_draft(j, r, info);
    if (o->searching.p.n_beams || o->searching.tree.simulations)
        print_search(j, o, &r->usage);
    if (o->diffusion.p.trace)
        print_trace(j, request);
    cli_json_close(j);
    return cli_json_print(j);
}

/* What drafting brought, or that it is off and why. */
static void print_drafts(const rg_usage *u, const char *kind, const rg_stats *s)
{
    if (u->n_drafted)
        fprintf(stderr, "[%d ids drafted by %s, %d accepted: %.2f tokens a step", u->n_drafted, kind, u->n_accepted,
                (double)(u->n_steps + u->n_accepted) / u->n_steps);
    if (u->n_drafted && s->draft_s > 0)
        fprintf(stderr, ", %.2f times as quick as its steps without drafts", s->undrafted_s / s->draft_s);
    if (u->n_drafted)
        fprintf(stderr, "]\n");
    if (s->draft_paused && u->n_drafted)
        fprintf(stderr,
                "[drafting was off in the end: with %d %% of the guesses right it takes longer here than it saves]\n",
                (int)(100.0 * u->n_accepted / u->n_drafted));
    else if (s->draft_paused)
        fprintf(stderr, "[nothing was drafted: by what steps take here, guesses by %s would not pay]\n", kind);
}

/* The time that this machine's limits allow for the steps over the time that they took.  Limits that were not known
 * while the steps ran are measured now; then the bytes that were read stand for all work. */
static double share_of_limit(const rg_engine *e, const rg_usage *u, const rg_stats *s)
{
    double bytes_s, limit_s = u->limit_s;

    if (u->steps_s > 0 && limit_s <= 0 && (bytes_s = rg_engine_bandwidth(e)) > 0)
        limit_s = (double)s->bytes_read / bytes_s;
    return u->steps_s <= 0 ? 0 : limit_s > u->steps_s ? 1 : limit_s / u->steps_s;
}

/* What is said with --verbose, behind the one line of figures: a search, a vote, drafts. */
static void print_details(const run_options *o, const rg_engine *e, const rg_params *p, const result *r)
{
    if (o->searching.tree.simulations)
        fprintf(stderr,
                "[score %.6g, %d simulations, %d nodes, %lld rows computed; %llu blocks of state, %llu without "
                "sharing]\n",
                r->answers[0].score, r->usage.n_simulations, r->usage.n_nodes, (long long)r->usage.n_rows,
                (unsigned long long)r->usage.search_blocks, (unsigned long long)r->usage.search_blocks_unshared);
    if (r->votes)
        fprintf(stderr, "[%d of %d answers agree with it]\n", r->votes, p->n_samples);
    print_drafts(&r->usage, rg_engine_info(e).draft, &r->stats);
}

/* Streamed samples are on the terminal already. */
static void print_human(const run_options *o, const rg_engine *e, const rg_params *p, const result *r)
{
    for (int i = 0; o->n_samples > 1 && i < o->n_samples; i++)
        printf("%s--- %d (%s)\n%.*s\n", i ? "\n" : "", i, finish_name(r->answers[i].finish), (int)r->answers[i].text.n,
               r->answers[i].text.data ? r->answers[i].text.data : "");
    if (r->votes)
        printf("%.*s\n", (int)r->answers[0].text.n, r->answers[0].text.data ? r->answers[0].text.data : "");
    else if (o->n_samples == 1)
        putchar('\n');
    cli_flush(NULL);
    if (o->args.common.quiet)
        return;
    rg_stats s = rg_engine_stats(e);
    double share = share_of_limit(e, &r->usage, &s);
    int n = 0;
    for (int i = 0; i < o->n_samples; i++)
        n += r->answers[i].n;
    fprintf(stderr,
            "[%d prompt + %d output tokens, first after %.1f ms, %.1f tokens/s, %.2f GB/s read = %.0f %% of what this "
            "machine allows, seed %llu]\n",
            r->usage.n_prompt, n, 1e3 * r->usage.ttft_s, decode_rate(r),
            s.busy_s > 0 ? (double)s.bytes_read / s.busy_s / 1e9 : 0, 100 * share,
            (unsigned long long)p->sampling.seed);
    if (o->verbose)
        print_details(o, e, p, r);
}

/* The prompt that was piped in, if standard input is a pipe, a socket or a file and holds something; else the usual
 * one. */
static char *piped_text(const run_options *o, size_t *n, rg_error *err)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    struct stat st;
    bool piped = !fstat(STDIN_FILENO, &st) && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
    char *text = NULL;

    if (piped && !o->args.common.quiet && poll(&in, 1, PATIENCE_MS) == 0)
        fprintf(stderr, "ridge: run: waiting for the prompt on standard input\n");
    if (piped && !(text = cli_text(NULL, "-", n, err)))
        return NULL;
    if (text && *n)
        return text;
    rg_free(text);
    return cli_text(default_prompt, NULL, n, err);
}

static bool make_prompt(const run_options *o, const rg_engine *e, int32_t **ids, size_t *n, rg_error *err)
{
    const char *given = o->prompt ? o->prompt : o->args.n_positional > 1 ? o->args.positional[1] : NULL;
    size_t n_text;

    if (o->ids.given) {
        *ids = NULL;
        return true;
    }
    char *text = given || o->file ? cli_text(given, o->file, &n_text, err) : piped_text(o, &n_text, err);
    if (!text)
        return false;
    bool ok = rg_encode(e, text, n_text, RG_ENCODE_DEFAULT, ids, n, err);
    if (ok && !o->args.common.json && !o->args.common.quiet && o->n_samples == 1 && isatty(STDOUT_FILENO))
        fwrite(text, 1, n_text, stdout); /* the answer goes on with it; a program has the prompt already */
    rg_free(text);
    return ok;
}

static void free_answers(answer *a, int n)
{
    for (int i = 0; a && i < n; i++) {
        rg_buf_fini(&a[i].text);
        rg_buf_fini(&a[i].ids);
        rg_buf_fini(&a[i].logprobs);
        rg_buf_fini(&a[i].tops);
    }
    rg_free(a);
}

static answer *new_answers(int n)
{
    answer *a = rg_array((size_t)n, sizeof *a);

    for (int i = 0; a && i < n; i++) {
        rg_buf_init(&a[i].text, (size_t)1 << 30);
        rg_buf_init(&a[i].ids, (size_t)1 << 30);
        rg_buf_init(&a[i].logprobs, (size_t)1 << 30);
        rg_buf_init(&a[i].tops, (size_t)1 << 30);
    }
    return a;
}

/* The prompt leaves a reasoning open, which may have so many tokens before this text is forced.  *end is the caller's,
 * to be freed with rg_ids_free. */
static bool set_budget(const run_options *o, const rg_engine *e, rg_thinking *to, int32_t **end, rg_error *err)
{
    size_t n = 0;

    if (!o->has_budget)
        return true;
    if (!rg_encode(e, o->thinking_end, strlen(o->thinking_end), RG_ENCODE_NO_SPECIAL, end, &n, err))
        return false;
    *to = (rg_thinking){ .end = *end, .n_end = (int32_t)n, .budget = o->thinking_budget };
    return n || rg_fail(err, RG_E_USAGE, "run: --thinking-end is empty");
}

/* The prompt's text, for a scorer: what was given, or that of its ids. */
static char *question(const run_options *o, const rg_engine *e, const rg_params *p, size_t *n, rg_error *err)
{
    const char *given = o->searching.query ? o->searching.query : o->prompt;

    if (given) {
        char *text = rg_strndup(given, *n = strlen(given));

        if (!text)
            rg_fail_memory(err, *n);
        return text;
    }
    return rg_decode(e, p->prompt, (size_t)p->n_prompt, true, n, err);
}

/* Bring the answer on which most agree to the front; the others are forgotten. */
static bool vote(run_options *o, result *r, rg_error *err)
{
    const int n = o->n_samples;
    rg_string *text = rg_array((size_t)n, sizeof *text);
    int32_t *votes = rg_array((size_t)n, sizeof *votes);
    int best = 0;

    if (text && votes) {
        for (int i = 0; i < n; i++)
            text[i] =
                rg_vote_text((rg_string){ r->answers[i].text.data, r->answers[i].text.n }, o->searching.vote_after);
        rg_votes_count(text, n, votes);
        for (int i = 0; i < n; i++)
            best = votes[i] > votes[best] ? i : best;
        r->votes = votes[best];
        answer won = r->answers[best];
        r->answers[best] = r->answers[0];
        r->answers[0] = won;
        o->n_samples = 1;
    }
    bool ok = text && votes;
    rg_free(text);
    rg_free(votes);
    return ok || rg_fail_memory(err, (size_t)n * sizeof *text);
}

static bool generate(run_options *o, rg_engine *e, rg_engine *reranker, rg_error *err)
{
    rg_info info = rg_engine_info(e);
    int32_t *ids = NULL, *end = NULL;
    size_t n_ids = 0;
    const int n_answers = o->n_samples;
    result r = { .answers = new_answers(n_answers) };
    rg_request *request = NULL;
    rg_scorer scorer = { .reranker = reranker };
    char *text = NULL;
    rg_grammar *grammar = NULL;
    bool ok = r.answers || rg_fail_memory(err, sizeof *r.answers);

    ok = ok && cli_sampling_finish(&o->sampling, &info.sampling, err) && cli_diffusion_finish(&o->diffusion, err) &&
         cli_constraint_open(&o->constraint, e, &grammar, err) && make_prompt(o, e, &ids, &n_ids, err);
    rg_params p = { .prompt = o->ids.given ? o->ids.item : ids,
                    .n_prompt = (int32_t)(o->ids.given ? o->ids.n : n_ids),
                    .max_tokens = o->n,
                    .n_samples = o->n_samples,
                    .sampling = o->sampling.s,
                    .stop = o->stop.item,
                    .n_stop = o->stop.n,
                    .diffusion = o->diffusion.p,
                    .adapter = rg_engine_adapter(e, 0),
                    .grammar = grammar,
                    .beam = o->searching.p,
                    .search = o->searching.tree,
                    .best_of = o->searching.best_of,
                    .stop_ids = o->searching.eos,
                    .n_stop_ids = o->searching.eos_text.n };
    ok = ok && set_budget(o, e, &p.thinking, &end, err);
    p.sampling.n_logprobs = o->logprobs;
    p.sampling.ignore_eos = o->ignore_eos || p.n_stop_ids;
    if (ok && reranker) {
        ok = (text = question(o, e, &p, &scorer.n_query, err)) != NULL;
        scorer.query = text;
        p.scorer = &scorer;
    }
    request = ok ? rg_submit(e, &p, err) : NULL;
    ok = request && collect(o, e, request, &r, err) && (!o->searching.vote || vote(o, &r, err));
    r.stats = rg_engine_stats(e);
    if (ok && o->args.common.json)
        ok = print_json(o, &p, &r, &info, request) || rg_fail(err, RG_E_IO, "run: standard output cannot be written");
    else if (ok)
        print_human(o, e, &p, &r);
    rg_request_close(request);
    rg_grammar_close(grammar);
    rg_ids_free(ids);
    rg_ids_free(end);
    rg_free(text);
    free_answers(r.answers, n_answers);
    return ok;
}

extern const cli_command cli_run;

static int run(int argc, char **argv)
{
    static run_options o = { .n = 128, .logprobs = -1, .n_samples = 1, .thinking_end = "</think>" };
    const cli_option options[] = {
        { "-p", CLI_STRING, &o.prompt, "TEXT", "the prompt" },
        { "-f", CLI_STRING, &o.file, "FILE", "the prompt from a file (- is standard input)" },
        { "--ids", CLI_INTS, &o.ids, "1,2,3", "the prompt as ids, used verbatim" },
        { "-n", CLI_INT, &o.n, "N", "tokens to generate at most (default 128)", 1, INT32_MAX },
        { "--n", CLI_INT, &o.n_samples, "COUNT", "answers that share the prompt", 1, 1024 },
        { "--logprobs", CLI_INT, &o.logprobs, "K", "log-probabilities, and of the K best", 0, 100 },
        { "--stop", CLI_STRINGS, &o.stop, "TEXT", "end where this text comes (repeatable)" },
        { "--ignore-eos", CLI_FLAG, &o.ignore_eos, NULL, "end tokens are ordinary" },
        { "--thinking-budget", CLI_INT, &o.thinking_budget, "N",
          "where the prompt leaves a reasoning open: after so many tokens it is ended", 0, INT32_MAX, &o.has_budget },
        { "--thinking-end", CLI_STRING, &o.thinking_end, "TEXT", "by this text (default </think>)" },
        CLI_CONSTRAINT_OPTIONS(o.constraint),
        CLI_SAMPLING_OPTIONS(o.sampling),
        CLI_ENGINE_OPTIONS(o.engine),
        CLI_LORA_OPTION(o.engine.loras, "answer with this LoRA adapter"),
        CLI_DIFFUSION_OPTIONS(o.diffusion),
        CLI_SEARCHING_OPTIONS(o.searching),
        { "--verbose", CLI_FLAG, &o.verbose, NULL,
          "behind the line of figures also what drafts, a search and a vote brought" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_run, options, argc, argv);
    if (status >= 0)
        return status;
    if ((o.prompt != NULL) + (o.file != NULL) + o.ids.given + (o.args.n_positional > 1) > 1)
        return cli_usage("run: only one of PROMPT, -p, -f and --ids can be the prompt");
    if (!cli_searching_finish(&o.searching, &err))
        return cli_fail(&err);
    cli_catch_interrupt();
    rg_engine *engine = cli_engine_open(&o.engine, &o.args, &err);
    rg_engine *reranker = NULL;
    bool ok = engine && cli_engine_generates(&o.engine, engine, &err);
    if (ok && o.searching.scorer)
        ok = (reranker = cli_scorer_open(&o.searching, cli_engine_options(&o.engine, &o.args.common), &err)) != NULL;
    ok = ok && generate(&o, engine, reranker, &err);
    rg_close(engine);
    rg_close(reranker);
    cli_ints_fini(&o.ids);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_run = {
    .name = "run",
    .arguments = "[MODEL] [PROMPT]",
    .summary = "generate text from a prompt, streaming",
    .run = run,
    .n_positional = 2,
    .notes =
        "Without MODEL the shipped story model is used; a prompt without MODEL needs -p.  Without a prompt, what is\n"
        "piped in is it.  The answer goes to standard output, a line of figures to standard error.",
};
