/* notes.h -- what a person should know of a checkpoint that was opened: what the model does otherwise than its files
 * seem to say. */
#ifndef RG_MODEL_NOTES_H
#define RG_MODEL_NOTES_H

#include "model/config.h"

/* Lines of text, '\n' between them, none behind the last: settings that nobody asked for and that could change results,
 * and a head that is used though config.json says that it is the embedding.  "": there is nothing to say.  The config
 * has been read from ckpt.  rg_free it; NULL and *err: no memory. */
char *rg_notes(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

#endif
