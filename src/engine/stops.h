/* stops.h -- finds texts that end an answer, byte by byte, however the bytes are cut.
 *
 * Knuth, Morris and Pratt's matcher, one position per text: linear time.  An answer ends before the text that is
 * complete first; if several are complete at one byte, before the longest. */
#ifndef RG_ENGINE_STOPS_H
#define RG_ENGINE_STOPS_H

#include <stdint.h>

typedef struct rg_stop {
    const char *text;
    int32_t n;
    int32_t *back; /* [n + 1] for each length, the longest shorter start of the text that is also its end */
} rg_stop;

/* Fill in back, once text and n are there. */
void rg_stop_link(rg_stop *s);

/* One byte more.  at [n]: how many bytes of each text stand at the end of what came so far, 0 at first.  Returns the
 * text that is now complete, -1: none is. */
int32_t rg_stops_feed(const rg_stop *stops, int32_t n, int32_t *at, char byte);

/* The number of bytes at the end that may still become such a text. */
int32_t rg_stops_held(int32_t n, const int32_t *at);

#endif
