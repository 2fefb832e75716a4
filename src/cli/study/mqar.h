/* mqar.h -- multi-query associative recall (Arora et al. 2023, "Zoology"): texts that ask a model to look up what stood
 * beside a key before.
 *
 * A text begins with pairs of a key and its value.  Later each key stands once more, and there its value is to be
 * predicted.  How many of the values come out right shows how much a model's state can hold.  Queries stand at places
 * drawn uniformly.  The generator is its own definition: splitmix64 and integer arithmetic, the same everywhere. */
#ifndef RG_CLI_STUDY_MQAR_H
#define RG_CLI_STUDY_MQAR_H

#include "base/error.h"

typedef struct rg_mqar {
    uint64_t seed;
    int32_t vocab_size;
    int32_t length;    /* ids of a text */
    int32_t pairs;
    bool fill;         /* ids between the queries are random; else 0 */
    int32_t gap_limit; /* queries stand within 2 gap_limit ids behind the pairs; 0: anywhere behind them */
} rg_mqar;

enum { RG_MQAR_UNSCORED = -100 };

/* False and *err: there is no such text (too few ids for the pairs, too short for the queries). */
bool rg_mqar_check(const rg_mqar *m, rg_error *err) RG_MUST_CHECK;

/* Example number e: ids [length], and targets [length]: the id that is to be predicted at a place, or
 * RG_MQAR_UNSCORED.  scratch [vocab_size + length] is the caller's. */
void rg_mqar_example(const rg_mqar *m, uint64_t e, int32_t *ids, int32_t *targets, int32_t *scratch);

#endif
