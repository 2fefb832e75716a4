/* pump.c -- the one thread that turns the tokens of all calls into bytes, and watches the engine.
 *
 * It sleeps in rg_engine_wait and wakes when a step is done.  Then it visits every call once and writes what is new.
 * It never waits for a client: the bytes go into the exchange's own memory. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/call.h"

enum {
    WINDOW = 4,        /* seconds that gauges look back */
    STEPS_KEPT = 256,  /* that the watchdog knows */
    PREFIX_BLOCK = 64, /* positions whose state prompts share */
};

static const double max_unseen_s = 0.25;

typedef struct pump {
    rg_served *s;
    rg_call *calls; /* with us */
    uint64_t seen;  /* steps, as rg_engine_wait counts */
    rg_stats last, window[WINDOW];
    uint64_t window_ns[WINDOW];
    int n_windows;
    float step_s[STEPS_KEPT]; /* the last ones */
    uint64_t n_steps_kept, watched_ns;
    double still_s; /* seconds without the end of a step although there was work */
} pump;

void rg_pump_take(rg_served *s, rg_call *c)
{
    atomic_fetch_add(&s->n_in_flight, 1);
    atomic_fetch_add(&s->server->n_calls, 1);
    pthread_mutex_lock(&s->lock);
    c->next = s->fresh;
    s->fresh = c;
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
}

/* In the order in which they came. */
static void take_fresh(pump *p)
{
    rg_call *c, *next, *turned = NULL, **end = &p->calls;

    pthread_mutex_lock(&p->s->lock);
    c = p->s->fresh;
    p->s->fresh = NULL;
    pthread_mutex_unlock(&p->s->lock);
    if (!c)
        return;
    for (; c; c = next) {
        next = c->next;
        c->next = turned;
        turned = c;
    }
    while (*end)
        end = &(*end)->next;
    *end = turned;
}

