/* family_claims.c -- see family.h: sentences of the lecture, and what results say of them.
 *
 * Bits per byte of two models are compared piece by piece of the held-out text: the interval is two standard errors of
 * the mean difference, and what another seed would change.  Where it holds both answers, or a model has read fewer ids
 * than it has parameters, there were not enough tokens.
 * Of recall, a model that has not learnt it may learn it later: that alone is no verdict. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/study/family.h"

/* Shares of bits per byte: what another seed changes, and what counts as little. */
#define SEED   0.01
#define LITTLE 0.01
static const double RECALLS = 0.9;

typedef enum claim_kind {
    BITS,    /* a's bits per byte are at most `margin` of b's above them */
    LEARNS,  /* some model of a recalls */
    FAILS,   /* none of a does, where some of b with no more state does */
    RISES,   /* recall of a rises with its state or window */
    QUICKER, /* an evaluation of a, which can give `margin` ids, takes less than as many tokens of b */
} claim_kind;

typedef struct claim {
    const char *sentence;
    claim_kind kind;
    const char *a, *b;
    double margin;
} claim;

static const claim claims[] = {
    { "Grouped K/V heads lose little.", BITS, "gqa", "mha", LITTLE },
    { "One K/V head expresses too little: groups are better.", BITS, "gqa", "mqa", 0 },
    { "Latent attention is at least as good as groups.", BITS, "mla", "gqa", SEED },
    { "K/V shared by neighbouring layers cost little.", BITS, "cla2", "gqa", LITTLE },
    { "At equal bytes, sharing over layers is better than over heads.", BITS, "cla2", "mqa", 0 },
    { "Sharing over three layers costs more than over two.", BITS, "cla2", "cla3", 0 },
    { "Seeing a window alone hurts.", BITS, "gqa", "window", 0 },
    { "One global layer in six wins it back.", BITS, "window-global", "gqa", LITTLE },
    { "The first positions, kept, are better than the window alone.", BITS, "sinks", "window", 0 },
    { "Mamba matches transformers.", BITS, "mamba", "mha", LITTLE },
    { "Mamba-2 matches Mamba.", BITS, "mamba2", "mamba", LITTLE },
    { "Parameters that depend on the input are better than S4's.", BITS, "mamba", "s4d", 0 },
    { "One layer of attention in eight suffices beside Mamba.", BITS, "jamba", "mha", LITTLE },
    { "Linear attention with a gated delta rule matches attention.", BITS, "gated-delta", "mha", LITTLE },
    { "Linear and local attention together match attention.", BITS, "based", "mha", LITTLE },
    { "Linear attention with some full attention suffices.", BITS, "lightning-full", "mha", LITTLE },
    { "Some full attention is better than none.", BITS, "lightning-full", "lightning", 0 },
    { "Diffusion's likelihood is behind that of models that continue texts.", BITS, "mha", "masked-diffusion", 0 },
    { "Diffusion by blocks is nearer to them.", BITS, "block-diffusion", "masked-diffusion", 0 },
    { "Diffusion by blocks is faster, if several ids an evaluation are good enough.", QUICKER, "block-diffusion", "mha",
      8 },
    { "Diffusion of whole texts is faster, if several ids an evaluation are good enough.", QUICKER, "masked-diffusion",
      "mha", 256 },
    { "Attention recalls.", LEARNS, "mha", NULL, 0 },
    { "S4 cannot recall.", FAILS, "s4d", "mamba", 0 },
    { "Mamba can recall.", LEARNS, "mamba", NULL, 0 },
    { "BASED recalls more with more features.", RISES, "conv-linear", NULL, 0 },
    { "BASED recalls more with a larger window.", RISES, "conv-window", NULL, 0 },
    { "Linear attention alone does not recall.", FAILS, "lightning", "lightning-full", 0 },
};

typedef struct verdict {
    int is; /* 1: so; -1: not so; 0: there were not enough tokens */
    char found[320];
} verdict;

static bool text_result(const family_study *s, const char *name, family_result *r)
{
    return s->series[0] && family_known_text(&s->job[0], family_find(name), r);
}

/* ---- bits per byte ----------------------------------------------------------------------------------------------- */

