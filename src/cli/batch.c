/* batch.c -- `ridge batch`: requests from a file, answers into a file, without a server; it goes on where it ended. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/engine.h"
#include "server/batch/file.h"

extern const cli_command cli_batch;

typedef struct batch_options {
    cli_args args;
    cli_engine engine;
    rg_server_options s;
    int32_t batch_rows;
    bool resume, restart;
} batch_options;

static bool is_interrupted(void *arg)
{
    (void)arg;
    return cli_interrupted();
}

static void tell_progress(void *arg, int64_t n_answered, int64_t n_lines)
{
    const batch_options *o = arg;

    cli_progress(o->args.common.quiet ? arg : NULL, "answering", (double)n_answered / (double)n_lines);
}

static rg_engine *open_engine(batch_options *o, const char *model, rg_error *err)
{
    rg_engine *e = NULL;

    if (cli_ranks_start(&o->args.common, err) && cli_loras_read(&o->engine.loras, err) &&
        cli_find_model(model, o->engine.path, sizeof o->engine.path, err)) {
        rg_options options = cli_engine_options(&o->engine, &o->args.common);

        options.max_batch_rows = o->batch_rows;
        options.max_waiting = o->s.max_waiting;
        options.step_s = 0; /* nobody waits for a token: prompts are not cut to be in time */
        options.pace = 0;
        e = rg_open(o->engine.path, &options, err);
    }
    if (!e)
        return NULL;
    rg_info info = rg_engine_info(e);
    cli_warn_unused(&o->args.common, o->engine.path, info.n_unused_tensors);
    cli_warn_notes(&o->args.common, o->engine.path, info.notes);
    return e;
}

static bool print_counts(const batch_options *o, const rg_batch_run *r, double seconds)
{
    rg_batch_counts n = rg_batch_file_counts(r);

    if (o->args.common.json) {
        cli_json *j = cli_json_new();
        cli_json_open(j, NULL, '{');
        cli_json_int(j, "done", n.n_done);
        cli_json_int(j, "failed", n.n_failed);
        cli_json_int(j, "lines", n.n_lines);
        cli_json_int(j, "answered_before", n.n_before);
        cli_json_float(j, "seconds", seconds);
        cli_json_close(j);
        return cli_json_print(j);
    }
    printf("%" PRId64 " of %" PRId64 " lines done, %" PRId64 " failed", n.n_done, n.n_lines, n.n_failed);
    if (n.n_before)
        printf(" (%" PRId64 " were answered before)", n.n_before);
    printf(", %.1f s\n", seconds);
    return true;
}

/* Open the model, if a line is left, and answer. */
static bool answer(batch_options *o, rg_batch_run *r, const char *model, rg_error *err)
{
    rg_batch_counts n = rg_batch_file_counts(r);

    if (n.n_done + n.n_failed == n.n_lines)
        return true;
    rg_engine *e = open_engine(o, model, err);
    rg_server *s = e ? rg_server_open(&o->s, err) : NULL;
    bool ok = s != NULL;

    if (ok) {
        rg_server_ready(s, e);
        ok = rg_batch_file_answer(r, s, err);
    }
    rg_server_close(s);
    rg_close(e);
    return ok;
}

static bool batch(batch_options *o, rg_error *err)
{
    const int first = o->args.n_positional - 2;
    const int32_t n_seqs = o->engine.max_seqs ? o->engine.max_seqs : 64;
    const char *model = first ? o->args.positional[0] : o->args.model; /* or what a setting says */
    const uint64_t from = rg_now_ns();
    /* As many as run, and as many again so that none is waited for. */
    const rg_batch_file files = { .in = o->args.positional[first],
                                  .out = o->args.positional[first + 1],
                                  .anew = o->restart,
                                  .n_at_once = n_seqs < 512 ? 2 * n_seqs : 1024,
                                  .stop = is_interrupted,
                                  .progress = tell_progress,
                                  .arg = o };

    cli_catch_interrupt();
    rg_batch_run *r = rg_batch_file_open(&files, err);
    bool ok = r && answer(o, r, model, err);
    if (ok && !print_counts(o, r, rg_seconds(from, rg_now_ns())))
        ok = rg_fail(err, RG_E_IO, "batch: standard output cannot be written");
    if (ok && rg_batch_file_counts(r).n_done + rg_batch_file_counts(r).n_failed < rg_batch_file_counts(r).n_lines)
        ok = rg_fail(err, RG_E_IO, "batch: interrupted; the same command goes on with the lines that are left");
    rg_batch_file_close(r);
    return ok;
}

static int run(int argc, char **argv)
{
    static batch_options o;
    const cli_option options[] = {
        CLI_ENGINE_OPTIONS(o.engine),
        CLI_CHAT_TEMPLATE_OPTION(o.engine.chat_template),
        { "--chat-template-kwargs", CLI_STRING, &o.s.template_kwargs, "JSON",
          "variables of the chat template, where a request does not set them" },
        { "--tool-format", CLI_STRING, &o.s.tool_format, "NAME",
          "how the model marks reasoning and calls (default: as its template does)" },
        CLI_LORA_OPTION(o.engine.loras, "a LoRA adapter, for requests whose model is NAME (repeatable)"),
        { "-n", CLI_INT, &o.s.max_tokens, "N", "tokens of an answer where a request does not say (default: no limit)",
          1, INT32_MAX },
        { "--batch-rows", CLI_INT, &o.batch_rows, "N", "rows of a step at most", 1, 65536 },
        { "--resume", CLI_FLAG, &o.resume, NULL,
          "go on with OUT.jsonl where it ends; what is done anyway where it has answers to IN.jsonl" },
        { "--restart", CLI_FLAG, &o.restart, NULL, "write OUT.jsonl anew, whatever it has" },
        { NULL },
    };
    rg_error err = { 0 };

    o.s = rg_server_options_default();
    o.s.no_listener = true;
    o.s.watchdog_s = o.s.queue_timeout_s = o.s.request_timeout_s = 0; /* as long as it takes */
    o.s.max_waiting = 2048;
    int status = cli_parse(&o.args, &cli_batch, options, argc, argv);
    if (status >= 0)
        return status;
    if (o.args.n_positional < 2)
        return cli_usage("batch: IN.jsonl and OUT.jsonl are needed; see `ridge batch --help`");
    if (o.resume && o.restart)
        return cli_usage("batch: --resume and --restart do not go together");
    return batch(&o, &err) ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_batch = {
    .name = "batch",
    .arguments = "[MODEL] IN.jsonl OUT.jsonl",
    .summary = "answer a file of requests, without a server",
    .run = run,
    .n_positional = 3,
    .notes = "A line of IN is a request as /v1/batches takes them: custom_id, method, url and body.  The url is\n"
             "/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses or /v1/messages.  Each answer is\n"
             "added to OUT as a line as soon as it is there, in any order; a line that is wrong has its error there.\n"
             "After an end at any moment the same command goes on with the lines that have no answer.",
};
