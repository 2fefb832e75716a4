/* cut.h -- ids of a text, or of a pair, cut to a length, as the tokenizers library truncates: what the tokenizer puts
 * around them stays. */
#ifndef RG_TEXT_CUT_H
#define RG_TEXT_CUT_H

#include "text/tokenizer.h"

typedef struct rg_cut {
    size_t most;   /* ids that may be left; 0: no limit */
    bool keep_end; /* the beginning of a text is cut off, not its end */
} rg_cut;

typedef struct rg_pair_ids {
    rg_ids ids;
    int32_t second; /* as of rg_tokenizer_encode_pair */
} rg_pair_ids;

/* Cut ids [n] of a text, in place.  How many are left: with a limit below the special tokens around, the first ones of
 * those. */
size_t rg_tokenizer_cut(const rg_tokenizer *t, int32_t *ids, size_t n, const rg_cut *cut);
/* As rg_tokenizer_encode_pair, into a zeroed *out whose ids are the caller's also after a failure; of the two texts the
 * longer one is cut first. */
bool rg_tokenizer_encode_pair_cut(const rg_tokenizer *t, const rg_string text[2], unsigned flags, const rg_cut *cut,
                                  rg_pair_ids *out, rg_error *err) RG_MUST_CHECK;

#endif
