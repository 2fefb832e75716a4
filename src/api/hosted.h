/* hosted.h -- the host that an engine runs in, its own or a shared one, and what it takes of the host's memory. */
#ifndef RG_API_HOSTED_H
#define RG_API_HOSTED_H

#include "ckpt/checkpoint.h"
#include "engine/host.h"

typedef struct rg_hosted {
    rg_host *host, *own; /* own: it, if it is the engine's own */
    uint64_t taken;      /* bytes of its budget */
} rg_hosted;

/* given NULL: a host of its own, of n_threads.  h is all 0; rg_hosted_close frees what is there. */
bool rg_hosted_open(rg_hosted *h, rg_host *given, int n_threads, rg_error *err);
void rg_hosted_close(rg_hosted *h);

/* False and *err (RG_E_LIMIT): the host has too little left for `what`. */
bool rg_hosted_take(rg_hosted *h, uint64_t bytes, const char *what, rg_error *err);
/* What a checkpoint's tensors have in its files, before they are read. */
bool rg_hosted_take_file(rg_hosted *h, const rg_checkpoint *ckpt, rg_error *err);
/* The engine's weights take so much after all, instead of all that was taken so far. */
bool rg_hosted_take_instead(rg_hosted *h, uint64_t bytes, const char *what, rg_error *err);

#endif
