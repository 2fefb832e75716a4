/* ends.h -- the ids that end an answer: those that anything in a checkpoint names, joined.
 *
 * Sources, as ends.def lists them: keys of the configurations, keys of GGUF, and the texts of tokens that are known to
 * end turns.  A mark that closes a part inside an answer is no end, whoever names it.  Knows no model: the caller says
 * how many ids there are. */
#ifndef RG_TEXT_ENDS_H
#define RG_TEXT_ENDS_H

#include "text/tokenizer.h"

enum { RG_MAX_ENDS = 256 };

typedef struct rg_ends {
    int32_t id[RG_MAX_ENDS];       /* each once, in the order of the sources */
    uint32_t sources[RG_MAX_ENDS]; /* of id[i]: bit k, if source k names it (rg_ends_source) */
    int n;
} rg_ends;

/* The ends of a checkpoint whose model has vocab_size ids.  t: its tokenizer, by which tokens are found by text; NULL:
 * it has none.  False and *err: a key names an id beyond the vocabulary, more than RG_MAX_ENDS are named, a file is
 * malformed, or no memory. */
bool rg_ends_read(rg_ends *e, const rg_checkpoint *ckpt, const rg_tokenizer *t, int32_t vocab_size,
                  rg_error *err) RG_MUST_CHECK;

/* What source k is called, for people; NULL: there are not so many. */
const char *rg_ends_source(int k);

/* Put them as keys of a GGUF file, so that reading it gives the same ids.  t as above: the end that it names itself
 * becomes the file's eos, at which other programs look first. */
bool rg_ends_put(rg_ckpt_writer *w, const rg_ends *e, const rg_tokenizer *t, rg_error *err) RG_MUST_CHECK;

/* True if this piece can only be the mark of a turn's end: then it is a control token, whatever a file says. */
bool rg_ends_is_turn(rg_string piece);

#endif