static bool judge_bits(const family_study *s, const claim *c, verdict *v)
{
    family_result a, b;
    double mean = 0, spread = 0;

    if (!text_result(s, c->a, &a) || !text_result(s, c->b, &b) || a.n_pieces != b.n_pieces)
        return false;
    for (int i = 0; i < a.n_pieces; i++)
        mean += (a.piece[i] - b.piece[i]) / a.n_pieces;
    for (int i = 0; i < a.n_pieces; i++)
        spread += pow(a.piece[i] - b.piece[i] - mean, 2);
    const double share = (a.bits_per_byte - b.bits_per_byte) / b.bits_per_byte;
    const double error = a.n_pieces > 1 ? sqrt(spread / (a.n_pieces - 1) / a.n_pieces) / b.bits_per_byte : INFINITY;
    const double half = hypot(2 * error, 2 * SEED);

    v->is = share + half < c->margin ? 1 : share - half > c->margin ? -1 : 0;
    if (!isfinite(half) || (double)a.tokens < a.parameters || (double)b.tokens < b.parameters)
        v->is = 0;
    snprintf(v->found, sizeof v->found,
             "%s %.4f bits per byte, %s %.4f: %+.2f %% (+- %.2f), %s %+.1f %%; state of 1,024 positions %.0f and %.0f "
             "bytes",
             c->a, a.bits_per_byte, c->b, b.bits_per_byte, 100 * share, 100 * half, "the border being", 100 * c->margin,
             1024 * a.position_bytes + a.sequence_bytes, 1024 * b.position_bytes + b.sequence_bytes);
    return true;
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

static double state_of(const family_result *r)
{
    return r->position_bytes * 48 + r->sequence_bytes;
}

/* Find the model that recalls best, among those of a member with at most so much state. */
static bool best_of(const family_study *s, const char *member, double most_state, family_result *best,
                    const family_asked **which)
{
    family_result r;
    bool any = false;

    for (int i = 0; i < family_n_recall; i++) {
        if (strcmp(family_recall[i].member, member) != 0 || !s->series[1] ||
            !family_known_recall(&s->job[1], &family_recall[i], &r) || state_of(&r) > most_state)
            continue;
        if (!any || r.accuracy > best->accuracy) {
            *best = r;
            *which = &family_recall[i];
        }
        any = true;
    }
    return any;
}

static bool judge_learns(const family_study *s, const claim *c, verdict *v)
{
    const family_asked *which;
    family_result r;

    if (!best_of(s, c->a, INFINITY, &r, &which))
        return false;
    v->is = r.accuracy >= RECALLS;
    snprintf(v->found, sizeof v->found, "%s of width %d: %.3f of the values, after %lld ids, state of %.0f bytes", c->a,
             which->dim, r.accuracy, (long long)r.tokens, state_of(&r));
    return true;
}

static bool judge_fails(const family_study *s, const claim *c, verdict *v)
{
    const family_asked *of_a, *of_b;
    family_result a, b;

    if (!best_of(s, c->a, INFINITY, &a, &of_a) || !best_of(s, c->b, INFINITY, &b, &of_b))
        return false;
    v->is = a.accuracy >= RECALLS ? -1 : b.accuracy >= RECALLS;
    snprintf(
        v->found, sizeof v->found,
        "the best of %s: %.3f of the values (width %d, %lld ids, %.0f bytes of state); of %s: %.3f (width %d, %lld "
        "ids, %.0f bytes)",
        c->a, a.accuracy, of_a->dim, (long long)a.tokens, state_of(&a), c->b, b.accuracy, of_b->dim,
        (long long)b.tokens, state_of(&b));
    return true;
}

static bool judge_rises(const family_study *s, const claim *c, verdict *v)
{
    double least = 0, most = 0;
    int small = INT32_MAX, large = 0, n = 0;
    size_t at = 0;
    family_result r;

    for (int i = family_n_recall - 1; i >= 0; i--) {
        const family_asked *w = &family_recall[i];

        if (strcmp(w->member, c->a) != 0 || !s->series[1] || !family_known_recall(&s->job[1], w, &r))
            continue;
        if (w->knob < small)
            small = w->knob, least = r.accuracy;
        if (w->knob > large)
            large = w->knob, most = r.accuracy;
        at += (size_t)snprintf(v->found + at, sizeof v->found - at, "%s%d: %.3f", n++ ? ", " : "of ", w->knob,
                               r.accuracy);
    }
    v->is = most > least + 0.05 ? 1 : most >= RECALLS ? -1 : 0;
    return n > 1;
}

/* margin: ids that an evaluation can give. */
static bool judge_quicker(const family_study *s, const claim *c, verdict *v)
{
    family_result a, b;

    if (!text_result(s, c->a, &a) || !text_result(s, c->b, &b))
        return false;
    v->is = a.token_ms < c->margin * b.token_ms ? 1 : -1;
    snprintf(
        v->found, sizeof v->found,
        "an evaluation of %s takes %.3f ms, a token of %s %.3f ms: it is faster from %.0f of %.0f ids an evaluation "
        "on; how good they are then is not judged here",
        c->a, a.token_ms, c->b, b.token_ms, floor(a.token_ms / b.token_ms) + 1, c->margin);
    return true;
}

void family_claims(const family_study *s, family_tell *tell, void *arg)
{
    static bool (*const judge[])(const family_study *, const claim *, verdict *) = { [BITS] = judge_bits,
                                                                                     [LEARNS] = judge_learns,
                                                                                     [FAILS] = judge_fails,
                                                                                     [RISES] = judge_rises,
                                                                                     [QUICKER] = judge_quicker };
    static const char *const words[] = { "not so", "not enough tokens to say", "so" };

    for (size_t i = 0; i < RG_LEN(claims); i++) {
        verdict v = { 0 };

        if (judge[claims[i].kind](s, &claims[i], &v))
            tell(arg, claims[i].sentence, words[v.is + 1], v.found);
    }
}
