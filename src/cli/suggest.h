/* suggest.h -- "did you mean": the known word that is nearest to one that was typed. */
#ifndef RG_CLI_SUGGEST_H
#define RG_CLI_SUGGEST_H

#include <stddef.h>

typedef struct cli_suggestion {
    const char *typed; /* n bytes */
    size_t n;
    const char *best; /* NULL: nothing is near enough */
    int distance;     /* of it */
} cli_suggestion;

/* Begin with the n bytes that were typed. */
cli_suggestion cli_suggest(const char *typed, size_t n);
/* Offer a known word, which must live as long as the suggestion. */
void cli_suggest_offer(cli_suggestion *s, const char *word);
/* Letters to insert, delete, change or swap with their neighbour, to make b of a; words of up to 63 bytes, for longer
 * ones 64. */
int cli_word_distance(const char *a, size_t na, const char *b, size_t nb);

#endif
