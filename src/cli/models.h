/* models.h -- facts of a model that is found, without its weights: for list, show and pull. */
#ifndef RG_CLI_MODELS_H
#define RG_CLI_MODELS_H

#include "cli/cli.h"
#include "library/pull.h"

enum { CLI_MOST_ABILITIES = 8 };

typedef struct cli_model {
    rg_library_model found;
    char problem[512]; /* why it cannot be used; "": it can, and the following are known */
    char architecture[64], type[32], license[64];
    bool is_gguf;
    uint64_t parameters;
    int context, vocab_size, n_layers, dim, n_experts;
    const char *ability[CLI_MOST_ABILITIES]; /* in the words of Ollama's API, and rerank */
    int n_abilities;
    char *template_text; /* NULL: it has none; freed by cli_model_fini */
} cli_model;

/* Look at the model at m->found. */
void cli_model_look(cli_model *m);
void cli_model_fini(cli_model *m);

/* It as a JSON object; whole: with its template's text. */
void cli_model_json(cli_json *j, const cli_model *m, bool whole);

/* "4.1 GB" */
const char *cli_bytes_text(uint64_t n, char text[32]);

/* Whether a model that is not there is fetched (-hf). */
void cli_fetch_missing(bool fetch);
/* Fetch one; says how it goes on standard error unless quiet. */
bool cli_fetch_model(const char *name, bool quiet, rg_pulled *out, rg_error *err);

#endif
