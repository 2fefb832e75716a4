/* chat.c -- see chat.h: chooses among a checkpoint's templates, finds its variables, and checks conversations before
 * they are rendered.
 *
 * Where templates have names (templates.h), "tool_use" is for conversations with tools, "default" for others.  The
 * plain default, for a checkpoint without any, writes "role: content" and a line break for each message, the text
 * parts of a list one after the other, and "assistant:" where an answer is wanted. */
#include "text/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "text/chat_form.h"
#include "text/templates.h"

enum { NAMES_ROOM = 400 };

/* A template of the checkpoint's, or another one that was given. */
typedef struct one_template {
    char *name;
    char *source;    /* NULL: it is malformed */
    rg_jinja *jinja; /* NULL: it cannot be used, and `why` says so */
    rg_error why;
    rg_chat_form form;
} one_template;

struct rg_chat {
    one_template *all; /* [n], with room for one more */
    int n;
    int plain, tools;  /* of all: the one in use, and the one for conversations with tools; tools -1: the same */
    bool given;        /* the last of all is not the checkpoint's */
    json_t *variables;
    bool is_default;
};

static const char default_template[] =
    "{%- for message in messages -%}\n"
    "{{ message.role }}: {% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content or [] %}{% if part is string %}{{ part }}{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{{ '\\n' }}\n"
    "{%- endfor -%}\n"
    "{% if add_generation_prompt %}assistant:{% endif %}";

static const char *const roles[] = {
    "system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "observation", "tool_response",
    "tool_responses", "tool_call", "tool_calls", "tool_result", "tool_results", "tool_output", "tools",
    "available_tools", "function_call", "function_response", "function_output", "functions", "context", "critic",
    "human", "gpt", "bot", "chatbot", "document", "documents", "latest_reminder", "root", "platform", "knowledge",
    "thinking", "reasoning", "instruction", "info",
};

static void free_template(one_template *t)
{
    rg_free(t->name);
    rg_free(t->source);
    rg_jinja_free(t->jinja);
    *t = (one_template){ .name = NULL };
}

void rg_chat_close(rg_chat *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        free_template(&c->all[i]);
    rg_free(c->all);
    json_decref(c->variables);
    rg_free(c);
}

bool rg_chat_is_default(const rg_chat *c)
{
    return c->is_default;
}

/* ---- variables ---- */

static bool set(json_t *object, const char *key, json_t *value, rg_error *err)
{
    return !json_object_set_new(object, key, value) || rg_fail_memory(err, strlen(key));
}

/* A token as a string, or as an object with its content; NULL: neither. */
static json_t *token_text(json_t *v)
{
    return json_is_string(v) ? v : json_is_string(json_object_get(v, "content")) ? json_object_get(v, "content") : NULL;
}

static bool ends_in_token(const char *key)
{
    size_t n = strlen(key);

    return n > 6 && !strcmp(key + n - 6, "_token");
}

static bool add_token_list(rg_chat *c, const char *key, const json_t *list, rg_error *err)
{
    json_t *texts = json_array();

    if (!texts)
        return rg_fail_memory(err, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *t = token_text(json_array_get(list, i));
        if (t && json_array_append(texts, t)) {
            json_decref(texts);
            return rg_fail_memory(err, json_array_size(list));
        }
    }
    return set(c->variables, key, texts, err);
}

/* bos_token, image_token, ...: those not known yet. */
static bool add_variables(rg_chat *c, const json_t *config, rg_error *err)
{
    static const char *const lists[] = { "additional_special_tokens", "extra_special_tokens" };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)config, key, v) {
        json_t *t = ends_in_token(key) ? token_text(v) : NULL;
        if (t && !json_object_get(c->variables, key) && !set(c->variables, key, json_incref(t), err))
            return false;
    }
    for (size_t i = 0; i < RG_LEN(lists); i++) {
        v = json_object_get(config, lists[i]);
        if (json_is_array(v) && !json_object_get(c->variables, lists[i]) && !add_token_list(c, lists[i], v, err))
            return false;
    }
    v = json_object_get(config, "extra_special_tokens"); /* or, by name */
    return !json_is_object(v) || v == config || add_variables(c, v, err);
}

