/* out.c -- how results come out: JSON, progress, and what comes in besides options: text, models, Ctrl-C. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"

const char *cli_models_dir, *cli_profile_folder;

/* ---- JSON ---- */

enum { JSON_CAP = 1 << 30, JSON_DEPTH = 16 };

struct cli_json {
    rg_buf buf;
    char closers[JSON_DEPTH];
    bool first[JSON_DEPTH + 1];
    int depth;
};

cli_json *cli_json_new(void)
{
    cli_json *j = rg_zalloc(sizeof *j);

    if (j) {
        rg_buf_init(&j->buf, JSON_CAP);
        j->first[0] = true;
    }
    return j;
}

static void add_quoted(rg_buf *b, const char *s, size_t n)
{
    rg_buf_str(b, "\"");
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        uint32_t code;
        size_t len = (size_t)rg_utf8_decode(s + i, n - i, &code);
        if (c == '"' || c == '\\')
            rg_buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            rg_buf_printf(b, "\\u%04x", c);
        else if (!len)
            rg_buf_str(b, "\xef\xbf\xbd");
        else
            rg_buf_add(b, s + i, len);
        i += len ? len : 1;
    }
    rg_buf_str(b, "\"");
}

static void begin(cli_json *j, const char *key)
{
    if (!j)
        return;
    if (!j->first[j->depth])
        rg_buf_str(&j->buf, ", ");
    j->first[j->depth] = false;
    if (key) {
        add_quoted(&j->buf, key, strlen(key));
        rg_buf_str(&j->buf, ": ");
    }
}

void cli_json_open(cli_json *j, const char *key, char bracket)
{
    if (!j)
        return;
    RG_ASSERT(j->depth < JSON_DEPTH);
    begin(j, key);
    rg_buf_add(&j->buf, &bracket, 1);
    j->closers[j->depth++] = bracket == '{' ? '}' : ']';
    j->first[j->depth] = true;
}

void cli_json_close(cli_json *j)
{
    if (j)
        rg_buf_add(&j->buf, &j->closers[--j->depth], 1);
}

void cli_json_string(cli_json *j, const char *key, const char *s, size_t n)
{
    begin(j, key);
    if (j)
        add_quoted(&j->buf, s, n);
}

void cli_json_text(cli_json *j, const char *key, const char *s)
{
    if (s)
        cli_json_string(j, key, s, strlen(s));
    else
        cli_json_null(j, key);
}

void cli_json_int(cli_json *j, const char *key, int64_t v)
{
    begin(j, key);
    if (j)
        rg_buf_printf(&j->buf, "%lld", (long long)v);
}

void cli_json_u64(cli_json *j, const char *key, uint64_t v)
{
    begin(j, key);
    if (j)
        rg_buf_printf(&j->buf, "%llu", (unsigned long long)v);
}

void cli_json_float(cli_json *j, const char *key, double v)
{
    begin(j, key);
    if (j && isfinite(v))
        rg_buf_printf(&j->buf, "%.9g", v);
    else if (j)
        rg_buf_str(&j->buf, "null");
}

void cli_json_bool(cli_json *j, const char *key, bool v)
{
    begin(j, key);
    if (j)
        rg_buf_str(&j->buf, v ? "true" : "false");
}

void cli_json_null(cli_json *j, const char *key)
{
    begin(j, key);
    if (j)
        rg_buf_str(&j->buf, "null");
}

bool cli_json_print(cli_json *j)
{
    if (!j)
        return false;
    bool ok = !j->buf.failed && fwrite(j->buf.data, 1, j->buf.n, stdout) == j->buf.n && putchar('\n') == '\n' &&
              !fflush(stdout);
    rg_buf_fini(&j->buf);
    rg_free(j);
    return ok;
}

/* ---- models and text ---- */

bool cli_find_model(const char *given, char *out, size_t room, rg_error *err)
{
    const char *name = given ? given : "tales-7m";

    if (given && rg_path_look(given) != RG_PATH_NONE && strlen(given) < room) {
        memcpy(out, given, strlen(given) + 1);
        return true;
    }
    if (cli_models_dir && rg_path_join(out, room, cli_models_dir, name) && rg_path_look(out) != RG_PATH_NONE)
        return true;
    return rg_fail(err, RG_E_IO, "%s: no such file or folder, here or under the models folder (%s)", name,
                   cli_models_dir ? cli_models_dir : "none was found");
}

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
        fprintf(stderr, "ridge: %s: %d tensor%s not used; `ridge inspect` names %s\n", path, n, n > 1 ? "s are" : " is",
                n > 1 ? "them" : "it");
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
