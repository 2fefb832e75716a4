/* tokenizer.c -- see tokenizer.h. */
#include "support/tokenizer.h"

#include <stdio.h>

#include "support/test.h"

rg_tokenizer *test_tokenizer(const char *name)
{
    char path[256];
    rg_error err = { 0 };
    rg_tokenizer *t;

    snprintf(path, sizeof path, "tokenizers/%s/tokenizer.json", name);
    t = rg_tokenizer_open_path(test_data(path), &err);
    assert_ok(t, err);
    return t;
}
