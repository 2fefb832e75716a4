/* chat.c -- `ridge chat`: talk with a model on a terminal.
 *
 * The conversation is kept as JSON and goes through the checkpoint's chat template anew with every message; what was
 * computed for it before is found by the engine's prefix cache.  Ctrl-C stops an answer and not the program. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/engine.h"
#include "cli/lines.h"
#include "cli/sampling.h"

extern const cli_command cli_chat;

enum { LINE_BYTES = 1 << 20, ANSWER_BYTES = 1 << 26 };

typedef struct chat_options {
    cli_args args;
    cli_sampling sampling;
    cli_engine engine;
    const char *system, *thinking_start, *thinking_end;
    int32_t n, thinking_budget;
    bool has_budget;
} chat_options;

typedef struct talk {
    const chat_options *o;
    rg_engine *engine;
    json_t *messages;
    size_t n_left_out; /* messages after the system's that no prompt holds any more, as they do not fit */
    cli_lines *lines;
    bool on_terminal;
} talk;

static const char help[] = "Type a message and press Enter; a line that ends in \\ goes on.  Ctrl-C stops an answer.\n"
                           "  /help           this\n"
                           "  /reset          forget the conversation\n"
                           "  /system TEXT    start anew with this system message\n"
                           "  /save FILE      write the conversation as JSON (`ridge render` reads it)\n"
                           "  /bye            leave (/exit and Ctrl-D too)\n";

/* ---- the conversation -------------------------------------------------------------------------------------------- */

static bool add_message(talk *t, const char *role, const char *text, size_t n, rg_error *err)
{
    json_t *content = json_stringn(text, n);

    if (!content)
        return rg_fail(err, RG_E_INPUT, "chat: the message is not UTF-8");
    if (json_array_append_new(t->messages, json_pack("{s:s, s:o}", "role", role, "content", content)))
        return rg_fail_memory(err, n);
    return true;
}

/* 1 if the conversation begins with a system message, else 0. */
static size_t has_system(const talk *t)
{
    const char *role = json_string_value(json_object_get(json_array_get(t->messages, 0), "role"));

    return role && !strcmp(role, "system");
}

static bool reset(talk *t, const char *system, rg_error *err)
{
    json_array_clear(t->messages);
    t->n_left_out = 0;
    return !system || !*system || add_message(t, "system", system, strlen(system), err);
}

