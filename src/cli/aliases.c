/* aliases.c -- see aliases.h. */
#include "cli/aliases.h"

#include <string.h>

#include "base/error.h"

#define OPTION(name, to) { name, CLI_ALIAS_OPTION, to, NULL, CLI_ALIAS_ALONE, NULL }
#define SAME(name, to) { name, CLI_ALIAS_SAME, to, NULL, CLI_ALIAS_ALONE, NULL }
#define MODEL(name) { name, CLI_ALIAS_MODEL, NULL, NULL, CLI_ALIAS_VALUE, NULL }
#define NOTHING(name, value, why) { name, CLI_ALIAS_NOTHING, NULL, why, CLI_ALIAS_##value, NULL }
#define NOTHING_FOR(command, name, value, why) { name, CLI_ALIAS_NOTHING, NULL, why, CLI_ALIAS_##value, command }
#define REFUSED(name, why) { name, CLI_ALIAS_REFUSED, NULL, why, CLI_ALIAS_ALONE, NULL }

static const char processor[] = "ridge computes on the processor",
                  one_process[] = "ridge computes in one process, on all cores",
                  read_whole[] = "weights are read into memory, never mapped", always[] = "that is always so",
                  fixed[] = "results do not depend on it, and ridge chooses it",
                  same_threads[] = "prompts and answers have the same threads (--threads)",
                  as_stored[] = "the checkpoint says how it is stored", no_code[] = "code of a model is never run",
                  is_learnt[] = "how a model marks it follows from its chat template (--tool-format overrules)",
                  in_a_file[] = "a schema is read from a file: --grammar FILE.json",
                  verbatim[] = "texts are taken byte for byte; $'a\\nb' is a line end in most shells",
                  talks[] = "`ridge chat` holds conversations";

