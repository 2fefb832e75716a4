/* metrics.c -- see metrics.h. */
#include "server/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

typedef struct bounds {
    int n;
    double at[RG_MAX_BUCKETS];
} bounds;

static const bounds FIRST = { 22, { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                    1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560 } };
static const bounds BETWEEN = {
    19, { .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 10, 40 }
};
static const bounds WHOLE = { 20,
                              { .01, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 1920 } };
static const bounds TOKENS = {
    17, { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000 }
};
static const bounds SMALL = { 5, { 1, 2, 5, 10, 20 } };
static const bounds STEPS = {
    16, { .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60 }
};

typedef struct named {
    const char *name, *help;
    const bounds *buckets;
} named;

static const named histogram_names[] = {
#define HISTOGRAM(id, name, buckets, help) { name, help, &buckets },
#define COUNTER(id, name, help)
#define GAUGE(id, name, help)
#include "server/metrics.def"
};
static const named counter_names[] = {
#define HISTOGRAM(id, name, buckets, help)
#define COUNTER(id, name, help) { name, help, NULL },
#define GAUGE(id, name, help)
#include "server/metrics.def"
};
static const named gauge_names[] = {
#define HISTOGRAM(id, name, buckets, help)
#define COUNTER(id, name, help)
#define GAUGE(id, name, help) { name, help, NULL },
#include "server/metrics.def"
};
static const char *const reasons[] = { "stop", "length", "abort", "deadline", "error" };

typedef struct histogram {
    uint64_t count[RG_MAX_BUCKETS + 1], n;
    double sum;
} histogram;

typedef struct http_count {
    const char *path, *method;
    uint64_t by_status[RG_N_STATUS]; /* hundreds */
    histogram seconds;
} http_count;

struct rg_metrics {
    pthread_mutex_t lock;
    rg_buf labels; /* model_name="...", escaped */
    histogram h[RG_N_HISTOGRAMS];
    double c[RG_N_COUNTERS], g[RG_N_GAUGES];
    uint64_t finished[RG_LEN(reasons)];
    http_count http[RG_MAX_HTTP_ROUTES];
    uint64_t accepted_at[RG_DRAFT_PLACES];
    rg_metric_facts facts;
    time_t facts_s;
};

rg_metrics *rg_metrics_new(const char *model, rg_error *err)
{
    rg_metrics *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    pthread_mutex_init(&m->lock, NULL);
    rg_buf_init(&m->labels, 4096);
    rg_buf_str(&m->labels, "engine=\"0\",model_name=\"");
    for (const char *s = model; *s; s++) {
        if (*s == '"' || *s == '\\')
            rg_buf_add(&m->labels, "\\", 1);
        rg_buf_add(&m->labels, *s == '\n' ? " " : s, 1);
    }
    if (!rg_buf_str(&m->labels, "\"")) {
        rg_metrics_free(m);
        return rg_fail_memory(err, 4096), NULL;
    }
    return m;
}

void rg_metrics_free(rg_metrics *m)
{
    if (!m)
        return;
    rg_buf_fini(&m->labels);
    pthread_mutex_destroy(&m->lock);
    rg_free(m);
}

static void put(histogram *h, const bounds *b, double v, uint64_t times)
{
    int i = 0;

    while (i < b->n && v > b->at[i])
        i++;
    h->count[i] += times;
    h->n += times;
    h->sum += v * (double)times;
}

void rg_observe(rg_metrics *m, rg_histogram_id id, double v, uint64_t times)
{
    pthread_mutex_lock(&m->lock);
    put(&m->h[id], histogram_names[id].buckets, v, times);
    pthread_mutex_unlock(&m->lock);
}

void rg_count(rg_metrics *m, rg_counter_id id, double n)
{
    pthread_mutex_lock(&m->lock);
    m->c[id] += n;
    pthread_mutex_unlock(&m->lock);
}

void rg_count_to(rg_metrics *m, rg_counter_id id, double total)
{
    pthread_mutex_lock(&m->lock);
    m->c[id] = total;
    pthread_mutex_unlock(&m->lock);
}

void rg_count_accepted(rg_metrics *m, const uint64_t *at, int n)
{
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < n && i < RG_DRAFT_PLACES; i++)
        m->accepted_at[i] = at[i];
    pthread_mutex_unlock(&m->lock);
}

void rg_gauge(rg_metrics *m, rg_gauge_id id, double v)
{
    pthread_mutex_lock(&m->lock);
    m->g[id] = v;
    pthread_mutex_unlock(&m->lock);
}

double rg_metric_gauge(rg_metrics *m, rg_gauge_id id)
{
    pthread_mutex_lock(&m->lock);
    double v = m->g[id];
    pthread_mutex_unlock(&m->lock);
    return v;
}

double rg_metric_counter(rg_metrics *m, rg_counter_id id)
{
    pthread_mutex_lock(&m->lock);
    double v = m->c[id];
    pthread_mutex_unlock(&m->lock);
    return v;
}

