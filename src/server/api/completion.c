/* completion.c -- POST /completion, /completions and /infill, as llama-server has them: the request of completions
 * with more fields, and answers that say everything about themselves. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "server/api/fim.h"
#include "server/api/native.h"
#include "server/api/timings.h"

static const rg_kept_id *ids_of(const rg_choice *ch)
{
    return (const rg_kept_id *)(const void *)ch->ids.data;
}

static size_t n_ids(const rg_choice *ch)
{
    return ch->ids.n / sizeof(rg_kept_id);
}

static int32_t prompt_of(const rg_call *c, const rg_choice *ch)
{
    return (int32_t)(ch->index / c->f.n);
}

/* ---- probabilities ----------------------------------------------------------------------------------------------- */

static void write_id(rg_buf *b, const rg_call *c, int32_t id, float logprob)
{
    size_t n;
    const char *s = rg_id_bytes(c->served->engine, id, false, &n);

    rg_out_int(b, "id", id);
    rg_out_string(b, "token", s, n);
    rg_out_open(b, "bytes", '[');
    for (size_t i = 0; i < n; i++)
        rg_out_int(b, NULL, (unsigned char)s[i]);
    rg_out_close(b, ']');
    if (c->f.post_sampling)
        rg_out_real(b, "prob", exp((double)logprob));
    else
        rg_out_real(b, "logprob", (double)logprob);
}

