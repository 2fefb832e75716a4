/* learn.c -- see learn.h. */
#include "server/talk/learn.h"

#include <stdlib.h>

#include "server/talk/inner.h"

#define TOOL                                                                                                           \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"ridge_probe\", \"description\": \"A probe.\", "   \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"ridge_key\": {\"type\": \"integer\", \"description\": " \
    "\"A number.\"}}, \"required\": [\"ridge_key\"]}}}]"
#define USER "{\"role\": \"user\", \"content\": \"Hello\"}"
#define CALL                                                                                                           \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"ridge0001\", \"type\": \"function\", "   \
    "\"function\": {\"name\": \"ridge_probe\", \"arguments\": {\"ridge_key\": 7}}}]}"
#define RESULT                                                                                                         \
    "{\"role\": \"tool\", \"name\": \"ridge_probe\", \"tool_call_id\": \"ridge0001\", "                                \
    "\"content\": \"ridge_result\"}"

enum { MAX_RENDERED = 1 << 20, MAX_SHOWN = 512 };

/* What the template makes of a conversation, after what it made of others.  False: it refuses it. */
static bool add_rendered(const rg_engine *engine, const char *conversation, bool generate, rg_buf *to)
{
    rg_chat_options o = { .no_generation_prompt = !generate };
    rg_json *talk = rg_json_new(conversation, strlen(conversation), NULL);
    int32_t *ids = NULL;
    size_t n;
    char *text = NULL;
    bool ok = talk && rg_chat_encode(engine, talk, &o, &ids, &n, &text, NULL);

    if (ok && text) {
        rg_buf_str(to, text);
        rg_buf_str(to, "\n");
    }
    rg_json_close(talk);
    rg_ids_free(ids);
    rg_text_free(text);
    return ok;
}

/* ---- marks of no family ------------------------------------------------------------------------------------------ */

#define ANSWER(more) "{\"messages\": [" USER ", {\"role\": \"assistant\", " more "}], " TOOL "}"
#define PROBE                                                                                                          \
    "{\"id\": \"ridge0001\", \"type\": \"function\", \"function\": {\"name\": \"" RG_PROBE_NAME                        \
    "\", \"arguments\": {\"" RG_PROBE_KEY "\": 7, \"" RG_PROBE_MORE "\": 8}}}"
#define OTHER                                                                                                          \
    "{\"id\": \"ridge0002\", \"type\": \"function\", \"function\": {\"name\": \"" RG_PROBE_OTHER                       \
    "\", \"arguments\": {\"" RG_PROBE_KEY "\": 9}}}"

static rg_talk_derived *make(const rg_engine *engine)
{
    static const char *const asked[] = {
        ANSWER("\"content\": \"" RG_PROBE_TEXT "\""),
        ANSWER("\"content\": \"" RG_PROBE_TEXT "\", \"reasoning_content\": \"" RG_PROBE_THOUGHT
               "\", \"reasoning\": \"" RG_PROBE_THOUGHT "\", \"thinking\": \"" RG_PROBE_THOUGHT "\""),
        ANSWER("\"content\": \"\", \"tool_calls\": [" PROBE "]"),
        ANSWER("\"content\": \"\", \"tool_calls\": [" PROBE ", " OTHER "]"),
    };
    rg_buf said[RG_LEN(asked)];
    const char *text[RG_LEN(asked)];
    rg_talk_derived *m;

    for (size_t i = 0; i < RG_LEN(asked); i++) {
        rg_buf_init(&said[i], MAX_RENDERED);
        add_rendered(engine, asked[i], false, &said[i]);
        text[i] = said[i].n ? said[i].data : NULL;
    }
    m = rg_talk_make(&(rg_talk_samples){ text[0], text[1], text[2], text[3] });
    for (size_t i = 0; i < RG_LEN(asked); i++)
        rg_buf_fini(&said[i]);
    return m;
}

/* A family that is taken where nothing else fits, and none of its forms is what the template shows. */
static bool is_another(const rg_talk *t, const char *rendered)
{
    static const char *const usual[] = { "hermes", "template", "generic" };
    bool any = false;

    for (size_t i = 0; i < RG_LEN(usual); i++)
        any |= t == rg_talk_named(usual[i]);
    return any && !rg_talk_shows_form(t, rendered);
}

