/* fuzz_jinja.c -- any bytes as a chat template: refused cleanly, or rendered twice to the same text, within budget. */
#include "fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "ckpt/json.h"
#include "text/jinja.h"

static json_t *variables(const char *text)
{
    json_t *v = rg_json_parse("variables", text, strlen(text), NULL);

    if (!v)
        abort();
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static json_t *trusted, *foreign;
    rg_text out[2];
    bool ok[2];

    if (!trusted) {
        trusted = variables("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
        foreign = variables("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi \\u00e9 <b>\", \"n\": 1.5},"
                            " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\","
                            " \"arguments\": {\"a\": [1, true, \"x\\ny\"]}}}]}], \"tools\": [{\"a\": {\"b\": \"c\"}}],"
                            " \"x\": [3, 1, 2], \"add_generation_prompt\": true}");
    }
    size_t live = rg_mem_count().n_live;
    rg_jinja *j = rg_jinja_parse((const char *)data, n, NULL);
    for (int i = 0; j && i < 2; i++) {
        rg_text_init(&out[i], 1 << 20);
        ok[i] = rg_jinja_render(j, &(rg_jinja_input){ trusted, foreign, 1752580800 }, &out[i], NULL);
    }
    if (j) {
        if (ok[0] != ok[1] || out[0].bytes.n != out[1].bytes.n || out[0].n_runs != out[1].n_runs ||
            (out[0].bytes.n && memcmp(out[0].bytes.data, out[1].bytes.data, out[0].bytes.n)))
            abort();
        if (out[0].bytes.n && !rg_utf8_valid(out[0].bytes.data, out[0].bytes.n))
            abort();
        if (out[0].bytes.n && out[0].run[out[0].n_runs - 1].end != out[0].bytes.n)
            abort();
        rg_text_fini(&out[0]);
        rg_text_fini(&out[1]);
    }
    rg_jinja_free(j);
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
