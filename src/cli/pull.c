/* pull.c -- `ridge pull ORG/NAME[:TYPE]`: fetch a model from the Hugging Face hub. */
#include "library/pull.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/models.h"
#include "cli/settings.h"

extern const cli_command cli_pull;

enum { TOKEN_BYTES = 4096 };

static const char *variable(const char *name)
{
    const char *v = cli_environment ? cli_environment(name) : NULL;

    return v && *v ? v : NULL;
}

/* HF_TOKEN, or the token that `hf auth login` keeps; to be freed.  NULL: there is none. */
static char *find_token(void)
{
    const char *v = variable("HF_TOKEN"), *home = variable("HF_HOME"), *user = variable("HOME");
    char path[1024];
    size_t n;

    if (!v)
        v = variable("HUGGING_FACE_HUB_TOKEN");
    if (v)
        return rg_strdup(v);
    if (variable("HF_TOKEN_PATH"))
        snprintf(path, sizeof path, "%.1000s", variable("HF_TOKEN_PATH"));
    else if (home)
        snprintf(path, sizeof path, "%.1000s/token", home);
    else
        snprintf(path, sizeof path, "%.900s/.cache/huggingface/token", user ? user : "");
    char *text = rg_path_look(path) == RG_PATH_FILE ? rg_file_slurp(path, TOKEN_BYTES, &n, NULL) : NULL;
    if (text)
        text[strcspn(text, " \r\n")] = 0;
    if (text && !*text) {
        rg_free(text);
        text = NULL;
    }
    return text;
}

bool cli_fetch_model(const char *name, bool quiet, rg_pulled *out, rg_error *err)
{
    const char *endpoint = variable("HF_ENDPOINT"), *offline = variable("HF_HUB_OFFLINE");
    char *token, *own = rg_strdup(endpoint ? endpoint : "https://huggingface.co");
    size_t n = own ? strlen(own) : 0;

    if (!own)
        return rg_fail_memory(err, 0);
    while (n && own[n - 1] == '/')
        own[--n] = 0;
    token = find_token();
    rg_pull_options o = { .endpoint = own, .token = token, .hub = cli_places.hub, .progress = cli_progress,
                          .arg = quiet ? (void *)own : NULL, .stop = cli_interrupted, .pause_s = 1 };
    bool ok = !offline || !strcmp(offline, "0") ||
              rg_fail(err, RG_E_USAGE, "%s: HF_HUB_OFFLINE is set: nothing is fetched", name);
    if (ok && !o.hub)
        ok = rg_fail(err, RG_E_USAGE, "%s: there is no place for it: set HOME or HF_HOME", name);
    ok = ok && rg_pull(name, &o, out, err);
    rg_free(token);
    rg_free(own);
    return ok;
}

static int run(int argc, char **argv)
{
    static cli_args args;
    static cli_model m;
    rg_pulled got;
    rg_error err = { 0 };
    char size[32];

    int status = cli_parse(&args, &cli_pull, NULL, argc, argv);
    if (status >= 0)
        return status;
    if (!args.n_positional)
        return cli_usage("pull: MODEL is missing, as ORG/NAME or ORG/NAME:TYPE; see `ridge pull --help`");
    cli_catch_interrupt();
    if (!cli_fetch_model(args.positional[0], args.common.quiet, &got, &err))
        return cli_fail(&err);
    m = (cli_model){ .found = got.found };
    cli_model_look(&m);
    if (args.common.json) {
        cli_json *j = cli_json_new();
        cli_json_open(j, NULL, '{');
        cli_json_open(j, "models", '[');
        cli_model_json(j, &m, false);
        cli_json_close(j);
        cli_json_int(j, "files", got.n_files);
        cli_json_int(j, "fetched", got.n_fetched);
        cli_json_u64(j, "bytes", got.bytes);
        cli_json_close(j);
        status = cli_json_print(j) ? EXIT_DONE : EXIT_FAILED;
    } else {
        printf("%s\n", got.found.path);
        if (!args.common.quiet)
            fprintf(stderr, "ridge: %s: %d files, %s, %d of them fetched now%s%s\n", args.positional[0], got.n_files,
                    cli_bytes_text(got.bytes, size), got.n_fetched, m.problem[0] ? "; it cannot be used: " : "",
                    m.problem);
    }
    cli_model_fini(&m);
    return status < 0 ? EXIT_DONE : status;
}

const cli_command cli_pull = {
    .name = "pull", .arguments = "MODEL", .summary = "fetch a model from the Hugging Face hub", .run = run,
    .n_positional = 1,
    .notes = "MODEL is ORG/NAME, ORG/NAME:TYPE (a GGUF file: Q4_K_M) or ORG/NAME@REVISION.  It goes into the cache of\n"
             "the Hugging Face libraries (HF_HUB_CACHE, HF_HOME), whole or not at all; what stopped halfway goes on.\n"
             "HF_ENDPOINT is another hub, HF_TOKEN a token for models that need one.",
};
