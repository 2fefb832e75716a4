/* fuzz_render_large.c -- a few bytes choose templates and the length of a text near a budget, by up to 32 KiB: each render
 * gives whole characters or an error in words, within the budget, and leaves nothing behind. */
#include "fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "../tests/text/large.h"

enum { MOST_PIECES = 4 };

/* Up to four of the templates, one behind the other. */
static size_t choose(const uint8_t *data, size_t n, char *source, size_t room)
{
    size_t at = 0;

    for (size_t i = 0; i < n && i < MOST_PIECES; i++) {
        const char *piece = large_templates[data[i] % RG_LEN(large_templates)];
        size_t k = strlen(piece);
        if (at + k > room)
            break;
        memcpy(source + at, piece, k);
        at += k;
    }
    return at;
}

static void render(const char *source, size_t n_source, const json_t *foreign)
{
    rg_error err = { 0 };
    rg_text out;
    rg_jinja *j = rg_jinja_parse(source, n_source, NULL);

    rg_text_init(&out, 1 << 26);
    if (!j)
        abort();
    if (!rg_jinja_render(j, &(rg_jinja_input){ .foreign = foreign }, &out, &err) && !err.text[0])
        abort();
    if (out.bytes.n > RG_JINJA_BYTES || (out.bytes.n && !rg_utf8_valid(out.bytes.data, out.bytes.n)))
        abort();
    rg_text_fini(&out);
    rg_jinja_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t live = rg_mem_count().n_live, length;
    char source[1024];

    if (n < 5)
        return 0;
    length = (size_t)(RG_JINJA_BYTES / large_parts[data[0] % RG_LEN(large_parts)]);
    length += (size_t)(data[2] << 8 | data[3]);
    length = length > 32768 ? length - 32768 : 0;
    json_t *v = large_variables(data[1] % LARGE_KINDS, length);
    if (!v)
        abort();
    render(source, choose(data + 4, n - 4, source, sizeof source), v);
    json_decref(v);
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
