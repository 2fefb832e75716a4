/* self.h -- a model's smaller self: the same weights without some bits, layers or keys, so that a step of it takes
 * less time and mostly says the same.  It drafts for the model without a second checkpoint (LayerSkip, Elhoushi
 * et al. 2024; SWIFT, Xia et al. 2024; QuantSpec, Tiwari et al. 2025): every shortcut that loses something becomes one
 * that loses nothing. */
#ifndef RG_MODEL_SELF_H
#define RG_MODEL_SELF_H

#include "model/model.h"

/* What is left out. */
typedef struct rg_self_method {
    const char *name;
    const char *what;   /* in a few words, for messages and help */
    int least, normal;  /* of its number N; normal: where none is given; 0: it takes none */
    bool (*apply)(rg_model *m, int n, int n_threads, rg_error *err);
    const char *kv_type; /* of its K/V; NULL: the model's */
} rg_self_method;

/* "METHOD" or "METHOD:N" as a method and its number.  NULL and *err: there is no such method, or N is out of range. */
const rg_self_method *rg_self_find(const char *text, int *n, rg_error *err);
/* The i-th method; NULL past the end. */
const rg_self_method *rg_self_nth(size_t i);

/* The smaller self of an open model, which must outlive it, with room for max_draft rows of drafts in recurrent state.
 * NULL and *err: nothing can be left out so, or there is no memory. */
rg_model *rg_self_open(const rg_model *of, const rg_self_method *method, int n, int max_draft, int n_threads,
                       rg_error *err);

/* True if most of what a step reads are weights of 16 bits or more: with a quarter of the bits it takes a quarter of
 * the time, where memory is the limit. */
bool rg_self_has_wide_weights(const rg_model *m);

#endif
