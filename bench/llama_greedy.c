/* llama_greedy.c -- greedy continuations by llama.cpp, for scripts/compare-llama-cpp, which builds it against that
 * project's library.  Not part of ridge.
 *
 *   llama_greedy MODEL.gguf N ID...
 *
 * Prints the N ids that argmax appends to the given ones, and by how much each led. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>

static void be_quiet(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static int best_of(const float *logits, int n, float *lead)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    *lead = 1e30f;
    for (int i = 0; i < n; i++)
        if (i != best && logits[best] - logits[i] < *lead)
            *lead = logits[best] - logits[i];
    return best;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return fprintf(stderr, "usage: llama_greedy MODEL.gguf N ID...\n"), 2;
    llama_log_set(be_quiet, NULL);
    llama_backend_init();
    struct llama_model_params m = llama_model_default_params();
    struct llama_model *model = llama_model_load_from_file(argv[1], m);
    if (!model)
        return fprintf(stderr, "llama_greedy: %s cannot be opened\n", argv[1]), 1;
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = 64; /* by which llama.cpp chooses among a rope's tables */
    c.n_threads = c.n_threads_batch = 1;
    c.type_k = c.type_v = GGML_TYPE_F32;
    c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *ctx = llama_init_from_model(model, c);
    if (!ctx)
        return fprintf(stderr, "llama_greedy: %s: no context\n", argv[1]), 1;
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)), n = argc - 3, n_new = atoi(argv[2]);
    llama_token *ids = calloc((size_t)n, sizeof *ids), next = 0;
    for (int i = 0; i < n; i++)
        ids[i] = atoi(argv[3 + i]);
    for (int t = 0; t < n_new; t++) {
        float lead;
        if (llama_decode(ctx, t ? llama_batch_get_one(&next, 1) : llama_batch_get_one(ids, n)))
            return fprintf(stderr, "llama_greedy: %s: llama_decode failed\n", argv[1]), 1;
        next = best_of(llama_get_logits_ith(ctx, -1), n_vocab, &lead);
        printf("%d %g\n", next, (double)lead);
    }
    free(ids);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
