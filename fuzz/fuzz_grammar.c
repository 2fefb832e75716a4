/* fuzz_grammar.c -- any bytes as a grammar of FUZZ_GRAMMAR's kind, or of any (the first byte says which): refused cleanly,
 * or followed for some ids, each of which the mask allowed. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/grammar.h"

static const char *const words[] = { "\":", "\",", "{\"", "true", "}}", "ab", "\xc3\xa9", "\xe2\x82", "10" };
enum { N = 256 + (int)RG_LEN(words) };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static rg_grammar_vocab *v;
    static char text[512];
    static uint32_t offset[N + 1];
    uint32_t random = 1;
    size_t live;

    for (int i = 0; !v && i < N; i++) {
        size_t m = i < 256 ? 1 : strlen(words[i - 256]);
        if (i < 256)
            text[offset[i]] = (char)i;
        else
            memcpy(text + offset[i], words[i - 256], m);
        offset[i + 1] = offset[i] + (uint32_t)m;
    }
    if (!v && !(v = rg_grammar_vocab_new(text, offset, N, NULL)))
        abort();
    if (!n)
        return 0;
    live = rg_mem_count().n_live;
#ifdef FUZZ_GRAMMAR
    rg_grammar_source source = { FUZZ_GRAMMAR, (const char *)data, n, NULL };
#else
    rg_grammar_source source = { (rg_grammar_kind)(data[0] % 6), (const char *)data + 1, n - 1, NULL };
#endif
    rg_grammar *g = rg_grammar_compile(v, &source, NULL);
    rg_grammar_state *s = g ? rg_grammar_start(g, NULL) : NULL;
    for (int step = 0; s && step < 24; step++) {
        float logits[N] = { 0 };
        uint32_t at = (random = random * 1664525 + 1013904223) >> 8, k = 0;

        rg_grammar_mask(s, logits, N, NULL, 0, true);
        while (k < N && logits[(at + k) % N] == -INFINITY)
            k++;
        if (k == N && !rg_grammar_complete(s))
            abort();
        if (k == N || !rg_grammar_advance(s, (int32_t)((at + k) % N)))
            break;
    }
    rg_grammar_stop(s);
    rg_grammar_unref(g);
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
