/* embed_pipe.c -- embeddings of lists of ids, asked over pipes and timed: for scripts/bench-embeddings.
 *
 *   embed_pipe MODEL THREADS [ROWS]
 *
 * A question is a number of texts (u32, little-endian as all) and for each of them its number of ids and the ids; ROWS is
 * that of a step.  All are submitted at once.  An answer is the nanoseconds from then to the last embedding (u64), the
 * length of one (u32), and the means of the hidden states as they are (f32). */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ridge.h"

enum { MAX_TEXTS = 1 << 16, MAX_IDS = 1 << 16 };

static rg_request *requests[MAX_TEXTS];

static void need(bool ok, const char *why)
{
    if (ok)
        return;
    fprintf(stderr, "embed_pipe: %s\n", why);
    exit(1);
}

static bool get(void *to, size_t n)
{
    return fread(to, 1, n, stdin) == n;
}

static uint32_t read_number(uint32_t most)
{
    uint32_t n = 0;

    need(get(&n, sizeof n) && n <= most, "the question is cut short, or too large");
    return n;
}

/* The texts of one question; each is copied by its request, which begins at once. */
static void answer(rg_engine *e, uint32_t n)
{
    rg_error err = { 0 };
    uint32_t *lengths = rg_array(n, sizeof *lengths), dim;
    int32_t **texts = rg_array(n, sizeof *texts);
    uint64_t from, took;
    rg_token t;

    need(lengths && texts, "no memory");
    for (uint32_t i = 0; i < n; i++) {
        lengths[i] = read_number(MAX_IDS);
        texts[i] = rg_array(lengths[i], sizeof(int32_t));
        need(texts[i] && get(texts[i], lengths[i] * sizeof(int32_t)), "the question is cut short");
    }
    from = rg_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        rg_params p = { .prompt = texts[i], .n_prompt = (int32_t)lengths[i], .embed = RG_POOLING_MEAN };
        requests[i] = rg_submit(e, &p, &err);
        need(requests[i], err.text);
    }
    for (uint32_t i = 0; i < n; i++)
        while (rg_next(requests[i], &t))
            ;
    took = rg_now_ns() - from;
    dim = (uint32_t)rg_engine_info(e).dim;
    fwrite(&took, sizeof took, 1, stdout);
    fwrite(&dim, sizeof dim, 1, stdout);
    for (uint32_t i = 0; i < n; i++) {
        int32_t size = 0;
        const float *v = rg_request_embedding(requests[i], &size);
        need(v && size == (int32_t)dim, "there is no embedding");
        fwrite(v, sizeof *v, dim, stdout);
        rg_request_close(requests[i]);
        rg_free(texts[i]);
    }
    fflush(stdout);
    rg_free(texts);
    rg_free(lengths);
}

int main(int argc, char **argv)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };
    uint32_t n;

    need(argc == 3 || argc == 4, "usage: embed_pipe MODEL THREADS [ROWS]");
    o.n_threads = atoi(argv[2]);
    o.max_batch_rows = argc > 3 ? atoi(argv[3]) : 0;
    o.max_waiting = MAX_TEXTS;
    o.kv_bytes = (size_t)1 << 30;
    rg_engine *e = rg_open(argv[1], &o, &err);
    need(e, err.text);
    while (get(&n, sizeof n)) {
        need(n <= MAX_TEXTS, "too many texts");
        answer(e, n);
    }
    rg_close(e);
    return 0;
}