/* Earlier calls stand in the prompt, by their arguments or their ids.  What a template refuses is left to it. */
static bool shows_calls(const rg_engine *engine)
{
    rg_buf b;
    bool rendered, shown;

    rg_buf_init(&b, MAX_RENDERED);
    rendered = add_rendered(engine, "{\"messages\": [" USER ", " CALL ", " RESULT ", " USER "]}", false, &b);
    shown = b.n && (strstr(b.data, "ridge_key") || strstr(b.data, "ridge0001"));
    rg_buf_fini(&b);
    return !rendered || shown;
}

/* Conversations with a call, with a tool, and plain ones. */
static void render_probes(rg_talk_use *use, const rg_engine *engine, rg_buf *to)
{
    size_t from;

    if (!rg_chat_has_template(engine))
        return;
    if (!add_rendered(engine, "{\"messages\": [" USER ", " CALL ", " RESULT "], " TOOL "}", true, to))
        add_rendered(engine, "{\"messages\": [" USER ", " CALL "], " TOOL "}", false, to);
    from = to->n;
    add_rendered(engine, "{\"messages\": [" USER "], " TOOL "}", true, to);
    use->shows_tools = to->n > from && strstr(to->data + from, "ridge_probe");
    use->shows_calls = shows_calls(engine);
    add_rendered(engine, "{\"messages\": [" USER "]}", true, to);
    add_rendered(engine, "{\"messages\": [" USER "], \"enable_thinking\": true, \"thinking\": true}", true, to);
    add_rendered(engine,
                 "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"Hi\", "
                 "\"reasoning_content\": \"Hm\", \"thinking\": \"Hm\"}]}",
                 false, to);
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

/* The vocabulary has this text as one token. */
static bool has_token(void *arg, const char *text)
{
    const rg_engine *engine = arg;
    int32_t *ids = NULL;
    size_t n = 0;
    bool ok = rg_encode(engine, text, strlen(text), RG_ENCODE_NO_SPECIAL, &ids, &n, NULL) && n == 1;

    rg_ids_free(ids);
    return ok;
}

typedef struct shown {
    rg_engine *engine;
    rg_info info;
    int32_t ids[MAX_SHOWN];
    size_t n;
} shown;

static bool is_end(const rg_info *info, int32_t id)
{
    for (int32_t i = 0; i < info->n_eos; i++)
        if (info->eos_ids[i] == id)
            return true;
    return false;
}

/* The special tokens that a mark has are shown, but for those that end an answer. */
static void show_mark(void *arg, const char *mark)
{
    shown *s = arg;
    int32_t *ids = NULL;
    size_t n = 0, bytes, name;

    if (!rg_encode(s->engine, mark, strlen(mark), RG_ENCODE_NO_SPECIAL, &ids, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++) {
        rg_id_bytes(s->engine, ids[i], true, &bytes);
        rg_id_bytes(s->engine, ids[i], false, &name);
        if (!bytes && name && !is_end(&s->info, ids[i]) && s->n < MAX_SHOWN)
            s->ids[s->n++] = ids[i];
    }
    rg_ids_free(ids);
}

/* The last token of a mark ends an answer. */
static bool ends_answer(rg_engine *engine, const rg_info *info, const char *mark)
{
    int32_t *ids = NULL;
    size_t n = 0;
    bool ok = mark && rg_encode(engine, mark, strlen(mark), RG_ENCODE_NO_SPECIAL, &ids, &n, NULL) && n &&
              is_end(info, ids[n - 1]);

    rg_ids_free(ids);
    return ok;
}

/* The template says nothing of tools: calls are marked in the most usual way, unless the family was asked for. */
static void tell_plainly(rg_talk_use *use, const char *name)
{
    const rg_talk *plain = rg_talk_named("generic");

    if (name)
        return;
    if (use->talk == plain)
        use->form = &rg_talk_named("hermes")->forms[0];
}

void rg_talk_learn(rg_talk_use *use, rg_engine *engine, const char *name)
{
    shown *s = rg_zalloc(sizeof *s);
    rg_buf rendered;
    const char *text;

    *use = (rg_talk_use){ .talk = name ? rg_talk_named(name) : NULL };
    rg_buf_init(&rendered, MAX_RENDERED);
    render_probes(use, engine, &rendered);
    text = rendered.data ? rendered.data : "";
    if (!use->talk)
        use->talk = rg_talk_of(text, has_token, engine);
    if ((!name || use->talk == rg_talk_named("template")) && rg_chat_has_template(engine) &&
        is_another(use->talk, text))
        use->made = make(engine);
    if (use->made)
        use->talk = rg_talk_derived_of(use->made);
    use->form = rg_talk_form_of(use->talk, text);
    if (!use->shows_tools && (use->talk->heads || use->form->way > RG_CALL_JSON || rg_talk_is_bare(use)))
        tell_plainly(use, name);
    for (int i = 0; i < RG_TALK_THINKS && use->talk->think[i].open; i++)
        use->thinks |= strstr(text, use->talk->think[i].open) || has_token(engine, use->talk->think[i].open);
    use->thinks |= use->talk->heads && use->talk->think[0].open;
    if (s) {
        s->engine = engine;
        s->info = rg_engine_info(engine);
        rg_talk_marks(use->talk, show_mark, s);
        rg_engine_show(engine, s->ids, s->n, NULL);
        use->close_ends = ends_answer(engine, &s->info, use->form->close);
    }
    rg_free(s);
    rg_buf_fini(&rendered);
}

void rg_talk_forget(rg_talk_use *use)
{
    rg_talk_derived_free(use->made);
    *use = (rg_talk_use){ 0 };
}

static bool has_none(void *arg, const char *text)
{
    (void)arg;
    (void)text;
    return false;
}

void rg_talk_learn_from(rg_talk_use *use, const char *rendered)
{
    *use = (rg_talk_use){ .talk = rg_talk_of(rendered, has_none, NULL), .shows_tools = true, .shows_calls = true };
    use->form = rg_talk_form_of(use->talk, rendered);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

bool rg_talk_is_bare(const rg_talk_use *use)
{
    const rg_talk_form *f = use->form;

    return !use->talk->heads && !f->open && (f->way <= RG_CALL_KEYED || f->way == RG_CALL_PYTHON);
}

/* Does text [n], without blanks at its end, end with the mark? */
static bool ends_with(const char *text, size_t n, const char *mark)
{
    size_t from = n > 256 ? n - 256 : 0;

    for (size_t i = from; mark && !rg_mark_is_blank(mark) && i < n; i++)
        if (rg_mark_match(mark, text + i, n - i, true) == (int)(n - i))
            return true;
    return false;
}

rg_talk_start rg_talk_start_after(const rg_talk *t, const char *prompt, int *think)
{
    size_t n = prompt ? strlen(prompt) : 0;

    while (n && rg_is_blank(prompt[n - 1]))
        n--;
    for (*think = 0; *think < RG_TALK_THINKS && t->think[*think].open; ++*think)
        if (ends_with(prompt, n, t->think[*think].open))
            return RG_START_THINKING;
    *think = 0;
    for (int i = 0; !t->heads && i < RG_TALK_THINKS && t->think[i].open; i++)
        if (ends_with(prompt, n, t->think[i].close))
            *think = -1;
    for (int i = 0; t->heads && i < 3 && t->heads->open[i]; i++)
        if (ends_with(prompt, n, t->heads->open[i]))
            return RG_START_HEAD;
    return RG_START_PLAIN;
}

static const char *last_of(const char *text, const char *what, const char *found)
{
    for (const char *at = text; at && what && (at = strstr(at, what)); at++)
        found = !found || at > found ? at : found;
    return found;
}

bool rg_talk_leaves_thought(const rg_talk *t, const char *text, int *think)
{
    const char *open = NULL, *close = NULL;

    for (int i = 0; i < RG_TALK_THINKS; i++) {
        const char *at = last_of(text, t->think[i].open, open);
        if (at != open)
            *think = i;
        open = at;
        close = last_of(text, t->think[i].close, close);
    }
    return open && (!close || close < open);
}