static bool save(const talk *t, const char *path, rg_error *err)
{
    char *text = rg_json_dump(t->messages, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    rg_writer *w = text ? rg_writer_open(path, err) : NULL;
    bool ok = w && rg_writer_write(w, text, strlen(text), err) && rg_writer_write(w, "\n", 1, err);

    if (!text)
        rg_fail_memory(err, 0);
    ok = w && (ok ? rg_writer_commit(w, err) : (rg_writer_abort(w), false));
    rg_free(text); /* jansson uses the same allocator */
    return ok;
}

/* ---- an answer --------------------------------------------------------------------------------------------------- */

/* The answer stopped where the context, or -n, ends: say which.  Models of diffusion fill in whole blocks, which may
 * end before the context does. */
static void tell_cut(const talk *t, const rg_usage *u)
{
    const int32_t context = rg_engine_info(t->engine).max_seq_len;

    if (t->o->args.common.quiet)
        return;
    if (u->n_prompt + u->n_output >= context)
        fprintf(stderr, "[the answer is cut: the context of %d tokens is full; /reset begins anew]\n", context);
    else if (u->n_output < t->o->n)
        fprintf(stderr, "[the answer is cut: there is no room for more; /reset begins anew]\n");
    else
        fprintf(stderr, "[the answer is cut after %d tokens, as -n says]\n", t->o->n);
}

/* Show an answer as it comes; Ctrl-C ends it early. */
static bool stream(const talk *t, rg_request *r, rg_buf *answer, rg_error *err)
{
    rg_finish finish = RG_RUNNING;
    const char *why;
    rg_token token;
    rg_usage u;

    while (rg_next(r, &token)) {
        if (cli_interrupted())
            rg_cancel(r);
        fwrite(token.text, 1, token.n_text, stdout);
        if (!cli_flush(&why))
            return rg_fail(err, RG_E_IO, "chat: standard output cannot be written: %s", why);
        if (!rg_buf_add(answer, token.text, token.n_text))
            return rg_fail(err, RG_E_LIMIT, "chat: the answer has more than %d bytes", ANSWER_BYTES);
        if (!cli_finished(token.finish, err))
            return false;
        finish = token.finish;
    }
    putchar('\n');
    cli_flush(NULL); /* before messages on standard error */
    u = rg_request_usage(r);
    if (finish == RG_FINISH_LENGTH)
        tell_cut(t, &u);
    if (t->on_terminal && !t->o->args.common.quiet)
        fprintf(stderr, "[%d tokens read, %d of them known before, %d written, first after %.0f ms, %.1f tokens/s%s]\n",
                u.n_prompt, u.n_cached, u.n_output, 1e3 * u.ttft_s,
                u.n_paced > 0 && u.paced_s > 0 ? u.n_paced / u.paced_s : 0,
                cli_interrupted() ? ", stopped" : "");
    return true;
}

/* The conversation without the messages that are left out, as ids. */
static bool encode(const talk *t, int32_t **ids, size_t *n, rg_error *err)
{
    json_t *shown = json_copy(t->messages);
    size_t first = has_system(t);
    bool ok = shown || rg_fail_memory(err, 0);

    for (size_t i = 0; ok && i < t->n_left_out; i++)
        json_array_remove(shown, first);
    ok = ok && rg_chat_encode(t->engine, rg_json_of(shown), NULL, ids, n, NULL, err);
    json_decref(shown);
    return ok;
}

/* The same, leaving out the oldest messages until an answer has room: -n tokens, or a quarter of the context if that is
 * less. */
static bool encode_to_fit(talk *t, int32_t **ids, size_t *n, rg_error *err)
{
    const size_t context = (size_t)rg_engine_info(t->engine).max_seq_len, before = t->n_left_out;
    const size_t room = (size_t)t->o->n < context / 4 ? (size_t)t->o->n : context / 4;
    size_t n_whole = 0;

    *ids = NULL;
    for (;; t->n_left_out += 2) {
        rg_ids_free(*ids);
        *ids = NULL;
        if (!encode(t, ids, n, err))
            return false;
        n_whole = n_whole ? n_whole : *n;
        if (*n + room <= context || has_system(t) + t->n_left_out + 2 >= json_array_size(t->messages))
            break;
    }
    if (t->n_left_out > before && !t->o->args.common.quiet)
        fprintf(stderr, "[the oldest %zu messages are left out from here on: the conversation has %zu tokens, and the "
                "context %zu, with room for the answer]\n", t->n_left_out, n_whole, context);
    return true;
}

/* Where a run of ids stands last in ids [n]; -1: nowhere. */
static int64_t find_last(const int32_t *ids, size_t n, const int32_t *run, size_t n_run)
{
    for (size_t i = n_run && n >= n_run ? n - n_run + 1 : 0; i-- > 0;)
        if (!memcmp(ids + i, run, n_run * sizeof *run))
            return (int64_t)i;
    return -1;
}

/* The budget of reasoning: of one that the prompt leaves open, or that the answer begins.  marks: of its beginning and
 * its end, to be freed with rg_ids_free. */
static bool set_budget(const talk *t, const int32_t *ids, size_t n, rg_thinking *to, int32_t *marks[2], rg_error *err)
{
    const char *const texts[2] = { t->o->thinking_start, t->o->thinking_end };
    size_t n_marks[2];

    if (!t->o->has_budget)
        return true;
    for (int i = 0; i < 2; i++)
        if (!rg_encode(t->engine, texts[i], strlen(texts[i]), RG_ENCODE_NO_SPECIAL, &marks[i], &n_marks[i], err))
            return false;
    const bool open = find_last(ids, n, marks[0], n_marks[0]) > find_last(ids, n, marks[1], n_marks[1]);
    *to = (rg_thinking){ .start = marks[0], .n_start = open ? 0 : (int32_t)n_marks[0], .end = marks[1],
                         .n_end = (int32_t)n_marks[1], .budget = t->o->thinking_budget };
    return (n_marks[0] && n_marks[1]) ||
           rg_fail(err, RG_E_USAGE, "chat: --thinking-start or --thinking-end has no ids in this model's vocabulary");
}

static bool answer_of(talk *t, rg_buf *answer, rg_error *err)
{
    int32_t *ids = NULL, *marks[2] = { NULL, NULL };
    size_t n_ids = 0;
    rg_request *r = NULL;
    rg_thinking thinking = { 0 };
    bool ok = encode_to_fit(t, &ids, &n_ids, err) && set_budget(t, ids, n_ids, &thinking, marks, err);

    if (ok) {
        rg_params p = { .prompt = ids, .n_prompt = (int32_t)n_ids, .max_tokens = t->o->n, .n_samples = 1,
                        .sampling = t->o->sampling.s, .adapter = rg_engine_adapter(t->engine, 0),
                        .thinking = thinking };
        r = rg_submit(t->engine, &p, err);
    }
    ok = r && stream(t, r, answer, err);
    rg_request_close(r);
    rg_ids_free(ids);
    rg_ids_free(marks[0]);
    rg_ids_free(marks[1]);
    return ok;
}

/* A message and the answer to it join the conversation, both or neither. */
static bool exchange(talk *t, const char *text, size_t n, rg_error *err)
{
    size_t before = json_array_size(t->messages);
    rg_buf answer;
    bool ok;

    rg_buf_init(&answer, ANSWER_BYTES);
    cli_interrupt_clear();
    ok = add_message(t, "user", text, n, err) && answer_of(t, &answer, err) &&
         add_message(t, "assistant", answer.n ? answer.data : "", answer.n, err);
    while (!ok && json_array_size(t->messages) > before)
        json_array_remove(t->messages, json_array_size(t->messages) - 1);
    rg_buf_fini(&answer);
    cli_interrupt_clear();
    return ok;
}

/* ---- the terminal ------------------------------------------------------------------------------------------------ */

typedef enum heard { HEARD_LINE, HEARD_NOTHING, HEARD_END } heard;

/* One message: a line, and those after it while they end in a backslash. */
static heard listen(const talk *t, rg_buf *message)
{
    cli_line got = CLI_LINE_READ;
    bool more = true;

    rg_buf_reset(message);
    for (const char *prompt = "> "; more; prompt = ". ") {
        got = cli_lines_next(t->lines, prompt, message);
        if (got != CLI_LINE_READ)
            break;
        more = message->n && message->data[message->n - 1] == '\\';
        if (more)
            message->data[message->n - 1] = '\n';
    }
    if (got == CLI_LINE_INTERRUPTED) { /* while nothing was being answered */
        fputs("\n(Ctrl-D or /bye leaves)\n", stderr);
        return HEARD_NOTHING;
    }
    if (message->n)
        cli_lines_remember(t->lines, message->data);
    return message->n ? HEARD_LINE : got == CLI_LINE_END ? HEARD_END : HEARD_NOTHING;
}

/* The text after a command's name; NULL: the line has another command. */
static const char *argument(const char *line, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(line, name, n) || (line[n] && line[n] != ' '))
        return NULL;
    return line + n + strspn(line + n, " ");
}