static const cli_alias aliases[] = {
    MODEL("-m"),
    MODEL("--model"),
    MODEL("-hf"),
    MODEL("-hfr"),
    MODEL("--hf-repo"),

    /* how much, how long */
    OPTION("-c", "--ctx"),
    OPTION("--ctx-size", "--ctx"),
    OPTION("--num-ctx", "--ctx"),
    OPTION("--max-model-len", "--ctx"),
    OPTION("--n-predict", "-n"),
    OPTION("--predict", "-n"),
    OPTION("--max-tokens", "-n"),
    OPTION("--num-predict", "-n"),
    OPTION("-t", "--threads"),
    OPTION("-np", "--max-seqs"),
    OPTION("--parallel", "--max-seqs"),
    OPTION("--max-num-seqs", "--max-seqs"),
    OPTION("-b", "--batch-rows"),
    OPTION("--batch-size", "--batch-rows"),
    OPTION("--max-num-batched-tokens", "--batch-rows"),
    SAME("-ctk", "--kv-type"),
    SAME("--cache-type-k", "--kv-type"),
    SAME("-ctv", "--kv-type"),
    SAME("--cache-type-v", "--kv-type"),
    OPTION("--kv-cache-dtype", "--kv-type"),

    /* what is asked, and how tokens are chosen */
    OPTION("--prompt", "-p"),
    OPTION("--file", "-f"),
    OPTION("-sys", "--system"),
    OPTION("--system-prompt", "--system"),
    OPTION("--temp", "--temperature"),
    OPTION("-s", "--seed"),
    OPTION("--repeat-penalty", "--repetition-penalty"),
    OPTION("--typical", "--typical-p"),
    OPTION("--top-nsigma", "--top-n-sigma"),
    OPTION("-r", "--stop"),
    OPTION("--reverse-prompt", "--stop"),
    OPTION("--grammar-file", "--grammar"),
    OPTION("-jf", "--grammar"),
    OPTION("--json-schema-file", "--grammar"),
    OPTION("-md", "--draft"),
    OPTION("--model-draft", "--draft"),
    OPTION("--chat-template-file", "--chat-template"),

    /* the server */
    OPTION("-a", "--model-name"),
    OPTION("--served-model-name", "--model-name"),
    OPTION("--no-webui", "--no-page"),
    OPTION("--threads-http", "--http-threads"),
    OPTION("--ssl-key-file", "--tls-key"),
    OPTION("--ssl-keyfile", "--tls-key"),
    OPTION("--ssl-cert-file", "--tls-cert"),
    OPTION("--ssl-certfile", "--tls-cert"),
    OPTION("--no-enable-prefix-caching", "--no-prefix-cache"),
    OPTION("--no-cache-prompt", "--no-prefix-cache"),
    OPTION("--tool-call-parser", "--tool-format"),
    OPTION("-v", "--verbose"),

    /* taken, and nothing changes */
    NOTHING("-ngl", VALUE, processor),
    NOTHING("--gpu-layers", VALUE, processor),
    NOTHING("--n-gpu-layers", VALUE, processor),
    NOTHING("-sm", VALUE, processor),
    NOTHING("--split-mode", VALUE, processor),
    NOTHING("-ts", VALUE, processor),
    NOTHING("--tensor-split", VALUE, processor),
    NOTHING("-mg", VALUE, processor),
    NOTHING("--main-gpu", VALUE, processor),
    NOTHING("-dev", VALUE, processor),
    NOTHING("--device", VALUE, processor),
    NOTHING("--gpu-memory-utilization", VALUE, processor),
    NOTHING("-nkvo", ALONE, processor),
    NOTHING("--no-kv-offload", ALONE, processor),
    NOTHING("--enforce-eager", ALONE, processor),
    NOTHING("-tp", VALUE, one_process),
    NOTHING("--tensor-parallel-size", VALUE, one_process),
    NOTHING("-fa", SWITCH, fixed),
    NOTHING("--flash-attn", SWITCH, fixed),
    NOTHING("-ub", VALUE, fixed),
    NOTHING("--ubatch-size", VALUE, fixed),
    NOTHING("--poll", VALUE, fixed),
    NOTHING("--prio", VALUE, fixed),
    NOTHING("--enable-chunked-prefill", ALONE, always),
    NOTHING("--no-warmup", ALONE, fixed),
    NOTHING("-tb", VALUE, same_threads),
    NOTHING("--threads-batch", VALUE, same_threads),
    NOTHING("--mmap", ALONE, read_whole),
    NOTHING("--no-mmap", ALONE, read_whole),
    NOTHING("--mlock", ALONE, "weights stay in memory as other data does"),
    NOTHING("-cb", ALONE, always),
    NOTHING("--cont-batching", ALONE, always),
    NOTHING("--jinja", ALONE, always),
    NOTHING("--metrics", ALONE, always),
    NOTHING("--slots", ALONE, always),
    NOTHING("--props", ALONE, always),
    NOTHING("--embedding", ALONE, always),
    NOTHING("--embeddings", ALONE, always),
    NOTHING("--rerank", ALONE, always),
    NOTHING("--reranking", ALONE, always),
    NOTHING("--cache-prompt", ALONE, always),
    NOTHING("--enable-prefix-caching", ALONE, always),
    NOTHING("--enable-auto-tool-choice", ALONE, always),
    NOTHING("--reasoning-parser", VALUE, is_learnt),
    NOTHING("--reasoning-format", VALUE, is_learnt),
    NOTHING("--trust-remote-code", ALONE, no_code),
    NOTHING("--dtype", VALUE, as_stored),
    NOTHING("--quantization", VALUE, as_stored),
    NOTHING("--load-format", VALUE, as_stored),
    NOTHING("--no-escape", ALONE, always),
    NOTHING("-no-cnv", ALONE, always),
    NOTHING("--no-conversation", ALONE, always),
    NOTHING("--simple-io", ALONE, fixed),
    NOTHING("--color", SWITCH, fixed),
    NOTHING("--nowordwrap", ALONE, always),
    NOTHING("--disable-log-requests", ALONE, "requests are told only at --log-level info"),
    NOTHING_FOR("chat", "-cnv", ALONE, always),
    NOTHING_FOR("chat", "--conversation", ALONE, always),
    NOTHING_FOR("chat", "-i", ALONE, always),
    NOTHING_FOR("chat", "--interactive", ALONE, always),

    REFUSED("-cnv", talks),
    REFUSED("--conversation", talks),
    REFUSED("-i", talks),
    REFUSED("--interactive", talks),
    REFUSED("-j", in_a_file),
    REFUSED("--json-schema", in_a_file),
    REFUSED("--format", in_a_file),
    REFUSED("-e", verbatim),
    REFUSED("--escape", verbatim),
    REFUSED("-hff", "the file is a part of MODEL: org/name:quant"),
    REFUSED("--hf-file", "the file is a part of MODEL: org/name:quant"),
};

const cli_alias *cli_alias_find(const char *command, const char *name, size_t n)
{
    for (size_t i = 0; i < RG_LEN(aliases); i++) {
        const cli_alias *a = &aliases[i];

        if (strlen(a->name) == n && !memcmp(a->name, name, n) && (!a->command || !strcmp(a->command, command)))
            return a;
    }
    return NULL;
}

const cli_alias *cli_alias_nth(int i)
{
    return (size_t)i < RG_LEN(aliases) ? &aliases[i] : NULL;
}
