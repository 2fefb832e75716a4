/* chat.c -- see chat.h: finds a checkpoint's template and variables, and checks conversations before they are rendered.
 *
 * Where there are several, chat_template.jinja goes before tokenizer_config.json, and that before chat_template.json.
 * Of named templates "tool_use" is for conversations with tools, "default" for the others.  The plain default, for a
 * checkpoint without any, writes "role: content" and a line break for each message, the text parts of a list one after
 * the other, and "assistant:" where an answer is wanted. */
#include "text/chat.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "text/jinja.h"

enum { FILE_CAP = 1 << 26 };

struct rg_chat {
    rg_jinja *plain, *tools; /* tools: NULL where it is the same */
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

void rg_chat_close(rg_chat *c)
{
    if (!c)
        return;
    rg_jinja_free(c->plain);
    rg_jinja_free(c->tools);
    json_decref(c->variables);
    rg_free(c);
}

bool rg_chat_is_default(const rg_chat *c)
{
    return c->is_default;
}

static bool parse(rg_jinja **out, const char *what, const char *source, size_t n, rg_error *err)
{
    rg_jinja *j = rg_jinja_parse(source, n, err);

    if (!j)
        return what ? rg_fail_prefix(err, "%s", what) : false;
    rg_jinja_free(*out);
    *out = j;
    return true;
}

bool rg_chat_use(rg_chat *c, const char *source, size_t n, rg_error *err)
{
    if (!parse(&c->plain, NULL, source, n, err))
        return false;
    rg_jinja_free(c->tools);
    c->tools = NULL;
    c->is_default = false;
    return true;
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

/* ---- templates ---- */

static bool use_named(rg_chat *c, const char *file, const json_t *list, rg_error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *text = json_object_get(one, "template");
        const char *name = json_string_value(json_object_get(one, "name"));
        if (!name || !json_is_string(text))
            return rg_fail(err, RG_E_INPUT, "%s: an entry of chat_template has no name or no template", file);
        rg_jinja **to = !strcmp(name, "default") ? &c->plain : !strcmp(name, "tool_use") ? &c->tools : NULL;
        if (to && !*to && !parse(to, file, json_string_value(text), json_string_length(text), err))
            return false;
    }
    return true;
}

/* The member chat_template of a file's JSON, unless there is a template already. */
static bool use_config(rg_chat *c, const char *file, const json_t *config, rg_error *err)
{
    const json_t *v = json_object_get(config, "chat_template");

    if (c->plain || c->tools || !v || json_is_null(v))
        return true;
    if (json_is_string(v))
        return parse(&c->plain, file, json_string_value(v), json_string_length(v), err);
    if (json_is_array(v))
        return use_named(c, file, v, err);
    return rg_fail(err, RG_E_INPUT, "%s: chat_template is neither a text nor a list of named ones", file);
}

/* Where files are: beside a checkpoint or in a folder. */
typedef struct place {
    const rg_checkpoint *ckpt;
    const char *dir;
} place;

/* NULL without an error: there is no such file. */
static char *read_file(const place *p, const char *name, size_t *n, rg_error *err)
{
    char path[4096];

    *err = (rg_error){ 0 };
    if (p->ckpt)
        return rg_checkpoint_side_file(p->ckpt, name, n, err);
    if (!rg_path_join(path, sizeof path, p->dir, name) || rg_path_look(path) == RG_PATH_NONE)
        return NULL;
    return rg_file_slurp(path, FILE_CAP, n, err);
}

static bool read_json(rg_chat *c, const place *p, const char *name, bool variables, rg_error *err)
{
    rg_error why;
    size_t n = 0;
    char *text = read_file(p, name, &n, &why);
    bool ok = text || why.code == RG_OK;

    if (!ok && err)
        *err = why;
    if (text) {
        json_t *config = rg_json_parse(name, text, n, err);
        ok = config && (json_is_object(config) || rg_fail(err, RG_E_INPUT, "%s is not a JSON object", name)) &&
             use_config(c, name, config, err) && (!variables || add_variables(c, config, err));
        json_decref(config);
    }
    rg_free(text);
    return ok;
}

static bool read_folder(rg_chat *c, const place *p, rg_error *err)
{
    rg_error why;
    size_t n = 0;
    char *text = read_file(p, "chat_template.jinja", &n, &why);
    bool ok = text ? parse(&c->plain, "chat_template.jinja", text, n, err) : why.code == RG_OK;

    if (!text && !ok && err)
        *err = why;
    rg_free(text);
    return ok && read_json(c, p, "tokenizer_config.json", true, err) &&
           read_json(c, p, "special_tokens_map.json", true, err) && read_json(c, p, "chat_template.json", false, err);
}

static bool read_gguf(rg_chat *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const struct { const char *key, *variable; } ids[] = {
        { "tokenizer.ggml.bos_token_id", "bos_token" },       { "tokenizer.ggml.eos_token_id", "eos_token" },
        { "tokenizer.ggml.unknown_token_id", "unk_token" },   { "tokenizer.ggml.padding_token_id", "pad_token" },
        { "tokenizer.ggml.seperator_token_id", "sep_token" }, { "tokenizer.ggml.separator_token_id", "sep_token" },
        { "tokenizer.ggml.cls_token_id", "cls_token" },       { "tokenizer.ggml.mask_token_id", "mask_token" },
    };
    static const char *const keys[] = { "tokenizer.chat_template", "tokenizer.chat_template.default" };
    const rg_string *token = NULL;
    size_t n_tokens = 0;
    const char *text;

    for (size_t i = 0; i < RG_LEN(keys) && !c->plain; i++) {
        int got = rg_meta_string(ckpt, keys[i], &text, err);
        if (got < 0 || (got && !parse(&c->plain, keys[i], text, strlen(text), err)))
            return false;
    }
    int got = rg_meta_string(ckpt, "tokenizer.chat_template.tool_use", &text, err);
    if (got < 0 || (got && !parse(&c->tools, "tokenizer.chat_template.tool_use", text, strlen(text), err)))
        return false;
    rg_meta_understand(ckpt, "tokenizer.chat_templates");
    if (rg_meta_strings(ckpt, "tokenizer.ggml.tokens", &token, &n_tokens, err) < 0)
        return false;
    for (size_t i = 0; i < RG_LEN(ids) && n_tokens; i++) {
        int64_t id = -1;
        got = rg_meta_int(ckpt, ids[i].key, -1, UINT32_MAX, &id, err); /* "none" is written as either of the two */
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

static rg_chat *open_at(const place *p, bool gguf, rg_error *err)
{
    rg_chat *c = rg_zalloc(sizeof *c);
    bool ok;

    if (!c)
        return rg_fail_memory(err, sizeof *c), NULL;
    c->variables = json_object();
    ok = c->variables || rg_fail_memory(err, 1);
    ok = ok && (gguf ? read_gguf(c, p->ckpt, err) : read_folder(c, p, err));
    if (ok && !c->plain && c->tools) {
        c->plain = c->tools;
        c->tools = NULL;
    }
    if (ok && !c->plain) {
        c->is_default = true;
        ok = parse(&c->plain, "the plain default", default_template, sizeof default_template - 1, err);
    }
    if (ok)
        return c;
    rg_chat_close(c);
    return NULL;
}

rg_chat *rg_chat_open(const rg_checkpoint *ckpt, rg_error *err)
{
    return open_at(&(place){ .ckpt = ckpt }, rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF, err);
}

rg_chat *rg_chat_open_path(const char *path, rg_error *err)
{
    char dir[4096];
    size_t n = strlen(path);
    const char *slash = strrchr(path, '/');

    if (rg_path_look(path) == RG_PATH_DIR)
        return open_at(&(place){ .dir = path }, false, err);
    if (n > 5 && !strcmp(path + n - 5, ".json") && n < sizeof dir) {
        size_t n_dir = slash ? (size_t)(slash - path) : 0;
        memcpy(dir, n_dir ? path : slash ? "/" : ".", n_dir ? n_dir : 1);
        dir[n_dir ? n_dir : 1] = 0;
        return open_at(&(place){ .dir = dir }, false, err);
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

bool rg_chat_render(const rg_chat *c, const json_t *conversation, bool generation_prompt, int64_t now_s, rg_text *out,
                    rg_error *err)
{
    bool whole = json_is_object(conversation), ok;
    const json_t *messages = whole ? json_object_get(conversation, "messages") : conversation, *tools;
    json_t *vars;

    if (!check_messages(messages, err))
        return false;
    vars = whole ? json_copy((json_t *)conversation) : json_object();
    if (!vars)
        return rg_fail_memory(err, 1);
    /* jansson's copy lacks members, without an error, if memory ran out: compare. */
    ok = !whole || json_object_size(vars) == json_object_size(conversation) || rg_fail_memory(err, 1);
    ok = ok && (whole || set(vars, "messages", json_incref((json_t *)messages), err)) &&
         complete(vars, generation_prompt, err);
    if (ok) {
        tools = json_object_get(vars, "tools");
        const rg_jinja *j = c->tools && tools && !json_is_null(tools) ? c->tools : c->plain;
        rg_jinja_input input = { .trusted = c->variables, .foreign = vars, .now_s = now_s };
        ok = rg_jinja_render(j, &input, out, err);
    }
    json_decref(vars);
    return ok;
}