static void run_turn(pump *p)
{
    uint64_t now = rg_now_ns();
    rg_refusal fault, ending;

    rg_refuse(&fault, 500, "engine_fault", NULL, "The engine has stopped answering.");
    rg_refuse(&ending, 503, "shutting_down", NULL, "The server is shutting down.");
    ending.retry_after_s = 5;
    for (rg_call **at = &p->calls; *at;) {
        rg_call *c = *at;
        bool on = true;
        if (p->s->aborting || p->s->state == RG_FAULTED) {
            rg_call_abort(c, p->s->state == RG_FAULTED ? &fault : &ending);
            on = false;
        }
        if (on && rg_call_turn(c, now)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        rg_call_free(c);
        atomic_fetch_sub(&p->s->n_in_flight, 1);
    }
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static void note_steps(pump *p, const rg_stats *now)
{
    uint64_t n = now->n_steps - p->last.n_steps;
    rg_metrics *m = p->s->metrics;

    if (!n)
        return;
    double each = (now->busy_s - p->last.busy_s) / (double)n, rows = (double)(now->n_rows - p->last.n_rows) / (double)n;
    rg_observe(m, RG_H_STEP, each, n);
    rg_observe(m, RG_H_ITERATION, rows, n);
    for (uint64_t i = 0; i < n && i < STEPS_KEPT; i++)
        p->step_s[p->n_steps_kept++ % STEPS_KEPT] = (float)each;
    p->still_s = 0;
}

static void note_totals(rg_metrics *m, const rg_stats *now)
{
    rg_count_to(m, RG_C_PROMPT_TOKENS, (double)now->n_prompt_rows);
    rg_count_to(m, RG_C_OUTPUT_TOKENS, (double)now->n_output);
    rg_count_to(m, RG_C_PREEMPTIONS, (double)now->n_preempted);
    rg_count_to(m, RG_C_SWAPPED, (double)now->n_swapped);
    rg_count_to(m, RG_C_RECOMPUTED, (double)now->n_recomputed);
    rg_count_to(m, RG_C_UPDATES, (double)now->n_updates);
    rg_count_to(m, RG_C_RANK_LOSSES, (double)now->n_rank_losses);
    rg_count_to(m, RG_C_CACHED, (double)now->n_cached_rows);
    rg_count_to(m, RG_C_DRAFTS, (double)now->n_drafts);
    rg_count_to(m, RG_C_DRAFT_TOKENS, (double)now->n_draft_rows);
    rg_count_to(m, RG_C_ACCEPTED, (double)now->n_draft_accepted);
    rg_count_accepted(m, now->draft_accepted_at, RG_DRAFT_PLACES);
    rg_count_to(m, RG_C_STEPS_DONE, (double)now->n_steps);
    rg_count_to(m, RG_C_BYTES, (double)now->bytes_read);
    rg_count_to(m, RG_C_OPS, now->ops);
    rg_count_to(m, RG_C_BUSY, now->busy_s);
    rg_count_to(m, RG_C_LIMIT, now->limit_s);
    rg_count_to(m, RG_C_EXPERTS_ASKED, (double)now->n_experts_asked);
    rg_count_to(m, RG_C_EXPERTS_READ, (double)now->n_experts_read);
    rg_count_to(m, RG_C_EXPERTS_FAILED, (double)now->n_experts_failed);
    rg_count_to(m, RG_C_EXPERT_BYTES, (double)now->expert_bytes_read);
    rg_count_to(m, RG_C_PREFIX_FOUND, (double)now->n_prefix_found);
    rg_count_to(m, RG_C_PREFIX_MISSED, (double)now->n_prefix_missed);
    rg_count_to(m, RG_C_PREFIX_READ, (double)now->prefix_bytes_read);
    rg_count_to(m, RG_C_PREFIX_WRITTEN, (double)now->prefix_bytes_written);
    rg_count_to(m, RG_C_PREFIX_DAMAGED, (double)now->n_prefix_damaged);
    rg_count_to(m, RG_C_PREFIX_FAILED, (double)now->n_prefix_failed);
    rg_gauge(m, RG_G_PREFIX_FILES, (double)now->prefix_file_bytes);
    rg_gauge(m, RG_G_RUNNING, now->n_running);
    rg_gauge(m, RG_G_WAITING, now->n_waiting);
    rg_gauge(m, RG_G_WAITING_IDS, (double)now->n_waiting_ids);
    rg_gauge(m, RG_G_STATE, (double)now->state_used_bytes);
    rg_gauge(m, RG_G_LIVE, (double)now->state_live_bytes);
    rg_gauge(m, RG_G_KV, now->state_bytes ? (double)now->state_used_bytes / (double)now->state_bytes : 0);
}

static void add_adapter(char list[static 512], const char *name)
{
    size_t n = strlen(list), more = strlen(name);

    for (const char *at = list; (at = strstr(at, name)); at++)
        if ((at == list || at[-1] == ',') && (at[more] == ',' || !at[more]))
            return;
    if (n + more + 2 <= 512 && !strpbrk(name, "\"\\,\n"))
        snprintf(list + n, 512 - n, "%s%s", n ? "," : "", name);
}

static void note_facts(const pump *p, const rg_stats *now)
{
    const rg_info *i = &p->s->info;
    rg_metric_facts facts = { .block_ids = PREFIX_BLOCK, .n_adapters = i->n_adapters };
    uint64_t block_bytes = i->position_bytes * PREFIX_BLOCK;

    facts.n_blocks = block_bytes ? now->state_bytes / block_bytes : 0;
    for (const rg_call *c = p->calls; c; c = c->next)
        if (c->adapter)
            add_adapter(c->n_prefilled || rg_call_totals(c).n_output ? facts.running : facts.waiting, c->adapter);
    rg_metrics_facts(p->s->metrics, &facts);
}

/* Once a second: the gauges that are means over the last seconds. */
static void note_window(pump *p, const rg_stats *now, uint64_t now_ns)
{
    int slot = p->n_windows % WINDOW, oldest = p->n_windows < WINDOW ? 0 : slot;
    rg_metrics *m = p->s->metrics;

    if (p->n_windows && rg_seconds(p->window_ns[(p->n_windows - 1) % WINDOW], now_ns) < 1)
        return;
    note_facts(p, now);
    if (p->n_windows) {
        const rg_stats *then = &p->window[oldest];
        double s = rg_seconds(p->window_ns[oldest], now_ns);
        double steps = (double)(now->n_steps - then->n_steps);
        rg_gauge(m, RG_G_TOKENS_S, (double)(now->n_output - then->n_output) / s);
        rg_gauge(m, RG_G_PREFILL_S, (double)(now->n_prompt_rows - then->n_prompt_rows) / s);
        rg_gauge(m, RG_G_BATCH, steps > 0 ? (double)(now->n_rows - then->n_rows) / steps : 0);
    }
    p->window[slot] = *now;
    p->window_ns[slot] = now_ns;
    p->n_windows = p->n_windows == 2 * WINDOW - 1 ? WINDOW : p->n_windows + 1;
}

static double slow_step(const pump *p)
{
    uint64_t n = p->n_steps_kept < STEPS_KEPT ? p->n_steps_kept : STEPS_KEPT;
    float worst = 0, second = 0, third = 0; /* of 256 the third largest is the 99th percentile */

    for (uint64_t i = 0; i < n; i++) {
        float v = p->step_s[i];
        if (v > worst)
            third = second, second = worst, worst = v;
        else if (v > second)
            third = second, second = v;
        else if (v > third)
            third = v;
    }
    return (double)third;
}

/* A step that does not end is a fault that only a restart clears.  Only time during which this thread itself ran
 * counts: if the whole process was stopped, the engine is not stuck. */
static void watch(pump *p, const rg_stats *now, uint64_t now_ns)
{
    double most = 10 * slow_step(p), passed = rg_seconds(p->watched_ns, now_ns);

    most = most > p->s->server->o.watchdog_s ? most : p->s->server->o.watchdog_s;
    p->still_s += passed < max_unseen_s ? passed : max_unseen_s;
    p->watched_ns = now_ns;
    if (now->n_experts_asked != p->last.n_experts_asked || now->prefix_bytes_read != p->last.prefix_bytes_read)
        /* it is under way, and waits for a disk */
        p->still_s = 0;
    if (now->ranks_restart) /* they read their weights again */
        p->still_s = 0;
    if (!p->calls || !(now->n_running || now->n_waiting)) /* the very first step is not running before it has ended */
        p->still_s = 0;
    if (p->s->server->o.watchdog_s > 0 && p->still_s > most && p->s->state != RG_FAULTED) {
        rg_log(RG_LOG_ERROR, "serve: no step has ended for %.0f s: the engine is taken to be lost", most);
        p->s->state = RG_FAULTED;
    }
}

static void look(pump *p, rg_engine *engine)
{
    rg_stats now = rg_engine_stats(engine);
    uint64_t now_ns = rg_now_ns();

    note_steps(p, &now);
    rg_steps_add(p->s->steps, &p->last, &now, now_ns);
    note_totals(p->s->metrics, &now);
    note_window(p, &now, now_ns);
    watch(p, &now, now_ns);
    p->last = now;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Nothing runs: sleep until a call is handed over, at most 0.2 s. */
static void sleep_idle(rg_served *s)
{
    pthread_mutex_lock(&s->lock);
    if (!s->fresh && !s->closing)
        rg_cond_wait(&s->news, &s->lock, 0.2);
    pthread_mutex_unlock(&s->lock);
}

static void *run(void *arg)
{
    pump *p = arg;
    rg_served *s = p->s;

    p->watched_ns = rg_now_ns();
    while (!s->closing) {
        rg_engine *engine = s->engine;
        s->turned_ns = rg_now_ns();
        take_fresh(p);
        if (engine && p->calls)
            rg_engine_wait(engine, &p->seen, 0.02);
        else
            sleep_idle(s);
        take_fresh(p);
        if (engine)
            look(p, engine); /* before the answers that these steps end */
        run_turn(p);
    }
    s->aborting = true;
    take_fresh(p);
    run_turn(p);
    if (s->engine)
        look(p, s->engine); /* its last steps count too */
    rg_free(p);
    return NULL;
}

bool rg_pump_start(rg_served *s, rg_error *err)
{
    pump *p = rg_zalloc(sizeof *p); /* the thread's from now on, which frees it */

    if (!p)
        return rg_fail_memory(err, sizeof *p);
    p->s = s;
    s->turned_ns = rg_now_ns();
    s->pump_runs = rg_thread_start(&s->pump, run, p);
    if (s->pump_runs)
        return true;
    rg_free(p);
    return rg_fail(err, RG_E_IO, "cannot start the server's thread");
}

void rg_pump_stop(rg_served *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
    if (s->pump_runs)
        pthread_join(s->pump, NULL);
    s->pump_runs = false;
}
