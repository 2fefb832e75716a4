/* actor.h -- a checkpoint that says a script, whatever it is asked, and a server over it; for tests of what is made of a
 * model's words. */
#ifndef RG_TEST_ACTOR_H
#define RG_TEST_ACTOR_H

#include "server/live.h"

#include <sys/stat.h>

#include "base/buf.h"

/* ---- a checkpoint that says a script: GPT-2 whose position vectors choose the next token --------------------------- */

enum { WIDTH = 320, HEADS = 5, POSITIONS = 1024, MAX_ADDED = 24, INNER = 16 };

typedef struct actor {
    const char *template, *script;
    const char *marks[MAX_ADDED]; /* tokens of their own, special; the first ends an answer */
} actor;

#ifndef ACTOR_FOLDER
#define ACTOR_FOLDER "actor" /* within the build's folder; one for each program that writes checkpoints */
#endif

static char folder[600];

static inline void write_file(const char *name, const char *text)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    test_write_text(path, text);
}

static inline int n_marks(const actor *a, bool bytes)
{
    int n = 0;

    while (n < MAX_ADDED && a->marks[n])
        n++;
    return bytes ? 1 : n;
}

/* The character that stands for a byte in a byte-level vocabulary, as JSON. */
static inline void put_byte(rg_buf *b, int byte, int *others)
{
    bool own = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    unsigned code = own ? (unsigned)byte : 256 + (unsigned)(*others)++;

    if (code == '"' || code == '\\')
        rg_buf_printf(b, "\\%c", (char)code);
    else
        rg_buf_printf(b, "\\u%04x", code);
}

