/* suggest.c -- see suggest.h. */
#include "cli/suggest.h"

#include <string.h>

enum { MOST = 64 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The optimal string alignment distance, row by row. */
int cli_word_distance(const char *a, size_t na, const char *b, size_t nb)
{
    int rows[3][MOST], *before = rows[0], *last = rows[1], *now = rows[2];

    if (na >= MOST || nb >= MOST)
        return MOST;
    for (size_t j = 0; j <= nb; j++)
        last[j] = (int)j;
    memcpy(before, last, sizeof rows[0]);
    for (size_t i = 1; i <= na; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[nb];
}

cli_suggestion cli_suggest(const char *typed, size_t n)
{
    /* A third of the letters may be wrong: of "--tempratur" three, of "-x" none. */
    return (cli_suggestion){ .typed = typed, .n = n, .distance = (int)(n / 3) + 1 };
}

void cli_suggest_offer(cli_suggestion *s, const char *word)
{
    int d = cli_word_distance(s->typed, s->n, word, strlen(word));

    if (d < s->distance) {
        s->distance = d;
        s->best = word;
    }
}
