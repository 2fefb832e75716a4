/* tokenizer.h -- the golden tokenizers. */
#ifndef RG_TEST_TOKENIZER_H
#define RG_TEST_TOKENIZER_H

#include "text/tokenizer.h"

/* tests/golden/tokenizers/<name>, open; the caller frees it. */
rg_tokenizer *test_tokenizer(const char *name);

#endif
