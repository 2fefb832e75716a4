/* render.c -- `ridge render`: a conversation to the text that the model reads, and to its ids. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "cli/engine.h"
#include "text/chat.h"
#include "text/tokenizer.h"

extern const cli_command cli_render;

enum { TEXT_CAP = 1 << 30 };

typedef struct render_options {
    cli_args args;
    const char *template; /* --template, or --chat-template; NULL: the model's choice */
    bool no_prompt;
} render_options;

/* Local time as seconds since 1970. */
static int64_t local_now(void)
{
    time_t now = (time_t)rg_wall_s();
    struct tm t;

    return (int64_t)now + (localtime_r(&now, &t) ? t.tm_gmtoff : 0);
}

static bool print_json(const rg_text *text, const rg_ids *ids, bool tokenized)
{
    cli_json *j = cli_json_new();

    cli_json_open(j, NULL, '{');
    cli_json_string(j, "text", text->bytes.n ? text->bytes.data : "", text->bytes.n);
    if (tokenized) {
        cli_json_open(j, "ids", '[');
        for (size_t i = 0; i < ids->n; i++)
            cli_json_int(j, NULL, ids->id[i]);
        cli_json_close(j);
    } else {
        cli_json_null(j, "ids");
    }
    cli_json_close(j);
    return cli_json_print(j);
}

/* Ids of a rendered text.  A template writes special tokens itself, so the tokenizer adds them only to the plain
 * default. */
static bool show_json(const rg_chat *chat, const char *path, const rg_text *text, rg_error *err)
{
    rg_error why = { 0 };
    rg_tokenizer *t = rg_tokenizer_open_path(path, &why);
    rg_ids ids = { 0 };
    unsigned flags = rg_chat_is_default(chat) ? RG_ENCODE_DEFAULT : RG_ENCODE_NO_SPECIAL;
    bool ok = !t || rg_tokenizer_encode_text(t, text, flags, &ids, err);

    if (ok && !print_json(text, &ids, t))
        ok = rg_fail(err, RG_E_IO, "render: standard output cannot be written");
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);
    return ok;
}

static bool show(const render_options *o, const rg_chat *chat, const char *path, const rg_text *text, rg_error *err)
{
    size_t n = text->bytes.n;

    if (o->args.common.json)
        return show_json(chat, path, text, err);
    if (fwrite(n ? text->bytes.data : "", 1, n, stdout) != n)
        return rg_fail(err, RG_E_IO, "render: standard output cannot be written");
    if (isatty(STDOUT_FILENO) && n && text->bytes.data[n - 1] != '\n')
        putchar('\n');
    return true;
}

static bool render(const render_options *o, const char *path, rg_error *err)
{
    rg_chat *chat = rg_chat_open_path(path, err);
    json_t *conversation = NULL;
    rg_text text;
    size_t n = 0;
    char *given;
    bool ok = chat && (!o->template || rg_chat_choose(chat, o->template, err));

    rg_text_init(&text, TEXT_CAP);
    if (ok && rg_chat_is_default(chat) && !o->args.common.quiet)
        fprintf(stderr, "ridge: %s has no chat template; using the plain default (\"role: content\" lines)\n", path);
    given = ok ? cli_text(NULL, NULL, &n, err) : NULL;
    conversation = given ? rg_json_parse("standard input", given, n, err) : NULL;
    ok = conversation && rg_chat_render(chat, conversation, !o->no_prompt, local_now(), &text, err) &&
         show(o, chat, path, &text, err);
    json_decref(conversation);
    rg_free(given);
    rg_text_fini(&text);
    rg_chat_close(chat);
    return ok;
}

static int run(int argc, char **argv)
{
    static render_options o;
    const cli_option options[] = {
        CLI_CHAT_TEMPLATE_OPTION(o.template),
        { "--template", CLI_STRING, &o.template, "FILE|NAME", "the same" },
        { "--no-generation-prompt", CLI_FLAG, &o.no_prompt, NULL, "do not open the assistant's answer" },
        { NULL },
    };
    char path[1024];
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_render, options, argc, argv);
    if (status >= 0)
        return status;
    if (!o.args.n_positional)
        return cli_usage("render: MODEL is missing; see `ridge render --help`");
    if (!cli_find_model(o.args.positional[0], path, sizeof path, &err) || !render(&o, path, &err))
        return cli_fail(&err);
    return EXIT_DONE;
}

const cli_command cli_render = {
    .name = "render", .arguments = "MODEL", .summary = "a conversation to the text that the model reads, and its ids",
    .notes = "The conversation is JSON on standard input: a list of messages, or an object with \"messages\" and\n"
             "optionally \"tools\", \"documents\" and variables of the template.",
    .run = run,
    .n_positional = 1,
};
