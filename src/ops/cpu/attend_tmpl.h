/* attend_tmpl.h -- attention over one block of 64 keys, around its two products.
 *
 * Included where these are defined, `type` being a constant wherever they are called:
 *     scores(a, type, p)        the scaled scores of all 64 keys; those unseen are whatever memory gives
 *     weigh(a, p, s, &c)        scores to weights, and the softmax so far brought up to them: softmax.h's, or better
 *     values(a, type, p, c, o)  o = o * c + the weighted values */
#ifndef RG_OPS_CPU_ATTEND_TMPL_H
#define RG_OPS_CPU_ATTEND_TMPL_H

ALWAYS_INLINE void attend_as(const rg_attend *a, rg_type type, rg_softmax *s)
{
    _Alignas(64) float p[RG_BLOCK];
    float c;

    scores(a, type, p);
    if (a->cap > 0.0f)
        for (int j = 0; j < RG_BLOCK; j++)
            p[j] = a->cap * rg_tanhf(p[j] / a->cap);
    if (weigh(a, p, s, &c))
        values(a, type, p, c, s->o);
}

static void attend(const rg_attend *a, rg_softmax *s)
{
    if (a->type == RG_F32)
        attend_as(a, RG_F32, s);
    else if (a->type == RG_F16)
        attend_as(a, RG_F16, s);
    else
        attend_as(a, RG_BF16, s);
}

#endif
