/* field_letters.h -- the letters of APIs and the kinds that fields.def is written in, for the files that read it. */
#ifndef RG_SERVER_API_FIELD_LETTERS_H
#define RG_SERVER_API_FIELD_LETTERS_H

#include "server/api/fields.h"

enum {
    C = RG_API_COMPLETIONS,
    H = RG_API_CHAT,
    R = RG_API_RESPONSES,
    M = RG_API_MESSAGES,
    E = RG_API_EMBEDDINGS,
    K = RG_API_RERANK,
    S = RG_API_SCORE,
    O = RG_API_OLLAMA,
    L = RG_API_NATIVE
};

typedef enum kind { INT, LIMIT, NUM, BOOL, STR, WORD, OFF, ANY, OWN } kind;

#endif
