/* drafts.c -- see drafts.h. */
#include "api/drafts.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum {
    NOTE_BYTES = 4096,  /* of a draft.json */
    LEVEL_ROWS = 64,    /* whose logits a network's step gives */
    HEAD_ROWS = 8,
    AUTO_SELF_BYTES = 256 << 20, /* weights of a model that caches do not hold: fewer bits of them take less time */
    AUTO_DRAFT = 8,     /* nodes of a draft at most, where the engine chooses */
    CATCH_UP_ROWS = 256, /* of prompts that the drafter's model has not seen, in one step of it */
};

/* ---- which ------------------------------------------------------------------------------------------------------- */

static bool refuse(const char *draft, rg_error *err)
{
    char names[256] = "none, auto, self:METHOD";
    size_t n = strlen(names);
    const rg_draft_kind *kind;

    for (size_t i = 0; (kind = rg_draft_kind_nth(i)) && n < sizeof names; i++)
        if (!kind->has_model)
            n += (size_t)snprintf(names + n, sizeof names - n, ", %s%s", kind->name, kind->has_path ? ":PATH" : "");
    return rg_fail(err, RG_E_USAGE, "draft '%.100s' is not one of %s, and there is no model of that name", draft,
                   names);
}

/* "self:METHOD": the engine's own model, with something left out, drafts for it.  *found: it is that. */
static bool find_self(rg_drafts *d, const char *draft, bool *found, rg_error *err)
{
    static const char prefix[] = "self:";

    *found = !strncmp(draft, prefix, sizeof prefix - 1);
    if (!*found)
        return true;
    d->self = rg_self_find(draft + sizeof prefix - 1, &d->self_n, err);
    d->kind = rg_draft_kind_find("model");
    return d->self;
}

/* The folder or file of this name beside a checkpoint. */
static bool beside(const rg_checkpoint *target, const char *name, char *out, size_t room)
{
    char *full = rg_path_full(rg_checkpoint_path(target), NULL), *slash = full ? strrchr(full, '/') : NULL;
    bool ok = slash && slash > full;

    if (ok) {
        *slash = 0;
        ok = rg_path_join(out, room, full, name) && rg_path_look(out) != RG_PATH_NONE;
    }
    rg_free(full);
    return ok;
}

/* A checkpoint's folder may have a draft.json: {"model": "NAME"}, a model beside it that drafts for it. */
static bool find_beside(rg_drafts *d, const rg_checkpoint *target)
{
    size_t n;
    char *text = rg_checkpoint_side_file(target, "draft.json", &n, &d->why);
    json_t *v = text && n < NOTE_BYTES ? rg_json_load_within(text, n, JSON_REJECT_DUPLICATES,
                                                             &(rg_json_limits){ .bytes = 1 << 16 }, NULL)
                                       : NULL;
    const char *name = json_string_value(json_object_get(v, "model"));
    bool found = name && beside(target, name, d->path, sizeof d->path);

    if (text && !found && d->why.code == RG_OK)
        rg_fail(&d->why, RG_E_INPUT, "draft.json names no model beside this one");
    json_decref(v);
    rg_free(text);
    return found;
}

/* KIND or KIND:PATH, of a kind that has no model.  *found: it is one.  False: it is one, and wrong. */
static bool find_kind(rg_drafts *d, const char *draft, bool *found, rg_error *err)
{
    const char *colon = strchr(draft, ':'), *path = colon ? colon + 1 : "";
    size_t n = colon ? (size_t)(colon - draft) : strlen(draft);
    const rg_draft_kind *kind;

    *found = false;
    for (size_t i = 0; (kind = rg_draft_kind_nth(i)) && !*found; i++) {
        if (kind->has_model || strlen(kind->name) != n || strncmp(kind->name, draft, n) != 0)
            continue;
        *found = true;
        d->kind = kind;
    }
    if (!*found)
        return true;
    if (d->kind->has_path && !*path)
        return rg_fail(err, RG_E_USAGE, "draft '%.100s' needs a path: %s:PATH", draft, d->kind->name);
    if (!d->kind->has_path && colon)
        return rg_fail(err, RG_E_USAGE, "draft '%.100s': %s takes no path", draft, d->kind->name);
    if (strlen(path) >= sizeof d->path)
        return rg_fail(err, RG_E_USAGE, "draft '%.100s': the path is too long", draft);
    memcpy(d->path, path, strlen(path) + 1);
    return true;
}

