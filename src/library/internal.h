/* internal.h -- what the files of the library share. */
#ifndef RG_LIBRARY_INTERNAL_H
#define RG_LIBRARY_INTERNAL_H

#include "library/library.h"

/* Names in order.  rg_names_fini it, whatever happened. */
typedef struct rg_names {
    char **item;
    int n, room;
    bool failed; /* no memory, or absurdly many */
} rg_names;

bool rg_names_add(rg_names *v, const char *name);
/* Everything in a folder; none if it cannot be read. */
void rg_names_of(rg_names *v, const char *folder);
void rg_names_fini(rg_names *v);

bool rg_ends_in(const char *s, const char *end);

/* Of GGUF models, by their paths below `folder`, the one that is meant; quant may be NULL.  -1: none, or several could
 * be; *err says which there are. */
int rg_choose_gguf(const rg_names *files, const char *quant, const char *who, rg_error *err);

/* The model in a folder: the folder itself, or a GGUF file in it or one level further down.  who: its name, for
 * messages. */
bool rg_model_in(const char *folder, const char *quant, const char *who, rg_library_model *out, rg_error *err);
/* The GGUF models in a folder and one level further down, by their paths below it. */
void rg_ggufs_in(const char *folder, rg_names *files);
/* True if the folder is a model by itself: it has a config.json and weights beside it. */
bool rg_is_model_folder(const char *folder);

/* Bytes of the weights at a path. */
uint64_t rg_bytes_of(const char *path);

/* Each place by itself.  find: 1: found; 0: the place has no such name; -1: it has, and *err says what is wrong. */
int rg_hub_find(const char *hub, const char *name, rg_library_model *out, rg_error *err);
bool rg_hub_each(const char *hub, rg_library_visitor *visit, void *arg);
int rg_ollama_find(const char *ollama, const char *name, rg_library_model *out, rg_error *err);
bool rg_ollama_each(const char *ollama, rg_library_visitor *visit, void *arg);

/* Split "NAME:QUANT" into name and a pointer to the quant; NULL: there is none. */
const char *rg_split_quant(const char *given, char name[RG_LIBRARY_NAME]);

#endif
