/* origins.h -- the host names under which the server may be asked, and the origins of web pages that may ask.
 *
 * A server that only this machine reaches answers only to names of this machine: otherwise any web page could reach
 * it under a name of its own (DNS rebinding).  A request that a browser sends for a page of another origin is refused
 * unless that origin may ask. */
#ifndef RG_SERVER_ORIGINS_H
#define RG_SERVER_ORIGINS_H

#include "server/core.h"

/* False: an option names no host or no origin. */
bool rg_origins_valid(const rg_server_options *o, rg_error *err);

/* Headers that let the page which asks read the answer, if it may ask. */
void rg_origins_tell(const rg_server *s, rg_exchange *x);
bool rg_origins_check(const rg_server *s, const rg_exchange *x, rg_refusal *e);
/* The answer to a browser that asks what a page may send (OPTIONS): all that it names. */
void rg_origins_preflight(rg_server *s, rg_exchange *x);

#endif
