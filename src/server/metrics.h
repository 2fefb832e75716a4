/* metrics.h -- what the server counts, printed in Prometheus' text format under the names that dashboards know
 * (vLLM's), and a few of ridge's own.  Thread-safe. */
#ifndef RG_SERVER_METRICS_H
#define RG_SERVER_METRICS_H

#include "base/buf.h"

enum { RG_MAX_BUCKETS = 24 };

typedef enum rg_histogram_id {
#define HISTOGRAM(id, name, buckets, help) RG_H_##id,
#define COUNTER(id, name, help)
#define GAUGE(id, name, help)
#include "server/metrics.def"
    RG_N_HISTOGRAMS
} rg_histogram_id;

typedef enum rg_counter_id {
#define HISTOGRAM(id, name, buckets, help)
#define COUNTER(id, name, help) RG_C_##id,
#define GAUGE(id, name, help)
#include "server/metrics.def"
    RG_N_COUNTERS
} rg_counter_id;

typedef enum rg_gauge_id {
#define HISTOGRAM(id, name, buckets, help)
#define COUNTER(id, name, help)
#define GAUGE(id, name, help) RG_G_##id,
#include "server/metrics.def"
    RG_N_GAUGES
} rg_gauge_id;

enum { RG_MAX_HTTP_ROUTES = 128, RG_N_STATUS = 6 };

typedef struct rg_metrics rg_metrics;

rg_metrics *rg_metrics_new(const char *model, rg_error *err);
void rg_metrics_free(rg_metrics *m); /* NULL is fine */

void rg_observe(rg_metrics *m, rg_histogram_id id, double v, uint64_t times);
void rg_count(rg_metrics *m, rg_counter_id id, double n);
void rg_count_to(rg_metrics *m, rg_counter_id id, double total); /* set a counter that is counted elsewhere */
/* Tokens of drafts accepted so far, by their place on the draft's path; n at most RG_DRAFT_PLACES. */
void rg_count_accepted(rg_metrics *m, const uint64_t *at, int n);
void rg_gauge(rg_metrics *m, rg_gauge_id id, double v);
/* What routers ask of a model: ids of a block of K/V, the blocks there are; names of adapters that are being answered
 * with and waited for, with commas between (copied; more than fit are left out). */
typedef struct rg_metric_facts {
    int block_ids;
    uint64_t n_blocks;
    int32_t n_adapters;
    char running[512], waiting[512];
} rg_metric_facts;
void rg_metrics_facts(rg_metrics *m, const rg_metric_facts *facts);
void rg_count_finish(rg_metrics *m, const char *reason); /* stop, length, abort, deadline, error */
/* A route's path and method (fixed texts); all requests without a route count as one. */
void rg_count_http(rg_metrics *m, int route, const char *path, const char *method, int status, double seconds);
double rg_metric_gauge(rg_metrics *m, rg_gauge_id id);
double rg_metric_counter(rg_metrics *m, rg_counter_id id);
double rg_metric_quantile(rg_metrics *m, rg_histogram_id id, double q); /* a bucket's upper bound; 0: nothing yet */

/* Print the metrics of n models.  HTTP is counted by the first. */
void rg_metrics_print(rg_metrics *const m[], int n, rg_buf *out);

#endif
