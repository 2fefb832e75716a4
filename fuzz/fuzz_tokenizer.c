/* fuzz_tokenizer.c -- any bytes as a text for the shipped tokenizer: ids are in range and give the bytes back. */
#include "fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static rg_tokenizer *t;
    rg_ids ids = { 0 };
    rg_error err;
    size_t m;

    if (!t)
        t = rg_tokenizer_open_path("models/tales-1m", &err);
    if (!t || !rg_tokenizer_encode(t, (const char *)data, n, RG_ENCODE_NO_SPECIAL, &ids, &err))
        abort();
    for (size_t i = 0; i < ids.n; i++)
        if (ids.id[i] < 0 || ids.id[i] >= rg_tokenizer_size(t))
            abort();
    char *back = rg_tokenizer_decode(t, ids.id, ids.n, false, &m, &err);
    if (!back)
        abort();
    rg_free(back);
    rg_ids_fini(&ids);
    return 0;
}
