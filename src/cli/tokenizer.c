/* tokenizer.c -- `ridge tokenizer train`: a vocabulary from texts. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "text/bpe_train.h"

extern const cli_command cli_tokenizer;

enum { WINDOW = 1 << 20, JSON_CAP = 1 << 30, LEAST_SIZE = 257 };

typedef struct job {
    cli_args args;
    const char *out;
    int32_t size;
    cli_strings special;
    rg_bpe_training *training;
    int got;
} job;

/* How much of text[0, n) to take, so that no word is cut: up to a line that begins with no space. */
static size_t cut_of(const char *text, size_t n)
{
    for (size_t i = n - 1; i > n / 2; i--)
        if (text[i - 1] == '\n' && text[i] != ' ' && text[i] != '\n' && text[i] != '\r' && text[i] != '\t')
            return i;
    return n;
}

/* The first special token in text[0, n); its length, and 0 if there is none. */
static size_t find_special(const job *j, const char *text, size_t n, size_t *at)
{
    for (*at = 0; *at < n; ++*at)
        for (int i = 0; i < j->special.n; i++) {
            const size_t k = strlen(j->special.item[i]);
            if (k <= n - *at && !memcmp(text + *at, j->special.item[i], k))
                return k;
        }
    return 0;
}

/* Special tokens in the text are no part of it. */
static bool add_text(job *j, const char *text, size_t n, rg_error *err)
{
    bool ok = true;

    while (ok && n) {
        size_t at;
        const size_t skip = find_special(j, text, n, &at);

        ok = rg_bpe_training_add(j->training, text, at, err);
        text += at + skip;
        n -= at + skip;
    }
    return ok;
}

static bool add_file(job *j, const char *path, rg_error *err)
{
    rg_file *f = rg_file_open(path, err);
    char *text = f ? rg_alloc(WINDOW) : NULL;
    bool ok = text || (f && rg_fail_memory(err, WINDOW));

    for (uint64_t from = 0; ok && from < rg_file_size(f);) {
        const uint64_t left = rg_file_size(f) - from;
        const size_t n = left < WINDOW ? (size_t)left : WINDOW;

        ok = rg_file_read(f, from, text, n, err);
        const size_t take = !ok ? 0 : left > n ? cut_of(text, n) : n;
        ok = ok && add_text(j, text, take, err);
        from += take;
        cli_progress(j->args.common.quiet ? j : NULL, "counting words", (double)from / (double)rg_file_size(f));
    }
    rg_free(text);
    rg_file_close(f);
    return ok;
}

static bool work(job *j, rg_error *err)
{
    rg_buf json;
    bool ok = true;

    if (!j->special.n)
        j->special.item[j->special.n++] = "<|endoftext|>";
    if (j->size < 256 + j->special.n)
        return rg_fail(err, RG_E_USAGE, "tokenizer: --size %d has no room for 256 bytes and %d special tokens", j->size,
                       j->special.n);
    j->training = rg_bpe_training_new(err);
    ok = j->training;
    for (int i = 1; ok && i < j->args.n_positional; i++)
        ok = add_file(j, j->args.positional[i], err);
    rg_buf_init(&json, JSON_CAP);
    ok = ok && rg_bpe_training_end(j->training, j->size, j->special.item, j->special.n, &json, &j->got, err);
    rg_bpe_training_free(j->training);
    if (!ok) {
        rg_buf_fini(&json);
        return false;
    }
    if (!cli_write_file(j->out, &json, err))
        return false;
    if (j->got < j->size && !j->args.common.quiet)
        fprintf(stderr, "ridge: tokenizer: the texts give no more than %d ids\n", j->got);
    if (!j->args.common.json) {
        printf("%d ids, written to %s\n", j->got, j->out);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_int(out, "size", j->got);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "tokenizer: standard output cannot be written");
}

static int run(int argc, char **argv)
{
    static job j = { .size = 4096 };
    const cli_option options[] = {
        { "-o", CLI_STRING, &j.out, "FILE", "where tokenizer.json is written" },
        { "--size", CLI_INT, &j.size, "N", "ids, special tokens included (default: 4096)", LEAST_SIZE, 1 << 20 },
        { "--special", CLI_STRINGS, &j.special, "TEXT",
          "a special token, repeatable; the first stands in front of texts (default: <|endoftext|>)" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_tokenizer, options, argc, argv);
    if (status >= 0)
        return status;
    if (j.args.n_positional < 2 || strcmp(j.args.positional[0], "train") || !j.out)
        return cli_usage("tokenizer: `train`, TEXT and -o FILE are needed; see `ridge tokenizer --help`");
    return work(&j, &err) ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_tokenizer = {
    .name = "tokenizer",
    .arguments = "train TEXT... -o FILE",
    .summary = "a byte-level BPE vocabulary from texts",
    .notes = "Merges are those of the most frequent pairs within words, of equal ones that with the lowest ids.",
    .run = run,
    .n_positional = 64,
    .recipe = "exact",
};
