/* page.c -- GET / and what the page needs.  It loads nothing from elsewhere, and says so to the browser. */
#include <string.h>
#include <strings.h>

#include "server/core.h"
#include "server/page.h"

/* Ollama's own clients ask here whether it runs. */
static bool asks_for_ollama(const rg_exchange *x)
{
    const char *agent = rg_exchange_header(x, "User-Agent"), *accept = rg_exchange_header(x, "Accept");

    return (agent && !strncasecmp(agent, "ollama", 6)) || (accept && !strncmp(accept, "text/plain", 10));
}

void rg_api_page(rg_served *s, rg_exchange *x)
{
    const char *path = rg_exchange_path(x);
    const rg_page_file *f = rg_page_files;
    rg_refusal e;
    rg_buf out;

    if (!strcmp(path, "/") && asks_for_ollama(x)) {
        rg_reply_text(s, x, 200, "text/plain; charset=utf-8", "Ollama is running");
        return;
    }
    while (f->path && strcmp(f->path, path) != 0)
        f++;
    if (!f->path || s->server->o.no_page) {
        rg_refuse(&e, 404, "not_found", NULL, "There is nothing at this path.");
        rg_reply_refusal(s, x, &e);
        return;
    }
    rg_buf_init(&out, f->n);
    rg_buf_add(&out, f->data, f->n);
    rg_exchange_set(x, "Content-Security-Policy",
                    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
                    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    rg_exchange_set(x, "Cache-Control", "no-cache");
    rg_note_answer(s, x, 200);
    rg_exchange_reply(x, 200, f->type, &out);
}