/* Run a line that starts with '/'.  False: leave the program. */
static bool command(talk *t, const char *line)
{
    rg_error err = { 0 };
    const char *rest;
    bool ok = true;

    if (argument(line, "/bye") || argument(line, "/exit") || argument(line, "/quit"))
        return false;
    if (argument(line, "/reset"))
        ok = reset(t, t->o->system, &err);
    else if ((rest = argument(line, "/system")))
        ok = reset(t, rest, &err);
    else if ((rest = argument(line, "/save")) && *rest)
        ok = save(t, rest, &err);
    else
        fputs(help, stderr);
    if (!ok)
        cli_fail(&err);
    return true;
}

static void converse(talk *t)
{
    rg_buf message;
    rg_error err = { 0 };
    heard h;

    rg_buf_init(&message, LINE_BYTES);
    while ((h = listen(t, &message)) != HEARD_END) {
        if (h == HEARD_NOTHING)
            continue;
        if (message.data[0] == '/' && !command(t, message.data))
            break;
        if (message.data[0] != '/' && !exchange(t, message.data, message.n, &err))
            cli_fail(&err);
    }
    if (t->on_terminal)
        fputc('\n', stderr);
    rg_buf_fini(&message);
}

static cli_lines *open_lines(void)
{
    char history[1024];
    int n = snprintf(history, sizeof history, "%s/history", cli_state_folder ? cli_state_folder : "");

    return cli_lines_open(cli_state_folder && (size_t)n < sizeof history ? history : NULL);
}