/* True if a model fills in blocks of its own, behind ids that it keeps exactly. */
static bool fills_blocks(const rg_config *c)
{
    return c->diffusion.mask_id >= 0 && c->sees > RG_CAUSAL && !c->diffusion.shifted;
}

/* A model at a path that is of this kind drafts by its blocks. */
static void choose_blocks(rg_drafts *d, rg_error *err)
{
    rg_checkpoint *ckpt = rg_checkpoint_open(d->path, RG_CKPT_DEFAULT, err);
    rg_config *c = rg_alloc(sizeof *c);

    if (ckpt && c && rg_config_read(c, ckpt, err) && fills_blocks(c)) {
        d->kind = rg_draft_kind_find("blocks");
        d->block = c->sees;
    }
    rg_free(c);
    rg_checkpoint_close(ckpt);
}

static bool choose(rg_drafts *d, const char *draft, const rg_checkpoint *target, rg_error *err)
{
    bool found;
    rg_error unread; /* why a model cannot be read is said when it is loaded */

    if (!draft || !strcmp(draft, "none"))
        return true;
    d->is_auto = !strcmp(draft, "auto");
    if (!find_self(d, draft, &found, err) || (!found && !find_kind(d, draft, &found, err)))
        return false;
    if (found)
        return true;
    if (d->is_auto && !find_beside(d, target)) {
        d->kind = rg_draft_kind_find("suffix");
        return true;
    }
    if (!d->is_auto && (rg_path_look(draft) == RG_PATH_NONE || strlen(draft) >= sizeof d->path))
        return refuse(draft, err);
    if (!d->is_auto)
        memcpy(d->path, draft, strlen(draft) + 1);
    d->kind = rg_draft_kind_find("model");
    choose_blocks(d, &unread);
    return true;
}

bool rg_drafts_choose(rg_drafts *d, const rg_options *o, const rg_checkpoint *target, rg_error *err)
{
    *d = (rg_drafts){ 0 };
    if (o->max_draft < 0 || o->max_draft > RG_MAX_DRAFT)
        return rg_fail(err, RG_E_USAGE, "max_draft is %d: want 0 to %d", (int)o->max_draft, RG_MAX_DRAFT);
    if (o->verify && !rg_verify_find(o->verify, &d->verify))
        return rg_fail(err, RG_E_USAGE, "verify '%.20s' is not one of coupled, rejection, typical", o->verify);
    if (!choose(d, o->draft, target, err))
        return false;
    if (d->kind && d->kind->has_network && !d->kind->has_path) { /* it is in the model's own checkpoint */
        const char *path = rg_checkpoint_path(target);

        if (strlen(path) >= sizeof d->path)
            return rg_fail(err, RG_E_USAGE, "draft '%.100s': the model's path is too long", o->draft);
        memcpy(d->path, path, strlen(path) + 1);
    }
    if (d->kind)
        d->max_draft = o->max_draft ? o->max_draft
                       : d->is_auto ? AUTO_DRAFT
                       : d->block   ? (d->block < RG_MAX_DRAFT ? d->block : RG_MAX_DRAFT)
                                    : d->kind->max_draft;
    return true;
}

/* ---- the model that it needs ------------------------------------------------------------------------------------- */

