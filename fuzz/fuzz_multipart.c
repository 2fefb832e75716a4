/* fuzz_multipart.c -- any bytes as a boundary, a zero, and a body of parts: each part lies within the body. */
#include "fuzz.h"

#include <string.h>

#include "server/http/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *end = memchr(data, 0, n < 200 ? n : 200);
    rg_part part[RG_MULTIPART_MOST];
    char type[300];

    if (!end)
        return 0;
    snprintf(type, sizeof type, "multipart/form-data; boundary=%s", (const char *)data);
    const size_t n_body = n - (size_t)(end + 1 - data);
    char *body = malloc(n_body ? n_body : 1); /* its end is checked */
    if (!body)
        abort();
    memcpy(body, end + 1, n_body);
    const int n_parts = rg_multipart_read(type, body, n_body, part);
    if (n_parts < -1 || n_parts > RG_MULTIPART_MOST)
        abort();
    for (int i = 0; i < n_parts; i++) {
        const rg_part *p = &part[i];
        if (p->data < body || p->n > (size_t)(body + n_body - p->data) || p->name < body ||
            p->n_name > (size_t)(body + n_body - p->name) ||
            (p->filename && (p->filename < body || p->n_filename > (size_t)(body + n_body - p->filename))))
            abort();
    }
    (void)rg_multipart_find(part, n_parts > 0 ? n_parts : 0, "file");
    free(body);
    return 0;
}
