/* embeddings.c -- POST /v1/embeddings: texts or ids in, one vector each, of length 1.
 *
 * An embedding may be cut to its first `dimensions` numbers where the checkpoint says that it was made for that; what
 * is given is normalised after the cut.  Each is written when it is ready, so that a long list of numbers does not
 * delay other calls at the end. */
#include <math.h>
#include <string.h>

#include "server/api/native.h"

static size_t size_of(const rg_call *c)
{
    return (size_t)(c->f.dimensions == RG_NOT_GIVEN ? c->served->info.embed_dim : c->f.dimensions);
}

/* What the values of a vector are divided by: its p-norm (2: its length); 0: so that the largest becomes 32,760, as of
 * 16 bits; -1: nothing. */
static double length(const float *v, size_t n, int64_t p)
{
    double sum = 0, most = 0;

    if (p < 0)
        return 1;
    for (size_t i = 0; i < n; i++) {
        double a = fabs((double)v[i]);
        most = a > most ? a : most;
        sum += p == 2 ? a * a : pow(a, (double)p);
    }
    if (!(most > 0))
        return 1;
    return p == 0 ? most / 32760 : p == 2 ? sqrt(sum) : pow(sum, 1 / (double)p);
}

static void write_numbers(rg_buf *b, const float *v, size_t n, int64_t norm)
{
    double by = length(v, n, norm);

    rg_out_open(b, NULL, '[');
    for (size_t i = 0; i < n; i++)
        rg_out_real(b, NULL, (double)(float)((double)v[i] / by));
    rg_out_close(b, ']');
}

/* Up to three bytes as four characters. */
static void write_base64(rg_buf *b, const unsigned char *in, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = (uint32_t)in[0] << 16 | (uint32_t)(n > 1 ? in[1] : 0) << 8 | (n > 2 ? in[2] : 0);
    const char out[4] = { digits[bits >> 18], digits[bits >> 12 & 63], n > 1 ? digits[bits >> 6 & 63] : '=',
                          n > 2 ? digits[bits & 63] : '=' };

    rg_buf_add(b, out, sizeof out);
}

/* f32, the lowest byte first. */
static void write_packed(rg_buf *b, const float *v, size_t n, int64_t norm)
{
    double by = length(v, n, norm);
    unsigned char held[3];
    size_t n_held = 0;

    rg_buf_add(b, "\"", 1);
    for (size_t i = 0; i < 4 * n; i++) {
        float x = (float)((double)v[i / 4] / by);
        uint32_t bits;

        memcpy(&bits, &x, sizeof bits);
        held[n_held++] = (unsigned char)(bits >> 8 * (i % 4));
        if (n_held == 3 || i + 1 == 4 * n) {
            write_base64(b, held, n_held);
            n_held = 0;
        }
    }
    rg_buf_add(b, "\"", 1);
}

void rg_embeddings_ended(rg_call *c, rg_choice *ch)
{
    int32_t n = 0;
    const float *v = rg_request_embedding(c->requests[ch->index], &n);

    if (!v)
        return; /* cancelled, or too late */
    if (c->f.encoding && !strcmp(c->f.encoding, "base64"))
        write_packed(&ch->text, v, size_of(c), c->f.norm);
    else
        write_numbers(&ch->text, v, size_of(c), c->f.norm);
}

static void whole(rg_call *c, rg_buf *out)
{
    rg_totals t = rg_call_totals(c);

    rg_out_open(out, NULL, '{');
    rg_out_text(out, "object", "list");
    rg_out_open(out, "data", '[');
    for (int32_t i = 0; i < c->n_choices; i++) {
        rg_out_open(out, NULL, '{');
        rg_out_text(out, "object", "embedding");
        rg_out_int(out, "index", i);
        rg_out_raw(out, "embedding", c->choices[i].text.data, c->choices[i].text.n);
        rg_out_close(out, '}');
    }
    rg_out_close(out, ']');
    rg_out_text(out, "model", rg_call_model(c));
    rg_out_open(out, "usage", '{');
    rg_out_int(out, "prompt_tokens", t.n_prompt);
    rg_out_int(out, "total_tokens", t.n_prompt);
    rg_out_close(out, '}');
    rg_out_close(out, '}');
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static bool check_dimensions(const rg_call *c, rg_refusal *e)
{
    const rg_info *info = &c->served->info;
    int64_t n = c->f.dimensions;

    if (n == RG_NOT_GIVEN || n == info->embed_dim || (info->n_embed_sizes < 0 && n < info->embed_dim))
        return true;
    for (int32_t i = 0; i < info->n_embed_sizes; i++)
        if (info->embed_sizes[i] == n)
            return true;
    if (info->n_embed_sizes)
        return rg_refuse_field(e, "dimensions", "'dimensions' is not one that embeddings of this model may be cut to.");
    return rg_refuse_field(e, "dimensions", "'dimensions' must be %d: this model's embeddings are not made to be cut.",
                           (int)info->embed_dim);
}

bool rg_embeddings_read(rg_call *c, rg_refusal *e)
{
    const rg_info *info = &c->served->info;
    bool is_list;

    if (!info->embed)
        return rg_refuse(e, 501, "unsupported_endpoint", NULL, "This model gives no embeddings: %s.",
                         info->embed_refusal);
    return check_dimensions(c, e) && rg_native_prompts(c, &is_list, e);
}

static const rg_shape shape = { .api = RG_API_EMBEDDINGS,
                                .id_prefix = "embd-",
                                .embeds = true,
                                .input = "input",
                                .read = rg_embeddings_read,
                                .ended = rg_embeddings_ended,
                                .whole = whole };

void rg_api_embeddings(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &shape);
}

/* ---- as llama-server has it -------------------------------------------------------------------------------------- */

/* `content` is its older name for `input`. */
static bool adapt_native(rg_call *c, rg_refusal *e)
{
    json_t *content = json_object_get(c->body, "content");

    return !content || json_object_get(c->body, "input") || json_object_set(c->body, "input", content) == 0 ||
           rg_refuse_memory(e);
}

/* Write a list of results.  Each has a list of vectors; pooling leaves one vector in it. */
static void whole_native(rg_call *c, rg_buf *out)
{
    rg_out_open(out, NULL, '[');
    for (int32_t i = 0; i < c->n_choices; i++) {
        rg_out_open(out, NULL, '{');
        rg_out_int(out, "index", i);
        rg_out_open(out, "embedding", '[');
        rg_out_raw(out, NULL, c->choices[i].text.data, c->choices[i].text.n);
        rg_out_close(out, ']');
        rg_out_close(out, '}');
    }
    rg_out_close(out, ']');
}

static const rg_shape native = { .api = RG_API_EMBEDDINGS | RG_API_NATIVE,
                                 .id_prefix = "embd-",
                                 .embeds = true,
                                 .input = "input",
                                 .adapt = adapt_native,
                                 .read = rg_embeddings_read,
                                 .ended = rg_embeddings_ended,
                                 .whole = whole_native };

void rg_api_embedding(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &native);
}