/* Every id must stand for the same piece in both. */
static bool check_vocabulary(const rg_drafts *d, const rg_tokenizer *own, const rg_tokenizer *target, rg_error *err)
{
    int32_t n = target ? rg_tokenizer_size(target) : 0;

    if (!own != !target)
        return rg_fail(err, RG_E_INPUT, "%s: its vocabulary cannot be compared: %s has no tokenizer", d->path,
                       own ? "the model it is to draft for" : "it");
    if (target && rg_tokenizer_size(own) != n)
        return rg_fail(err, RG_E_INPUT, "%s: a vocabulary of %d ids cannot draft for one of %d", d->path,
                       (int)rg_tokenizer_size(own), (int)n);
    for (int32_t i = 0; i < n; i++) {
        rg_string a = rg_tokenizer_piece(own, i), b = rg_tokenizer_piece(target, i);

        if (a.n != b.n || (a.n && memcmp(a.data, b.data, a.n)))
            return rg_fail(err, RG_E_INPUT, "%s: another vocabulary cannot draft: id %d is '%.*s' there, '%.*s' here",
                           d->path, (int)i, (int)a.n, a.data, (int)b.n, b.data);
    }
    return true;
}

/* A drafter's model gives one id after the other, or fills in blocks. */
static bool check_draws(const rg_drafts *d, rg_error *err)
{
    const rg_config *c = &d->model->config;

    if (d->block)
        return d->verify == RG_VERIFY_COUPLED ||
               rg_fail(err, RG_E_UNSUPPORTED, "%s: the blocks of a diffusion model (%s) are checked exactly: use "
                       "verify coupled", d->path, rg_config_name(c));
    if (rg_diffusion_fills(&c->diffusion))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: this diffusion model (%s) cannot draft: it has no next id, and no "
                       "blocks behind ids that stay; name one that fills in blocks of its own (SDAR), or a model that "
                       "writes one id after the other", d->path, rg_config_name(c));
    if (c->arch->is_encoder || c->sees != RG_CAUSAL)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: a model whose rows see rows after them (%s) cannot draft: it has no "
                       "next id; name a model that writes one id after the other", d->path, rg_config_name(c));
    return true;
}

static bool load(rg_drafts *d, const rg_options *o, const rg_drafts_target *target, int n_threads, rg_error *err)
{
    const int vocab = target->model->config.vocab_size;
    rg_checkpoint *ckpt = rg_checkpoint_open(d->path, RG_CKPT_DEFAULT, err);
    rg_tokenizer *own = NULL;
    rg_error why = { 0 };
    bool ok = false;

    if (!ckpt)
        return false;
    d->model = rg_model_open(ckpt, &(rg_model_options){ .kv_type = o->kv_type, .n_threads = n_threads,
                                                        .max_draft = d->max_draft, .pack_cache = o->pack_cache,
                                                        .round16 = target->model->weights.round16,
                                                        .backend = target->model->weights.backend },
                             err);
    if (d->model && check_draws(d, err)) {
        own = rg_tokenizer_open_for(ckpt, d->model->config.vocab_size, &why);
        ok = own || why.code == RG_OK;
        if (!ok && err)
            *err = why;
        ok = ok && check_vocabulary(d, own, target->tokenizer, err);
        if (ok && !own && d->model->config.vocab_size != vocab)
            ok = rg_fail(err, RG_E_INPUT, "%s: a vocabulary of %d ids cannot draft for one of %d", d->path,
                         d->model->config.vocab_size, vocab);
    }
    rg_tokenizer_close(own);
    rg_checkpoint_close(ckpt);
    return ok;
}

static bool load_self(rg_drafts *d, const rg_drafts_target *target, int n_threads, rg_error *err)
{
    d->model = rg_self_open(target->model, d->self, d->self_n, d->max_draft, n_threads, err);
    return d->model && check_draws(d, err);
}

/* A network that reads the model's features, and has its ids: at its path, or in the model's own checkpoint, which is
 * not opened again, since its name may be another one's by now. */
