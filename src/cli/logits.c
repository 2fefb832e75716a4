/* logits.c -- `ridge logits`: every position's logits (and the input of every layer, and intermediate activations), to
 * compare with other engines.  An encoder has no logits: its hidden states are written. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/dump.h"
#include "cli/tool.h"

extern const cli_command cli_logits;

enum { MAX_OTHERS = 64, OTHERS_CAP = 64 << 20 };

/* One sequence: the prompt, or one that is computed beside it and continues greedily when its own ids end. */
typedef struct stream {
    rg_seq *seq;
    int32_t *ids;
    int n, room, done;
    int32_t next;  /* the best id after its last row */
} stream;

typedef struct job {
    cli_args args;
    cli_ints ids, chunks;
    const char *out, *batch_with, *kv_type, *watch;
    float attention_sparsity;
    bool hidden;
    tool tool;
    stream streams[1 + MAX_OTHERS];
    int n_streams;
    float *logits;       /* [n, vocab]; NULL: the model is an encoder */
    dump dump;           /* what else is written */
    /* Of the step being computed: */
    int first, n_main;   /* the prompt's rows */
    tool_span spans[1 + MAX_OTHERS];
} job;

static void take_row(void *arg, int i, float *logits)
{
    job *j = arg;
    int vocab = j->tool.runner->vocab_size;

    if (i < j->n_main) {
        memcpy(j->logits + ((size_t)j->first + (size_t)i) * (size_t)vocab, logits, (size_t)vocab * sizeof *logits);
        return;
    }
    int32_t best = 0;
    for (int32_t k = 1; k < vocab; k++)
        if (logits[k] > logits[best])
            best = k;
    /* The rows after the prompt's are one per other span, in order. */
    for (int s = 1, seen = j->n_main; s < j->n_streams; s++)
        if (j->spans[s].n && seen++ == i)
            j->streams[s].next = best;
}

/* How many rows the k-th step takes of each sequence. */
static int chunk(const job *j, int k)
{
    int most = j->tool.max_rows / j->n_streams;
    if (j->tool.model->config.sees != RG_CAUSAL)
        return j->streams[0].n; /* it fits: see check_whole */
    int n = j->chunks.n ? j->chunks.item[(size_t)k < j->chunks.n ? (size_t)k : j->chunks.n - 1] : most;

    return n < most ? n : most;
}

/* A sequence beside the prompt: its own ids first, then what it drew. */
static int feed_other(stream *s, int want)
{
    if (s->done == s->n && s->n < s->room)
        s->ids[s->n++] = s->next;
    return s->n - s->done < want ? s->n - s->done : want;
}

static bool is_encoder(const job *j)
{
    return !rg_config_has_logits(&j->tool.model->config);
}

/* Where the second text of a pair begins: behind the first separator. */
static int second_of(const job *j)
{
    for (int i = 0; is_encoder(j) && i + 1 < j->streams[0].n; i++)
        if (j->streams[0].ids[i] == j->tool.model->config.sep_id)
            return i + 1;
    return 0;
}

static bool compute(job *j, rg_error *err)
{
    stream *main = &j->streams[0];

    for (int k = 0; main->done < main->n; k++) {
        int want = chunk(j, k), used = 0;
        cli_progress(j->args.common.quiet ? j : NULL, "computing", (double)main->done / main->n);
        if (cli_interrupted())
            return rg_fail(err, RG_E_IO, "logits: interrupted after %d of %d positions", main->done, main->n);
        for (int s = 0; s < j->n_streams; s++) {
            stream *t = &j->streams[s];
            int n = s ? feed_other(t, want) : main->n - main->done < want ? main->n - main->done : want;
            j->spans[s] = (tool_span){ .seq = t->seq, .ids = t->ids + t->done, .n = n, .all_logits = !s,
                                       .second = s ? 0 : second_of(j) };
        }
        j->first = main->done;
        j->n_main = j->spans[0].n;
        dump_step(&j->dump, (size_t)j->first, j->n_main);
        tool_span run[1 + MAX_OTHERS];
        for (int s = 0; s < j->n_streams; s++)
            if (j->spans[s].n)
                run[used++] = j->spans[s];
        if (!tool_step(&j->tool, run, used, take_row, j, err))
            return false;
        for (int s = 0; s < j->n_streams; s++)
            j->streams[s].done += j->spans[s].n;
    }
    cli_progress(j->args.common.quiet ? j : NULL, "computing", 1);
    return true;
}

