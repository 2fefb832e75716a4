/* origins.c -- see origins.h. */
#include "server/origins.h"

#include <string.h>
#include <strings.h>

#include "server/http/head.h"

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static bool same(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && !strncasecmp(s, name, n);
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t n_end = strlen(end);

    return n > n_end && !strncasecmp(s + n - n_end, end, n_end);
}

/* Names that always mean the machine that asks.  Browsers ask nobody else what *.localhost is (RFC 6761). */
static bool is_own_machine(const char *host, size_t n)
{
    static const char *const names[] = { "localhost", "ip6-localhost", "[::1]", "0.0.0.0", "[::]" };

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (same(host, n, names[i]))
            return true;
    return ends_with(host, n, ".localhost") || (n > 4 && !strncmp(host, "127.", 4) && strspn(host, "0123456789.") >= n);
}

/* An address and not a name, which nobody can make mean another machine. */
static bool is_number(const char *host, size_t n)
{
    return *host == '[' || strspn(host, "0123456789.") >= n;
}

/* --allowed-host: a name, *.NAME for all names below it, or * for all. */
static bool is_allowed_host(const rg_server *s, const char *host, size_t n)
{
    for (int32_t i = 0; i < s->o.n_allowed_hosts; i++) {
        const char *allowed = s->o.allowed_hosts[i];
        if (*allowed == '*' ? !allowed[1] || ends_with(host, n, allowed + 1) : same(host, n, allowed))
            return true;
    }
    return false;
}

/* The address that --host names, too, as a Host header has it. */
static bool is_own_address(const rg_server *s, const char *host, size_t n)
{
    size_t bracket = *host == '[';

    for (int32_t i = 0; i < s->o.n_hosts; i++)
        if (same(host + bracket, n - 2 * bracket, s->o.hosts[i]))
            return true;
    return false;
}

static bool check_host(const rg_server *s, const rg_exchange *x, rg_refusal *e)
{
    const char *host = rg_exchange_host(x);
    size_t n = host ? rg_host_length(host, strlen(host)) : 0;
    rg_reach reach = rg_exchange_reach(x);

    if (!host || reach == RG_REACH_SOCKET || (reach == RG_REACH_NETWORK && !s->o.n_allowed_hosts))
        return true;
    if (reach == RG_REACH_NETWORK && is_number(host, n))
        return true;
    if (is_own_machine(host, n) || is_own_address(s, host, n) || is_allowed_host(s, host, n))
        return true;
    return rg_refuse(e, 421, "wrong_host", NULL,
                     "This server does not answer to that Host: --allowed-host NAME lets it answer to NAME.");
}

/* ---- origins ----------------------------------------------------------------------------------------------------- */

