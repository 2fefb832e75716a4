/* fuzz_tokenizer.c -- any bytes as a text, and as ids, for tokenizers of every kind: ids are in range, foreign text gives no
 * special token but the one for the unknown, texts with origins give the ids of the whole, and what a byte-level tokenizer
 * made gives the bytes back. */
#include "fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/internal.h"

#define GOLDEN "tests/golden/tokenizers/"

static const char *const paths[] = { "models/tales-1m", GOLDEN "unigram-t5/tokenizer.json", GOLDEN "wordpiece-bert/tokenizer.json",
                                     GOLDEN "gemma/tokenizer.json", GOLDEN "bytelevel-qwen2/tokenizer.json",
                                     "tests/golden/stories260K.gguf" };

static void check_ids(const rg_tokenizer *t, const rg_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->id[i] < 0 || ids->id[i] >= rg_tokenizer_size(t))
            abort();
}

/* What ids show one by one is the text of all, without special tokens. */
static void check_stream(const rg_tokenizer *t, const int32_t *ids, size_t n)
{
    const rg_spelling *z = rg_tokenizer_spelling(t);
    rg_speller s = rg_speller_begin(z, false);
    rg_buf all, shown;
    rg_string part;
    size_t m;
    char *text = rg_tokenizer_decode(t, ids, n, true, &m, NULL);

    rg_buf_init(&all, 1 << 20);
    rg_buf_init(&shown, 1 << 20);
    for (size_t i = 0; i <= n; i++)
        while (rg_speller_next(z, &s, ids, (int32_t)i, i == n, &part))
            rg_buf_add(&all, part.data, part.n);
    rg_utf8_lossy(&shown, all.data ? all.data : "", all.n);
    if (!text || shown.n != m || (m && memcmp(shown.data, text, m)))
        abort();
    rg_free(text);
    rg_buf_fini(&all);
    rg_buf_fini(&shown);
}

/* The bytes as ids: any of them decode, and show bytes. */
static void decode(const rg_tokenizer *t, const uint8_t *data, size_t n)
{
    int32_t ids[64];
    size_t k = 0, m;

    for (; k < 64 && 2 * k + 1 < n; k++)
        ids[k] = (int32_t)((data[2 * k] | data[2 * k + 1] << 8) % (rg_tokenizer_size(t) + 3)) - 1;
    char *text = rg_tokenizer_decode(t, ids, k, n & 1, &m, NULL);
    if (!text || !rg_utf8_valid(text, m))
        abort();
    check_stream(t, ids, k);
    rg_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static rg_tokenizer *all[sizeof paths / sizeof *paths];
    rg_ids ids = { 0 }, again = { 0 };
    rg_error err;
    rg_text text;
    size_t which = n ? data[0] % (sizeof paths / sizeof *paths) : 0, m;
    rg_tokenizer *t = all[which];

    if (!t)
        t = all[which] = rg_tokenizer_open_path(paths[which], &err);
    if (!t || !rg_tokenizer_encode(t, (const char *)data, n, RG_ENCODE_NO_SPECIAL, &ids, &err))
        abort();
    check_ids(t, &ids);
    char *back = rg_tokenizer_decode(t, ids.id, ids.n, false, &m, &err);
    if (!back)
        abort();
    rg_free(back);
    decode(t, data, n);

    rg_text_init(&text, 1 << 24); /* runs of one kind, cut anywhere, are one text; of two, no special token of the foreign */
    for (size_t i = 0; i < n; i++)
        if (!rg_text_add(&text, (const char *)data + i, 1, false))
            abort();
    ids.n = 0;
    if (!rg_tokenizer_encode_text(t, &text, RG_ENCODE_NO_SPECIAL, &ids, &err) ||
        !rg_tokenizer_encode(t, (const char *)data, n, RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN, &again, &err) || ids.n != again.n ||
        (ids.n && memcmp(ids.id, again.id, ids.n * sizeof *ids.id)))
        abort();
    rg_text_fini(&text);
    rg_text_init(&text, 1 << 24);
    for (size_t i = 0; i < n; i++)
        if (!rg_text_add(&text, (const char *)data + i, 1, data[n - 1 - i] & 1))
            abort();
    ids.n = 0;
    if (!rg_tokenizer_encode_text(t, &text, RG_ENCODE_DEFAULT, &ids, &err))
        abort();
    check_ids(t, &ids);
    rg_text_fini(&text);
    rg_ids_fini(&ids);
    rg_ids_fini(&again);
    return 0;
}
