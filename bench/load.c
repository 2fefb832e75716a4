/* load.c -- a load generator for servers that speak OpenAI's completions: many clients on one thread, its own processor use
 * reported beside what it measured.
 *
 *   bench_load --port 8080 --clients 32 --prompt 100 --output 64 --seconds 30 [--rate R] [--json] ...
 *
 * Prompts are random token ids, so it needs no tokenizer.  Closed loop: each client asks again when it was answered, a second
 * later if it was refused; with --rate, arrivals are Poisson and a request's times count from when it was due, so a slow
 * server cannot slow the clock.
 * Answers are counted where they end within the measured seconds, times of those that were due within them, gaps that lie
 * within them.  Gaps are between events with text; a server that sends several tokens in one event shows fewer, larger
 * ones. */
#define _GNU_SOURCE 1
#include "load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

options o = { .host = "127.0.0.1", .path = "/v1/completions", .port = 8080, .clients = 1, .prompt = 100, .output = 64,
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

double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- clients ----------------------------------------------------------------------------------------------------------- */

static list ttft, gaps, tpot, e2e, reject_time;
static long n_done, n_failed, n_busy, n_good, n_answered, n_sent, n_cancelled, n_rest, tokens_out, tokens_in;
static double measure_from, measure_to;
static long rss_first, rss_most, rss_last; /* KiB */
static client *idle;                       /* who may ask next */
static client *refused, **refused_end = &refused; /* and who does so only after a while */
static int epoll_fd;

/* Decimal digits of v at p; where they end. */
static char *put_number(char *p, uint64_t v)
{
    char digits[24];
    int n = 0;

    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *p++ = digits[--n];
    return p;
}

static void choose_cancel(client *c)
{
    c->cancel = KEEPS;
    if (unit() >= o.cancel)
        return;
    switch (draw() % 6) {
    case 0:
        c->cancel = CUTS_REQUEST;
        c->cancel_at = unit() * (double)c->n_out;
        return;
    case 1:
    case 2: /* in the queue, or in the prompt */
        c->cancel = LEAVES_LATER;
        c->cancel_at = now_s() + unit() * unit() * 0.5;
        return;
    default: /* at the first, somewhere, at the last */
        c->cancel = LEAVES_AT_EVENT;
        c->cancel_at = draw() % 3 ? 1 + floor(unit() * (double)c->wanted) : (double)c->wanted;
    }
}

/* A request's bytes: ids of a shared prefix for `share` of the requests, the rest of the prompt its own. */
static void compose(client *c)
{
    long shared = unit() < o.share ? o.prefix : 0, n = o.prompt + (o.share > 0 ? o.prefix : 0);
    size_t room = (size_t)n * 8 + 4096;
    uint64_t kept;
    char *p, *body;

    if (o.prompt_most > o.prompt) {
        n += (long)(draw() % (uint64_t)(o.prompt_most - o.prompt + 1));
        room = (size_t)n * 8 + 4096;
    }
    c->out = c->room < room ? realloc(c->out, room) : c->out;
    c->room = c->room < room ? room : c->room;
    if (!c->out)
        abort();
    c->wanted = o.output;
    if (o.output_most > o.output)
        c->wanted = lround((double)o.output * exp(unit() * log((double)o.output_most / (double)o.output)));
    body = p = c->out + 1024; /* the head is put before it */
    p += sprintf(p, "{\"prompt\":[");
    kept = rng_state;
    rng_state = 7919; /* one prefix, whatever the seed */
    for (long i = 0; i < n; i++) {
        if (i == shared)
            rng_state = kept;
        if (i)
            *p++ = ',';
        p = put_number(p, draw() % (uint64_t)(o.vocab - 10) + 10);
    }
    if (shared >= n)
        rng_state = kept;
    p += sprintf(p, "],\"max_tokens\":%ld,\"ignore_eos\":true,\"temperature\":0,\"cache_prompt\":%s%s%s%s%s%s%s%s}", c->wanted,
                 o.share > 0 ? "true" : "false",
                 o.logprobs ? ",\"logprobs\":0" : "",
                 o.stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "",
                 o.model ? ",\"model\":\"" : "", o.model ? o.model : "", o.model ? "\"" : "", o.fields ? "," : "",
                 o.fields ? o.fields : "");
    char head[1024];
    int n_head = snprintf(head, sizeof head,
                          "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s%.200s%sContent-Length: "
                          "%zu\r\n\r\n", o.path, o.key ? "Authorization: Bearer " : "", o.key ? o.key : "",
                          o.key ? "\r\n" : "", (size_t)(p - body));
    memmove(c->out + n_head, body, (size_t)(p - body));
    memcpy(c->out, head, (size_t)n_head);
    c->n_out = (size_t)n_head + (size_t)(p - body);
    tokens_in += n;
}

enum { BACK_OFF_S = 1 }; /* at the least what Retry-After says */

/* A client that was refused and would ask again at once waits a little, as people's clients do. */
static void back_off(client *c)
{
    c->stage = IDLE;
    c->back_at = now_s() + BACK_OFF_S;
    c->next = NULL;
    *refused_end = c;
    refused_end = &c->next;
    n_rest++;
}

static void rest(client *c)
{
    c->stage = IDLE;
    c->next = idle;
    idle = c;
    n_rest++;
}

/* False: no connection can be had now. */
static bool begin(client *c, double due)
{
    idle = c->next;
    n_rest--;
    compose(c);
    choose_cancel(c);
    c->due = due;
    c->first = c->last = c->worst_gap = 0;
    c->sent = c->n_head = c->n_tail = 0;
    c->n_events = 0;
    c->match = 0;
    c->closes = false;
    c->kept = c->fd >= 0;
    c->stage = SENDING;
    n_sent++;
    if (c->cancel == CUTS_REQUEST)
        c->n_out = (size_t)c->cancel_at + 1;
    if (c->fd < 0 && !client_dial(c)) {
        n_failed++;
        rest(c);
        return false;
    }
    if (!c->fresh)
        client_send(c);
    return true;
}

static void give_up(client *c)
{
    client_hang_up(c, draw() % 2);
    n_cancelled++;
    rest(c);
}

void client_done(client *c, bool ok)
{
    double t = now_s();
    const char *u = c->n_tail ? strstr(c->tail, "\"completion_tokens\":") : NULL;
    long n;

    u = u || !c->n_tail ? u : strstr(c->tail, "\"tokens_predicted\":");
    n = u ? atol(strchr(u, ':') + 1) : c->n_events;
    if (!ok || c->closes)
        client_hang_up(c, false);
    if (ok && c->status == 429 && o.rate <= 0)
        back_off(c);
    else
        rest(c);
    if (ok && c->status == 200 && t >= measure_from && t <= measure_to) {
        n_done++;
        tokens_out += n;
    }
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
        add(&ttft, first - c->due);
        add(&e2e, t - c->due);
        if (n > 1 && o.stream)
            add(&tpot, each);
        n_answered++;
        n_good += (o.ttft_goal <= 0 || first - c->due <= o.ttft_goal) && (o.tpot_goal <= 0 || each <= o.tpot_goal) &&
                  (o.gap_goal <= 0 || c->worst_gap <= o.gap_goal);
    }
}