/* Pattern with * for any characters but a slash.  Each * is tried once: what follows the last one decides. */
static bool matches(const char *pattern, const char *s)
{
    const char *star = NULL, *from = s;

    while (*s) {
        if (*pattern == '*') {
            star = pattern++;
            from = s;
        } else if (*pattern == *s) {
            pattern++;
            s++;
        } else if (star && *from != '/') {
            pattern = star + 1;
            s = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* The host and port of an origin http://HOST[:PORT]; NULL: it is none. */
static const char *authority_of(const char *origin)
{
    const char *host = !strncmp(origin, "http://", 7)    ? origin + 7
                       : !strncmp(origin, "https://", 8) ? origin + 8
                                                         : NULL;

    return host && rg_is_authority(host, strlen(host)) ? host : NULL;
}

/* The server's own page, under the name that was asked or under one that --allowed-host names; pages of this machine;
 * and what --cors-origin names. */
static bool may_ask(const rg_server *s, const rg_exchange *x, const char *origin)
{
    const char *at = authority_of(origin), *host = rg_exchange_host(x);
    size_t n = at ? rg_host_length(at, strlen(at)) : 0;

    for (int32_t i = 0; i < s->o.n_cors_origins; i++)
        if (!strcmp(s->o.cors_origins[i], "*") || matches(s->o.cors_origins[i], origin))
            return true;
    if (!at)
        return false;
    if (is_own_machine(at, n) || (host && !strcasecmp(at, host)))
        return true;
    for (int32_t i = 0; i < s->o.n_allowed_hosts; i++)
        if (same(at, n, s->o.allowed_hosts[i]))
            return true;
    return false;
}

static bool asks_first(const rg_exchange *x)
{
    return !strcmp(rg_exchange_method(x), "OPTIONS");
}

void rg_origins_tell(const rg_server *s, rg_exchange *x)
{
    const char *origin = rg_exchange_header(x, "Origin");

    rg_exchange_set(x, "Vary",
                    asks_first(x) ? "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, "
                                    "Access-Control-Request-Private-Network"
                                  : "Origin");
    if (!origin || !may_ask(s, x, origin))
        return;
    for (int32_t i = 0; i < s->o.n_cors_origins; i++)
        if (!strcmp(s->o.cors_origins[i], "*"))
            origin = "*";
    rg_exchange_set(x, "Access-Control-Allow-Origin", origin);
    rg_exchange_set(x, "Access-Control-Expose-Headers", "X-Request-Id, X-Ridge-Prefix, Retry-After");
}

bool rg_origins_check(const rg_server *s, const rg_exchange *x, rg_refusal *e)
{
    const char *origin = rg_exchange_header(x, "Origin");

    if (!check_host(s, x, e))
        return false;
    return !origin || may_ask(s, x, origin) ||
           rg_refuse(e, 403, "origin_not_allowed", NULL,
                     "Pages of that origin may not ask this server: --cors-origin ORIGIN allows it.");
}

/* A list of names with commas and blanks. */
static bool is_list(const char *s)
{
    while (*s) {
        size_t n = strcspn(s, ", \t");
        if (n && !rg_is_token(s, n))
            return false;
        s += n + (s[n] != 0);
    }
    return true;
}

void rg_origins_preflight(rg_server *s, rg_exchange *x)
{
    const char *method = rg_exchange_header(x, "Access-Control-Request-Method");
    const char *headers = rg_exchange_header(x, "Access-Control-Request-Headers");
    const char *network = rg_exchange_header(x, "Access-Control-Request-Private-Network");

    if (rg_exchange_header(x, "Origin")) { /* it may ask: rg_origins_check was before */
        rg_exchange_set(x, "Access-Control-Allow-Methods",
                        method && rg_is_token(method, strlen(method)) ? method : "GET, HEAD, POST, DELETE, OPTIONS");
        rg_exchange_set(
            x, "Access-Control-Allow-Headers",
            headers && *headers && is_list(headers)
                ? headers
                : "Authorization, Content-Type, X-Api-Key, X-Request-Id, X-Request-Timeout, X-Ridge-Prefix, "
                  "Anthropic-Version");
        rg_exchange_set(x, "Access-Control-Max-Age", "600");
        if (network && !strcasecmp(network, "true"))
            rg_exchange_set(x, "Access-Control-Allow-Private-Network", "true");
    }
    rg_reply_text(s->first, x, 200, "", "");
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static bool valid_host(const char *name)
{
    const char *host = strncmp(name, "*.", 2) ? name : name + 2;
    size_t n = strlen(host);

    return !strcmp(name, "*") || (rg_is_authority(host, n) && rg_host_length(host, n) == n);
}

static bool valid_origin(const char *origin)
{
    const char *rest = strstr(origin, "://");

    if (!strcmp(origin, "*") || !strcmp(origin, "null"))
        return true;
    return rest && rest > origin && rest[3] && !strpbrk(rest + 3, "/ ,\"?#");
}

bool rg_origins_valid(const rg_server_options *o, rg_error *err)
{
    for (int32_t i = 0; i < o->n_allowed_hosts; i++)
        if (!valid_host(o->allowed_hosts[i]))
            return rg_fail(err, RG_E_USAGE, "--allowed-host '%.200s' is not a host's name without a port, *.NAME, or *",
                           o->allowed_hosts[i]);
    for (int32_t i = 0; i < o->n_cors_origins; i++)
        if (!valid_origin(o->cors_origins[i]))
            return rg_fail(err, RG_E_USAGE, "--cors-origin '%.200s' is not SCHEME://HOST[:PORT] without a path, or *",
                           o->cors_origins[i]);
    return true;
}
