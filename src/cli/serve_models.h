/* serve_models.h -- the models of `ridge serve --models`: those of a folder, and the one that is named besides. */
#ifndef RG_CLI_SERVE_MODELS_H
#define RG_CLI_SERVE_MODELS_H

#include "base/error.h"
#include "server/server.h"

typedef struct cli_served {
    const char *folder;  /* NULL: one model is served */
    char **names, **paths; /* [n], owned */
    int32_t n, room;
    bool failed;         /* no memory */
} cli_served;

/* first: the path of the model that requests are for that name none; NULL: the first of the folder by name.  False and
 * *err: the folder cannot be read, or has no model. */
bool cli_served_read(cli_served *v, const char *first, const char *first_name, rg_error *err);
void cli_served_fini(cli_served *v);
/* rg_server_models.look: what `ridge show` says of the model at this path. */
bool cli_served_look(void *arg, const char *path, rg_model_facts *out);

#endif
