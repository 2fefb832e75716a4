/* inspect.c -- `ridge inspect`: what is in a checkpoint, and how ridge reads it. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "model/adapter_file.h"
#include "model/model.h"
#include "text/ends.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

extern const cli_command cli_inspect;

typedef struct inspect_options {
    cli_args args;
    bool tensors, metadata;
} inspect_options;

/* The config as typed fields: name and value, for JSON and for people alike. */
static void each_field(const rg_config *c, void (*say)(void *arg, const char *name, double value), void *arg)
{
    const struct {
        const char *name;
        double value;
        bool shown;
    } fields[] = {
        { "n_layers", c->n_layers, true },
        { "dim", c->dim, true },
        { "vocab_size", c->vocab_size, true },
        { "max_seq_len", c->max_seq_len, true },
        { "norm_eps", (double)c->norm_eps, true },
        { "tie_embeddings", c->tie_embeddings, true },
        { "n_heads", c->n_heads, c->n_heads > 0 },
        { "n_kv_heads", c->n_kv_heads, c->n_kv_heads > 0 },
        { "head_dim", c->head_dim, c->head_dim > 0 },
        { "attn_scale", c->attn_scale, c->n_heads > 0 },
        { "ffn_dim", c->ffn_dim, c->ffn_dim > 0 },
        { "window", c->window, c->window > 0 },
        { "rope_theta", c->ropes[0].theta, c->n_ropes > 0 },
        { "rope_dim", c->ropes[0].dim, c->n_ropes > 0 },
        { "rope_factor", c->ropes[0].factor, c->n_ropes > 0 && c->ropes[0].type != RG_ROPE_DEFAULT },
        { "rope_local_theta", c->ropes[1].theta, c->n_ropes > 1 },
        { "n_experts", c->routing.n_experts, c->routing.n_experts > 0 },
        { "n_experts_used", c->routing.n_used, c->routing.n_experts > 0 },
        { "moe_ffn_dim", c->moe_ffn_dim, c->moe_ffn_dim > 0 },
        { "n_shared_experts", c->n_shared_experts, c->n_shared_experts > 0 },
        { "n_dense_layers", c->n_dense_layers, c->routing.n_experts > 0 },
    };

    for (size_t i = 0; i < RG_LEN(fields); i++)
        if (fields[i].shown)
            say(arg, fields[i].name, fields[i].value);
    for (size_t i = 0; i < c->arch->n_keys; i++) { /* what this architecture alone has */
        const rg_key *key = &c->arch->keys[i];
        const char *name = key->hf ? key->hf : key->gguf;

        if (key->at >= offsetof(rg_config, own))
            say(arg, name, rg_config_value(c, name));
    }
}

static void say_json(void *arg, const char *name, double value)
{
    cli_json_float(arg, name, value);
}

static void say_text(void *arg, const char *name, double value)
{
    (void)arg;
    printf("  %-18s %.10g\n", name, value);
}

/* ---- metadata ---- */

typedef struct visit {
    const rg_checkpoint *ckpt;
    cli_json *json;
    bool all;
    int n_unknown;
} visit;

static void visit_key(void *arg, const char *key, rg_meta_type type, bool understood)
{
    visit *v = arg;
    char text[120];

    (void)type;
    v->n_unknown += !understood;
    if (!v->all && understood)
        return;
    rg_meta_text(v->ckpt, key, text, sizeof text);
    if (v->json)
        cli_json_text(v->json, key, text);
    else
        printf("  %-44s %s%s\n", key, text, understood ? "" : "   (not understood)");
}

/* ---- tensors ---- */

static uint64_t count_parameters(const rg_checkpoint *ckpt, uint64_t *bytes)
{
    uint64_t n = 0;

    *bytes = 0;
    for (int i = 0; i < rg_checkpoint_n_tensors(ckpt); i++) {
        n += (uint64_t)rg_tensor_count(rg_checkpoint_tensor(ckpt, i));
        *bytes += rg_checkpoint_tensor(ckpt, i)->bytes;
    }
    return n;
}

static void tensors_json(cli_json *j, const rg_checkpoint *ckpt)
{
    cli_json_open(j, "tensors", '[');
    for (int i = 0; i < rg_checkpoint_n_tensors(ckpt); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(ckpt, i);
        cli_json_open(j, NULL, '{');
        cli_json_text(j, "name", t->name);
        cli_json_text(j, "dtype", rg_format_of(t->type)->name);
        cli_json_open(j, "shape", '[');
        for (int d = 0; d < t->n_dims; d++)
            cli_json_int(j, NULL, t->shape[d]);
        cli_json_close(j);
        cli_json_u64(j, "bytes", t->bytes);
        if (rg_tensor_note(ckpt, t))
            cli_json_text(j, "note", rg_tensor_note(ckpt, t));
        cli_json_close(j);
    }
    cli_json_close(j);
}

