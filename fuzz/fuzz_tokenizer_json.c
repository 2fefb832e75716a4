/* fuzz_tokenizer_json.c -- any bytes as a tokenizer.json: refused cleanly, or good for encoding a sentence. */
#include "fuzz.h"

#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char dir[] = "/tmp/ridge-fuzz-XXXXXX", path[64];
    static const char text[] = "Hello <0x41> world\xe2\x96\x81  1234 \xf0\x9f\x99\x82";
    rg_ids ids = { 0 };

    if (!path[0]) {
        if (!mkdtemp(dir))
            abort();
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
    size_t live = rg_mem_count().n_live;
    rg_tokenizer *t = rg_tokenizer_open_path(path, NULL);
    if (t && rg_tokenizer_encode(t, text, strlen(text), RG_ENCODE_DEFAULT, &ids, NULL)) {
        const rg_spelling *z = rg_tokenizer_spelling(t);
        rg_speller s = rg_speller_begin(z, false);
        rg_string part;
        size_t m, shown = 0, room = ids.n * rg_spelling_room(z);
        for (size_t i = 0; i < ids.n; i++)
            if (ids.id[i] < 0 || ids.id[i] >= rg_tokenizer_size(t))
                abort();
        while (rg_speller_next(z, &s, ids.id, (int32_t)ids.n, true, &part))
            if ((shown += part.n) > room)
                abort();
        rg_free(rg_tokenizer_decode(t, ids.id, ids.n, n & 1, &m, NULL));
    }
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
