/* attend_tmpl.h -- attention over one block of 64 keys, around its two products.
 *
 * Included where QUERIES, how many queries share what is loaded, and these are defined; `type` (I8: q8 with its scales)
 * and n are constants wherever they are called:
 *     scores(a, type, q, n, p)     the scaled scores of all 64 keys for n queries; those unseen are what memory gives
 *     latent_scores(a, p)          the same of latents, for all queries
 *     weigh(a, n, p, s, c)         scores to weights, 0 if unseen, those between seen ones being -inf; s brought up to
 *                                  them; c is what each o has yet to be multiplied by; softmax.h's is one
 *     values(a, type, n, p, c, s)  of n queries: o = o * c + the weighted values */
#ifndef RG_OPS_CPU_ATTEND_TMPL_H
#define RG_OPS_CPU_ATTEND_TMPL_H

/* Scores of unseen keys between seen ones become -inf. */
ALWAYS_INLINE void hide(uint64_t seen, int n, float (*p)[RG_BLOCK])
{
    const int hi = rg_seen_hi(seen);

    for (int j = rg_seen_lo(seen); j < hi; j++)
        for (int i = 0; i < n && !(seen >> j & 1); i++)
            p[i][j] = -__builtin_inff();
}

/* n queries, a constant, whose scores are known. */
ALWAYS_INLINE void add_some(const rg_attend *a, rg_type type, int n, float (*p)[RG_BLOCK], rg_softmax *s)
{
    float c[QUERIES];

    weigh(a, n, p, s, c);
    values(a, type, n, p, c, s);
}

/* n <= QUERIES queries likewise, no constant.  A function for each type: one of all types ran out of registers. */
ALWAYS_INLINE void add_any(const rg_attend *a, rg_type type, int n, float (*p)[RG_BLOCK], rg_softmax *s)
{
    int i = 0;

    if (n == QUERIES) {
        add_some(a, type, QUERIES, p, s);
        return;
    }
    for (; QUERIES > 4 && i + 4 <= n; i += 4)
        add_some(a, type, 4, p + i, s + i);
    for (; QUERIES > 2 && i + 2 <= n; i += 2)
        add_some(a, type, 2, p + i, s + i);
    for (; QUERIES > 1 && i < n; i++)
        add_some(a, type, 1, p + i, s + i);
}

#define ADD_ANY(name, type)                                                                                            \
    static __attribute__((noinline)) void name(const rg_attend *a, int n, float (*p)[RG_BLOCK], rg_softmax *s)         \
    {                                                                                                                  \
        add_any(a, type, n, p, s);                                                                                     \
    }

ADD_ANY(add_any_f32, RG_F32)
ADD_ANY(add_any_f16, RG_F16)
ADD_ANY(add_any_q8, RG_I8)
ADD_ANY(add_any_q4, RG_Q4_1)
ADD_ANY(add_any_bf16, RG_BF16)

#undef ADD_ANY

/* True if every weight of a query's seen keys is below the threshold. */
ALWAYS_INLINE bool is_below(const rg_attend *a, const float *p, const rg_softmax *s)
{
    const float limit = (s->m > s->top ? s->m : s->top) + a->below;
    const int lo = rg_seen_lo(a->seen), hi = rg_seen_hi(a->seen);
    int n = 0;

    for (int j = lo; j < hi; j++)
        n += p[j] < limit;
    return n == hi - lo;
}

ALWAYS_INLINE void raise_top(const rg_attend *a, const float *p, rg_softmax *s)
{
    for (int j = rg_seen_lo(a->seen); j < rg_seen_hi(a->seen); j++)
        s->top = p[j] > s->top ? p[j] : s->top;
}

/* Attention sparsity: of n <= QUERIES queries, those that take part in the block are put side by side, so that the
 * others add nothing, not even zeros. */
static __attribute__((noinline)) void add_kept(const rg_attend *all, int n, float (*p)[RG_BLOCK], rg_softmax *s)
{
    rg_attend a = *all;
    rg_softmax kept[QUERIES];
    int which[QUERIES] = { 0 }, n_kept = 0;

    a.k_next = a.v_next = NULL; /* only the keys of the next block are fetched, by the scores */
    for (int i = 0; i < n; i++) {
        if (a.looks)
            raise_top(&a, p[i], s + i);
        if (a.looks || is_below(&a, p[i], s + i))
            continue;
        if (n_kept != i)
            memcpy(p[n_kept], p[i], sizeof p[i]);
        which[n_kept] = i;
        kept[n_kept++] = s[i];
    }
    if (a.type == RG_F32)
        add_any_f32(&a, n_kept, p, kept);
    else if (a.type == RG_F16)
        add_any_f16(&a, n_kept, p, kept);
    else if (a.type == RG_I8)
        add_any_q8(&a, n_kept, p, kept);
    else if (a.type == RG_Q4_1)
        add_any_q4(&a, n_kept, p, kept);
    else
        add_any_bf16(&a, n_kept, p, kept);
    for (int i = 0; i < n_kept; i++)
        s[which[i]] = kept[i];
}

/* Queries [i, i + n); p has room for their scores, or has those of all queries of latents. */
ALWAYS_INLINE void attend_some(const rg_attend *a, rg_type type, int i, int n, float (*p)[RG_BLOCK], rg_softmax *s)
{
    if (a->columns)
        p += i;
    else
        scores(a, type, a->q + i, n, p);
    s += i;
    for (int k = 0; k < n && a->cap > 0.0f; k++)
        for (int j = 0; j < RG_BLOCK; j++)
            p[k][j] = a->cap * rg_tanhf(p[k][j] / a->cap);
    if (rg_seen_hi(a->seen) - rg_seen_lo(a->seen) != __builtin_popcountll(a->seen))
        hide(a->seen, n, p);
    if (a->below < 0.0f || a->looks)
        add_kept(a, n, p, s);
    else
        add_some(a, type, n, p, s);
}

ALWAYS_INLINE void attend_as(const rg_attend *all, rg_type type, rg_softmax *s)
{
    const rg_attend *a = all;
    rg_attend rest = *all;
    _Alignas(64) float p[RG_PANEL][RG_BLOCK];
    int i = 0;

    rest.k_next = rest.v_next = NULL; /* the first queries have fetched it */
    if (all->columns) {
        latent_scores(all, p);
        a = &rest;
    }
    for (; i + QUERIES <= a->n; i += QUERIES, a = &rest)
        attend_some(a, type, i, QUERIES, p, s);
    for (; QUERIES > 4 && i + 4 <= a->n; i += 4, a = &rest)
        attend_some(a, type, i, 4, p, s);
    for (; QUERIES > 2 && i + 2 <= a->n; i += 2, a = &rest)
        attend_some(a, type, i, 2, p, s);
    for (; QUERIES > 1 && i < a->n; i++, a = &rest)
        attend_some(a, type, i, 1, p, s);
}

static void attend(const rg_attend *a, rg_softmax *s)
{
    if (a->type == RG_F32)
        attend_as(a, RG_F32, s);
    else if (a->type == RG_F16)
        attend_as(a, RG_F16, s);
    else if (a->type == RG_I8)
        attend_as(a, RG_I8, s);
    else if (a->type == RG_Q4_1)
        attend_as(a, RG_Q4_1, s);
    else
        attend_as(a, RG_BF16, s);
}

#endif