static bool read_json(rg_chat *c, const rg_text_place *p, const char *name, rg_error *err)
{
    rg_error why;
    size_t n = 0;
    char *text = rg_text_place_read(p, name, &n, &why);
    bool ok = text || why.code == RG_OK;

    if (!ok && err)
        *err = why;
    if (text) {
        json_t *config = rg_json_parse(name, text, n, err);
        ok = config && (json_is_object(config) || rg_fail(err, RG_E_INPUT, "%s is not a JSON object", name)) &&
             add_variables(c, config, err);
        json_decref(config);
    }
    rg_free(text);
    return ok;
}

static bool read_folder(rg_chat *c, const rg_text_place *p, rg_error *err)
{
    return read_json(c, p, "tokenizer_config.json", err) && read_json(c, p, "special_tokens_map.json", err);
}

static bool read_gguf(rg_chat *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const struct { const char *key, *variable; } ids[] = {
        { "tokenizer.ggml.bos_token_id", "bos_token" },       { "tokenizer.ggml.eos_token_id", "eos_token" },
        { "tokenizer.ggml.unknown_token_id", "unk_token" },   { "tokenizer.ggml.padding_token_id", "pad_token" },
        { "tokenizer.ggml.seperator_token_id", "sep_token" }, { "tokenizer.ggml.separator_token_id", "sep_token" },
        { "tokenizer.ggml.cls_token_id", "cls_token" },       { "tokenizer.ggml.mask_token_id", "mask_token" },
    };
    const rg_string *token = NULL;
    size_t n_tokens = 0;

    if (rg_meta_strings(ckpt, "tokenizer.ggml.tokens", &token, &n_tokens, err) < 0)
        return false;
    for (size_t i = 0; i < RG_LEN(ids) && n_tokens; i++) {
        int64_t id = -1;
        int got = rg_meta_int(ckpt, ids[i].key, -1, UINT32_MAX, &id, err); /* "none" is written as either of the two */
        if (got < 0)
            return false;
        if (got && id >= 0 && (uint64_t)id < n_tokens) {
            json_t *v = json_stringn(token[id].data, token[id].n); /* NULL: no UTF-8, and so no text */
            if (v && !set(c->variables, ids[i].variable, v, err))
                return false;
        }
    }
    return true;
}

/* ---- templates ---- */

/* Parse a template and learn its form; one that cannot be used is kept with the reason.  False: no memory. */
static bool make(one_template *t, const rg_chat *c, const rg_template *from, rg_error *err)
{
    *t = (one_template){ .name = rg_strdup(from->name) };
    if (!t->name)
        return rg_fail_memory(err, strlen(from->name));
    if (from->source && !(t->source = rg_strndup(from->source, from->n)))
        return rg_fail_memory(err, from->n);
    if (from->source)
        t->jinja = rg_jinja_parse(from->source, from->n, &t->why);
    else
        rg_fail(&t->why, RG_E_INPUT, "%s", from->problem);
    if (t->jinja)
        return rg_chat_form_learn(&t->form, t->jinja, c->variables, err);
    if (t->why.code == RG_E_MEMORY)
        return rg_fail_memory(err, from->n);
    rg_fail_prefix(&t->why, "the chat template cannot be used: %s", from->where);
    t->why.code = RG_E_UNSUPPORTED;
    return true;
}

static int find(const rg_chat *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->all[i].name, name))
            return i;
    return -1;
}

/* The names of all templates, for a message. */
static const char *names_of(const rg_chat *c, char out[NAMES_ROOM])
{
    size_t n = 0;

    out[0] = 0;
    for (int i = 0; i < c->n && n < NAMES_ROOM; i++)
        n += (size_t)snprintf(out + n, NAMES_ROOM - n, "%s%.60s", i ? ", " : "", c->all[i].name);
    return out;
}

/* Templates, but none that is meant where nothing is said. */
static bool need_choice(rg_chat *c, rg_error *err)
{
    char names[NAMES_ROOM];
    one_template *t = &c->all[c->n];

    *t = (one_template){ .name = rg_strdup("default") };
    if (!t->name)
        return rg_fail_memory(err, 8);
    rg_fail(&t->why, RG_E_UNSUPPORTED, "none of the chat templates is called default: choose one with --chat-template "
            "(there are: %s)", names_of(c, names));
    c->plain = c->n++;
    return true;
}