static bool load_network(rg_drafts *d, const rg_options *o, const rg_drafts_target *target, int n_threads,
                         rg_error *err)
{
    rg_checkpoint *own = d->kind->has_path ? rg_checkpoint_open(d->path, RG_CKPT_DEFAULT, err) : NULL;

    if (d->kind->has_path && !own)
        return false;
    d->model = rg_model_open(own ? own : target->ckpt,
                             &(rg_model_options){ .kv_type = o->kv_type, .n_threads = n_threads,
                                                  .target = target->model, .mtp = !own,
                                                  .round16 = target->model->weights.round16,
                                                  .backend = target->model->weights.backend },
                             err);
    rg_checkpoint_close(own);
    return d->model &&
           (d->kind->has_heads == !d->model->state.n_groups ||
            rg_fail(err, RG_E_USAGE, "%s: it is %s, which does not draft as %s", d->path,
                    rg_config_name(&d->model->config), d->kind->name));
}

/* A drafter that cannot be used gives way to "suffix" if nobody asked for it.  False and *err: somebody did. */
static bool give_up(rg_drafts *d, rg_error *err)
{
    if (!d->is_auto) {
        if (err)
            *err = d->why;
        return false;
    }
    rg_drafts_close(d);
    d->self = NULL;
    d->block = 0;
    d->kind = rg_draft_kind_find("suffix");
    d->path[0] = 0;
    return true;
}

int32_t rg_drafts_rows_kept(const rg_drafts *d)
{
    return d->is_auto && d->kind && (!d->kind->has_model || d->self) ? 0 : d->max_draft;
}

/* True if some state is kept per sequence: a chain can be rolled back and replayed, a tree cannot. */
static bool keeps_chains(const rg_model *m)
{
    for (int g = 0; g < m->state.n_groups; g++)
        if (m->state.group[g].per == RG_PER_SEQUENCE)
            return true;
    return false;
}

/* Where no model drafts for one with wide weights, and memory is there, its own self in 4 bits does. */
static void choose_self(rg_drafts *d, const rg_model *target)
{
    const uint64_t bytes = target->weights.bytes;

    if (!d->is_auto || !d->kind || d->kind->has_model || bytes < AUTO_SELF_BYTES ||
        rg_memory_free() < 2 * bytes || !rg_self_has_wide_weights(target))
        return;
    d->self = rg_self_find("q4", &d->self_n, NULL);
    d->kind = rg_draft_kind_find("model");
}

bool rg_drafts_load(rg_drafts *d, const rg_options *o, const rg_drafts_target *target, int n_threads, rg_error *err)
{
    const rg_config *c = &target->model->config;
    const bool chains = keeps_chains(target->model);

    if (d->kind && d->kind->has_branches && chains)
        return rg_fail(err, RG_E_UNSUPPORTED, "draft %s needs drafts with branches, and the recurrent state of this "
                       "model (%s) takes chains only", d->kind->name, rg_config_name(c));
    if (d->is_auto && (!rg_config_generates(c) || rg_diffusion_fills(&c->diffusion) ||
                       (chains && !rg_drafts_rows_kept(d)))) {
        d->kind = NULL; /* nothing to draft for, or no room for drafts */
        d->max_draft = 0;
    }
    if (!o->ranks)
        choose_self(d, target->model);
    else if (d->kind && (d->kind->has_network || d->self))
        return rg_fail(err, RG_E_UNSUPPORTED, "draft %s reads the model's own weights, and does not go with ranks that "
                       "share them: use --draft none, suffix, ngram, lookahead, jacobi or a smaller model", o->draft);
    if (d->kind && d->kind->has_network)
        return load_network(d, o, target, n_threads, err);
    if (!d->kind || !d->kind->has_model || (d->self ? load_self(d, target, n_threads, &d->why)
                                                    : load(d, o, target, n_threads, &d->why)))
        return true;
    return give_up(d, err);
}

static double bytes_for(const rg_model *m)
{
    const double positions = 512; /* of a sequence */

    return (double)rg_state_bytes_per_sequence(&m->state) + positions * (double)rg_state_bytes_per_position(&m->state);
}