double rg_metric_quantile(rg_metrics *m, rg_histogram_id id, double q)
{
    const bounds *b = histogram_names[id].buckets;
    uint64_t seen = 0;
    double v = 0;

    pthread_mutex_lock(&m->lock);
    for (int i = 0; m->h[id].n && i <= b->n; i++) {
        seen += m->h[id].count[i];
        v = b->at[i < b->n ? i : b->n - 1];
        if ((double)seen >= q * (double)m->h[id].n)
            break;
    }
    pthread_mutex_unlock(&m->lock);
    return v;
}

void rg_metrics_facts(rg_metrics *m, const rg_metric_facts *facts)
{
    pthread_mutex_lock(&m->lock);
    m->facts = *facts;
    m->facts_s = time(NULL);
    pthread_mutex_unlock(&m->lock);
}

void rg_count_finish(rg_metrics *m, const char *reason)
{
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < RG_LEN(reasons); i++)
        m->finished[i] += !strcmp(reasons[i], reason);
    pthread_mutex_unlock(&m->lock);
}

void rg_count_http(rg_metrics *m, int route, const char *path, const char *method, int status, double seconds)
{
    http_count *h = &m->http[route >= 0 && route < RG_MAX_HTTP_ROUTES - 1 ? route : RG_MAX_HTTP_ROUTES - 1];

    pthread_mutex_lock(&m->lock);
    h->path = path;
    h->method = method;
    h->by_status[status / 100 < RG_N_STATUS ? status / 100 : 5]++;
    put(&h->seconds, &WHOLE, seconds, 1);
    pthread_mutex_unlock(&m->lock);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void head(rg_buf *out, const char *name, const char *help, const char *type)
{
    rg_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_histogram(rg_buf *out, const char *name, const char *labels, const histogram *h, const bounds *b)
{
    uint64_t seen = 0;

    for (int i = 0; i < b->n; i++) {
        seen += h->count[i];
        rg_buf_printf(out, "%s_bucket{le=\"%g\",%s} %llu\n", name, b->at[i], labels, (unsigned long long)seen);
    }
    rg_buf_printf(out, "%s_bucket{le=\"+Inf\",%s} %llu\n%s_sum{%s} %.9g\n%s_count{%s} %llu\n", name, labels,
                  (unsigned long long)h->n, name, labels, h->sum, name, labels, (unsigned long long)h->n);
}

static void print_http(rg_metrics *m, rg_buf *out)
{
    head(out, "http_requests_total", "HTTP requests answered.", "counter");
    for (int i = 0; i < RG_MAX_HTTP_ROUTES; i++)
        for (int s = 0; m->http[i].path && s < RG_N_STATUS; s++)
            if (m->http[i].by_status[s])
                rg_buf_printf(out, "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%dxx\"} %llu\n",
                              m->http[i].path, m->http[i].method, s, (unsigned long long)m->http[i].by_status[s]);
    head(out, "http_request_duration_seconds", "From the request line to the answer.", "histogram");
    for (int i = 0; i < RG_MAX_HTTP_ROUTES; i++)
        if (m->http[i].path) {
            char label[128];
            snprintf(label, sizeof label, "handler=\"%s\",method=\"%s\"", m->http[i].path, m->http[i].method);
            print_histogram(out, "http_request_duration_seconds", label, &m->http[i].seconds, &WHOLE);
        }
}

/* Up to the last place at which any was. */
static void print_accepted(const rg_metrics *m, const char *name, rg_buf *out)
{
    int n = RG_DRAFT_PLACES;

    while (n > 0 && !m->accepted_at[n - 1])
        n--;
    for (int i = 0; i < n; i++)
        rg_buf_printf(out, "%s{position=\"%d\",%s} %llu\n", name, i, m->labels.data,
                      (unsigned long long)m->accepted_at[i]);
}

/* The same figures under llama-server's names, without labels: those of all models together. */
static void print_native(rg_metrics *const m[], int n, rg_buf *out)
{
    double c[RG_N_COUNTERS] = { 0 }, g[RG_N_GAUGES] = { 0 }, prefill_s = 0, decode_s = 0;
    char name[100];

    for (int k = 0; k < n; k++) {
        for (int i = 0; i < RG_N_COUNTERS; i++)
            c[i] += m[k]->c[i];
        for (int i = 0; i < RG_N_GAUGES; i++)
            g[i] += m[k]->g[i];
        prefill_s += m[k]->h[RG_H_PREFILL].sum;
        decode_s += m[k]->h[RG_H_DECODE].sum;
    }
    const struct {
        const char *name, *help, *type;
        double v;
    } all[] = {
        { "prompt_tokens_total", "Prompt tokens computed.", "counter", c[RG_C_PROMPT_TOKENS] - c[RG_C_CACHED] },
        { "prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", "counter", c[RG_C_CACHED] },
        { "prompt_seconds_total", "Time of prompts.", "counter", prefill_s },
        { "tokens_predicted_total", "Tokens generated.", "counter", c[RG_C_OUTPUT_TOKENS] },
        { "tokens_predicted_seconds_total", "Time of generation.", "counter", decode_s },
        { "n_decode_total", "Steps.", "counter", c[RG_C_STEPS_DONE] },
        { "n_tokens_max", "Tokens of the longest request so far.", "counter", g[RG_G_LONGEST] },
        { "spec_decode_num_draft_tokens_total", "Tokens of drafts checked.", "counter", c[RG_C_DRAFT_TOKENS] },
        { "spec_decode_num_accepted_tokens_total", "Tokens of drafts accepted.", "counter", c[RG_C_ACCEPTED] },
        { "spec_decode_num_drafts_total", "Drafts checked.", "counter", c[RG_C_DRAFTS] },
        { "prompt_tokens_seconds", "Prompt tokens per second, lately.", "gauge", g[RG_G_PREFILL_S] },
        { "predicted_tokens_seconds", "Tokens generated per second, lately.", "gauge", g[RG_G_TOKENS_S] },
        { "requests_processing", "Requests running.", "gauge", g[RG_G_RUNNING] },
        { "requests_deferred", "Requests waiting.", "gauge", g[RG_G_WAITING] },
        { "n_busy_slots_per_decode", "Rows of a step, lately.", "gauge", g[RG_G_BATCH] },
    };
    for (size_t i = 0; i < RG_LEN(all); i++) {
        snprintf(name, sizeof name, "llamacpp:%s", all[i].name);
        head(out, name, all[i].help, all[i].type);
        rg_buf_printf(out, "%s %.15g\n", name, all[i].v > 0 ? all[i].v : 0);
    }
}

static void print_finished(const rg_metrics *m, const char *name, rg_buf *out)
{
    for (size_t i = 0; i < RG_LEN(reasons); i++)
        rg_buf_printf(out, "%s{finished_reason=\"%s\",%s} %llu\n", name, reasons[i], m->labels.data,
                      (unsigned long long)m->finished[i]);
}

/* Facts as labels, which the routers of vLLM's servers read: the second's value is when it was so. */
static void print_facts(rg_metrics *const m[], int n, rg_buf *out)
{
    head(out, "vllm:cache_config_info", "Blocks of the K/V cache.", "gauge");
    for (int k = 0; k < n; k++)
        rg_buf_printf(out, "vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%llu\",%s} 1\n",
                      m[k]->facts.block_ids, (unsigned long long)m[k]->facts.n_blocks, m[k]->labels.data);
    head(out, "vllm:lora_requests_info", "Adapters in use.", "gauge");
    for (int k = 0; k < n; k++)
        rg_buf_printf(out,
                      "vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=\"%s\","
                      "waiting_lora_adapters=\"%s\",%s} %lld\n",
                      (int)m[k]->facts.n_adapters, m[k]->facts.running, m[k]->facts.waiting, m[k]->labels.data,
                      (long long)m[k]->facts_s);
}

/* All models' lines of a name stand together, under one head. */
static void print_all(rg_metrics *const m[], int n, rg_buf *out)
{
    static const char finished[] = "vllm:request_success_total",
                      accepted[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";

    for (int i = 0; i < RG_N_GAUGES; i++) {
        head(out, gauge_names[i].name, gauge_names[i].help, "gauge");
        for (int k = 0; k < n; k++)
            rg_buf_printf(out, "%s{%s} %.9g\n", gauge_names[i].name, m[k]->labels.data, m[k]->g[i]);
    }
    for (int i = 0; i < RG_N_COUNTERS; i++) {
        head(out, counter_names[i].name, counter_names[i].help, "counter");
        for (int k = 0; k < n; k++)
            rg_buf_printf(out, "%s{%s} %.15g\n", counter_names[i].name, m[k]->labels.data, m[k]->c[i]);
    }
    head(out, finished, "Requests finished, by reason.", "counter");
    for (int k = 0; k < n; k++)
        print_finished(m[k], finished, out);
    head(out, accepted, "Tokens of drafts accepted, by their place in the draft.", "counter");
    for (int k = 0; k < n; k++)
        print_accepted(m[k], accepted, out);
    for (int i = 0; i < RG_N_HISTOGRAMS; i++) {
        head(out, histogram_names[i].name, histogram_names[i].help, "histogram");
        for (int k = 0; k < n; k++)
            print_histogram(out, histogram_names[i].name, m[k]->labels.data, &m[k]->h[i], histogram_names[i].buckets);
    }
    print_facts(m, n, out);
    print_http(m[0], out);
    print_native(m, n, out);
}

void rg_metrics_print(rg_metrics *const m[], int n, rg_buf *out)
{
    for (int k = 0; k < n; k++)
        pthread_mutex_lock(&m[k]->lock);
    print_all(m, n, out);
    for (int k = n - 1; k >= 0; k--)
        pthread_mutex_unlock(&m[k]->lock);
}
