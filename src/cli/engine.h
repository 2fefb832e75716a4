/* engine.h -- the flags of an engine, and opening it: the same for run, chat and serve. */
#ifndef RG_CLI_ENGINE_H
#define RG_CLI_ENGINE_H

#include "cli/lora.h"

typedef struct cli_engine {
    int32_t ctx, max_seqs, draft_max;
    float attention_sparsity;
    bool whole_head;
    size_t kv_memory, expert_memory, prefix_memory;
    const char *prefix_cache, *kv_type, *pack_cache, *sparsity, *draft, *verify, *chat_template, *preempt;
    cli_loras loras;
    char path[1024]; /* of the model, once it is found */
    char draft_path[1024]; /* of the one that drafts, if one does */
} cli_engine;

#define CLI_ENGINE_OPTIONS(v)                                                                                          \
    { "--ctx", CLI_INT, &(v).ctx, "N", "context at most (default: what the model allows)", 1, INT32_MAX },             \
    { "--kv-memory", CLI_BYTES, &(v).kv_memory, "BYTES",                                                               \
      "memory for the sequences' state (default: half of what is free)" },                                             \
    { "--max-seqs", CLI_INT, &(v).max_seqs, "N", "sequences that run at once", 1, 65536 },                             \
    CLI_PACK_CACHE_OPTION((v).pack_cache), CLI_EXPERT_MEMORY_OPTION((v).expert_memory),                                \
    { "--prefix-cache", CLI_STRING, &(v).prefix_cache, "DIR",                                                          \
      "keep cached prefixes here as files: found after a restart, and by other servers of the model" },                \
    { "--prefix-memory", CLI_BYTES, &(v).prefix_memory, "BYTES", "of these files, the oldest go (default 8G)" },       \
    CLI_SPARSITY_OPTION((v).sparsity),                                                                                 \
    CLI_ATTENTION_SPARSITY_OPTION((v).attention_sparsity),                                                             \
    { "--whole-head", CLI_FLAG, &(v).whole_head, NULL,                                                                 \
      "compute all logits, and keep no coarse copy of a large head" },                                                 \
    { "--draft", CLI_STRING, &(v).draft, "HOW",                                                                        \
      "guess ids ahead, checked together: none, auto, a KIND, KIND:PATH, or by a MODEL (default: auto)" },             \
    { "--draft-max", CLI_INT, &(v).draft_max, "K", "ids guessed at once, at most", 1, RG_DRAFT_PLACES },               \
    { "--verify", CLI_STRING, &(v).verify, "HOW",                                                                      \
      "keep guesses that are coupled to the draw (default: texts as without), by rejection, or typical (lossy)" },     \
    { "--preempt", CLI_STRING, &(v).preempt, "HOW",                                                                    \
      "state of requests that give way: swap (copied out), recompute, or auto (what is quicker)" },                    \
    CLI_KV_TYPE_OPTION((v).kv_type, CLI_KV_AS_WEIGHTS)

/* The option of commands that hold conversations. */
#define CLI_CHAT_TEMPLATE_OPTION(v)                                                                                    \
    { "--chat-template", CLI_STRING, &(v), "FILE|NAME",                                                               \
      "this chat template: a file, or one of the model's by name (default: the model's choice)" }

/* Options as the flags say, to be added to; the adapters have been read. */
rg_options cli_engine_options(cli_engine *v, const cli_common *common);

/* The engine of the model that was named first, or of the shipped one, with the adapter that --lora gives. */
rg_engine *cli_engine_open(cli_engine *v, const cli_args *a, rg_error *err);
/* The same with so many rows in a step at most; 0: the default. */
rg_engine *cli_engine_open_rows(cli_engine *v, const cli_args *a, int32_t batch_rows, rg_error *err);
/* False: the model is an encoder, which generates nothing; *err says what it is for. */
bool cli_engine_generates(const cli_engine *v, const rg_engine *e, rg_error *err);

#endif
