/* expert_reads.c -- decoding with experts on disk, beside the reads alone.
 *
 *   expert_reads MODEL FOLDER BYTES [TOKENS]
 *
 * Opens MODEL with BYTES of memory for experts (FOLDER keeps its packed weights and nothing else) and decodes random
 * ids, one stream.  In turns with each stretch of TOKENS steps it reads as many places of the same file as the steps
 * have read and used (not what wrong guesses read), of the same sizes, unbuffered and with as many threads, into memory
 * that is thrown away.  Prints for each turn the hit rate, the time of both and their ratio, and last the memory that
 * the process takes beside what it was allowed. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "engine/sequence.h"
#include "model/model.h"

enum { READERS = 8, TURNS = 7, CONTEXT = 4096 };

typedef struct world {
    rg_checkpoint *ckpt;
    rg_model *m;
    rg_runner *runner;
    rg_states *states;
    rg_seq *seq;
    rg_file *file;
    rg_rng random;
} world;

static void no_logits(void *arg, int thread, int i, float *logits)
{
    (void)arg, (void)thread, (void)i, (void)logits;
}

static bool step(world *w, rg_error *err)
{
    int32_t at = w->seq->length, end = at + 1, row = 0, pos[1][4] = { { at, at, at, at } };
    int32_t id = (int32_t)rg_rng_below(&w->random, (uint32_t)w->m->config.vocab_size);
    uint8_t failed = 0;
    rg_span span = { 0 };

    if (!rg_seq_grow(w->states, w->seq, end))
        return rg_fail(err, RG_E_LIMIT, "no room for %d positions", end);
    rg_seq_span(w->states, w->seq, 1, 0, &span);
    rg_batch b = { .n_rows = 1, .n_spans = 1, .spans = &span, .token = &id, .index = &at, .kv_end = &end,
                   .pos = (const int32_t(*)[4])pos, .n_logits = 1, .logit_rows = &row, .failed = &failed };
    w->runner->step(w->runner, &b, &(rg_sink){ .logits = no_logits });
    rg_seq_advance(w->states, w->seq, 1, 0, NULL);
    return !failed || rg_fail(err, RG_E_IO, "experts could not be read");
}

/* ---- reads alone ------------------------------------------------------------------------------------------------- */

typedef struct reads {
    const rg_file *file;
    size_t bytes; /* of each */
    int n;
    atomic_int next;
    atomic_bool failed;
} reads;

static void *read_some(void *arg)
{
    reads *r = arg;
    uint64_t places = rg_file_size(r->file) / r->bytes - 1;
    void *to = rg_region_new(r->bytes);

    for (int i; to && (i = atomic_fetch_add(&r->next, 1)) < r->n;) {
        rg_rng random = { .seed = (uint64_t)i + (uintptr_t)r };
        uint64_t at = rg_rng_u64(&random) % places * r->bytes / RG_DIRECT * RG_DIRECT;
        if (!rg_file_read(r->file, at, to, r->bytes, NULL))
            atomic_store(&r->failed, true);
    }
    if (!to)
        atomic_store(&r->failed, true);
    rg_region_free(to, r->bytes);
    return NULL;
}

/* Seconds of n reads; < 0: some failed. */
static double time_reads(const rg_file *file, int n, size_t bytes)
{
    reads r = { .file = file, .bytes = (bytes + RG_DIRECT - 1) / RG_DIRECT * RG_DIRECT, .n = n };
    pthread_t thread[READERS];
    uint64_t from = rg_now_ns();
    int n_threads = 0;

    while (n_threads < READERS && !pthread_create(&thread[n_threads], NULL, read_some, &r))
        n_threads++;
    for (int i = 0; i < n_threads; i++)
        pthread_join(thread[i], NULL);
    return n_threads && !atomic_load(&r.failed) ? rg_seconds(from, rg_now_ns()) : -1;
}

