/* tool_form.c -- see tool_form.h. */
#define _GNU_SOURCE 1 /* memmem */
#include "server/tool_form.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/json.h"

enum { MAX_GRAMMAR = 4 << 20, MAX_CALLS = 16, NEAR = 160 /* bytes between a mark and the name after it */ };

const char rg_probe_name[] = "ridge_probe", rg_probe_key[] = "ridge_key";

/* ---- what the template shows ------------------------------------------------------------------------------------- */

static const char *last_of(const char *s, size_t n, const char *what)
{
    const char *found = NULL, *at = s;

    while ((at = memmem(at, n - (size_t)(at - s), what, strlen(what))))
        found = at++;
    return found;
}

static bool keep(char *to, const char *from, const char *end)
{
    size_t n = (size_t)(end - from);

    if (end < from || n >= RG_FORM_TEXT_MAX)
        return false;
    memcpy(to, from, n);
    to[n] = 0;
    return true;
}

/* The closers of what is open in s: JSON brackets, outside of strings. */
static void close_brackets(char *to, size_t room, const char *s)
{
    char stack[16];
    size_t n = 0, k = 0;
    bool inside = false;

    for (; *s; s++) {
        inside ^= *s == '"';
        if (!inside && (*s == '{' || *s == '[') && n < sizeof stack)
            stack[n++] = *s == '{' ? '}' : ']';
        else if (!inside && (*s == '}' || *s == ']') && n)
            n--;
    }
    while (n && k + 1 < room)
        to[k++] = stack[--n];
    to[k] = 0;
}

/* The mark whose opening is the last before the name, and where it stands. */
static const rg_tool_mark *mark_before(const char *s, const char *name, const char **at)
{
    const rg_tool_mark *best = NULL;

    *at = NULL;
    for (const rg_tool_mark *m = rg_tool_marks; m->open; m++) {
        const char *found = last_of(s, (size_t)(name - s), m->open);
        if (found && (!best || found > *at) && name - found < NEAR) {
            best = m;
            *at = found;
        }
    }
    return best;
}

static void set(rg_tool_form *f, const char *before, const char *between, const char *after)
{
    *f = (rg_tool_form){ .closes = false };
    snprintf(f->before, sizeof f->before, "%s", before);
    snprintf(f->between, sizeof f->between, "%s", between);
    snprintf(f->after, sizeof f->after, "%s", after);
}

/* <function=NAME> and a tag for each argument, within <tool_call> if the template has it so. */
static bool learn_xml(rg_tool_form *f, const char *s, const char *name)
{
    static const char open[] = "<function=", outer[] = "<tool_call>";
    char tag[64];
    const char *start = name - strlen(open), *wrap;

    snprintf(tag, sizeof tag, "<parameter=%s>", rg_probe_key);
    if (start < s || strncmp(start, open, strlen(open)) != 0 || !strstr(name, tag))
        return false;
    wrap = last_of(s, (size_t)(start - s), outer);
    bool wrapped = wrap && strspn(wrap + strlen(outer), " \r\n") == (size_t)(start - wrap) - strlen(outer);
    set(f, wrapped ? "<tool_call>\n<function=" : open, ">\n", wrapped ? "</function>\n</tool_call>" : "</function>");
    f->xml = f->closes = true;
    return true;
}

/* What stands before the name, between it and the arguments, and after them. */
static bool learn_json(rg_tool_form *f, const char *s, const char *name)
{
    const char *name_end = name + strlen(rg_probe_name), *key = strstr(name_end, rg_probe_key), *mark_at, *from;
    const char *arguments = key ? last_of(name_end, (size_t)(key - name_end), "{") : NULL;
    const char *end = arguments ? strchr(key, '}') : NULL;
    const rg_tool_mark *mark = mark_before(s, name, &mark_at);

    if (!end)
        return false;
    *f = (rg_tool_form){ .closes = mark && mark->close };
    from = mark ? mark_at : last_of(s, (size_t)(name - s), "{");
    if (!from || !keep(f->before, from, name) || !keep(f->between, name_end, arguments))
        return false;
    if (f->closes) {
        const char *close = strstr(end, mark->close);
        return close && keep(f->after, end + 1, close + strlen(mark->close));
    }
    close_brackets(f->after, sizeof f->after, f->before + (mark ? strlen(mark->open) : 0));
    return true;
}