void client_event(client *c)
{
    double t = now_s();

    c->n_events++;
    if (c->first <= 0)
        c->first = t;
    else if (c->last >= measure_from && t <= measure_to)
        add(&gaps, t - c->last);
    if (c->n_events > 1 && t - c->last > c->worst_gap)
        c->worst_gap = t - c->last;
    c->last = t;
    if (c->cancel == LEAVES_AT_EVENT && (double)c->n_events >= c->cancel_at)
        give_up(c);
}

/* ---- the run ----------------------------------------------------------------------------------------------------------- */

/* Idle clients take what is due.  Returns when the next is. */
static double dispatch(double *next, double t, double end)
{
    for (client *c; (c = refused) && c->back_at <= t; idle = c) {
        refused = c->next;
        refused_end = refused ? refused_end : &refused;
        c->next = idle;
    }
    for (;;) {
        if (!idle || !(o.requests ? n_sent < o.requests : t < end))
            return t + 0.1;
        if (o.rate > 0 && *next > t)
            return *next;
        bool ok = begin(idle, o.rate > 0 ? *next : t);
        *next -= o.rate > 0 ? log(1 - unit()) / o.rate : 0;
        if (!ok)
            return t + 0.01;
    }
}

/* Who leaves after a while leaves when it is over; who sends but a part, when that is sent. */
static void leave_when_due(client *all, double t)
{
    for (long i = 0; o.cancel > 0 && i < o.clients; i++) {
        client *c = &all[i];
        if (c->stage != IDLE &&
            (c->cancel == CUTS_REQUEST ? c->sent == c->n_out : c->cancel == LEAVES_LATER && t >= c->cancel_at))
            give_up(c);
    }
}

