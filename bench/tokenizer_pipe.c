/* tokenizer_pipe.c -- one tokenizer after another, asked over pipes: for scripts that compare many texts with other
 * libraries (scripts/compare-tokenizers), where a process per text would cost more than the work.
 *
 * A question is a byte and a length (u32, little-endian) and so many bytes; an answer is a byte (0: failed, and the rest
 * is why) and likewise.
 *   'o' path          open; '+' without specials, 'p' foreign, 'e' as it comes: text -> i32 ids
 *   't' text: encode it and tell nanoseconds and the number of ids (u64 each)
 *   'd' ids, 's' ids  decode, the latter without special tokens;   'f' ids: what a stream of them shows
 *   'm' questions: any of those above, one after another; the answer holds theirs */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

enum { HEAD = 1 + sizeof(uint32_t), ANSWERS_BYTES = 1 << 30 };

static rg_tokenizer *tokenizer;
static rg_buf answers;

static void answer(bool ok, const void *p, size_t n)
{
    uint32_t size = (uint32_t)n;

    rg_buf_add(&answers, &(char){ ok }, 1);
    rg_buf_add(&answers, &size, sizeof size);
    rg_buf_add(&answers, p, n);
}

static void encode(const rg_tokenizer *t, char op, const char *text, size_t n)
{
    unsigned flags = op == 'e' ? RG_ENCODE_DEFAULT : op == 'p' ? RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN
                                                               : RG_ENCODE_NO_SPECIAL;
    rg_ids ids = { 0 };
    rg_error err = { 0 };

    if (rg_tokenizer_encode(t, text, n, flags, &ids, &err))
        answer(true, ids.id ? (const void *)ids.id : "", ids.n * sizeof *ids.id);
    else
        answer(false, err.text, strlen(err.text));
    rg_ids_fini(&ids);
}

static void timed(const rg_tokenizer *t, const char *text, size_t n)
{
    rg_ids ids = { 0 };
    rg_error err = { 0 };
    uint64_t from = rg_now_ns(), said[2];
    bool ok = rg_tokenizer_encode(t, text, n, RG_ENCODE_DEFAULT, &ids, &err);

    said[0] = rg_now_ns() - from;
    said[1] = ids.n;
    answer(ok, ok ? (const void *)said : err.text, ok ? sizeof said : strlen(err.text));
    rg_ids_fini(&ids);
}

/* As the engine shows ids one by one: bytes, of which whole characters are let out. */
static void stream(const rg_tokenizer *t, const int32_t *ids, size_t n)
{
    static const char none[] = "its decoder looks at the text as a whole";
    const rg_spelling *z = rg_tokenizer_spelling(t);
    rg_speller s = rg_speller_begin(z, false);
    rg_buf all, shown;
    rg_string part;

    if (!rg_tokenizer_streams(t)) {
        answer(false, none, strlen(none));
        return;
    }
    rg_buf_init(&all, 1 << 30);
    rg_buf_init(&shown, 1 << 30);
    for (size_t i = 0; i <= n; i++)
        while (rg_speller_next(z, &s, ids, (int32_t)i, i == n, &part))
            rg_buf_add(&all, part.data, part.n);
    rg_utf8_lossy(&shown, all.data ? all.data : "", all.n);
    answer(!all.failed && !shown.failed, shown.data ? shown.data : "", shown.n);
    rg_buf_fini(&all);
    rg_buf_fini(&shown);
}

static void decode(const rg_tokenizer *t, char op, const int32_t *ids, size_t n)
{
    rg_error err = { 0 };
    size_t n_text = 0;
    char *text = rg_tokenizer_decode(t, ids, n, op == 's', &n_text, &err);

    if (text)
        answer(true, text, n_text);
    else
        answer(false, err.text, strlen(err.text));
    rg_free(text);
}

static void open_path(const char *path, size_t n)
{
    rg_error err = { 0 };
    char name[4096];

    snprintf(name, sizeof name, "%.*s", (int)n, path);
    rg_tokenizer_close(tokenizer);
    tokenizer = rg_tokenizer_open_path(name, &err);
    answer(tokenizer, err.text, tokenizer ? 0 : strlen(err.text));
}

static void question(char op, const char *data, size_t n)
{
    int32_t *ids;

    if (op == 'o') {
        open_path(data, n);
    } else if (!tokenizer) {
        answer(false, "nothing is open", 15);
    } else if (op == 't') {
        timed(tokenizer, data, n);
    } else if (op == 'd' || op == 's' || op == 'f') {
        ids = malloc(n + 1); /* aligned */
        memcpy(ids, data, n);
        if (op == 'f')
            stream(tokenizer, ids, n / sizeof *ids);
        else
            decode(tokenizer, op, ids, n / sizeof *ids);
        free(ids);
    } else {
        encode(tokenizer, op, data, n);
    }
}

static void questions(const char *data, size_t n)
{
    uint32_t size;

    for (size_t at = 0; at + HEAD <= n; at += HEAD + size) {
        memcpy(&size, data + at + 1, sizeof size);
        if (size > n - at - HEAD)
            return;
        question(data[at], data + at + HEAD, size);
    }
}

int main(void)
{
    char *in = NULL;
    size_t room = 0;
    uint32_t n;

    rg_buf_init(&answers, ANSWERS_BYTES);
    for (int op; (op = getchar()) != EOF && fread(&n, sizeof n, 1, stdin) == 1;) {
        if (n + 1 > room)
            in = realloc(in, room = (size_t)n + 1);
        if (!in || fread(in, 1, n, stdin) != n)
            return 1;
        answers.n = 0;
        if (op == 'm') {
            questions(in, n);
            uint32_t size = (uint32_t)answers.n;
            putchar(true);
            fwrite(&size, sizeof size, 1, stdout);
        } else {
            question((char)op, in, n);
        }
        if (answers.failed)
            return 1;
        fwrite(answers.data, 1, answers.n, stdout);
        fflush(stdout);
    }
    rg_tokenizer_close(tokenizer);
    rg_buf_fini(&answers);
    free(in);
    return 0;
}