/* True if a call in this form is read back as it was written. */
static bool is_read_back(const rg_tool_form *f)
{
    static const char arguments[] = "{\"a\":[1,\"}\"]}";
    json_t *tools = json_pack("[{s:s, s:{s:s}}]", "type", "function", "function", "name", rg_probe_name);
    rg_answer a;
    rg_buf text;
    bool ok;

    rg_buf_init(&text, 4096);
    rg_buf_printf(&text, "%s%s%s%s%s", f->before, rg_probe_name, f->between, f->xml ? "" : arguments, f->after);
    rg_answer_init(&a, tools, false, 4096);
    if (text.n)
        rg_answer_feed(&a, text.data, text.n);
    rg_answer_end(&a);
    ok = tools && !text.failed && !a.failed && a.n_calls == 1 && !a.content.n &&
         !strcmp(a.call[0].name, rg_probe_name) &&
         !strcmp(a.call[0].arguments, f->xml ? "{}" : arguments);
    rg_answer_fini(&a);
    rg_buf_fini(&text);
    json_decref(tools);
    return ok;
}

void rg_tool_form_learn(rg_tool_form *form, const char *rendered)
{
    const char *name = rendered ? last_of(rendered, strlen(rendered), rg_probe_name) : NULL;

    if (!name || !(learn_xml(form, rendered, name) || learn_json(form, rendered, name)) || !is_read_back(form))
        set(form, "{\"name\": \"", "\", \"arguments\": ", "}");
}

void rg_tool_form_find(rg_tool_form *form, const rg_engine *engine)
{
    static const char probe[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}, {\"role\": \"assistant\", \"content\": \"\", "
        "\"tool_calls\": [{\"id\": \"ridge0001\", \"type\": \"function\", \"function\": {\"name\": \"ridge_probe\", "
        "\"arguments\": {\"ridge_key\": 7}}}]}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
        "\"ridge_probe\", \"description\": \"A probe.\", \"parameters\": {\"type\": \"object\", \"properties\": "
        "{\"ridge_key\": {\"type\": \"integer\"}}, \"required\": [\"ridge_key\"]}}}]}";
    rg_chat_options o = { .no_generation_prompt = true };
    rg_json *talk = rg_chat_has_template(engine) ? rg_json_new(probe, strlen(probe), NULL) : NULL;
    int32_t *ids = NULL;
    size_t n;
    char *text = NULL;

    if (talk && !rg_chat_encode(engine, talk, &o, &ids, &n, &text, NULL))
        text = NULL;
    rg_tool_form_learn(form, text);
    rg_json_close(talk);
    rg_ids_free(ids);
    rg_text_free(text);
}

/* ---- the grammar ------------------------------------------------------------------------------------------------- */

static void literal(rg_buf *b, const char *s)
{
    rg_buf_str(b, " \"");
    for (; *s; s++) {
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            rg_buf_printf(b, "\\x%02x", *s);
        else
            rg_buf_printf(b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    }
    rg_buf_str(b, "\"");
}

/* The name as it stands in the form: within quotes of JSON, or as it is.  rg_free it; NULL: no memory. */
static char *written_name(const rg_tool_form *f, const char *name)
{
    size_t n = strlen(f->before);
    json_t *v = n && f->before[n - 1] == '"' ? json_string(name) : NULL;
    char *quoted = v ? rg_body_dump(v) : NULL, *s;

    if (quoted)
        s = rg_strndup(quoted + 1, strlen(quoted) - 2);
    else
        s = rg_strdup(name);
    rg_free(quoted);
    json_decref(v);
    return s;
}

static void name_literal(rg_buf *b, const rg_tool_form *f, const char *name)
{
    char *s = written_name(f, name);

    if (s)
        literal(b, s);
    else
        b->failed = true;
    rg_free(s);
}

static void schema(rg_buf *b, const json_t *v)
{
    char *s = v ? rg_body_dump(v) : NULL;

    rg_buf_str(b, " %json ");
    if (s)
        rg_buf_str(b, s);
    else
        b->failed = true;
    rg_free(s);
}

/* Arguments are an object, and those that are declared are all there are, unless the schema says otherwise. */
static json_t *arguments_schema(const json_t *parameters)
{
    json_t *s = json_is_object(parameters) ? json_copy((json_t *)(uintptr_t)parameters) : json_object();

    if (!json_object_get(s, "type"))
        json_object_set_new(s, "type", json_string("object"));
    if (!json_object_get(s, "additionalProperties") && !json_object_get(s, "patternProperties") &&
        !json_object_get(s, "$ref") && !json_object_get(s, "anyOf") && !json_object_get(s, "allOf") &&
        !json_object_get(s, "oneOf"))
        json_object_set_new(s, "additionalProperties", json_false());
    return s;
}

static bool is_word_of(const char *s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s, words[i]))
            return true;
    return false;
}