/* ---- in and out ---- */

static bool add_stream(job *j, const int32_t *ids, size_t n, rg_error *err)
{
    stream *s = &j->streams[j->n_streams];
    int vocab = j->tool.model->config.vocab_size;
    size_t room = n > j->ids.n ? n : j->ids.n;

    if (!n)
        return rg_fail(err, RG_E_USAGE, "logits: a list of ids is empty");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return rg_fail(err, RG_E_INPUT, "logits: id %d is not in the vocabulary of %d", ids[i], vocab);
    if (!tool_reaches(&j->tool, n, err))
        return false;
    s->ids = rg_array(room, sizeof *ids);
    s->seq = s->ids ? rg_seq_new(j->tool.states, (int32_t)room, 0, err) : NULL;
    j->n_streams++;
    if (!s->ids)
        return rg_fail_memory(err, room * sizeof *ids);
    if (s->seq)
        s->seq->rope = rg_config_rope(&j->tool.model->config, (int32_t)n);
    memcpy(s->ids, ids, n * sizeof *ids);
    s->n = (int)n;
    s->room = (int)room;
    if (s->seq && j->tool.model->config.sees != RG_CAUSAL)
        rg_seq_scratch(s->seq);
    return s->seq;
}

/* --batch-with: a JSON array of arrays of ids. */
static bool add_others(job *j, rg_error *err)
{
    size_t i, k, n;
    char *text = rg_file_slurp(j->batch_with, OTHERS_CAP, &n, err);
    json_t *all = text ? rg_json_load(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL, *list;
    bool ok = json_is_array(all) && json_array_size(all) <= MAX_OTHERS;

    rg_free(text);
    if (!text)
        return false;
    if (!ok)
        rg_fail(err, RG_E_INPUT, "%s: not a JSON array of at most %d arrays of ids", j->batch_with, MAX_OTHERS);
    for (i = 0; ok && i < json_array_size(all); i++) {
        list = json_array_get(all, i);
        cli_ints ids = { .item = rg_zalloc_tail(sizeof(int32_t), json_array_size(list), sizeof(int32_t)),
                         .n = json_array_size(list) };
        ok = ids.item && json_is_array(list);
        for (k = 0; ok && k < ids.n; k++) {
            json_int_t v = json_is_integer(json_array_get(list, k)) ? json_integer_value(json_array_get(list, k)) : -1;
            ids.item[k] = v >= 0 && v <= INT32_MAX ? (int32_t)v : -1;
        }
        if (!ok)
            rg_fail(err, RG_E_INPUT, "%s: element %zu is not an array of ids", j->batch_with, i);
        ok = ok && add_stream(j, ids.item, ids.n, err);
        cli_ints_fini(&ids);
    }
    json_decref(all);
    return ok;
}

static bool allocate(job *j, rg_error *err)
{
    size_t n = j->ids.n * (size_t)j->tool.model->config.vocab_size;

    if (is_encoder(j))
        return true;
    j->logits = rg_array(n, sizeof *j->logits);
    return j->logits || rg_fail_memory(err, n * sizeof *j->logits);
}

static bool write_out(const job *j, rg_error *err)
{
    int64_t shape[2] = { (int64_t)j->ids.n, j->tool.model->config.vocab_size };
    rg_ckpt_writer *w = rg_safetensors_create(j->out, err);

    if (w && (!j->logits || rg_ckpt_declare(w, "logits", RG_F32, 2, shape, err)) &&
        dump_declare(&j->dump, j->tool.model, w, err) &&
        (!j->logits || rg_ckpt_write(w, j->logits, (size_t)(shape[0] * shape[1]) * sizeof *j->logits, err)) &&
        dump_write(&j->dump, w, err))
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}

static bool report(const job *j, rg_error *err)
{
    const rg_config *c = &j->tool.model->config;
    int cols = j->logits ? c->vocab_size : c->dim;
    uint64_t hash = rg_xxh64(j->logits ? j->logits : dump_last(&j->dump), j->ids.n * (size_t)cols * sizeof(float), 0);
    char text[24];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    if (!j->args.common.json) {
        printf("%zu rows of %d %s, hash %s\n", j->ids.n, cols, j->logits ? "logits" : "hidden states", text);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_u64(out, "rows", j->ids.n);
    cli_json_int(out, j->logits ? "vocab" : "dim", cols);
    cli_json_text(out, "hash", text);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "logits: standard output cannot be written");
}

/* Where rows see rows after them, one step computes the prompt, and what stands beside it cannot go on. */
static bool check_whole(const job *j, rg_error *err)
{
    if (j->tool.model->config.sees == RG_CAUSAL)
        return true;
    if (j->chunks.n || j->batch_with)
        return rg_fail(err, RG_E_USAGE, "logits: rows of this model see rows after them: --chunks and --batch-with do "
                       "not go with it");
    return j->ids.n <= (size_t)j->tool.max_rows ||
           rg_fail(err, RG_E_LIMIT, "logits: %zu positions that see each other; one step computes at most %d",
                   j->ids.n, j->tool.max_rows);
}

/* Called once the model is open. */
static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    job *j = arg;

    j->hidden = j->hidden || is_encoder(j);
    return j->hidden || j->watch ? dump_wrap(&j->dump, inner) : inner;
}