/* Names of tensors that no weight is made from: all of them, or the first few for people. */
static void unused(cli_json *j, const rg_checkpoint *ckpt, const bool *used, int n_unused)
{
    enum { FEW = 12 };

    for (int i = 0, n = 0; i < rg_checkpoint_n_tensors(ckpt) && n < (j ? n_unused : FEW); i++) {
        if (used[i])
            continue;
        n++;
        if (j)
            cli_json_text(j, NULL, rg_checkpoint_tensor(ckpt, i)->name);
        else
            printf("  %s\n", rg_checkpoint_tensor(ckpt, i)->name);
    }
    if (!j && n_unused > FEW)
        printf("  and %d more, marked by --tensors\n", n_unused - FEW);
}

/* used NULL: all of them are. */
static void tensors_text(const rg_checkpoint *ckpt, const bool *used)
{
    char shape[96];

    printf("tensors:\n");
    for (int i = 0; i < rg_checkpoint_n_tensors(ckpt); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(ckpt, i);
        const char *note = rg_tensor_note(ckpt, t);
        printf("  %-52s %-5s %-20s %12llu%s%s%s%s\n", t->name, rg_format_of(t->type)->name,
               rg_shape_text(t->shape, t->n_dims, shape), (unsigned long long)t->bytes, note ? "   (" : "",
               note ? note : "", note ? ")" : "", !used || used[i] ? "" : "   (not used)");
    }
}

/* ---- ends of an answer ---- */

static void ends_json(cli_json *j, const rg_ends *e, const rg_tokenizer *t)
{
    cli_json_open(j, "ends", '[');
    for (int i = 0; i < e->n; i++) {
        rg_string piece = t ? rg_tokenizer_piece(t, e->id[i]) : (rg_string){ NULL, 0 };
        cli_json_open(j, NULL, '{');
        cli_json_int(j, "id", e->id[i]);
        if (piece.data)
            cli_json_string(j, "piece", piece.data, piece.n);
        else
            cli_json_null(j, "piece");
        cli_json_open(j, "from", '[');
        for (int k = 0; rg_ends_source(k); k++)
            if (e->sources[i] >> k & 1)
                cli_json_text(j, NULL, rg_ends_source(k));
        cli_json_close(j);
        cli_json_close(j);
    }
    cli_json_close(j);
}

static void ends_text(const rg_ends *e, const rg_tokenizer *t)
{
    printf("ends of an answer:%s\n", e->n ? "" : " none");
    for (int i = 0; i < e->n; i++) {
        rg_string piece = t ? rg_tokenizer_piece(t, e->id[i]) : (rg_string){ "", 0 };
        const char *between = "";
        char shown[48];
        printf("  %-7d %-18s ", e->id[i], rg_piece_text(piece, shown));
        for (int k = 0; rg_ends_source(k); k++)
            if (e->sources[i] >> k & 1) {
                printf("%s%s", between, rg_ends_source(k));
                between = ", ";
            }
        printf("\n");
    }
}

/* ---- all of it ---- */

static void tokenizer_json(cli_json *j, const rg_tokenizer *t)
{
    if (!t) {
        cli_json_null(j, "tokenizer");
        return;
    }
    cli_json_open(j, "tokenizer", '{');
    cli_json_text(j, "kind", rg_tokenizer_kind(t));
    cli_json_int(j, "size", rg_tokenizer_size(t));
    cli_json_int(j, "bos", rg_tokenizer_bos(t));
    cli_json_int(j, "eos", rg_tokenizer_eos(t));
    cli_json_bool(j, "adds_bos", rg_tokenizer_adds_bos(t));
    cli_json_close(j);
}

/* The opened checkpoint, and which of its tensors weights are made from. */
typedef struct found {
    rg_checkpoint *ckpt;
    rg_model *model;
    rg_tokenizer *tokenizer; /* NULL: none */
    rg_ends ends;
    bool *used;
    int n_unused;
} found;

/* Layers that keep K/V of their own, and those that read any. */
typedef struct kv_sets {
    int sets, layers;
} kv_sets;