/* True if the schema is any text, so that it can be written without quotes. */
static bool is_plain_text(const json_t *s)
{
    static const char *const binding[] = { "enum", "const", "pattern", "format", "minLength", "maxLength", "allOf",
                                           "anyOf", "oneOf", "$ref", "not", "if", "nullable" };
    const char *type = json_string_value(json_object_get(s, "type")), *key;
    json_t *v;

    if (!type || strcmp(type, "string") != 0)
        return false;
    json_object_foreach((json_t *)(uintptr_t)s, key, v)
        if (!json_is_null(v) && is_word_of(key, binding, RG_LEN(binding)))
            return false;
    return true;
}

static bool is_required(const json_t *parameters, const char *key)
{
    const json_t *required = json_object_get(parameters, "required");

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *s = json_string_value(json_array_get(required, i));
        if (s && !strcmp(s, key))
            return true;
    }
    return false;
}

/* A property's schema, with the definitions that it may refer to. */
static void property_schema(rg_buf *b, const json_t *parameters, json_t *property)
{
    static const char *const shared[] = { "$defs", "definitions" };
    json_t *s = json_pack("{s:[O]}", "allOf", property);

    for (size_t i = 0; i < RG_LEN(shared); i++)
        if (s && json_object_get(parameters, shared[i]))
            json_object_set(s, shared[i], json_object_get(parameters, shared[i]));
    schema(b, s);
    json_decref(s);
}

/* <parameter=KEY> VALUE </parameter> for each argument, in the order of their declaration. */
static bool xml_arguments(rg_buf *b, const json_t *parameters, rg_refusal *e)
{
    static const char *const binding[] = { "allOf", "anyOf", "oneOf", "$ref", "enum", "const", "patternProperties",
                                           "propertyNames", "minProperties", "maxProperties", "dependentRequired",
                                           "dependentSchemas", "dependencies", "not", "if", "unevaluatedProperties" };
    json_t *properties = json_object_get(parameters, "properties"), *v;
    const char *key;

    json_object_foreach((json_t *)(uintptr_t)parameters, key, v)
        if (!json_is_null(v) && is_word_of(key, binding, RG_LEN(binding)))
            return rg_refuse_field(e, "tools", "'tools': '%.60s' beside 'properties' is not supported with a "
                                   "'tool_choice' that asks for a call.", key);
    json_object_foreach(properties, key, v) {
        rg_buf tag;
        rg_buf_init(&tag, 4096);
        rg_buf_printf(&tag, "<parameter=%s>\n", key);
        if (tag.failed || strpbrk(key, "<>")) {
            rg_buf_fini(&tag);
            return rg_refuse_field(e, "tools", "'tools': a property's name cannot be written as a tag.");
        }
        rg_buf_str(b, " (");
        literal(b, tag.data);
        if (is_plain_text(v))
            rg_buf_str(b, " words");
        else
            property_schema(b, parameters, v);
        literal(b, "\n</parameter>\n");
        rg_buf_str(b, is_required(parameters, key) ? " )" : " )?");
        rg_buf_fini(&tag);
    }
    return true;
}

static bool write_tool(rg_buf *b, const rg_tool_form *f, const json_t *function, rg_refusal *e)
{
    const json_t *parameters = json_object_get(function, "parameters");
    bool ok = true;

    literal(b, f->before);
    name_literal(b, f, json_string_value(json_object_get(function, "name")));
    literal(b, f->between);
    if (f->xml) {
        ok = xml_arguments(b, parameters, e);
    } else {
        json_t *s = arguments_schema(parameters);
        schema(b, s);
        json_decref(s);
    }
    literal(b, f->after);
    return ok;
}

bool rg_tool_form_constrain(const rg_tool_form *form, const rg_call_rules *rules, rg_constraint *c, rg_refusal *e)
{
    rg_buf b;
    bool ok = true;

    rg_buf_init(&b, MAX_GRAMMAR);
    rg_buf_str(&b, "root ::= call");
    if (rules->many && form->closes)
        rg_buf_printf(&b, " (\"\\n\" call){0,%d}", MAX_CALLS - 1);
    if (form->xml)
        rg_buf_str(&b, "\nwords ::= ([^<] | \"<\" [^</])*");
    rg_buf_str(&b, "\ncall ::=");
    for (size_t i = 0; ok && i < json_array_size(rules->tools); i++) {
        rg_buf_str(&b, i ? "\n |" : "");
        ok = write_tool(&b, form, json_object_get(json_array_get(rules->tools, i), "function"), e);
    }
    if (ok && b.failed)
        ok = rg_refuse_field(e, "tools", "'tools': their schemas are too large together.");
    if (ok) {
        rg_constraint_fini(c);
        *c = (rg_constraint){ rules->name ? rules->name : "tool_choice", RG_GRAMMAR_GBNF, b.data, b.n };
    } else {
        rg_buf_fini(&b);
    }
    return ok;
}