static inline void write_tokenizer(const actor *a, bool bytes)
{
    rg_buf b;
    int others = 0;

    rg_buf_init(&b, 1 << 20);
    rg_buf_str(&b, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (int i = 0; i < n_marks(a, bytes); i++) {
        rg_buf_printf(&b, "%s{\"id\":%d,\"content\":\"", i ? "," : "", 256 + i);
        for (const char *s = a->marks[i]; *s; s++)
            rg_buf_printf(&b, *s == '"' ? "\\%c" : "%c", *s);
        rg_buf_str(&b, "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
    }
    rg_buf_str(&b,
               "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
               "\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
               "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"fuse_unk\":false,\"byte_fallback\":false,"
               "\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        rg_buf_str(&b, i ? ",\"" : "\"");
        put_byte(&b, i, &others);
        rg_buf_printf(&b, "\":%d", i);
    }
    rg_buf_str(&b, "},\"merges\":[]}}");
    write_file("tokenizer.json", b.data);
    rg_buf_fini(&b);
}

/* Ids of the script, its end included. */
static inline int script_ids(const actor *a, bool bytes, int *ids)
{
    int n = 0;

    for (const char *s = a->script; *s;) {
        int best = -1;
        for (int i = 0; i < n_marks(a, bytes); i++)
            if (!strncmp(s, a->marks[i], strlen(a->marks[i])) && (best < 0 || strlen(a->marks[i]) > strlen(a->marks[best])))
                best = i;
        ids[n++] = best < 0 ? (unsigned char)*s : 256 + best;
        s += best < 0 ? 1 : strlen(a->marks[best]);
    }
    ids[n++] = 256;
    return n;
}

/* One tensor: `fill` on the diagonal, or everywhere. */
typedef struct tensor {
    char name[40];
    int rows, columns; /* rows 0: a vector */
    float diagonal, all;
} tensor;

static inline void write_weights(const actor *a, bool bytes, int at)
{
    const tensor all[] = {
        { "transformer.wte.weight", 256 + n_marks(a, bytes), WIDTH, 1, 0 },
        { "transformer.wpe.weight", POSITIONS, WIDTH, 0, 0 },
        { "transformer.ln_f.weight", 0, WIDTH, 0, 3 },
        { "transformer.ln_f.bias", 0, WIDTH, 0, 0 },
        { "transformer.h.0.ln_1.weight", 0, WIDTH, 0, 1 },
        { "transformer.h.0.ln_1.bias", 0, WIDTH, 0, 0 },
        { "transformer.h.0.ln_2.weight", 0, WIDTH, 0, 1 },
        { "transformer.h.0.ln_2.bias", 0, WIDTH, 0, 0 },
        { "transformer.h.0.attn.c_attn.weight", WIDTH, 3 * WIDTH, 0, 0 },
        { "transformer.h.0.attn.c_attn.bias", 0, 3 * WIDTH, 0, 0 },
        { "transformer.h.0.attn.c_proj.weight", WIDTH, WIDTH, 0, 0 },
        { "transformer.h.0.attn.c_proj.bias", 0, WIDTH, 0, 0 },
        { "transformer.h.0.mlp.c_fc.weight", WIDTH, INNER, 0, 0 },
        { "transformer.h.0.mlp.c_fc.bias", 0, INNER, 0, 0 },
        { "transformer.h.0.mlp.c_proj.weight", INNER, WIDTH, 0, 0 },
        { "transformer.h.0.mlp.c_proj.bias", 0, WIDTH, 0, 0 },
    };
    int ids[POSITIONS], n = script_ids(a, bytes, ids);
    char path[700];
    size_t offset = 0;
    rg_buf head;

    assert_true(at + n < POSITIONS);
    rg_buf_init(&head, 1 << 16);
    for (size_t i = 0; i < RG_LEN(all); i++) {
        size_t size = (size_t)(all[i].rows ? all[i].rows : 1) * (size_t)all[i].columns * sizeof(float);
        char shape[40];
        snprintf(shape, sizeof shape, all[i].rows ? "%d,%d" : "%d", all[i].rows ? all[i].rows : all[i].columns, all[i].columns);
        rg_buf_printf(&head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", i ? "," : "{", all[i].name,
                      shape, offset, offset + size);
        offset += size;
    }
    rg_buf_str(&head, "}");
    while (head.n % 8)
        rg_buf_str(&head, " ");
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "wb");
    uint64_t n_head = head.n;
    assert_non_null(f);
    fwrite(&n_head, sizeof n_head, 1, f);
    fwrite(head.data, 1, head.n, f);
    for (size_t i = 0; i < RG_LEN(all); i++)
        for (int r = 0; r < (all[i].rows ? all[i].rows : 1); r++)
            for (int c = 0; c < all[i].columns; c++) {
                bool says = i == 1 && r >= at && c == ids[r - at < n ? r - at : n - 1];
                float v = says ? 30 : all[i].rows && r == c && all[i].diagonal > 0 ? all[i].diagonal : all[i].all;
                fwrite(&v, sizeof v, 1, f);
            }
    assert_int_equal(fclose(f), 0);
    rg_buf_fini(&head);
}

static inline void write_actor(const actor *a, bool bytes, int at)
{
    char text[1000];

    snprintf(folder, sizeof folder, "%s/" ACTOR_FOLDER, RG_BUILD_DIR);
    mkdir(folder, 0777);
    write_tokenizer(a, bytes);
    snprintf(text, sizeof text,
             "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\",\"vocab_size\":%d,\"n_positions\":%d,"
             "\"n_ctx\":%d,\"n_embd\":%d,\"n_layer\":1,\"n_head\":%d,\"n_inner\":%d,\"activation_function\":\"gelu_new\","
             "\"layer_norm_epsilon\":1e-5,\"bos_token_id\":256,\"eos_token_id\":256,\"tie_word_embeddings\":true,"
             "\"torch_dtype\":\"float32\"}",
             256 + n_marks(a, bytes), POSITIONS, POSITIONS, WIDTH, HEADS, INNER);
    write_file("config.json", text);
    write_file("generation_config.json", "{\"eos_token_id\":256}");
    write_file("tokenizer_config.json", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}");
    write_file("chat_template.jinja", a->template);
    write_weights(a, bytes, at);
}

static inline void serve(test_server *t, const char *tool_format)
{
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    o.tool_format = tool_format;
    e.n_threads = 1;
    e.kv_bytes = (size_t)16 << 20;
    rg_engine *engine = rg_open(folder, &e, &err);
    assert_ok(engine, err);
    test_server_start_with(t, &o, engine);
}

#endif