static kv_sets count_kv(const rg_model *m)
{
    kv_sets n = { 0 };

    for (int i = 0; i < m->config.n_layers; i++) {
        n.layers += m->keep[i].kv.group >= 0;
        n.sets += m->keep[i].kv.group >= 0 && m->keep[i].shared_with < 0;
    }
    return n;
}

static bool print_json(const found *f)
{
    const rg_checkpoint *ckpt = f->ckpt;
    const rg_model *m = f->model;
    cli_json *j = cli_json_new();
    visit v = { .ckpt = ckpt, .json = j, .all = true };
    const kv_sets kv = count_kv(m);
    uint64_t bytes, n = count_parameters(ckpt, &bytes);

    cli_json_open(j, NULL, '{');
    cli_json_text(j, "architecture", rg_config_name(&m->config));
    cli_json_u64(j, "parameters", n ? n : m->weights.n_parameters);
    cli_json_u64(j, "bytes", bytes);
    cli_json_open(j, "config", '{');
    each_field(&m->config, say_json, j);
    cli_json_close(j);
    cli_json_open(j, "state", '{');
    cli_json_u64(j, "bytes_per_position", rg_state_bytes_per_position(&m->state));
    cli_json_u64(j, "bytes_per_sequence", rg_state_bytes_per_sequence(&m->state));
    cli_json_u64(j, "kv_sets", (uint64_t)kv.sets);
    cli_json_u64(j, "kv_layers", (uint64_t)kv.layers);
    cli_json_close(j);
    cli_json_open(j, "metadata", '{');
    rg_meta_each(ckpt, visit_key, &v);
    cli_json_close(j);
    v.all = false;
    cli_json_open(j, "not_understood", '{');
    rg_meta_each(ckpt, visit_key, &v);
    cli_json_close(j);
    cli_json_open(j, "not_used", '[');
    unused(j, ckpt, f->used, f->n_unused);
    cli_json_close(j);
    cli_json_text(j, "notes", m->notes);
    tensors_json(j, ckpt);
    tokenizer_json(j, f->tokenizer);
    ends_json(j, &f->ends, f->tokenizer);
    cli_json_close(j);
    return cli_json_print(j);
}

static void print_text(const inspect_options *o, const found *f)
{
    const rg_checkpoint *ckpt = f->ckpt;
    const rg_model *m = f->model;
    const rg_tokenizer *t = f->tokenizer;
    visit v = { .ckpt = ckpt, .all = o->metadata };
    const kv_sets kv = count_kv(m);
    uint64_t bytes, n = count_parameters(ckpt, &bytes);

    printf("%s: %s, %.4g million parameters, %.2f MB\n", rg_checkpoint_path(ckpt),
           rg_config_name(&m->config),
           (double)(n ? n : m->weights.n_parameters) / 1e6, (double)bytes / 1e6);
    each_field(&m->config, say_text, NULL);
    printf("state: %llu bytes per position, %llu per sequence (%s K/V)\n",
           (unsigned long long)rg_state_bytes_per_position(&m->state),
           (unsigned long long)rg_state_bytes_per_sequence(&m->state), rg_kv_name(m->kv_type));
    if (kv.sets < kv.layers)
        printf("K/V: %d sets for %d layers\n", kv.sets, kv.layers);
    if (t)
        printf("tokenizer: %s, %d ids\n", rg_tokenizer_kind(t), rg_tokenizer_size(t));
    else
        printf("tokenizer: none\n");
    ends_text(&f->ends, t);
    printf("metadata%s:\n", o->metadata ? "" : " that is not understood");
    rg_meta_each(ckpt, visit_key, &v);
    if (!o->metadata && !v.n_unknown)
        printf("  none\n");
    for (const char *note = m->notes; *note; note += strcspn(note, "\n"), note += *note == '\n')
        printf("note: %.*s\n", (int)strcspn(note, "\n"), note);
    if (f->n_unused)
        printf("tensors that are not used:\n");
    unused(NULL, ckpt, f->used, f->n_unused);
    if (o->tensors)
        tensors_text(ckpt, f->used);
}

/* ---- an adapter -------------------------------------------------------------------------------------------------- */