/* ---- a call that is cut ------------------------------------------------------------------------------------------ */

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* True if the shorter text is a beginning of the longer one. */
static bool agree(const char *a, size_t n_a, const char *b, size_t n_b)
{
    return !memcmp(a, b, n_a < n_b ? n_a : n_b);
}

/* The one tool that the text may be a call of, and what stands after its name; NULL: there is none, or several. */
static const json_t *tool_of(const rg_tool_form *f, const json_t *tools, const rg_buf *text, size_t *at)
{
    const json_t *found = NULL;
    int n_found = 0;

    for (size_t i = 0; i < json_array_size(tools); i++) {
        char *name = written_name(f, name_of(json_array_get(tools, i)));
        rg_buf head;
        rg_buf_init(&head, 4096);
        rg_buf_printf(&head, "%s%s%s", f->before, name ? name : "", f->between);
        if (name && !head.failed && agree(text->data, text->n, head.data, head.n)) {
            found = json_array_get(tools, i);
            n_found++;
            *at = head.n < text->n ? head.n : text->n;
        }
        rg_buf_fini(&head);
        rg_free(name);
    }
    return n_found == 1 ? found : NULL;
}

/* Add the call that text is the beginning of. */
static void add_cut_call(const rg_tool_form *f, const json_t *tools, rg_answer *a, const rg_buf *text)
{
    size_t at = 0, n;
    const json_t *tool = tool_of(f, tools, text, &at);
    const char *rest = text->data + at;
    char *written = NULL;

    if (!tool)
        return;
    n = text->n - at;
    if (f->xml) {
        json_t *v = rg_tools_read_tags(json_object_get(tool, "function"), &rest, &n);
        written = v ? rg_body_dump(v) : NULL;
        rest = written ? written : "";
        n = strlen(rest);
        json_decref(v);
    } else if (rg_tools_bracketed(rest, n)) {
        n = rg_tools_bracketed(rest, n); /* the arguments are whole, and what closes the call is not */
    }
    if (rg_answer_add_call(a, name_of(tool), strlen(name_of(tool)), rest, n))
        a->call[a->n_calls - 1].cut = true;
    rg_free(written);
}

bool rg_tool_form_is_bare(const rg_tool_form *form)
{
    return form->before[0] == '{' || form->before[0] == '[' || !form->before[0];
}

/* End an answer whose last part, which text is, is a call for certain, or no text at all. */
static void end_call(const rg_tool_form *form, const json_t *tools, rg_answer *a, const rg_buf *text)
{
    int n_calls = a->n_calls;
    size_t n_content = a->content.n;

    rg_answer_end(a);
    if (a->n_calls == n_calls && text->n) {
        a->content.n = n_content;
        add_cut_call(form, tools, a, text);
    }
}

void rg_tool_form_end(const rg_tool_form *form, const json_t *tools, rg_answer *a)
{
    rg_buf text;

    rg_buf_init(&text, RG_ANSWER_CALL_MAX);
    a->failed |= !rg_answer_open_call(a, &text);
    end_call(form, tools, a, &text);
    rg_buf_fini(&text);
}

/* True if text, the last part of an answer, begins a call: a mark says so, or the whole head of one tool's calls. */
static bool begins_call(const rg_tool_form *form, const json_t *tools, const rg_answer *a, const rg_buf *text)
{
    size_t n = strlen(form->before), at = 0, lead = text->n ? strspn(text->data, " \r\n\t") : 0;

    if (rg_answer_is_call(a))
        return true;
    if (rg_tool_form_is_bare(form))
        return text->n && tool_of(form, tools, text, &at) && at < text->n;
    return !a->content.n && lead < text->n && agree(text->data + lead, text->n - lead, form->before, n);
}

void rg_tool_form_end_either(const rg_tool_form *form, const json_t *tools, rg_answer *a)
{
    rg_buf text;

    rg_buf_init(&text, RG_ANSWER_CALL_MAX);
    a->failed |= !rg_answer_open_call(a, &text);
    if (!rg_answer_is_reasoning(a) && begins_call(form, tools, a, &text))
        end_call(form, tools, a, &text);
    else
        rg_answer_end(a);
    rg_buf_fini(&text);
}
