/* json.h -- parsing JSON with jansson, whose memory is base/mem's, so that a refused allocation is an error.
 *
 * jansson itself goes on when it is refused memory for a token, and then reads past the token's end.  Linking this file
 * makes it allocate from base/mem. */
#ifndef RG_BASE_JSON_H
#define RG_BASE_JSON_H

#include <jansson.h>

/* As json_loadb.  NULL with json_error_out_of_memory in *why: an allocation was refused. */
json_t *rg_json_load(const char *text, size_t n, size_t flags, json_error_t *why);

#endif