static bool adapter_json(const rg_adapter_file *a)
{
    cli_json *j = cli_json_new();
    visit v = { .ckpt = a->ckpt, .json = j, .all = true };
    uint64_t bytes, n = count_parameters(a->ckpt, &bytes);

    cli_json_open(j, NULL, '{');
    cli_json_text(j, "adapter", "lora");
    cli_json_text(j, "of", a->of);
    cli_json_u64(j, "parameters", n);
    cli_json_u64(j, "bytes", bytes);
    if (!a->is_gguf)
        cli_json_float(j, "rank", a->rank);
    cli_json_float(j, "alpha", a->alpha);
    cli_json_bool(j, "rslora", a->by_root);
    cli_json_open(j, "metadata", '{');
    rg_meta_each(a->ckpt, visit_key, &v);
    cli_json_close(j);
    tensors_json(j, a->ckpt);
    cli_json_close(j);
    return cli_json_print(j);
}

static void adapter_text(const inspect_options *o, const rg_adapter_file *a)
{
    const char *path = rg_checkpoint_path(a->ckpt);
    visit v = { .ckpt = a->ckpt, .all = true };
    uint64_t bytes, n = count_parameters(a->ckpt, &bytes);

    printf("%s: a LoRA adapter%s%s, %.4g million parameters, %.2f MB\n", path, a->of ? " of " : "", a->of ? a->of : "",
           (double)n / 1e6, (double)bytes / 1e6);
    if (!a->is_gguf)
        printf("  %-18s %.10g%s\n", "rank", a->rank, a->by_root ? " (rsLoRA)" : "");
    printf("  %-18s %.10g\n  %-18s %d\n", "alpha", a->alpha, "matrices", rg_checkpoint_n_tensors(a->ckpt) / 2);
    printf("used with its model: ridge run MODEL --lora NAME=%s\n", path);
    if (o->metadata) {
        printf("metadata:\n");
        rg_meta_each(a->ckpt, visit_key, &v);
    }
    if (o->tensors)
        tensors_text(a->ckpt, NULL);
}

static bool inspect_adapter(const inspect_options *o, const char *path, rg_error *err)
{
    rg_adapter_file a;
    bool ok = rg_adapter_file_open(&a, path, err);

    if (ok && o->args.common.json)
        ok = adapter_json(&a) || rg_fail(err, RG_E_IO, "inspect: standard output cannot be written");
    else if (ok)
        adapter_text(o, &a);
    rg_adapter_file_close(&a);
    return ok;
}

static bool inspect(const inspect_options *o, const char *path, rg_error *err)
{
    const rg_model_options declared = { .declare_only = true, .declared_type = RG_BF16 };
    found f = { .ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err) };
    rg_error why = { 0 };
    bool ok;

    if (f.ckpt && rg_checkpoint_is_adapter(f.ckpt)) {
        rg_checkpoint_close(f.ckpt);
        return inspect_adapter(o, path, err);
    }
    f.model = f.ckpt ? rg_model_open(f.ckpt, &declared, err) : NULL;
    f.tokenizer = f.model ? rg_tokenizer_open(f.ckpt, &why) : NULL;
    f.used = f.model ? rg_weights_used(&f.model->weights, &f.model->config, f.ckpt, &f.n_unused, err) : NULL;
    ok = f.used && rg_ends_read(&f.ends, f.ckpt, f.tokenizer, f.model->config.vocab_size, err);
    if (ok && !f.tokenizer && why.code != RG_OK)
        fprintf(stderr, "ridge: tokenizer: %s\n", why.text);
    if (ok && o->args.common.json)
        ok = print_json(&f) || rg_fail(err, RG_E_IO, "inspect: standard output cannot be written");
    else if (ok)
        print_text(o, &f);
    rg_free(f.used);
    rg_tokenizer_close(f.tokenizer);
    rg_model_close(f.model);
    rg_checkpoint_close(f.ckpt);
    return ok;
}

static int run(int argc, char **argv)
{
    static inspect_options o;
    const cli_option options[] = {
        { "--tensors", CLI_FLAG, &o.tensors, NULL, "list the tensors" },
        { "--metadata", CLI_FLAG, &o.metadata, NULL, "list all metadata, not only what is not understood" },
        { NULL },
    };
    char path[1024];
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_inspect, options, argc, argv);
    if (status >= 0)
        return status;
    if (!o.args.n_positional)
        return cli_usage("inspect: MODEL is missing; see `ridge inspect --help`");
    if (!cli_find_model(o.args.positional[0], path, sizeof path, &err) || !inspect(&o, path, &err))
        return cli_fail(&err);
    return EXIT_DONE;
}

const cli_command cli_inspect = {
    .name = "inspect", .arguments = "MODEL", .summary = "what is in a checkpoint", .run = run,
    .n_positional = 1,
};
