/* refusal.h -- the one way to refuse a request. */
#ifndef RG_SERVER_REFUSAL_H
#define RG_SERVER_REFUSAL_H

#include "base/error.h"

/* What a client is told: a fixed sentence with names of fields and limits, never a path or a text of a library. */
typedef struct rg_refusal {
    int status;       /* of HTTP; 0: nothing is wrong */
    const char *code; /* a literal; NULL: null */
    char param[80];   /* "": null */
    char text[640];
    int retry_after_s;       /* 0: not said */
    int64_t n_prompt, n_ctx; /* of a prompt that does not fit: its tokens, and those of the context; 0: not said */
} rg_refusal;

/* Fill *e and return false.  param NULL: none. */
bool rg_refuse(rg_refusal *e, int status, const char *code, const char *param, const char *fmt, ...) RG_PRINTF(5, 6);
/* 400, the value of a field. */
bool rg_refuse_field(rg_refusal *e, const char *param, const char *fmt, ...) RG_PRINTF(3, 4);
bool rg_refuse_memory(rg_refusal *e);

#endif