static bool chat_with(chat_options *o, rg_engine *engine, rg_error *err)
{
    talk t = { .o = o, .engine = engine, .messages = json_array(), .lines = open_lines() };
    rg_info info = rg_engine_info(engine);
    const char *problem = rg_engine_chat_problem(engine);
    bool ok = (t.messages && t.lines) || rg_fail_memory(err, 0);

    t.on_terminal = t.lines && cli_lines_on_terminal(t.lines);

    ok = ok && (!problem || rg_fail(err, RG_E_UNSUPPORTED, "%s: %s; another one can be given: --chat-template FILE",
                                    o->engine.path, problem));
    ok = ok && cli_sampling_finish(&o->sampling, &info.sampling, err) && reset(&t, o->system, err);
    if (ok && !rg_chat_has_template(engine) && !o->args.common.quiet)
        fprintf(stderr, "%s has no chat template: messages are written as \"role: content\" lines\n", o->engine.path);
    if (ok && t.on_terminal && !o->args.common.quiet)
        fprintf(stderr, "%s, %s, context %d.  /help tells what can be typed.\n", o->engine.path, info.architecture,
                info.max_seq_len);
    if (ok)
        converse(&t);
    cli_lines_close(t.lines);
    json_decref(t.messages);
    return ok;
}

static int run(int argc, char **argv)
{
    static chat_options o = { .n = INT32_MAX, .thinking_start = "<think>", .thinking_end = "</think>" };
    const cli_option options[] = {
        { "--system", CLI_STRING, &o.system, "TEXT", "a system message to begin with" },
        { "-n", CLI_INT, &o.n, "N", "tokens of an answer at most (default: as the context allows)", 1, INT32_MAX },
        { "--thinking-budget", CLI_INT, &o.thinking_budget, "N", "a reasoning is ended after so many tokens", 0,
          INT32_MAX, &o.has_budget },
        { "--thinking-start", CLI_STRING, &o.thinking_start, "TEXT", "this text begins it (default <think>)" },
        { "--thinking-end", CLI_STRING, &o.thinking_end, "TEXT", "and this ends it (default </think>)" },
        CLI_SAMPLING_OPTIONS(o.sampling),
        CLI_ENGINE_OPTIONS(o.engine),
        CLI_CHAT_TEMPLATE_OPTION(o.engine.chat_template),
        CLI_LORA_OPTION(o.engine.loras, "answer with this LoRA adapter"),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_chat, options, argc, argv);
    if (status >= 0)
        return status;
    if (o.args.common.json)
        return cli_usage("chat has no --json: it is for people; `ridge serve` is for programs");
    if (!*o.thinking_start || !*o.thinking_end)
        return cli_usage("chat: --thinking-start and --thinking-end must not be empty");
    rg_engine *engine = cli_engine_open(&o.engine, &o.args, &err);
    cli_catch_interrupt();
    bool ok = engine && cli_engine_generates(&o.engine, engine, &err) && chat_with(&o, engine, &err);
    rg_close(engine);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_chat = {
    .name = "chat", .arguments = "[MODEL]", .summary = "talk with a model on a terminal", .run = run,
    .n_positional = 1,
    .notes = "Without MODEL the shipped story model is used.  Sampling defaults are the checkpoint's own.",
};
