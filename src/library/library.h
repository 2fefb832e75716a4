/* library.h -- models where people have them: a path, ridge's own folder of models, and the caches of the Hugging Face
 * libraries, Ollama and llama-server, by the names that their users know.
 *
 * A NAME is one of
 *     a path                        of a file or folder; FOLDER:QUANT for a GGUF file in it
 *     NAME, ORG/NAME [:QUANT]       below the folder of models
 *     ORG/NAME [@REVISION] [:QUANT] in Hugging Face's cache, and in llama-server's
 *     NAME[:TAG], USER/NAME[:TAG]   of Ollama
 * QUANT is the type that a GGUF file has in its name (q4_k_m, in any case), or the file's own name.  Without one it is
 * the folder if that holds safetensors, else the only GGUF file, else the one of type Q4_K_M.
 * Knows files and names; reads no weights. */
#ifndef RG_LIBRARY_LIBRARY_H
#define RG_LIBRARY_LIBRARY_H

#include "base/error.h"

enum { RG_LIBRARY_PATH = 4096, RG_LIBRARY_NAME = 512 };

/* Where to look; NULL: nowhere.  Borrowed. */
typedef struct rg_places {
    const char *models;      /* ridge's own folder */
    const char *hub;         /* models--ORG--NAME/{blobs,refs,snapshots} */
    const char *ollama;      /* manifests/, blobs/ */
    const char *llama_cache; /* ORG_NAME_FILE.gguf */
} rg_places;

typedef enum rg_place { RG_PLACE_PATH, RG_PLACE_MODELS, RG_PLACE_HUB, RG_PLACE_OLLAMA, RG_PLACE_LLAMA_CACHE } rg_place;
const char *rg_place_name(rg_place p); /* "hugging face" */

typedef struct rg_library_model {
    char path[RG_LIBRARY_PATH]; /* what rg_open takes */
    char name[RG_LIBRARY_NAME]; /* by which rg_library_find finds it */
    rg_place place;
    uint64_t bytes; /* of its weights; all parts of a split file */
} rg_library_model;

/* The model that a name means: the first place that has it.  False: none has, or several files could be meant; *err
 * says which. */
bool rg_library_find(const rg_places *places, const char *name, rg_library_model *out, rg_error *err) RG_MUST_CHECK;

/* Call visit with every model that is found, place by place, names in order, until it returns false.  Folders that
 * cannot be read are passed over. */
typedef bool rg_library_visitor(void *arg, const rg_library_model *f);
void rg_library_each(const rg_places *places, rg_library_visitor *visit, void *arg);
/* The same for one folder of models, whose names are those below it (what a server with several models offers): folders
 * with config.json or GGUF files, GGUF files, and both one level further down. */
void rg_library_each_in(const char *folder, rg_library_visitor *visit, void *arg);

/* ---- names of files ---- */

/* True if the file's name says that it holds this type, or if it is the name itself: "x-Q4_K_M.gguf" for "q4_k_m". */
bool rg_gguf_is_of(const char *file, const char *quant);
/* A GGUF model by its name: no picture encoder (mmproj), and of a split one the first part. */
bool rg_gguf_is_model(const char *file);
/* The type in a file's name as it stands there ("Q4_K_M"); "": it names none. */
void rg_gguf_quant(const char *file, char quant[32]);

#endif