static bool make_all(rg_chat *c, const rg_templates *from, rg_error *err)
{
    static const rg_template plain = { .name = (char *)"default", .source = (char *)(uintptr_t)default_template,
                                       .n = sizeof default_template - 1, .where = (char *)"the plain default" };
    const int room = from->n + 2; /* for what says that there is no default, and for one that is given */

    c->all = rg_array((size_t)room, sizeof *c->all);
    if (!c->all)
        return rg_fail_memory(err, (size_t)room * sizeof *c->all);
    c->is_default = !from->n;
    for (int i = 0; i < (from->n ? from->n : 1); i++)
        if (!make(&c->all[c->n++], c, from->n ? &from->all[i] : &plain, err))
            return false;
    c->plain = find(c, "default");
    c->tools = find(c, "tool_use");
    if (c->plain < 0 && c->tools >= 0) {
        c->plain = c->tools;
        c->tools = -1;
    }
    return c->plain >= 0 || need_choice(c, err);
}

/* Put a template in place of the last one that was given, or behind the checkpoint's, and use it. */
static bool use_given(rg_chat *c, const rg_template *from, rg_error *err)
{
    one_template t;

    if (!make(&t, c, from, err)) {
        free_template(&t);
        return false;
    }
    if (!t.jinja) {
        if (err)
            *err = t.why;
        free_template(&t);
        return false;
    }
    if (c->given)
        free_template(&c->all[--c->n]);
    c->given = true;
    c->all[c->n] = t;
    c->plain = c->n++;
    c->tools = -1;
    c->is_default = false;
    return true;
}

bool rg_chat_use(rg_chat *c, const char *source, size_t n, rg_error *err)
{
    return use_given(c, &(rg_template){ .name = (char *)"", .source = (char *)(uintptr_t)source, .n = n,
                                        .where = (char *)"the text that was given" }, err);
}

bool rg_chat_choose(rg_chat *c, const char *what, rg_error *err)
{
    char names[NAMES_ROOM];
    int known = c->is_default ? -1 : find(c, what);
    rg_error why = { 0 };
    size_t n = 0;

    if (known >= 0 && !c->all[known].jinja) {
        if (err)
            *err = c->all[known].why;
        return false;
    }
    if (known >= 0) {
        c->plain = known;
        c->tools = -1;
        return true;
    }
    if (rg_path_look(what) == RG_PATH_NONE)
        return rg_fail(err, RG_E_USAGE, "there is no chat template '%s': no file has this name, and none of the "
                       "model's templates (%s)", what, c->is_default ? "it has none" : names_of(c, names));
    char *source = rg_file_slurp(what, RG_JINJA_SOURCE_BYTES + 1, &n, &why);
    if (!source && err)
        *err = why;
    bool ok = source && use_given(c, &(rg_template){ .name = (char *)"", .source = source, .n = n,
                                                     .where = (char *)(uintptr_t)what }, err);
    rg_free(source);
    return ok;
}

/* The template for a conversation with or without tools. */
static const one_template *of(const rg_chat *c, bool with_tools)
{
    return &c->all[with_tools && c->tools >= 0 ? c->tools : c->plain];
}

const char *rg_chat_problem(const rg_chat *c)
{
    return of(c, false)->jinja ? NULL : of(c, false)->why.text;
}

const char *rg_chat_source(const rg_chat *c)
{
    return c->is_default || !of(c, false)->jinja ? NULL : of(c, false)->source;
}

int rg_chat_id_chars(const rg_chat *c)
{
    return of(c, true)->form.id_chars;
}

static rg_chat *open_at(const rg_text_place *p, bool gguf, rg_error *err)
{
    rg_chat *c = rg_zalloc(sizeof *c);
    rg_templates *t = rg_zalloc(sizeof *t);
    bool ok = (c && t) || rg_fail_memory(err, sizeof *c + sizeof *t);

    if (ok)
        c->variables = json_object();
    ok = ok && (c->variables || rg_fail_memory(err, 1)) && rg_templates_read(t, p, err) &&
         (gguf ? read_gguf(c, p->ckpt, err) : read_folder(c, p, err)) && make_all(c, t, err);
    if (t)
        rg_templates_fini(t);
    rg_free(t);
    if (ok)
        return c;
    rg_chat_close(c);
    return NULL;
}

rg_chat *rg_chat_open(const rg_checkpoint *ckpt, rg_error *err)
{
    return open_at(&(rg_text_place){ .ckpt = ckpt }, rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF, err);
}