/* Write probabilities of the answer's ids [from, to).  An id that cannot be drawn has none, and is left out. */
static void write_probs(rg_buf *b, const rg_call *c, const rg_choice *ch, size_t from, size_t to)
{
    rg_out_open(b, "completion_probabilities", '[');
    for (size_t i = from; i < to && i < rg_choice_n_logprobs(ch); i++) {
        const rg_logprob *l = rg_choice_logprob(ch, i);
        const rg_top *top = rg_choice_tops(ch, l);

        rg_out_open(b, NULL, '{');
        write_id(b, c, l->id, l->logprob);
        rg_out_open(b, c->f.post_sampling ? "top_probs" : "top_logprobs", '[');
        for (int k = 0; k < l->n_top; k++)
            if (!c->f.post_sampling || exp((double)top[k].logprob) > 0) {
                rg_out_open(b, NULL, '{');
                write_id(b, c, top[k].id, top[k].logprob);
                rg_out_close(b, '}');
            }
        rg_out_close(b, ']');
        rg_out_close(b, '}');
    }
    rg_out_close(b, ']');
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static int64_t slot_of(const rg_call *c)
{
    int64_t id;

    return rg_json_whole(json_object_get(c->body, "id_slot"), &id) && id >= 0 ? id : 0;
}

static void write_tokens(rg_buf *b, const rg_choice *ch, size_t from, size_t to)
{
    rg_out_open(b, "tokens", '[');
    for (size_t i = from; i < to; i++)
        rg_out_int(b, NULL, ids_of(ch)[i].id);
    rg_out_close(b, ']');
}

static const char *text_of(const rg_choice *ch)
{
    return ch->text.data ? ch->text.data : "";
}

static void write_prompt(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    const rg_prompt *p = &c->prompts[prompt_of(c, ch)];
    size_t n = 0;
    char *text = rg_decode(c->served->engine, p->ids, p->n, false, &n, NULL);

    rg_out_string(b, "prompt", text ? text : "", n);
    rg_text_free(text);
}

static const char *stop_type(const rg_choice *ch)
{
    if (rg_finish_is_cut(ch))
        return "limit";
    return ch->finish == RG_RUNNING ? "none" : ch->stop >= 0 ? "word" : "eos";
}

/* All that an answer says of itself, once it has ended. */
static void write_end(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    const rg_prompt *p = &c->prompts[prompt_of(c, ch)];
    const bool full =
        ch->finish == RG_FINISH_LENGTH && p->n + (size_t)ch->n_tokens >= (size_t)c->served->info.max_seq_len;
    rg_timings t = rg_call_timings(c, prompt_of(c, ch));

    rg_out_int(b, "id_slot", slot_of(c));
    rg_out_bool(b, "stop", true);
    rg_out_text(b, "model", rg_call_model(c));
    rg_out_int(b, "tokens_predicted", ch->n_tokens);
    rg_out_int(b, "tokens_evaluated", (int64_t)p->n);
    rg_native_settings(b, "generation_settings", c->served, c);
    write_prompt(b, c, ch);
    rg_out_bool(b, "has_new_line", ch->text.n && memchr(ch->text.data, '\n', ch->text.n));
    rg_out_bool(b, "truncated", full);
    rg_out_text(b, "stop_type", stop_type(ch));
    rg_out_text(b, "stopping_word", ch->finish == RG_FINISH_STOP && ch->stop >= 0 ? c->f.stop[ch->stop] : "");
    rg_out_int(b, "tokens_cached", (int64_t)p->n + ch->n_tokens);
    t.n_predicted = ch->n_tokens;
    rg_write_timings(b, &t);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void open_part(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    rg_event_open(b, c->family, NULL);
    rg_out_open(b, NULL, '{');
    rg_out_int(b, "index", ch->index);
}

static void close_part(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    rg_out_bool(b, "stop", false);
    rg_out_int(b, "id_slot", slot_of(c));
    rg_out_int(b, "tokens_predicted", ch->n_tokens);
    rg_out_int(b, "tokens_evaluated", (int64_t)c->prompts[prompt_of(c, ch)].n);
    if (c->f.timings_always) {
        rg_timings t = rg_call_timings(c, prompt_of(c, ch));
        rg_write_timings(b, &t);
    }
    rg_out_close(b, '}');
    rg_event_close(b, c->family);
}

/* Ids [sent, to) with their text. */
static void send_ids(rg_call *c, rg_choice *ch, rg_buf *b, size_t to)
{
    size_t end = to == n_ids(ch) && ch->finish == RG_RUNNING ? ch->text.n : ids_of(ch)[to - 1].end;

    open_part(b, c, ch);
    rg_out_string(b, "content", text_of(ch) + ch->sent_text, end - ch->sent_text);
    write_tokens(b, ch, ch->sent_ids, to);
    if (c->f.n_logprobs >= 0)
        write_probs(b, c, ch, ch->sent_ids, to);
    close_part(b, c, ch);
    ch->sent_text = end;
    ch->sent_ids = to;
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *b)
{
    while (ch->sent_ids < n_ids(ch))
        send_ids(c, ch, b, c->f.n_logprobs >= 0 ? ch->sent_ids + 1 : n_ids(ch));
    if (ch->finish == RG_RUNNING || ch->ended)
        return;
    ch->ended = true;
    open_part(b, c, ch);
    rg_out_string(b, "content", text_of(ch) + ch->sent_text, ch->text.n - ch->sent_text);
    write_tokens(b, ch, 0, 0);
    write_end(b, c, ch);
    rg_out_close(b, '}');
    rg_event_close(b, c->family);
}

static void progress(rg_call *c, rg_buf *b)
{
    open_part(b, c, &c->choices[0]);
    rg_out_text(b, "content", "");
    write_tokens(b, &c->choices[0], 0, 0);
    rg_write_progress(b, c);
    close_part(b, c, &c->choices[0]);
}

/* The last events of the choices end the stream. */
static void stop(rg_call *c, rg_buf *b)
{
    (void)c;
    (void)b;
}

/* ---- whole answers ----------------------------------------------------------------------------------------------- */

static void write_answer(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    rg_out_open(b, NULL, '{');
    rg_out_int(b, "index", ch->index);
    rg_out_string(b, "content", text_of(ch), ch->text.n);
    write_tokens(b, ch, 0, c->f.return_tokens ? n_ids(ch) : 0);
    if (c->f.n_logprobs >= 0)
        write_probs(b, c, ch, 0, n_ids(ch));
    write_end(b, c, ch);
    rg_out_close(b, '}');
}

/* What stands at a path such as "generation_settings/seed"; NULL: nothing does. */
static json_t *at_path(json_t *v, const char *path)
{
    char key[100];

    while (v && *path) {
        size_t n = strcspn(path, "/");

        if (n >= sizeof key)
            return NULL;
        memcpy(key, path, n);
        key[n] = 0;
        v = json_object_get(v, key);
        path += n + (path[n] == '/');
    }
    return v;
}

/* response_fields: of an answer, the members that are wanted, under their paths. */
static void write_picked(rg_buf *b, const rg_call *c, const rg_choice *ch, const json_t *fields)
{
    rg_buf all;

    rg_buf_init(&all, b->cap);
    write_answer(&all, c, ch);
    json_t *v = all.failed ? NULL : rg_json_load(all.data, all.n, JSON_ALLOW_NUL, NULL);
    b->failed |= !v;
    rg_out_open(b, NULL, '{');
    for (size_t i = 0; v && i < json_array_size(fields); i++) {
        const char *path = json_string_value(json_array_get(fields, i));
        json_t *member = at_path(v, path);
        if (member)
            rg_out_value(b, path, member);
    }
    rg_out_close(b, '}');
    json_decref(v);
    rg_buf_fini(&all);
}

static void whole(rg_call *c, rg_buf *b)
{
    const json_t *fields = json_object_get(c->body, "response_fields");
    const json_t *prompt = json_object_get(c->body, "prompt");
    bool list =
        c->n_choices > 1 || (json_is_array(prompt) && !json_is_number(json_array_get(prompt, 0)) && c->n_prompts > 1);

    if (list)
        rg_out_open(b, NULL, '[');
    for (int32_t i = 0; i < c->n_choices; i++)
        if (json_array_size(fields))
            write_picked(b, c, &c->choices[i], fields);
        else
            write_answer(b, c, &c->choices[i]);
    if (list)
        rg_out_close(b, ']');
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static bool check_fields(const rg_call *c, rg_refusal *e)
{
    const json_t *fields = json_object_get(c->body, "response_fields");
    bool ok = !fields || json_is_array(fields);

    for (size_t i = 0; i < json_array_size(fields); i++)
        ok = ok && json_is_string(json_array_get(fields, i));
    return ok || rg_refuse_field(e, "response_fields", "'response_fields' must be a list of names.");
}

/* Without a token to generate the prompt alone is computed. */
static void prefill_only(rg_call *c)
{
    if (c->f.max_completion_tokens == 0 && c->f.n_prompt_tops < 0)
        c->f.n_prompt_tops = 0;
}

static bool read_completion(rg_call *c, rg_refusal *e)
{
    bool is_list;

    prefill_only(c);
    return check_fields(c, e) && rg_native_read(c, e) && rg_native_prompts(c, &is_list, e);
}

#define NATIVE                                                                                                         \
    .api = RG_API_COMPLETIONS | RG_API_NATIVE, .id_prefix = "cmpl-", .input = "prompt", .keeps_ids = true,             \
    .adapt = rg_native_adapt, .delta = delta, .progress = progress, .stop = stop, .whole = whole

static const rg_shape completion = { NATIVE, .read = read_completion };

void rg_api_completion(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &completion);
}

/* ---- infill ------------------------------------------------------------------------------------------------------ */

enum { MOST_FILES = 256 };

/* input_extra: [{filename, text}], where a file may have no name. */
static bool read_files(const rg_call *c, rg_fim_file files[MOST_FILES], size_t *n, rg_refusal *e)
{
    const json_t *list = json_object_get(c->body, "input_extra");

    *n = json_array_size(list);
    if ((list && !json_is_null(list) && !json_is_array(list)) || *n > MOST_FILES)
        return rg_refuse_field(e, "input_extra", "'input_extra' must be a list of at most %d files.", MOST_FILES);
    for (size_t i = 0; i < *n; i++) {
        const json_t *one = json_array_get(list, i), *name = json_object_get(one, "filename");
        const json_t *text = json_object_get(one, "text");

        if (!json_is_string(text) || (name && !json_is_string(name)))
            return rg_refuse_field(e, "input_extra",
                                   "'input_extra' must hold objects with a 'text' and perhaps a "
                                   "'filename', both strings.");
        files[i] = (rg_fim_file){ name ? json_string_value(name) : "tmp", json_string_value(text) };
    }
    return true;
}

static bool read_text(const rg_call *c, const char *key, bool needed, const char **text, rg_refusal *e)
{
    const json_t *v = json_object_get(c->body, key);

    *text = json_is_string(v) ? json_string_value(v) : "";
    if (json_is_string(v) || (!needed && (!v || json_is_null(v))))
        return true;
    return rg_refuse_field(e, key, "'%s' must be a string.", key);
}

static bool read_infill(rg_call *c, rg_refusal *e)
{
    rg_fim_file files[MOST_FILES];
    rg_fim_prompt prompt = { .files = files };

    prefill_only(c);
    if (!check_fields(c, e) || !rg_native_read(c, e) || !read_files(c, files, &prompt.n_files, e) ||
        !read_text(c, "input_prefix", true, &prompt.prefix, e) ||
        !read_text(c, "input_suffix", true, &prompt.suffix, e) || !read_text(c, "prompt", false, &prompt.start, e))
        return false;
    return rg_fim_take(c, &prompt, e);
}

static const rg_shape infill = { NATIVE, .read = read_infill };

void rg_api_infill(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &infill);
}
