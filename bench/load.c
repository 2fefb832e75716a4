/* load.c -- a load generator for servers that speak OpenAI's completions: many clients on one thread, its own processor use
 * reported beside what it measured.
 *
 *   bench_load --port 8080 --clients 32 --prompt 100 --output 64 --seconds 30 [--rate R] [--json] ...
 *
 * Prompts are random token ids, so it needs no tokenizer.  Closed loop: each client asks again when it was answered; with
 * --rate, arrivals are Poisson and a request's times count from when it was due, so a slow server cannot slow the clock.
 * Gaps are between events with text; a server that sends several tokens in one event shows fewer, larger gaps. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct options {
    const char *host, *path, *model, *key;
    long port, clients, prompt, output, output_most, vocab, requests, prefix, seed, server_pid;
    double seconds, rate, share, warmup, ttft_goal, tpot_goal;
    bool stream, json;
} options;

static options o = { .host = "127.0.0.1", .path = "/v1/completions", .port = 8080, .clients = 1, .prompt = 100, .output = 64,
                     .vocab = 1000, .seconds = 10, .seed = 1, .stream = true };

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

typedef struct list {
    double *v;
    size_t n, room;
} list;

static void add(list *l, double v)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 1024;
        l->v = realloc(l->v, l->room * sizeof *l->v);
        if (!l->v)
            abort();
    }
    l->v[l->n++] = v;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(const list *l, double q) /* of a sorted list */
{
    return l->n ? l->v[(size_t)(q * (double)(l->n - 1) + 0.5)] : 0;
}

static double mean(const list *l)
{
    double sum = 0;

    for (size_t i = 0; i < l->n; i++)
        sum += l->v[i];
    return l->n ? sum / (double)l->n : 0;
}

static uint64_t rng_state;

static uint64_t draw(void) /* splitmix64 */
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double unit(void)
{
    return (double)(draw() >> 11) * 0x1p-53;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- clients ----------------------------------------------------------------------------------------------------------- */

typedef enum stage { IDLE, SENDING, HEAD, BODY } stage;

typedef struct client {
    int fd;
    stage stage;
    char *out;
    size_t n_out, sent;
    char head[4096];
    size_t n_head;
    int status;
    bool chunked, size_done, closes;
    long left;           /* of the body or the chunk; -1: of a body until the close */
    int match;           /* of "data: " */
    bool in_event;
    char tail[2048];     /* the end of the body, where usage stands */
    size_t n_tail;
    double due, first, last;
    long n_events, wanted;
    uint64_t retry_after;
} client;

static list ttft, gaps, tpot, e2e, reject_time;
static long n_done, n_failed, n_busy, n_good, n_sent, tokens_out, tokens_in;
static double start_s, measure_from;
static int epoll_fd;

static void watch(client *c, uint32_t events, int what)
{
    struct epoll_event e = { .events = events, .data.ptr = c };

    epoll_ctl(epoll_fd, what, c->fd, &e);
}

static bool dial(client *c)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)o.port) };
    int on = 1;

    inet_pton(AF_INET, o.host, &a.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0)
        return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&a, sizeof a) != 0 && errno != EINPROGRESS) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    watch(c, EPOLLOUT | EPOLLIN, EPOLL_CTL_ADD);
    return true;
}

/* A request's bytes: ids of a shared prefix for `share` of the requests, the rest of the prompt its own. */
static void compose(client *c)
{
    long shared = unit() < o.share ? o.prefix : 0, n = o.prompt + (o.share > 0 ? o.prefix : 0);
    size_t room = (size_t)n * 8 + 4096, n_body = 0;
    char *body = malloc(room);
    uint64_t kept;

    free(c->out);
    c->out = malloc(room + 4096);
    if (!body || !c->out)
        abort();
    c->wanted = o.output;
    if (o.output_most > o.output)
        c->wanted = lround((double)o.output * exp(unit() * log((double)o.output_most / (double)o.output)));
    n_body += (size_t)sprintf(body, "{\"prompt\":[");
    kept = rng_state;
    rng_state = (uint64_t)o.seed * 7919;
    for (long i = 0; i < n; i++) {
        if (i == shared)
            rng_state = kept;
        n_body += (size_t)sprintf(body + n_body, "%s%ld", i ? "," : "", (long)(draw() % (uint64_t)(o.vocab - 10)) + 10);
    }
    if (shared >= n)
        rng_state = kept;
    n_body += (size_t)sprintf(body + n_body, "],\"max_tokens\":%ld,\"ignore_eos\":true,\"temperature\":0%s%s%s%s}", c->wanted,
                              o.stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "",
                              o.model ? ",\"model\":\"" : "", o.model ? o.model : "", o.model ? "\"" : "");
    c->n_out = (size_t)sprintf(c->out,
                               "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s%s%sContent-Length: "
                               "%zu\r\n\r\n", o.path, o.key ? "Authorization: Bearer " : "", o.key ? o.key : "",
                               o.key ? "\r\n" : "", n_body);
    memcpy(c->out + c->n_out, body, n_body);
    c->n_out += n_body;
    tokens_in += n;
    free(body);
}

