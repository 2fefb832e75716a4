/* out.c -- output: JSON, progress; and input besides options: text, models, Ctrl-C. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"

rg_places cli_places;
const char *cli_models_dir, *cli_profile_folder, *cli_state_folder;

/* ---- files ---- */

bool cli_write_file(const char *path, rg_buf *b, rg_error *err)
{
    const bool ok = b->failed ? rg_fail_memory(err, b->n) : rg_file_put(path, b->data, b->n, err);

    rg_buf_fini(b);
    return ok;
}

/* ---- standard output ---- */

bool cli_flush(const char **why)
{
    static int first; /* errno of the first failure: later ones may fail otherwise, or not at all */

    if ((fflush(stdout) || ferror(stdout)) && !first)
        first = errno ? errno : EIO;
    if (first && why)
        *why = strerror(first);
    return !first;
}

/* ---- JSON ---- */

enum { JSON_CAP = 1 << 30, JSON_DEPTH = 16 };

struct cli_json {
    rg_buf buf;
    char closers[JSON_DEPTH];
    int depth;
};

cli_json *cli_json_new(void)
{
    cli_json *j = rg_zalloc(sizeof *j);

    if (j)
        rg_buf_init(&j->buf, JSON_CAP);
    return j;
}

void cli_json_open(cli_json *j, const char *key, char bracket)
{
    if (!j)
        return;
    RG_ASSERT(j->depth < JSON_DEPTH);
    rg_out_open(&j->buf, key, bracket);
    j->closers[j->depth++] = bracket == '{' ? '}' : ']';
}

void cli_json_close(cli_json *j)
{
    if (j)
        rg_out_close(&j->buf, j->closers[--j->depth]);
}

void cli_json_string(cli_json *j, const char *key, const char *s, size_t n)
{
    if (j)
        rg_out_string(&j->buf, key, s, n);
}

void cli_json_text(cli_json *j, const char *key, const char *s)
{
    if (j)
        rg_out_text(&j->buf, key, s);
}

void cli_json_int(cli_json *j, const char *key, int64_t v)
{
    if (j)
        rg_out_int(&j->buf, key, v);
}

void cli_json_u64(cli_json *j, const char *key, uint64_t v)
{
    if (j)
        rg_out_u64(&j->buf, key, v);
}

void cli_json_float(cli_json *j, const char *key, double v)
{
    if (j)
        rg_out_real(&j->buf, key, v);
}

void cli_json_bool(cli_json *j, const char *key, bool v)
{
    if (j)
        rg_out_bool(&j->buf, key, v);
}

void cli_json_null(cli_json *j, const char *key)
{
    if (j)
        rg_out_null(&j->buf, key);
}

bool cli_json_print(cli_json *j)
{
    if (!j)
        return false;
    bool ok = !j->buf.failed && fwrite(j->buf.data, 1, j->buf.n, stdout) == j->buf.n && putchar('\n') == '\n' &&
              cli_flush(NULL);
    rg_buf_fini(&j->buf);
    rg_free(j);
    return ok;
}

bool cli_json_write(cli_json *j, const char *path, rg_error *err)
{
    if (!j)
        return rg_fail_memory(err, sizeof *j);
    rg_buf_str(&j->buf, "\n");
    bool ok = cli_write_file(path, &j->buf, err);
    rg_free(j);
    return ok;
}

/* ---- text ---- */

static char *read_stdin(size_t *n, rg_error *err)
{
    rg_buf b;
    char chunk[65536];
    size_t got;

    rg_buf_init(&b, (size_t)1 << 30);
    while ((got = fread(chunk, 1, sizeof chunk, stdin)) > 0) {
        if (!rg_buf_add(&b, chunk, got)) {
            rg_buf_fini(&b);
            return rg_fail(err, RG_E_LIMIT, "standard input is larger than 1 GiB"), NULL;
        }
    }
    char *text = rg_strndup(b.data ? b.data : "", b.n);
    *n = b.n;
    rg_buf_fini(&b);
    if (!text)
        rg_fail_memory(err, *n);
    return text;
}

char *cli_text(const char *text, const char *file, size_t *n, rg_error *err)
{
    if (text) {
        char *copy = rg_strdup(text);
        *n = strlen(text);
        if (!copy)
            rg_fail_memory(err, *n);
        return copy;
    }
    if (file && strcmp(file, "-"))
        return rg_file_slurp(file, (size_t)1 << 30, n, err);
    return read_stdin(n, err);
}

/* ---- a person watching ---- */

void cli_warn_unused(const cli_common *common, const char *path, int n)
{
    if (n && !common->quiet)
        rg_log(RG_LOG_WARN, "%s: %d tensor%s not used; `ridge inspect` names %s", path, n, n > 1 ? "s are" : " is",
               n > 1 ? "them" : "it");
}

void cli_warn_notes(const cli_common *common, const char *path, const char *notes)
{
    for (size_t n; notes && *notes && !common->quiet; notes += n + (notes[n] == '\n')) {
        n = strcspn(notes, "\n");
        rg_log(RG_LOG_WARN, "%s: %.*s", path, (int)n, notes);
    }
}

void cli_progress(void *arg_quiet, const char *what, double done)
{
    static int last = -1;
    int now = (int)(done * 40);

    if (arg_quiet || !isatty(STDERR_FILENO) || now == last)
        return;
    last = now;
    fprintf(stderr, "\r%s [%.*s%*s]", what, now, "########################################", 40 - now, "");
    if (now == 40) {
        fprintf(stderr, "\r%*s\r", (int)strlen(what) + 43, "");
        last = -1;
    }
    fflush(stderr);
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    if (interrupted)
        _exit(128 + signal_number);
    interrupted = 1;
}

void cli_catch_interrupt(void)
{
    struct sigaction action = { .sa_handler = on_interrupt };

    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted;
}

void cli_interrupt_clear(void)
{
    interrupted = 0;
}
