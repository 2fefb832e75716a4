/* json.c -- see json.h.
 *
 * The text is handed over in pieces, of at most a kilobyte, so that after a refusal little more is read; what jansson
 * asks for until then comes from memory that was set aside before. */
#include "base/json.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

enum {
    PIECE = 1024,   /* jansson's buffer: what it still reads after a refusal */
    PER_BYTE = 256, /* what a byte of text makes at most: "{" is an object and its table */
    MORE = 4096,
};

/* Before main, so that no object is born of one allocator and freed by another. */
__attribute__((constructor)) static void allocate_from_base(void)
{
    json_set_alloc_funcs(rg_alloc, rg_free);
}

typedef struct feed {
    const char *text;
    size_t left;
} feed;

static size_t give(void *buffer, size_t room, void *arg)
{
    feed *f = arg;
    size_t n = f->left < room ? f->left : room;

    if (rg_mem_refused())
        return SIZE_MAX;
    memcpy(buffer, f->text, n);
    f->text += n;
    f->left -= n;
    return n;
}

/* No token is longer: a string and its quotes, or what stands between delimiters, with the one before it. */
static size_t longest_token(const char *text, size_t n)
{
    size_t longest = 0;

    for (size_t at = 0, from; at < n;) {
        from = at++;
        if (text[from] == '"') {
            while (at < n && text[at] != '"')
                at += text[at] == '\\' ? 2 : 1;
            at = at < n ? at + 1 : n;
        } else {
            while (at < n && !strchr(",:[]{}\" \t\r\n", text[at]))
                at++;
        }
        longest = at - from > longest ? at - from : longest;
    }
    return longest;
}

json_t *rg_json_load(const char *text, size_t n, size_t flags, json_error_t *why)
{
    feed f = { text, n };
    size_t most, bytes; /* a token's buffer is doubled, or as long as the token */
    bool refused = !rg_head_and_items(MORE, longest_token(text, n), 4, &most) ||
                   !rg_head_and_items((n < PIECE ? n : PIECE) * PER_BYTE, 2, most, &bytes) ||
                   !rg_mem_reserve(bytes, most);
    json_t *v = refused ? NULL : json_load_callback(give, &f, flags, why);

    if (!refused && rg_mem_refused()) {
        json_decref(v);
        v = NULL;
        refused = true;
    }
    rg_mem_unreserve();
    if (refused && why) {
        memset(why, 0, sizeof *why);
        why->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory; /* where json_error_code looks */
    }
    return v;
}
