/* fuzz_http_head.c -- any bytes as a request: the same is read however they are cut, in bounded memory, and what is taken
 * for a request says where it ends in one way only. */
#include "fuzz.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "server/http/head.h"

enum { MOST = 4096 };

typedef struct outcome {
    int head, body; /* statuses of faults */
    bool done, body_done;
    size_t used, n_body;
    uint64_t hash; /* of the body */
} outcome;

/* Feed data in pieces of `step` bytes. */
static outcome read_all(const char *data, size_t n, size_t step)
{
    static rg_head h;
    rg_chunks k;
    outcome o = { 0 };

    rg_head_init(&h, MOST);
    while (o.used < n && !h.done && !h.fault.status)
        o.used += rg_head_feed(&h, data + o.used, step < n - o.used ? step : n - o.used);
    o.head = h.fault.status;
    o.done = h.done;
    if (h.text.n > MOST || (h.done && h.fault.status))
        abort();
    if (h.done) {
        int n_lengths = 0;
        for (int32_t i = 0; i < h.n_fields; i++) {
            const char *name = h.text.data + h.field[i].name, *value = h.text.data + h.field[i].value;
            if (strpbrk(name, " \t\r\n:") || strpbrk(value, "\r\n"))
                abort();
            n_lengths += !strcasecmp(name, "Content-Length") || !strcasecmp(name, "Transfer-Encoding");
        }
        if (n_lengths > 1 || (h.chunked && h.length) || !h.path || !*h.method || (h.minor && !h.host))
            abort();
        (void)rg_head_arg(&h, "a");
    }
    rg_chunks_init(&k);
    while (h.done && h.chunked && o.used < n && !k.done && !k.fault.status) {
        const char *body;
        size_t n_body, used;
        used = rg_chunks_feed(&k, data + o.used, step < n - o.used ? step : n - o.used, &body, &n_body);
        for (size_t i = 0; i < n_body; i++)
            o.hash = o.hash * 31 + (uint8_t)body[i];
        o.n_body += n_body;
        o.used += used;
        if (!used && !k.fault.status)
            abort();
    }
    o.body = k.fault.status;
    o.body_done = k.done;
    rg_head_fini(&h);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t live = rg_mem_count().n_live;
    outcome whole = read_all((const char *)data, n, n ? n : 1);

    for (size_t step = 1; step < 8; step += 3) {
        outcome cut = read_all((const char *)data, n, step);
        if (cut.done != whole.done || !cut.head != !whole.head || cut.body_done != whole.body_done ||
            cut.hash != whole.hash || cut.n_body != whole.n_body || (whole.done && cut.body != whole.body) ||
            ((whole.body_done || (whole.done && !whole.body)) && cut.used != whole.used))
            abort();
    }
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