static void begin(client *c, double due)
{
    compose(c);
    c->due = due;
    c->first = c->last = 0;
    c->sent = c->n_head = c->n_tail = 0;
    c->n_events = 0;
    c->match = 0;
    c->in_event = false;
    c->stage = SENDING;
    n_sent++;
    if (c->fd < 0 && !dial(c)) {
        n_failed++;
        c->stage = IDLE;
        return;
    }
    watch(c, EPOLLOUT | EPOLLIN, EPOLL_CTL_MOD);
}

static void hang_up(client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void finish(client *c, bool ok)
{
    double t = now_s();
    const char *u = c->n_tail ? strstr(c->tail, "\"completion_tokens\":") : NULL;
    long n = u ? atol(u + strlen("\"completion_tokens\":")) : c->n_events;

    c->stage = IDLE;
    if (!ok || c->closes)
        hang_up(c);
    if (c->due < measure_from)
        return;
    if (ok && c->status == 429) {
        n_busy++;
        add(&reject_time, t - c->due);
    } else if (!ok || c->status != 200) {
        n_failed++;
    } else {
        double first = c->first > 0 ? c->first : t, last = c->last > 0 ? c->last : t;
        double each = n > 1 ? (last - first) / (double)(n - 1) : 0;
        n_done++;
        tokens_out += n;
        add(&ttft, first - c->due);
        add(&e2e, t - c->due);
        if (n > 1 && o.stream)
            add(&tpot, each);
        n_good += (o.ttft_goal <= 0 || first - c->due <= o.ttft_goal) && (o.tpot_goal <= 0 || each <= o.tpot_goal);
    }
}

/* ---- what comes -------------------------------------------------------------------------------------------------------- */

static void event(client *c)
{
    double t = now_s();

    c->n_events++;
    if (c->first <= 0)
        c->first = t;
    else if (c->due >= measure_from)
        add(&gaps, t - c->last);
    c->last = t;
}

/* Body bytes: count events that carry text (those of usage and the end do not), keep the tail. */
static void take_body(client *c, const char *s, size_t n)
{
    static const char mark[] = "\"text\":\"";
    size_t keep = n < sizeof c->tail / 2 ? n : sizeof c->tail / 2;

    for (size_t i = 0; o.stream && i < n; i++) {
        c->match = s[i] == mark[c->match] ? c->match + 1 : s[i] == mark[0];
        if (c->match == (int)sizeof mark - 1) {
            c->match = 0;
            event(c);
        }
    }
    if (c->n_tail + keep > sizeof c->tail - 1) {
        size_t left = sizeof c->tail - 1 - keep;
        memmove(c->tail, c->tail + c->n_tail - left, left);
        c->n_tail = left;
    }
    memcpy(c->tail + c->n_tail, s + n - keep, keep);
    c->n_tail += keep;
    c->tail[c->n_tail] = 0;
}

/* Chunk framing, byte by byte where it must be.  True: the body is over. */
static bool take_chunks(client *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (c->size_done && c->left > 0) {
            size_t k = n - i < (size_t)c->left ? n - i : (size_t)c->left;
            take_body(c, s + i, k);
            c->left -= (long)k;
            i += k;
            continue;
        }
        char b = s[i++];
        if (c->size_done) { /* the line end after a chunk */
            if (b == '\n')
                c->size_done = false, c->left = 0, c->n_head = 0;
        } else if (b == '\n') {
            if (!c->n_head)
                continue;
            c->left = strtol(c->head, NULL, 16);
            if (!c->left)
                return true; /* the empty line that follows is read with the next answer's head */
            c->size_done = true;
        } else if (b != '\r' && c->n_head < sizeof c->head - 1) {
            c->head[c->n_head++] = b;
            c->head[c->n_head] = 0;
        }
    }
    return false;
}

static bool take_head(client *c)
{
    char *length = strcasestr(c->head, "\r\ncontent-length:");

    c->status = atoi(c->head + 9);
    c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->closes = strcasestr(c->head, "\r\nconnection: close") != NULL;
    c->left = length ? atol(length + 17) : c->chunked ? 0 : -1;
    c->size_done = false;
    c->n_head = 0;
    c->stage = BODY;
    return !c->chunked && c->left == 0;
}

