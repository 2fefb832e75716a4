/* card.h -- the facts of an open checkpoint that are told to whoever asks what is served. */
#ifndef RG_API_CARD_H
#define RG_API_CARD_H

#include "model/model.h"
#include "ridge.h"
#include "text/chat.h"

/* path and what the engine itself decides (max_seqs) are the caller's to set.  chat NULL: there is no tokenizer. */
rg_card rg_card_of(const rg_model *m, const rg_chat *chat);

/* When the file or folder was changed last, in seconds since 1970; 0: it cannot be asked. */
int64_t rg_card_modified_s(const char *path);

#endif
