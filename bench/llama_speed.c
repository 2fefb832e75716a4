/* llama_speed.c -- tokens per second of llama.cpp, for scripts/bench-llama-cpp, which builds it against that project's
 * library.  Not part of ridge.
 *
 *   llama_speed MODEL.gguf THREADS PREFILL DECODE
 *
 * Prints tokens per second of a prompt of PREFILL ids, and of DECODE ids one after the other behind it. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void be_quiet(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void step(struct llama_context *ctx, llama_token *ids, int n)
{
    if (llama_decode(ctx, llama_batch_get_one(ids, n)))
        exit((fprintf(stderr, "llama_speed: llama_decode failed\n"), 1));
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fprintf(stderr, "usage: llama_speed MODEL.gguf THREADS PREFILL DECODE\n"), 2;
    const int n_prefill = atoi(argv[3]), n_decode = atoi(argv[4]);
    llama_log_set(be_quiet, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = (uint32_t)(n_prefill + n_decode + 64);
    c.n_batch = c.n_ubatch = 512;
    c.n_threads = c.n_threads_batch = atoi(argv[2]);
    struct llama_context *ctx = model ? llama_init_from_model(model, c) : NULL;
    if (!ctx)
        return fprintf(stderr, "llama_speed: %s cannot be opened\n", argv[1]), 1;
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_token *ids = calloc((size_t)n_prefill + 8, sizeof *ids);
    for (int i = 0; i < n_prefill + 8; i++)
        ids[i] = 1 + i * 7919 % (n_vocab - 1);
    step(ctx, ids, 8); /* warms up */
    llama_memory_clear(llama_get_memory(ctx), true);
    double start = now_s();
    step(ctx, ids, n_prefill);
    llama_get_logits_ith(ctx, -1);
    double prefill = now_s() - start;
    start = now_s();
    for (int t = 0; t < n_decode; t++) {
        step(ctx, ids + t % n_prefill, 1);
        llama_get_logits_ith(ctx, -1);
    }
    printf("%.2f %.2f\n", n_prefill / prefill, n_decode / (now_s() - start));
    free(ids);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