/* True: the answer is complete. */
static bool take(client *c, const char *s, size_t n)
{
    while (n && c->stage == HEAD) {
        if (c->n_head || (*s != '\r' && *s != '\n')) {
            if (c->n_head >= sizeof c->head - 1)
                return false;
            c->head[c->n_head++] = *s;
            c->head[c->n_head] = 0;
        }
        s++, n--;
        if (c->n_head > 3 && !memcmp(c->head + c->n_head - 4, "\r\n\r\n", 4) && take_head(c))
            return true;
    }
    if (!n || c->stage != BODY)
        return false;
    if (c->chunked)
        return take_chunks(c, s, n);
    take_body(c, s, n);
    if (c->left > 0)
        c->left -= (long)n < c->left ? (long)n : c->left;
    return c->left == 0;
}

static void pump(client *c)
{
    static char some[65536];
    ssize_t n;

    if (c->stage == SENDING) {
        n = send(c->fd, c->out + c->sent, c->n_out - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINPROGRESS && errno != ENOTCONN) {
            finish(c, false);
            return;
        }
        c->sent += n > 0 ? (size_t)n : 0;
        if (c->sent == c->n_out) {
            c->stage = HEAD;
            watch(c, EPOLLIN, EPOLL_CTL_MOD);
        }
    }
    while ((n = recv(c->fd, some, sizeof some, 0)) > 0) {
        if (c->stage == IDLE)
            continue;
        if (c->stage == SENDING)
            c->stage = HEAD, c->closes = true; /* answered before it was all sent */
        if (take(c, some, (size_t)n)) {
            finish(c, true);
            return;
        }
    }
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        if (c->stage == IDLE)
            hang_up(c);
        else
            finish(c, n == 0 && c->stage == BODY && c->left < 0);
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------------- */

/* Free clients take what is due.  Returns when the next is. */
static double dispatch(client *all, double *next, double t, double end)
{
    for (long i = 0; i < o.clients; i++) {
        bool more = o.requests ? n_sent < o.requests : t < end;
        if (all[i].stage != IDLE || !more)
            continue;
        if (o.rate <= 0) {
            begin(&all[i], t);
        } else if (*next <= t) {
            begin(&all[i], *next);
            *next -= log(1 - unit()) / o.rate;
        }
    }
    return o.rate > 0 ? *next : t + 1;
}

static bool busy(const client *all)
{
    for (long i = 0; i < o.clients; i++)
        if (all[i].stage != IDLE)
            return true;
    return false;
}

static void run(client *all)
{
    struct epoll_event events[256];
    double next, end, t;

    start_s = next = now_s();
    end = start_s + o.warmup + o.seconds;
    measure_from = start_s + o.warmup;
    for (long i = 0; i < o.clients; i++)
        all[i].fd = -1;
    for (;;) {
        t = now_s();
        double due = dispatch(all, &next, t, end);
        bool more = o.requests ? n_sent < o.requests : t < end;
        if ((!more && !busy(all)) || t > end + 600)
            break;
        double wait = due - now_s();
        int n = epoll_wait(epoll_fd, events, 256, wait < 0 ? 0 : wait > 0.1 ? 100 : (int)(wait * 1e3));
        for (int i = 0; i < n; i++) {
            client *c = events[i].data.ptr;
            if (c->fd >= 0)
                pump(c);
        }
    }
}

static double cpu_of(long pid)
{
    char path[64], text[1024];
    unsigned long user = 0, sys = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    if (!pid || !(f = fopen(path, "r")))
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *p = strrchr(text, ')');
    if (p)
        sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys);
    return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static void print_list(const char *name, list *l)
{
    qsort(l->v, l->n, sizeof *l->v, by_value);
    if (o.json)
        printf(",\"%s_ms\":{\"mean\":%.3f,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}", name, 1e3 * mean(l),
               1e3 * quantile(l, 0.5), 1e3 * quantile(l, 0.9), 1e3 * quantile(l, 0.99), 1e3 * quantile(l, 1));
    else
        printf("%-10s mean %9.2f  p50 %9.2f  p90 %9.2f  p99 %9.2f  max %9.2f ms\n", name, 1e3 * mean(l), 1e3 * quantile(l, 0.5),
               1e3 * quantile(l, 0.9), 1e3 * quantile(l, 0.99), 1e3 * quantile(l, 1));
}

static void report(double s, double own, double server)
{
    if (o.json)
        printf("{\"clients\":%ld,\"prompt\":%ld,\"output\":%ld,\"rate\":%g,\"stream\":%s,\"seconds\":%.3f,\"completed\":%ld,"
               "\"failed\":%ld,\"busy\":%ld,\"requests_s\":%.3f,\"output_tok_s\":%.3f,\"goodput_requests_s\":%.3f,"
               "\"own_cpu\":%.4f,\"server_cpu\":%.4f", o.clients, o.prompt, o.output, o.rate, o.stream ? "true" : "false", s,
               n_done, n_failed, n_busy, (double)n_done / s, (double)tokens_out / s, (double)n_good / s, own / s, server / s);
    else
        printf("%ld done, %ld failed, %ld refused as busy in %.2f s: %.2f requests/s, %.1f output tokens/s, goodput %.2f "
               "requests/s\nprocessor: %.3f of a core here, %.3f in the server\n", n_done, n_failed, n_busy, s,
               (double)n_done / s, (double)tokens_out / s, (double)n_good / s, own / s, server / s);
    print_list("ttft", &ttft);
    print_list("gap", &gaps);
    print_list("tpot", &tpot);
    print_list("e2e", &e2e);
    print_list("refusal", &reject_time);
    if (o.json)
        printf("}\n");
}

static const struct flag {
    const char *name;
    long *whole;
    double *real;
    const char **text;
    const char *help;
} flags[] = {
    { "--host", NULL, NULL, &o.host, "address (127.0.0.1)" },
    { "--port", &o.port, NULL, NULL, "port (8080)" },
    { "--path", NULL, NULL, &o.path, "endpoint (/v1/completions)" },
    { "--model", NULL, NULL, &o.model, "model's name, if the server wants one" },
    { "--key", NULL, NULL, &o.key, "API key" },
    { "--clients", &o.clients, NULL, NULL, "requests at once at most" },
    { "--rate", NULL, &o.rate, NULL, "arrivals per second, Poisson (0: closed loop)" },
    { "--seconds", NULL, &o.seconds, NULL, "how long requests are begun" },
    { "--warmup", NULL, &o.warmup, NULL, "seconds before that which are not counted" },
    { "--requests", &o.requests, NULL, NULL, "so many requests instead" },
    { "--prompt", &o.prompt, NULL, NULL, "tokens of a prompt (100)" },
    { "--output", &o.output, NULL, NULL, "tokens of an answer (64)" },
    { "--output-most", &o.output_most, NULL, NULL, "log-uniform from --output to this" },
    { "--prefix", &o.prefix, NULL, NULL, "tokens before the prompt that may be shared" },
    { "--share", NULL, &o.share, NULL, "share of the requests that share them (0 to 1)" },
    { "--vocab", &o.vocab, NULL, NULL, "ids are drawn below this (1000)" },
    { "--seed", &o.seed, NULL, NULL, "of the draws" },
    { "--ttft-goal", NULL, &o.ttft_goal, NULL, "seconds: only faster first tokens are goodput" },
    { "--tpot-goal", NULL, &o.tpot_goal, NULL, "seconds per token: the same" },
    { "--server-pid", &o.server_pid, NULL, NULL, "whose processor time to report" },
};

static int usage(void)
{
    printf("usage: bench_load [FLAGS]\n  --no-stream     whole answers\n  --json          one document\n");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        printf("  %-15s %s\n", flags[i].name, flags[i].help);
    return 2;
}

static bool parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t f = 0;
        if (!strcmp(argv[i], "--no-stream") || !strcmp(argv[i], "--json")) {
            o.stream = o.stream && strcmp(argv[i], "--no-stream") != 0;
            o.json = o.json || !strcmp(argv[i], "--json");
            continue;
        }
        while (f < sizeof flags / sizeof *flags && strcmp(flags[f].name, argv[i]) != 0)
            f++;
        if (f == sizeof flags / sizeof *flags || ++i == argc)
            return false;
        if (flags[f].whole)
            *flags[f].whole = atol(argv[i]);
        if (flags[f].real)
            *flags[f].real = atof(argv[i]);
        if (flags[f].text)
            *flags[f].text = argv[i];
    }
    return o.clients > 0 && o.prompt > 0 && o.output > 0 && o.vocab > 20;
}

int main(int argc, char **argv)
{
    struct rusage r;

    if (!parse(argc, argv))
        return usage();
    client *all = calloc((size_t)o.clients, sizeof *all);
    epoll_fd = epoll_create1(0);
    rng_state = (uint64_t)o.seed;
    if (!all || epoll_fd < 0)
        return 1;
    double server = cpu_of(o.server_pid);
    run(all);
    double s = now_s() - measure_from;
    getrusage(RUSAGE_SELF, &r);
    report(s, (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec),
           cpu_of(o.server_pid) - server);
    for (long i = 0; i < o.clients; i++)
        free(all[i].out);
    free(all);
    return n_done || n_busy ? 0 : 1;
}