rg_chat *rg_chat_open_path(const char *path, rg_error *err)
{
    char dir[4096];
    size_t n = strlen(path);
    const char *slash = strrchr(path, '/');

    if (rg_path_look(path) == RG_PATH_DIR)
        return open_at(&(rg_text_place){ .dir = path }, false, err);
    if (n > 5 && !strcmp(path + n - 5, ".json") && n < sizeof dir) {
        size_t n_dir = slash ? (size_t)(slash - path) : 0;
        memcpy(dir, n_dir ? path : slash ? "/" : ".", n_dir ? n_dir : 1);
        dir[n_dir ? n_dir : 1] = 0;
        return open_at(&(rg_text_place){ .dir = dir }, false, err);
    }
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    rg_chat *c = ckpt ? rg_chat_open(ckpt, err) : NULL;
    rg_checkpoint_close(ckpt);
    return c;
}

/* ---- conversations ---- */

static bool known_role(const json_t *role)
{
    for (size_t i = 0; i < RG_LEN(roles); i++)
        if (strlen(roles[i]) == json_string_length(role) && !strcmp(json_string_value(role), roles[i]))
            return true;
    return false;
}

static bool check_message(const json_t *m, size_t i, rg_error *err)
{
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");

    if (!json_is_object(m))
        return rg_fail(err, RG_E_INPUT, "messages[%zu] is not an object", i);
    if (!role)
        return rg_fail(err, RG_E_INPUT, "messages[%zu] has no role", i);
    if (!json_is_string(role))
        return rg_fail(err, RG_E_INPUT, "messages[%zu]: its role is not a text", i);
    if (!known_role(role))
        return rg_fail(err, RG_E_INPUT, "messages[%zu]: '%.40s' is not a role (system, user, assistant, tool, ...)",
                       i, json_string_value(role));
    if (content && !json_is_string(content) && !json_is_array(content) && !json_is_null(content))
        return rg_fail(err, RG_E_INPUT, "messages[%zu]: its content is neither text, nor a list of parts, nor null", i);
    return true;
}

static bool check_messages(const json_t *messages, rg_error *err)
{
    if (!json_is_array(messages))
        return rg_fail(err, RG_E_INPUT,
                       "a conversation is a list of messages, or an object with such a list as \"messages\"");
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!check_message(json_array_get(messages, i), i, err))
            return false;
    return true;
}

/* Variables that templates expect to exist even if they were not given. */
static bool complete(json_t *vars, bool generation_prompt, rg_error *err)
{
    static const char *const absent[] = { "tools", "documents" };

    for (size_t i = 0; i < RG_LEN(absent); i++)
        if (!json_object_get(vars, absent[i]) && !set(vars, absent[i], json_null(), err))
            return false;
    if (json_is_boolean(json_object_get(vars, "add_generation_prompt")))
        return true;
    return set(vars, "add_generation_prompt", json_boolean(generation_prompt), err);
}

/* The variables of a render: the caller's, its messages in the form that the template takes.  NULL and *err. */
static json_t *variables_of(const rg_chat *c, const one_template *t, const json_t *conversation, rg_error *err)
{
    bool whole = json_is_object(conversation);
    const json_t *messages = whole ? json_object_get(conversation, "messages") : conversation;
    json_t *vars = whole ? json_copy((json_t *)(uintptr_t)conversation) : json_object(), *fitted;

    /* jansson's copy lacks members, without an error, if memory ran out: compare. */
    if (!vars || (whole && json_object_size(vars) != json_object_size(conversation))) {
        json_decref(vars);
        return rg_fail_memory(err, 1), NULL;
    }
    fitted = c->is_default ? json_incref((json_t *)(uintptr_t)messages) : rg_chat_form_fit(&t->form, messages, err);
    if (fitted && set(vars, "messages", fitted, err))
        return vars;
    json_decref(vars);
    return NULL;
}

bool rg_chat_render(const rg_chat *c, const json_t *conversation, bool generation_prompt, int64_t now_s, rg_text *out,
                    rg_error *err)
{
    bool whole = json_is_object(conversation);
    const json_t *tools = whole ? json_object_get(conversation, "tools") : NULL;
    const one_template *t = of(c, tools && !json_is_null(tools));

    if (!check_messages(whole ? json_object_get(conversation, "messages") : conversation, err))
        return false;
    if (!t->jinja) {
        if (err)
            *err = t->why;
        return false;
    }
    json_t *vars = variables_of(c, t, conversation, err);
    rg_jinja_input input = { .trusted = c->variables, .foreign = vars, .now_s = now_s };
    bool ok = vars && complete(vars, generation_prompt, err) && rg_jinja_render(t->jinja, &input, out, err);

    json_decref(vars);
    return ok;
}
