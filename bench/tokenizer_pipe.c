/* tokenizer_pipe.c -- one tokenizer after another, asked over pipes: for scripts that compare many texts with other
 * libraries (scripts/compare-tokenizers), where a process per text would cost more than the work.
 *
 * A question is a byte and a length (u32, little-endian) and so many bytes; an answer is a byte (0: failed, and the rest
 * is why) and likewise.
 *   'o' path          open; '+' without specials, 'p' foreign, 'e' as it comes: text -> i32 ids
 *   't' text: encode it and tell nanoseconds and the number of ids (u64 each)
 *   'd' ids, 's' ids  decode, the latter without special tokens;   'f' ids: what a stream of them shows */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

static void answer(bool ok, const void *p, size_t n)
{
    uint32_t size = (uint32_t)n;

    fputc(ok, stdout);
    fwrite(&size, sizeof size, 1, stdout);
    fwrite(p, 1, n, stdout);
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
    rg_buf all, shown;
    bool first = true;

    rg_buf_init(&all, 1 << 30);
    rg_buf_init(&shown, 1 << 30);
    for (size_t i = 0; i < n; i++) {
        rg_string s = rg_tokenizer_shown(t, ids[i], first);
        rg_buf_add(&all, s.data, s.n);
        first &= !rg_tokenizer_shown(t, ids[i], false).n;
    }
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

int main(void)
{
    rg_tokenizer *t = NULL;
    char *in = NULL;
    size_t room = 0;
    uint32_t n;

    for (int op; (op = getchar()) != EOF && fread(&n, sizeof n, 1, stdin) == 1;) {
        if (n + 1 > room)
            in = realloc(in, room = (size_t)n + 1);
        if (!in || fread(in, 1, n, stdin) != n)
            return 1;
        in[n] = '\0';
        if (op == 'o') {
            rg_error err = { 0 };
            rg_tokenizer_close(t);
            t = rg_tokenizer_open_path(in, &err);
            answer(t, err.text, t ? 0 : strlen(err.text));
        } else if (!t) {
            answer(false, "nothing is open", 15);
        } else if (op == 't') {
            timed(t, in, n);
        } else if (op == 'd' || op == 's') {
            decode(t, (char)op, (const int32_t *)(const void *)in, n / sizeof(int32_t));
        } else if (op == 'f') {
            stream(t, (const int32_t *)(const void *)in, n / sizeof(int32_t));
        } else {
            encode(t, (char)op, in, n);
        }
        fflush(stdout);
    }
    rg_tokenizer_close(t);
    free(in);
    return 0;
}