static void sample_memory(void)
{
    static double at;
    char path[64];
    long pages = 0;
    FILE *f;

    if (!o.server_pid || now_s() < at)
        return;
    at = now_s() + 0.25;
    snprintf(path, sizeof path, "/proc/%ld/statm", o.server_pid);
    f = fopen(path, "r");
    if (!f)
        return;
    if (fscanf(f, "%*d %ld", &pages) == 1) {
        rss_last = pages * (sysconf(_SC_PAGESIZE) / 1024);
        rss_first = rss_first ? rss_first : rss_last;
        rss_most = rss_last > rss_most ? rss_last : rss_most;
    }
    fclose(f);
}

static void leave_all(client *all)
{
    for (long i = 0; i < o.clients; i++)
        if (all[i].stage != IDLE) {
            client_hang_up(&all[i], false);
            rest(&all[i]);
        }
}

static void serve_event(client *c, uint32_t events)
{
    if (c->fd >= 0 && events & EPOLLOUT) {
        if (c->stage == SENDING)
            client_send(c);
        else
            client_listen(c);
    }
    if (c->fd >= 0 && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        client_read(c);
}

static void run(client *all)
{
    struct epoll_event events[256];
    double next = now_s(), end = next + o.warmup + o.seconds, t;

    measure_from = next + o.warmup;
    measure_to = o.requests ? INFINITY : end;
    for (long i = o.clients; i-- > 0;) {
        all[i].fd = -1;
        rest(&all[i]);
    }
    for (;;) {
        t = now_s();
        double due = dispatch(&next, t, end);
        bool more = o.requests ? n_sent < o.requests : t < end;
        sample_memory();
        if (!more && o.leave)
            leave_all(all);
        if ((!more && n_rest == o.clients) || t > end + 600)
            break;
        double wait = due - now_s();
        wait = o.cancel > 0 && wait > 0.005 ? 0.005 : wait;
        int n = epoll_wait(epoll_fd, events, 256, wait <= 0 ? 0 : wait > 0.1 ? 100 : (int)ceil(wait * 1e3));
        for (int i = 0; i < n; i++)
            serve_event(events[i].data.ptr, events[i].events);
        leave_when_due(all, now_s());
    }
    if (o.requests)
        measure_to = now_s();
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

/* Of the requests that were due, those that were answered within all goals; one that was refused or failed was not. */
static double good_share(void)
{
    const long n = n_answered + n_busy + n_failed;

    return n ? (double)n_good / (double)n : 0;
}

static void report(double s, double own, double server)
{
    if (o.json)
        printf("{\"clients\":%ld,\"prompt\":%ld,\"output\":%ld,\"rate\":%g,\"stream\":%s,\"seconds\":%.3f,\"completed\":%ld,"
               "\"failed\":%ld,\"busy\":%ld,\"cancelled\":%ld,\"requests_s\":%.3f,\"output_tok_s\":%.3f,"
               "\"goodput_requests_s\":%.3f,\"good\":%.4f,\"own_cpu\":%.4f,\"server_cpu\":%.4f,"
               "\"rss_kib\":[%ld,%ld,%ld]", o.clients, o.prompt, o.output, o.rate,
               o.stream ? "true" : "false", s, n_done, n_failed, n_busy, n_cancelled, (double)n_done / s,
               (double)tokens_out / s, (double)n_good / s, good_share(), own, server, rss_first, rss_most, rss_last);
    else
        printf("%ld done, %ld failed, %ld refused as busy, %ld left in %.2f s: %.2f requests/s, %.1f output tokens/s, goodput "
               "%.2f requests/s (%.3f of all)\nprocessor: %.3f of a core here, %.3f in the server, whose memory went %ld, at "
               "most %ld, %ld KiB\n", n_done, n_failed, n_busy, n_cancelled, s, (double)n_done / s, (double)tokens_out / s,
               (double)n_good / s, good_share(), own, server, rss_first, rss_most, rss_last);
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
    { "--fields", NULL, NULL, &o.fields, "more members of each request, as '\"steps\":16'" },
    { "--clients", &o.clients, NULL, NULL, "requests at once at most" },
    { "--rate", NULL, &o.rate, NULL, "arrivals per second, Poisson (0: closed loop)" },
    { "--seconds", NULL, &o.seconds, NULL, "how long requests are begun" },
    { "--warmup", NULL, &o.warmup, NULL, "seconds before that which are not counted" },
    { "--requests", &o.requests, NULL, NULL, "so many requests instead" },
    { "--prompt", &o.prompt, NULL, NULL, "tokens of a prompt (100)" },
    { "--prompt-most", &o.prompt_most, NULL, NULL, "uniform from --prompt to this" },
    { "--output", &o.output, NULL, NULL, "tokens of an answer (64)" },
    { "--output-most", &o.output_most, NULL, NULL, "log-uniform from --output to this" },
    { "--prefix", &o.prefix, NULL, NULL, "tokens before the prompt that may be shared" },
    { "--share", NULL, &o.share, NULL, "share of the requests that share them (0 to 1)" },
    { "--vocab", &o.vocab, NULL, NULL, "ids are drawn below this (1000)" },
    { "--seed", &o.seed, NULL, NULL, "of the draws" },
    { "--ttft-goal", NULL, &o.ttft_goal, NULL, "seconds: only faster first tokens are goodput" },
    { "--tpot-goal", NULL, &o.tpot_goal, NULL, "seconds per token: the same" },
    { "--gap-goal", NULL, &o.gap_goal, NULL, "seconds: only answers without a longer gap between tokens" },
    { "--server-pid", &o.server_pid, NULL, NULL, "whose processor time and memory to report" },
    { "--cancel", NULL, &o.cancel, NULL, "share of the requests whose client leaves, in any phase" },
};

static int usage(void)
{
    printf("usage: bench_load [FLAGS]\n  --no-stream     whole answers\n  --json          one document\n"
           "  --logprobs      ask for them: every token is then an event, text or none\n"
           "  --leave         when the time is over, in the middle of answers\n");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        printf("  %-15s %s\n", flags[i].name, flags[i].help);
    return 2;
}

static bool parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t f = 0;
        if (!strcmp(argv[i], "--no-stream") || !strcmp(argv[i], "--json") || !strcmp(argv[i], "--logprobs") ||
            !strcmp(argv[i], "--leave")) {
            o.leave = o.leave || !strcmp(argv[i], "--leave");
            o.stream = o.stream && strcmp(argv[i], "--no-stream") != 0;
            o.json = o.json || !strcmp(argv[i], "--json");
            o.logprobs = o.logprobs || !strcmp(argv[i], "--logprobs");
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
    return o.clients > 0 && o.prompt > 0 && o.output > 0 && o.vocab > 20 &&
           (!o.fields || strlen(o.fields) < 1024);
}

int main(int argc, char **argv)
{
    struct rusage r;

    if (!parse(argc, argv))
        return usage();
    client *all = calloc((size_t)o.clients, sizeof *all);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    rng_state = (uint64_t)o.seed;
    if (!all || !client_open(epoll_fd))
        return 1;
    double server = cpu_of(o.server_pid), from = now_s();
    sample_memory();
    run(all);
    double whole = now_s() - from;
    getrusage(RUSAGE_SELF, &r);
    report(measure_to - measure_from,
           ((double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec)) / whole,
           (cpu_of(o.server_pid) - server) / whole);
    for (long i = 0; i < o.clients; i++)
        free(all[i].out);
    free(all);
    return n_done || n_busy || n_cancelled ? 0 : 1;
}