double rg_drafts_share(const rg_drafts *d, const rg_model *target)
{
    return d->model ? bytes_for(d->model) / (bytes_for(d->model) + bytes_for(target)) : 0;
}

bool rg_drafts_tap(rg_drafts *d, rg_runner_options *target, rg_error *err)
{
    if (!d->kind || !d->kind->has_network)
        return true;
    d->tap = rg_tap_new(&d->model->config, target->max_rows, err);
    target->wrap = rg_tap_wrap;
    target->wrap_arg = d->tap;
    return d->tap;
}

/* The sizes of steps of the drafter's model. */
static void size_runner(const rg_drafts *d, rg_runner_options *r)
{
    const int n = r->max_seqs, context = d->model->config.max_seq_len;
    const int draft_rows = n * (d->block ? d->block : d->max_draft);

    r->wrap = NULL;
    r->max_seq_len = r->max_seq_len < context ? r->max_seq_len : context;
    r->max_seq_len += d->tap ? RG_MAX_DRAFT : d->block ? d->block : d->max_draft; /* rows of all levels of a tree */
    r->max_logits = d->block ? draft_rows : n;
    if (!d->tap) {
        r->max_seq_len = r->max_seq_len < context ? r->max_seq_len : context;
        r->max_rows = draft_rows < CATCH_UP_ROWS ? CATCH_UP_ROWS : draft_rows;
    } else if (d->model->state.n_groups) { /* all rows of a step, or a level of some drafts */
        r->max_logits = n < LEVEL_ROWS ? LEVEL_ROWS : n;
        r->max_rows = r->max_rows < r->max_logits ? r->max_logits : r->max_rows;
    } else { /* heads, whose logits are wide: the last rows of some answers */
        r->max_rows = r->max_logits = n < HEAD_ROWS ? n : HEAD_ROWS;
        r->state_bytes = (size_t)n * RG_BLOCK * 2 * sizeof(int32_t); /* it keeps nothing but a sequence's bookkeeping */
    }
}

bool rg_drafts_open(rg_drafts *d, const rg_runner_options *base, const rg_model *target, rg_error *err)
{
    rg_runner_options r = *base;
    rg_draft_options o = { .n_lanes = base->max_seqs, .max_draft = d->max_draft, .tap = d->tap, .path = d->path,
                           .vocab_size = target->config.vocab_size, .max_seq_len = base->max_seq_len,
                           .own_noise = d->verify == RG_VERIFY_REJECTION,
                           .fixed = d->verify != RG_VERIFY_COUPLED };

    if (!d->kind)
        return true;
    if (d->is_auto && d->kind->has_model)
        d->fallback = rg_draft_kind_find("suffix")->open(&o, NULL); /* without memory there is none */
    if (d->model) {
        size_runner(d, &r);
        r.draws = false;
        d->runner = rg_model_runner_new(d->model, &r, &d->why);
        o.runner = d->runner;
        o.target_ids = d->model->target_ids;
    }
    d->drafter = d->model && !d->runner ? NULL : d->kind->open(&o, &d->why);
    if (!d->drafter) {
        if (!give_up(d, err))
            return false;
        o.runner = NULL;
        d->drafter = d->kind->open(&o, err);
        if (!d->drafter)
            return false;
    }
    snprintf(d->name, sizeof d->name, "%s%s%s", d->self ? "self:" : d->kind->name, d->self ? d->self->name : "",
             d->fallback ? "+suffix" : "");
    return true;
}

void rg_drafts_close(rg_drafts *d)
{
    rg_drafter_close(d->drafter);
    rg_drafter_close(d->fallback);
    rg_model_runner_free(d->runner);
    rg_model_close(d->model);
    rg_tap_free(d->tap);
    d->tap = NULL;
    d->drafter = d->fallback = NULL;
    d->runner = NULL;
    d->model = NULL;
}