/* ---- the turns --------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool turns(world *w, int n_tokens, rg_error *err)
{
    double ratio[TURNS];

    for (int t = -1; t < TURNS; t++) { /* the first one fills the cache */
        rg_expert_reads before = rg_model_expert_reads(w->m);
        uint64_t from = rg_now_ns();

        for (int i = 0; i < n_tokens * (t < 0 ? 4 : 1); i++)
            if (!step(w, err))
                return false;
        double took = rg_seconds(from, rg_now_ns());
        rg_expert_reads after = rg_model_expert_reads(w->m);
        double n_asked = (double)(after.n_asked - before.n_asked);
        int n_read = (int)(after.n_read - before.n_read);
        int n_unused = (int)(after.n_unused - before.n_unused), n_needed = n_read - n_unused;
        double bytes = (double)(after.bytes_read - before.bytes_read);
        if (t < 0 || !n_read)
            continue;
        double alone = time_reads(w->file, n_needed, (size_t)(bytes / n_read));
        if (alone < 0)
            return rg_fail(err, RG_E_IO, "the reads alone failed");
        ratio[t] = alone / took;
        printf("%d tokens: %.2f tokens/s, hits %.3f, %d reads and %d unused, %.1f MB a token, %.3f s; reads alone %.3f s "
               "(%.2f GB/s): %.2f\n", n_tokens, n_tokens / took, 1 - n_needed / n_asked, n_needed, n_unused,
               bytes / n_tokens / 1e6, took, alone, bytes / n_read * n_needed / alone / 1e9, ratio[t]);
    }
    qsort(ratio, TURNS, sizeof *ratio, by_size);
    printf("reads alone / decoding: median %.2f, best %.2f\n", ratio[TURNS / 2], ratio[TURNS - 1]);
    return true;
}

static double resident_mb(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[200];
    double kb = 0;

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6))
            kb = atof(line + 6);
    if (f)
        fclose(f);
    return kb * 1024 / 1e6;
}

/* The pack file in a folder. */
static rg_file *open_pack(const char *folder, rg_error *err)
{
    DIR *d = opendir(folder);
    char path[4096] = "";

    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".pack"))
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (d)
        closedir(d);
    return rg_file_open_direct(path, err);
}

static bool run(world *w, char **argv, int n_tokens, rg_error *err)
{
    size_t bytes = (size_t)strtoull(argv[3], NULL, 10), state = (size_t)256 << 20;
    const rg_backend *backend = rg_backend_find("auto", err);

    w->ckpt = backend ? rg_checkpoint_open(argv[1], RG_CKPT_DEFAULT, err) : NULL;
    if (w->ckpt)
        w->m = rg_model_open(w->ckpt, &(rg_model_options){ .n_threads = rg_cores(), .pack_cache = argv[2],
                                                           .expert_bytes = bytes }, err);
    if (w->m)
        w->runner = rg_model_runner_new(w->m, &(rg_runner_options){ .backend = backend, .n_threads = rg_cores(),
                                                                    .max_rows = 1, .max_logits = 1, .max_seqs = 1,
                                                                    .max_seq_len = CONTEXT, .state_bytes = state }, err);
    w->states = w->runner ? rg_states_new(w->runner->spec, w->runner->store, false, err) : NULL;
    w->seq = w->states ? rg_seq_new(w->states, CONTEXT, 0, err) : NULL;
    if (!w->seq)
        return false;
    w->file = open_pack(argv[2], err);
    if (!w->file || !turns(w, n_tokens, err))
        return false;
    double cache = (double)rg_model_expert_reads(w->m).bytes / 1e6, dense = (double)w->m->weights.bytes / 1e6 - cache;
    printf("memory at most %.1f MB: dense weights %.1f, experts %.1f (allowed %.1f), the rest %.1f\n", resident_mb(), dense,
           cache, (double)bytes / 1e6, resident_mb() - dense - cache);
    return true;
}

int main(int argc, char **argv)
{
    world w = { .random = { .seed = 1 } };
    rg_error err = { 0 };

    if (argc < 4) {
        fprintf(stderr, "usage: expert_reads MODEL FOLDER BYTES [TOKENS]\n");
        return 2;
    }
    bool ok = run(&w, argv, argc > 4 ? atoi(argv[4]) : 16, &err);
    if (!ok)
        fprintf(stderr, "expert_reads: %s\n", err.text);
    if (w.states)
        rg_seq_free(w.states, w.seq);
    rg_states_free(w.states);
    rg_file_close(w.file);
    rg_model_runner_free(w.runner);
    rg_model_close(w.m);
    rg_checkpoint_close(w.ckpt);
    return ok ? 0 : 1;
}
