/* export.h -- writes a tokenizer.json as GGUF's keys. */
#ifndef RG_TEXT_EXPORT_H
#define RG_TEXT_EXPORT_H

#include "ckpt/checkpoint.h"

enum { RG_EXPORT_WARNING = 300 };

/* Put tokenizer.ggml.* (of the ids of special tokens only the ends, ends.h) and the chat templates of a Hugging
 * Face checkpoint: exactly vocab_size tokens.  *bos becomes the id that encoding puts in front, where it puts one.
 * A tokenizer that GGUF cannot express is put as model "none", and warning says why; "" if everything was written.
 * False: no memory, or the file is malformed. */
bool rg_tokenizer_export(rg_ckpt_writer *w, const rg_checkpoint *from, int vocab_size, int32_t *bos,
                         char warning[RG_EXPORT_WARNING], rg_error *err) RG_MUST_CHECK;

#endif
