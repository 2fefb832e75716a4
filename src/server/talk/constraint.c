/* constraint.c -- see constraint.h: response_format, and the other names that clients use for it.
 *
 * It is only read here; the engine compiles it (rg_grammar_new). */
#include "server/talk/constraint.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

void rg_constraint_fini(rg_constraint *c)
{
    rg_free(c->text);
    *c = (rg_constraint){ 0 };
}

/* The source is a text of the request, or a part of it as JSON. */
static bool take(rg_constraint *c, rg_grammar_kind kind, const char *name, const json_t *v, rg_refusal *e)
{
    if (c->name == name)
        return rg_refuse_field(e, name, "'%s' must say one thing.", name);
    if (c->name)
        return rg_refuse_field(e, name, "'%s' and '%s' cannot both be given.", c->name, name);
    c->name = name;
    c->kind = kind;
    c->text = json_is_string(v) ? rg_strndup(json_string_value(v), json_string_length(v))
                                : rg_json_dump(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!c->text)
        return rg_refuse_memory(e);
    c->n = json_is_string(v) ? json_string_length(v) : strlen(c->text);
    return true;
}

/* Fields that are a source by themselves, and what a source may be. */
typedef struct source {
    const char *name;
    rg_grammar_kind kind;
    bool text, list, object;
} source;

static bool take_source(rg_constraint *c, const source *s, const char *name, const json_t *v, rg_refusal *e)
{
    if ((json_is_string(v) && s->text) || (json_is_array(v) && s->list) || (json_is_object(v) && s->object))
        return take(c, s->kind, name, v, e);
    return rg_refuse_field(e, name, "'%s' must be %s.", name,
                           s->list     ? "a list of texts"
                           : s->object ? "a JSON schema"
                                       : "a text");
}

/* { "type": "grammar", "grammar": { "syntax": "lark" | "regex", "definition": text } }, or flat as custom tools have
 * it. */
static bool read_grammar(rg_constraint *c, const json_t *v, const char *name, rg_refusal *e)
{
    static const struct {
        const char *syntax;
        rg_grammar_kind kind;
    } known[] = { { "lark", RG_GRAMMAR_LARK }, { "regex", RG_GRAMMAR_REGEX }, { "gbnf", RG_GRAMMAR_GBNF } };
    const json_t *wrapped = json_object_get(v, "grammar"), *in = json_is_object(wrapped) ? wrapped : v;
    const char *syntax = json_string_value(json_object_get(in, "syntax"));
    const json_t *definition = json_object_get(in, "definition");

    if (!syntax || !json_is_string(definition))
        return rg_refuse_field(e, name, "'%s' of type 'grammar' must have a 'syntax' and a 'definition', both texts.",
                               name);
    for (size_t i = 0; i < RG_LEN(known); i++)
        if (!strcmp(known[i].syntax, syntax))
            return take(c, known[i].kind, name, definition, e);
    return rg_refuse_field(e, name, "'%s.grammar.syntax' must be one of lark|regex|gbnf.", name);
}

/* response_format, and the "format" of other endpoints, where the schema stands a level higher.  With
 * json_object too a schema counts, as other servers have it. */
static bool read_format(rg_constraint *c, const json_t *v, const char *name, rg_refusal *e)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *wrapped = json_object_get(v, "json_schema");
    const json_t *schema = json_object_get(wrapped ? wrapped : v, "schema");
    json_t *any;
    bool ok;

    if (!json_is_object(v) || !type)
        return rg_refuse_field(e, name, "'%s' must be an object with a 'type'.", name);
    if (!strcmp(type, "text"))
        return true;
    if (!strcmp(type, "grammar"))
        return read_grammar(c, v, name, e);
    bool any_object = !strcmp(type, "json_object");
    if (!any_object && strcmp(type, "json_schema") != 0)
        return rg_refuse_field(e, name, "'%s.type' must be one of text|json_object|json_schema|grammar.", name);
    c->open_objects = json_is_false(json_object_get(wrapped ? wrapped : v, "strict"));
    if (json_is_object(schema))
        return take(c, RG_GRAMMAR_JSON_SCHEMA, name, schema, e);
    if (!any_object || (schema && !json_is_null(schema)))
        return rg_refuse_field(e, name, "'%s' has no schema.", name);
    any = json_string("");
    ok = any ? take(c, RG_GRAMMAR_JSON, name, any, e) : rg_refuse_memory(e);
    json_decref(any);
    return ok;
}

/* Ollama's "format": "json", or a schema. */
static bool read_plain_format(rg_constraint *c, const json_t *v, const char *name, rg_refusal *e)
{
    const char *word = json_string_value(v);

    if (word && !strcmp(word, "json")) {
        json_t *any = json_string("");
        bool ok = any ? take(c, RG_GRAMMAR_JSON, name, any, e) : rg_refuse_memory(e);
        json_decref(any);
        return ok;
    }
    if (!json_is_object(v))
        return rg_refuse_field(e, name, "'%s' must be \"json\" or a JSON schema.", name);
    return take(c, RG_GRAMMAR_JSON_SCHEMA, name, v, e);
}

/* structured_outputs: one member that says what. */
static bool read_structured(rg_constraint *c, const json_t *v, rg_refusal *e)
{
    static const source members[] = {
        { "json", RG_GRAMMAR_JSON_SCHEMA, .text = true, .object = true },
        { "regex", RG_GRAMMAR_REGEX, .text = true },
        { "choice", RG_GRAMMAR_CHOICE, .list = true },
        { "grammar", RG_GRAMMAR_GBNF, .text = true },
    };
    static const char name[] = "structured_outputs";
    const char *key;
    json_t *member;

    if (!json_is_object(v))
        return rg_refuse_field(e, name, "'%s' must be an object.", name);
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        size_t i = 0;

        if (json_is_null(member) || json_is_false(member))
            continue;
        while (i < RG_LEN(members) && strcmp(members[i].name, key) != 0)
            i++;
        if (i == RG_LEN(members))
            return rg_refuse(e, 400, "unsupported_value", name, "'%s' must have one of json|regex|choice|grammar.",
                             name);
        if (!take_source(c, &members[i], name, member, e))
            return false;
    }
    return true;
}

bool rg_constraint_read(rg_constraint *c, const json_t *v, const char *name, rg_refusal *e)
{
    static const source sources[] = {
        { "grammar", RG_GRAMMAR_GBNF, .text = true },
        { "json_schema", RG_GRAMMAR_JSON_SCHEMA, .text = true, .object = true },
        { "guided_json", RG_GRAMMAR_JSON_SCHEMA, .text = true, .object = true },
        { "guided_regex", RG_GRAMMAR_REGEX, .text = true },
        { "guided_choice", RG_GRAMMAR_CHOICE, .list = true },
        { "guided_grammar", RG_GRAMMAR_GBNF, .text = true },
        { "regex", RG_GRAMMAR_REGEX, .text = true },
        { "ebnf", RG_GRAMMAR_GBNF, .text = true },
        { "grammar_string", RG_GRAMMAR_GBNF, .text = true },
    };

    if (!v || json_is_null(v))
        return true;
    if (!strcmp(name, "format"))
        return read_plain_format(c, v, name, e);
    if (!strcmp(name, "structured_outputs"))
        return read_structured(c, v, e);
    for (size_t i = 0; i < RG_LEN(sources); i++)
        if (!strcmp(name, sources[i].name))
            return take_source(c, &sources[i], name, v, e);
    return read_format(c, v, name, e);
}
