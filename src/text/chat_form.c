/* chat_form.c -- see chat_form.h: asking a template.  Bringing a conversation into its form is chat_fit.c. */
#include "text/chat_form.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { OUT_CAP = 1 << 20 };

/* Words that stand in no template. */
#define TEXT "ridgeprobetext"
#define KEY  "ridge_argument"

/* What is asked of a rendered conversation. */
typedef bool is_shown(const char *rendered);

typedef struct learner {
    const rg_jinja *template;
    const json_t *variables;
    rg_error *err;
    bool failed; /* no memory */
} learner;

/* ---- conversations, in which %s is a content ---- */

#define USER   "{\"role\": \"user\", \"content\": \"Hi\"}"
#define CALL(id, arguments)                                                                                            \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"" id                                     \
    "\", \"type\": \"function\", \"function\": {\"name\": \"add\", \"arguments\": " arguments "}}]}"
#define RESULT(id, content)                                                                                            \
    "{\"role\": \"tool\", \"name\": \"add\", \"tool_call_id\": \"" id "\", \"content\": " content "}"
#define SHORT  "ridge0001"
#define LONG   "call_ridge0000000000000000001"
#define OBJECT "{\"" KEY "\": 7}"

static const char *const of_role[RG_N_ROLES] = {
    [RG_ROLE_USER] = "[{\"role\": \"user\", \"content\": %s}]",
    [RG_ROLE_SYSTEM] = "[{\"role\": \"system\", \"content\": %s}, " USER "]",
    [RG_ROLE_ASSISTANT] = "[" USER ", {\"role\": \"assistant\", \"content\": %s}, " USER "]",
    [RG_ROLE_TOOL] = "[" USER ", " CALL(SHORT, OBJECT) ", " RESULT(SHORT, "%s") "]",
};
static const char with_arguments[] = "[" USER ", " CALL(SHORT, OBJECT) "]";
static const char with_long_id[] = "[" USER ", " CALL(LONG, OBJECT) ", " RESULT(LONG, "\"8\"") "]";

static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"Adds.\", "
                            "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, "
                            "\"required\": [\"a\"]}}}]";

/* ---- what a rendered text shows ---- */

static bool is_anything(const char *s)
{
    (void)s;
    return true;
}

static bool has_text(const char *s)
{
    return strstr(s, TEXT);
}

/* The text alone, not the list that it was in. */
static bool has_text_of_parts(const char *s)
{
    return has_text(s) && !strstr(s, "'type': 'text'") && !strstr(s, "\"type\": \"text\"") &&
           !strstr(s, "\"type\":\"text\"");
}

/* An object, not as Python shows a dictionary. */
static bool has_object(const char *s)
{
    return strstr(s, KEY) && !strstr(s, "'" KEY "'");
}

/* JSON, not a text that has been quoted once more. */
static bool has_json(const char *s)
{
    return strstr(s, "\"" KEY "\"") != NULL;
}

/* ---- asking ---- */

/* The template's variables with these messages; NULL: no memory. */
static json_t *variables_of(json_t *messages, bool with_tools)
{
    json_t *list = with_tools ? rg_json_load(tools, strlen(tools), 0, NULL) : json_null();

    return json_pack("{s:O, s:o, s:n, s:b}", "messages", messages, "tools", list, "documents", "add_generation_prompt",
                     0);
}

/* True if the messages, as they are, are rendered, and shown says yes. */
static bool renders(learner *l, json_t *messages, bool with_tools, is_shown *shown)
{
    json_t *foreign = messages ? variables_of(messages, with_tools) : NULL;
    rg_jinja_input input = { .trusted = l->variables, .foreign = foreign };
    rg_error why = { 0 };
    rg_text out;
    bool ok = false;

    if (!foreign) {
        l->failed = true;
        return rg_fail_memory(l->err, OUT_CAP);
    }
    rg_text_init(&out, OUT_CAP);
    if (rg_jinja_render(l->template, &input, &out, &why))
        ok = shown(out.bytes.n ? out.bytes.data : "");
    else if (why.code == RG_E_MEMORY)
        l->failed = !rg_fail_memory(l->err, OUT_CAP);
    rg_text_fini(&out);
    json_decref(foreign);
    return ok;
}

/* The same of a conversation as text, brought into form f. */
static bool takes(learner *l, const rg_chat_form *f, const char *conversation, is_shown *shown)
{
    json_t *given = l->failed ? NULL : rg_json_load(conversation, strlen(conversation), 0, NULL), *messages;
    bool ok;

    if (l->failed)
        return false;
    messages = given ? rg_chat_form_fit(f, given, l->err) : NULL;
    ok = renders(l, messages, strstr(conversation, "tool_calls"), shown);
    json_decref(given);
    json_decref(messages);
    return ok;
}

/* The bits of one role must not be set: the content is given as it is. */
static void learn_content(learner *l, rg_chat_form *f, rg_chat_role role)
{
    char as_text[1024], as_parts[1024];

    snprintf(as_text, sizeof as_text, of_role[role], "\"" TEXT "\"");
    snprintf(as_parts, sizeof as_parts, of_role[role], "[{\"type\": \"text\", \"text\": \"" TEXT "\"}]");
    bool text = takes(l, f, as_text, has_text), parts = takes(l, f, as_parts, has_text_of_parts);
    f->no_text[role] = parts && !text;
    f->no_parts[role] = text && !parts;
}

static void learn_arguments(learner *l, rg_chat_form *f)
{
    rg_chat_form other = *f;

    other.text_arguments = true;
    f->text_arguments = !takes(l, f, with_arguments, has_object) && takes(l, &other, with_arguments, has_json);
}

static void learn_ids(learner *l, rg_chat_form *f)
{
    rg_chat_form other = *f;

    other.id_chars = (int)strlen(SHORT);
    if (!takes(l, f, with_long_id, is_anything) && takes(l, &other, with_long_id, is_anything))
        f->id_chars = other.id_chars;
}

bool rg_chat_form_learn(rg_chat_form *f, const rg_jinja *template, const json_t *variables, rg_error *err)
{
    learner l = { .template = template, .variables = variables, .err = err };

    *f = (rg_chat_form){ .id_chars = 0 };
    for (int role = 0; role < RG_ROLE_TOOL; role++)
        learn_content(&l, f, (rg_chat_role)role);
    learn_arguments(&l, f);
    learn_ids(&l, f);
    learn_content(&l, f, RG_ROLE_TOOL);
    return !l.failed;
}
