/* lines.c -- see lines.h. */
#include "cli/lines.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef RG_HAS_LIBEDIT
#include <histedit.h>
#include <wchar.h>
#endif

#include "base/mem.h"
#include "cli/cli.h"

enum { HISTORY_LINES = 1000, LOOK_MS = 200 };

struct cli_lines {
    bool on_terminal, interrupted, any;
    const char *prompt;
    char *history_path; /* NULL: kept nowhere */
    char *line;         /* of getline */
    size_t room;
#ifdef RG_HAS_LIBEDIT
    EditLine *edit; /* NULL: lines are not edited */
    History *history;
#endif
};

#ifdef RG_HAS_LIBEDIT
static char *edit_prompt(EditLine *e)
{
    void *l = NULL;

    el_get(e, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)((cli_lines *)l)->prompt;
}

/* One character; libedit's own function takes a signal for nothing, so that Ctrl-C would have to be typed twice. */
static int edit_read(EditLine *e, wchar_t *out)
{
    mbstate_t state = { 0 };
    void *l = NULL;
    char byte;

    el_get(e, EL_CLIENTDATA, &l);
    for (;;) {
        struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
        size_t made;

        if (cli_interrupted()) /* it may have come before this call: so it is looked for now and then, too */
            return ((cli_lines *)l)->interrupted = true, -1;
        if (poll(&in, 1, LOOK_MS) <= 0)
            continue;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue; /* the window has another size, for example */
        if (n <= 0)
            return n == 0 ? 0 : -1;
        made = mbrtowc(out, &byte, 1, &state);
        if (made == (size_t)-1)
            state = (mbstate_t){ 0 }; /* no character: wait for the next */
        else if (made != (size_t)-2)
            return 1;
    }
}

/* Where the folder of the history is missing, there is none yet. */
static void edit_open(cli_lines *l)
{
    HistEvent event;

    setlocale(LC_CTYPE, "C.UTF-8"); /* characters of several bytes; nothing else of the program follows a locale */
    l->edit = el_init("ridge", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->edit || !l->history)
        return;
    history(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history(l->history, &event, H_SETUNIQUE, 1);
    if (l->history_path)
        history(l->history, &event, H_LOAD, l->history_path);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_PROMPT, edit_prompt);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_SIGNAL, 0);
    el_set(l->edit, EL_GETCFN, edit_read);
    el_set(l->edit, EL_HIST, history, l->history);
    el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

/* Every folder on the way to a file, for its owner alone. */
static void make_folders(char *path)
{
    for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        (void)mkdir(path, 0700); /* what fails here fails below, too */
        *s = '/';
    }
}

static void edit_close(cli_lines *l)
{
    char temporary[1100];
    HistEvent event;

    if (l->history && l->history_path && l->any &&
        (size_t)snprintf(temporary, sizeof temporary, "%s.%d", l->history_path, (int)getpid()) < sizeof temporary) {
        make_folders(l->history_path);
        if (history(l->history, &event, H_SAVE, temporary) < 0 || rename(temporary, l->history_path))
            unlink(temporary);
    }
    if (l->history)
        history_end(l->history);
    if (l->edit)
        el_end(l->edit);
}

static bool edit_is_open(const cli_lines *l)
{
    return l->edit;
}

static ssize_t edit_line(cli_lines *l, const char **line)
{
    int n = 0;

    *line = el_gets(l->edit, &n);
    return *line ? n : -1;
}

void cli_lines_remember(cli_lines *l, const char *text)
{
    HistEvent event;

    if (l->history && *text) {
        history(l->history, &event, H_ENTER, text);
        l->any = true;
    }
}
#else
static void edit_open(cli_lines *l)
{
    (void)l;
}

static void edit_close(cli_lines *l)
{
    (void)l;
}

static bool edit_is_open(const cli_lines *l)
{
    return (void)l, false;
}

static ssize_t edit_line(cli_lines *l, const char **line)
{
    return (void)l, *line = NULL, -1;
}

void cli_lines_remember(cli_lines *l, const char *text)
{
    (void)l, (void)text;
}
#endif

cli_lines *cli_lines_open(const char *history)
{
    cli_lines *l = rg_zalloc(sizeof *l);

    if (!l)
        return NULL;
    l->on_terminal = isatty(STDIN_FILENO);
    l->history_path = history ? rg_strdup(history) : NULL;
    if (l->on_terminal && isatty(STDOUT_FILENO))
        edit_open(l);
    return l;
}

void cli_lines_close(cli_lines *l)
{
    if (!l)
        return;
    edit_close(l);
    rg_free(l->history_path);
    free(l->line); /* getline's */
    rg_free(l);
}

bool cli_lines_on_terminal(const cli_lines *l)
{
    return l->on_terminal;
}

static ssize_t plain_line(cli_lines *l, const char **line)
{
    ssize_t n;

    if (l->on_terminal) {
        fputs(l->prompt, stderr);
        fflush(stderr);
    }
    errno = 0;
    n = getline(&l->line, &l->room, stdin);
    l->interrupted = n < 0 && errno == EINTR;
    clearerr(stdin);
    *line = l->line;
    return n;
}

cli_line cli_lines_next(cli_lines *l, const char *prompt, rg_buf *to)
{
    const char *line;

    l->prompt = prompt;
    l->interrupted = false;
    ssize_t n = edit_is_open(l) ? edit_line(l, &line) : plain_line(l, &line);
    if (n < 0 && l->interrupted) {
        cli_interrupt_clear();
        return CLI_LINE_INTERRUPTED;
    }
    if (n < 0)
        return CLI_LINE_END;
    n -= n > 0 && line[n - 1] == '\n';
    return rg_buf_add(to, line, (size_t)n) ? CLI_LINE_READ : CLI_LINE_END;
}
