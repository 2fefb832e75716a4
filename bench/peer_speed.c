/* peer_speed.c -- tokens per second of llama.cpp and of ik_llama.cpp, for scripts/bench-peers, which builds it against the
 * library of either.  Not part of ridge.
 *
 *   peer_speed MODEL.gguf THREADS PREFILL DECODE
 *
 * Prints tokens per second of a prompt of PREFILL ids, and of DECODE ids one after the other behind it.  IK chooses the
 * second library: it keeps llama.cpp's interface of 2024, and repacks weights when it opens a model; flash attention is
 * off. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef IK
static struct llama_model_params model_params(void)
{
    struct llama_model_params p = llama_model_default_params();

    p.repack_tensors = true;
    p.use_mmap = false; /* repacked weights lie in memory of their own */
    p.flash_attn = false;
    return p;
}

static struct llama_context_params context_params(void)
{
    struct llama_context_params p = llama_context_default_params();

    p.flash_attn = false;
    return p;
}

static struct llama_batch batch_at(llama_token *ids, int n, int at)
{
    return llama_batch_get_one(ids, n, at, 0);
}

static void forget(struct llama_context *ctx)
{
    llama_kv_cache_clear(ctx);
}
#else
static struct llama_model_params model_params(void)
{
    return llama_model_default_params();
}

static struct llama_context_params context_params(void)
{
    return llama_context_default_params();
}

/* Behind what was computed before, which is `at`. */
static struct llama_batch batch_at(llama_token *ids, int n, int at)
{
    (void)at;
    return llama_batch_get_one(ids, n);
}

static void forget(struct llama_context *ctx)
{
    llama_memory_clear(llama_get_memory(ctx), true);
}
#endif

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

static void step(struct llama_context *ctx, llama_token *ids, int n, int at)
{
    if (llama_decode(ctx, batch_at(ids, n, at)))
        exit((fprintf(stderr, "peer_speed: llama_decode failed\n"), 1));
    llama_get_logits_ith(ctx, -1);
}

static struct llama_context *open_context(struct llama_model *model, int n_ctx, int n_threads)
{
    struct llama_context_params c = context_params();

    c.n_ctx = (uint32_t)n_ctx;
    c.n_batch = c.n_ubatch = 512;
    c.n_threads = c.n_threads_batch = n_threads;
    return llama_init_from_model(model, c);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fprintf(stderr, "usage: peer_speed MODEL.gguf THREADS PREFILL DECODE\n"), 2;
    const int n_prefill = atoi(argv[3]), n_decode = atoi(argv[4]);
    llama_log_set(be_quiet, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], model_params());
    struct llama_context *ctx = model ? open_context(model, n_prefill + n_decode + 64, atoi(argv[2])) : NULL;
    if (!ctx)
        return fprintf(stderr, "peer_speed: %s cannot be opened\n", argv[1]), 1;
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_token *ids = calloc((size_t)n_prefill + 8, sizeof *ids);
    for (int i = 0; i < n_prefill + 8; i++)
        ids[i] = 1 + i * 7919 % (n_vocab - 1);
    step(ctx, ids, 8, 0); /* warms up */
    forget(ctx);
    double start = now_s();
    step(ctx, ids, n_prefill, 0);
    double prefill = now_s() - start;
    start = now_s();
    for (int t = 0; t < n_decode; t++)
        step(ctx, ids + t % n_prefill, 1, n_prefill + t);
    printf("%.2f %.2f\n", n_prefill / prefill, n_decode / (now_s() - start));
    free(ids);
    return 0; /* what is open ends with the process */
}
