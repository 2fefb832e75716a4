/* fetch.c -- see fetch.h: libcurl. */
#include "library/fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT_S = 30, STALL_S = 60, REDIRECTS = 10 };

bool rg_fetch_is_there(void)
{
    return true;
}

/* One transfer, over all its tries. */
typedef struct transfer {
    const rg_fetch_options *o;
    CURL *curl;
    char why[CURL_ERROR_SIZE];
    rg_buf *text; /* or a file: */
    int fd;
    uint64_t have, size; /* bytes that were fetched so far; bytes of the whole file */
    bool began, stopped; /* the status of this try is known; progress said no */
    int write_errno;
} transfer;

/* The first bytes of an answer.  False: they are not what was asked for, and are passed over. */
static bool begin(transfer *t)
{
    long status = 0;

    if (t->began)
        return true;
    t->began = true;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (t->fd < 0)
        return true;
    if (status == 200) /* all of it, whatever was asked for */
        t->have = 0;
    if ((status == 200 || status == 206) && ftruncate(t->fd, (off_t)t->have) == 0 &&
        lseek(t->fd, (off_t)t->have, SEEK_SET) >= 0)
        return true;
    t->write_errno = status == 200 || status == 206 ? errno : 0;
    return false;
}

static size_t take(char *p, size_t one, size_t n, void *arg)
{
    transfer *t = arg;
    size_t bytes = one * n, done = 0;
    long status = 0;

    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206)
        return bytes; /* the body of an error */
    if (!begin(t))
        return 0;
    if (t->text)
        return rg_buf_add(t->text, p, bytes) ? bytes : 0;
    if (t->have + bytes > t->size)
        return 0; /* longer than it may be */
    while (done < bytes) {
        ssize_t k = write(t->fd, p + done, bytes - done);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return t->write_errno = errno, 0;
        done += (size_t)k;
    }
    t->have += bytes;
    return bytes;
}

static int look(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    transfer *t = arg;

    (void)total, (void)now, (void)up_total, (void)up;
    if (t->o->progress && !t->o->progress(t->o->arg, t->have))
        t->stopped = true;
    return t->stopped;
}

static bool set_up(transfer *t, const char *url)
{
    CURL *c = t->curl;

    return !curl_easy_setopt(c, CURLOPT_URL, url) && !curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->why) &&
           !curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") &&
           !curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, strncmp(url, "https:", 6) ? "http,https" : "https") &&
           !curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L) &&
           !curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS) && !curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) &&
           !curl_easy_setopt(c, CURLOPT_USERAGENT, "ridge/" RG_VERSION) &&
           !curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S) &&
           !curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L) &&
           !curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_S) &&
           (!t->o->token || (!curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER) &&
                             !curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, t->o->token))) &&
           !curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take) && !curl_easy_setopt(c, CURLOPT_WRITEDATA, t) &&
           !curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, look) && !curl_easy_setopt(c, CURLOPT_XFERINFODATA, t) &&
           !curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
}

/* Wait, looking now and then whether to stop. */
static void pause_for(transfer *t, double s)
{
    for (; s > 0 && !look(t, 0, 0, 0, 0); s -= 0.1) {
        struct timespec tenth = { 0, s < 0.1 ? (long)(s * 1e9) : 100000000 };

        nanosleep(&tenth, NULL);
    }
}

/* What went wrong is likely to be over soon. */
static bool may_pass(const transfer *t, CURLcode code, long status)
{
    if (t->stopped || t->write_errno)
        return false;
    if (code == CURLE_WRITE_ERROR || code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
        code == CURLE_TOO_MANY_REDIRECTS || code == CURLE_PEER_FAILED_VERIFICATION)
        return false;
    if ((code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT) && !t->have)
        return false; /* rather a wrong name than a moment's trouble */
    return code != CURLE_OK || status == 429 || status >= 500;
}

static bool fail_transfer(const transfer *t, const char *url, CURLcode code, long status, rg_error *err)
{
    if (t->stopped)
        return rg_fail(err, RG_E_IO, "stopped; the same command goes on from here");
    if (t->write_errno)
        return rg_fail(err, RG_E_IO, "%s: what comes cannot be written: %s", url, strerror(t->write_errno));
    if (code == CURLE_WRITE_ERROR)
        return rg_fail(err, RG_E_INPUT, "%s: more comes than there should be", url);
    if (code != CURLE_OK)
        return rg_fail(err, RG_E_IO, "%s: %s", url, t->why[0] ? t->why : curl_easy_strerror(code));
    return rg_fail(err, RG_E_IO, "%s: the server answers %ld", url, status);
}

static bool run(transfer *t, const char *url, long *status, rg_error *err)
{
    double pause = t->o->pause_s;
    CURLcode code = CURLE_OK;
    uint64_t before;
    char range[32];
    bool done = false;

    *status = 0;
    t->curl = curl_easy_init();
    if (!t->curl || !set_up(t, url)) {
        curl_easy_cleanup(t->curl);
        return rg_fail(err, RG_E_INPUT, "%s: libcurl does not take this address", url);
    }
    for (int tries = 0;; tries++) {
        before = t->have;
        t->began = false;
        t->why[0] = 0;
        if (t->text)
            rg_buf_reset(t->text);
        snprintf(range, sizeof range, "%llu-", (unsigned long long)t->have);
        curl_easy_setopt(t->curl, CURLOPT_RANGE, t->have ? range : NULL);
        code = curl_easy_perform(t->curl);
        curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, status);
        if (code == CURLE_OK && *status == 416 && t->have) { /* the part that is there is no beginning of it */
            t->have = 0;
            continue;
        }
        done = code == CURLE_OK && (*status == 200 || *status == 206);
        if (done && !t->text && t->have < t->size) { /* it ended early, and politely */
            done = false;
            code = CURLE_PARTIAL_FILE;
        }
        if (t->have > before) { /* it goes on */
            tries = 0;
            pause = t->o->pause_s;
        }
        if (done || !may_pass(t, code, *status) || tries >= t->o->retries)
            break;
        pause_for(t, pause);
        pause *= 2;
    }
    curl_easy_cleanup(t->curl);
    return done || fail_transfer(t, url, code, *status, err);
}

bool rg_fetch_text(const char *url, const rg_fetch_options *o, rg_buf *to, long *status, rg_error *err)
{
    transfer t = { .o = o, .text = to, .fd = -1 };

    return run(&t, url, status, err);
}

bool rg_fetch_file(const char *url, const rg_fetch_options *o, int fd, uint64_t have, uint64_t size, long *status,
                   rg_error *err)
{
    transfer t = { .o = o, .fd = fd, .have = have < size ? have : 0, .size = size };

    return run(&t, url, status, err);
}