static bool work(job *j, rg_error *err)
{
    tool_options o = { .common = &j->args.common, .model = j->args.positional[0],
                       .kv_type = j->kv_type ? j->kv_type : "f32", .attention_sparsity = j->attention_sparsity,
                       .max_rows = 2048, .max_seqs = j->batch_with ? 1 + MAX_OTHERS : 1,
                       .max_seq_len = (int)j->ids.n + 1,
                       .all_logits = true, .whole = true, .wrap = wrap, .wrap_arg = j };

    for (size_t i = 0; i < j->chunks.n; i++)
        if (j->chunks.item[i] < 1)
            return rg_fail(err, RG_E_USAGE, "logits: a chunk of %d rows", j->chunks.item[i]);
    if (j->watch && !j->out)
        return rg_fail(err, RG_E_USAGE, "logits: --watch writes into the file of -o, which is missing");
    return tool_open(&j->tool, &o, err) && check_whole(j, err) && add_stream(j, j->ids.item, j->ids.n, err) &&
           (!j->batch_with || add_others(j, err)) && allocate(j, err) &&
           (!(j->hidden || j->watch) || dump_plan(&j->dump, j->tool.model, j->hidden, j->watch, j->ids.n, err)) &&
           compute(j, err) && (!j->out || write_out(j, err)) && report(j, err);
}

static int run(int argc, char **argv)
{
    static job j;
    const cli_option options[] = {
        { "--ids", CLI_INTS, &j.ids, "1,2,3", "the prompt" },
        { "-o", CLI_STRING, &j.out, "FILE", "write logits [n, vocab] as safetensors" },
        { "--hidden", CLI_FLAG, &j.hidden, NULL,
          "and hidden.0 .. hidden.L [n, dim]: what enters each layer, and the head" },
        { "--watch", CLI_STRING, &j.watch, "NAME,...",
          "and watch.LAYER.NAME: what is computed on the way (q, attn, 3.ffn_norm, all)" },
        { "--chunks", CLI_INTS, &j.chunks, "7,1,16", "how the prompt is cut into steps, the last size repeating" },
        { "--batch-with", CLI_STRING, &j.batch_with, "FILE", "a JSON array of id arrays computed in the same steps" },
        CLI_KV_TYPE_OPTION(j.kv_type, "f32"),
        CLI_ATTENTION_SPARSITY_OPTION(j.attention_sparsity),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_logits, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.args.n_positional || !j.ids.given)
        return cli_usage("logits: MODEL and --ids are needed; see `ridge logits --help`");
    cli_catch_interrupt();
    bool ok = work(&j, &err);
    for (int s = 0; s < j.n_streams; s++) {
        rg_seq_free(j.tool.states, j.streams[s].seq);
        rg_free(j.streams[s].ids);
    }
    rg_free(j.logits);
    dump_fini(&j.dump);
    tool_close(&j.tool);
    cli_ints_fini(&j.ids);
    cli_ints_fini(&j.chunks);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_logits = {
    .name = "logits",
    .arguments = "MODEL --ids 1,2,3 -o FILE",
    .summary = "every position's logits, to a safetensors file",
    .notes = "Of an encoder, which has no logits, hidden.0 .. hidden.L are written: what enters each layer, and what\n"
             "the last one gives.  What stands behind the first separator is taken for the second text of a pair.",
    .run = run,
    .n_positional = 1, .recipe = "exact",
};
