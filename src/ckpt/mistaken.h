/* mistaken.h -- what people give in place of a model by mistake: a pointer that git left, a web page that a download
 * saved, an archive, a folder one level too high.  Readers ask here once they have refused something, so that the
 * error says what it is and what to do. */
#ifndef RG_CKPT_MISTAKEN_H
#define RG_CKPT_MISTAKEN_H

#include "base/error.h"

/* What a file is that begins with these bytes, and what to do, as the end of a sentence "PATH: ..."; NULL: unknown. */
const char *rg_mistaken_bytes(const char *bytes, size_t n);

/* Reading this file has failed: if it is empty, or begins like something else, *err becomes what that is.  own: what
 * files of the reader's format begin with; NULL: with nothing of their own. */
void rg_mistaken_file(const char *path, const char *own, rg_error *err);

/* A folder without config.json.  If it holds one model as GGUF (a file, or the parts of a split one; no mmproj), that
 * file's path is returned; rg_free it.  Else NULL, and *err says what the folder holds and what to do. */
char *rg_mistaken_folder(const char *path, rg_error *err);

#endif
