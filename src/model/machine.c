/* machine.c -- see machine.h. */
#include "model/machine.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/quantile.h"

/* ---- the roofs --------------------------------------------------------------------------------------------------- */

enum {
    TRIES = 5, READS = 9, PAUSE_OPS = 20000, PAUSE_MOST = 1 << 16,
    CACHE_BYTES = 8 << 20, /* rg_rate_sets[RG_RATE_CACHE] */
    ROUNDS = 4, HOLD_LOOKS = 64, /* of all roofs, until they hold; and looks that tell */
};

/* What looks give of roofs that hold, and of meetings, which differ more. */
static const double STEADY = 0.8, MEETS = 0.5;

typedef struct probe {
    const rg_cpu *cpu;
    rg_pool *pool;
    int n_threads;
    uint8_t *data;
    size_t bytes;             /* per thread */
    int repeats;
    double pause_s, took[READS]; /* of reads after pauses */
    double (*peak)(double n);
    double n, done[256];
} probe;

static void read_all(void *arg, int thread)
{
    probe *p = arg;

    for (int i = 0; i < p->repeats; i++)
        p->done[thread] = (double)p->cpu->stream(p->data + (size_t)thread * p->bytes, p->bytes);
}

static void compute(void *arg, int thread)
{
    probe *p = arg;

    p->done[thread] = p->peak(p->n);
}

static void barriers(void *arg, int thread)
{
    probe *p = arg;
    uint32_t phase = 0;

    (void)thread;
    while (phase < 1000) {
        rg_phase_take(p->pool, phase);
        rg_phase_end(p->pool, &phase);
    }
}

/* (A clock may stand still.) */
static void pause(const probe *p)
{
    uint64_t t0 = rg_now_ns();

    for (int i = 0; i < PAUSE_MOST && rg_seconds(t0, rg_now_ns()) < p->pause_s; i++)
        p->cpu->peak_f32(PAUSE_OPS);
}

static void read_after_pauses(void *arg, int thread)
{
    probe *p = arg;
    uint32_t phase = 0;

    for (int i = -1; i < READS; i++) { /* the first brings it near */
        pause(p);
        rg_phase_end(p->pool, &phase);
        uint64_t t0 = rg_now_ns();
        p->done[thread] = (double)p->cpu->stream(p->data + (size_t)thread * p->bytes, p->bytes);
        rg_phase_end(p->pool, &phase);
        if (thread == 0 && i >= 0)
            p->took[i] = rg_seconds(t0, rg_now_ns());
    }
}

static double timed(probe *p, void (*fn)(void *arg, int thread))
{
    uint64_t t0 = rg_now_ns();

    rg_pool_run(p->pool, p->n_threads, fn, p);
    return rg_seconds(t0, rg_now_ns());
}

/* The least of several tries: other work on the machine can only slow one down. */
static double best_seconds(probe *p, void (*fn)(void *arg, int thread))
{
    double best = timed(p, fn);

    for (int i = 1; i < TRIES; i++) {
        double s = timed(p, fn);
        best = s < best ? s : best;
    }
    return best;
}

static double best_peak(probe *p, double (*peak)(double n))
{
    double ops = 0;

    if (!peak)
        return 0;
    p->peak = peak;
    p->n = 3e8;
    double s = best_seconds(p, compute);
    for (int t = 0; t < p->n_threads; t++) /* every try does as many */
        ops += 2 * p->done[t];
    return ops / s;
}

/* Memory to read, so much by every thread: bytes in all, 0: none. */
static size_t make_data(probe *p, size_t working_set)
{
    p->bytes = working_set / (size_t)p->n_threads / 4096 * 4096 + 4096;
    size_t all = p->bytes * (size_t)p->n_threads;
    p->data = rg_region_new(all);
    if (!p->data)
        return 0;
    memset(p->data, 1, all);
    return all;
}

/* Bytes per second: the highest of some tries, or the usual. */
static double bandwidth(probe *p, size_t working_set, bool highest)
{
    double tries[TRIES];
    size_t all = make_data(p, working_set ? working_set : (size_t)256 << 20);

    if (!all)
        return 0;
    p->repeats = (int)(((size_t)64 << 20) / all) + 1;
    for (int i = 0; i < TRIES; i++)
        tries[i] = timed(p, read_all);
    rg_region_free(p->data, all);
    double usual = rg_quantile(tries, TRIES, 0.5); /* which sorts them */
    return (double)all * p->repeats / (highest ? tries[0] : usual);
}

static double bandwidth_after(probe *p, size_t working_set, double pause_s)
{
    size_t all = make_data(p, working_set);

    if (!all)
        return 0;
    p->pause_s = pause_s;
    rg_pool_run(p->pool, p->n_threads, read_after_pauses, p);
    rg_region_free(p->data, all);
    double usual = rg_quantile(p->took, READS, 0.5);
    return usual > 0 ? (double)all / usual : 0;
}

static probe *new_probe(const rg_cpu *cpu, rg_pool *pool, int n_threads)
{
    probe *p = rg_zalloc(sizeof *p);

    if (p)
        *p = (probe){ .cpu = cpu, .pool = pool, .n_threads = n_threads < 256 ? n_threads : 256 };
    return p;
}

double rg_machine_bandwidth(const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set, bool highest)
{
    probe *p = new_probe(cpu, pool, n_threads);
    double rate = p ? bandwidth(p, working_set, highest) : 0;

    rg_free(p);
    return rate;
}

double rg_machine_bandwidth_after(const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set, double pause_s)
{
    probe *p = new_probe(cpu, pool, n_threads);
    double rate = p ? bandwidth_after(p, working_set, pause_s) : 0;

    rg_free(p);
    return rate;
}

static void measure_roofs(probe *p, size_t working_set, rg_machine *out)
{
    out->read_bytes_s = bandwidth(p, working_set, true);
    out->f32_ops_s = best_peak(p, p->cpu->peak_f32);
    out->int8_ops_s = best_peak(p, p->cpu->peak_int8);
    out->bf16_ops_s = best_peak(p, p->cpu->peak_bf16);
    out->op_s = best_seconds(p, barriers) / 1000;
    p->n = 0;
    p->peak = p->cpu->peak_f32;
    out->step_s = 2 * best_seconds(p, compute);
    out->cache_bytes_s = bandwidth(p, CACHE_BYTES, true);
}

static bool about_all(double share)
{
    return !share || (share > STEADY && share < 1 / STEADY);
}

bool rg_machine_holds(const rg_share *s)
{
    return about_all(s->memory) && about_all(s->compute);
}

/* Whether looks find the roofs to be what was measured.  Threads that have slept may begin in one core, and be moved to
 * others while roofs are measured, which are then of what was for a moment. */
static bool roofs_hold(const rg_machine *m, const probe *p, bool memory)
{
    rg_pulse *pulse = rg_pulse_open(m, p->cpu, p->n_threads, NULL);

    if (!pulse) /* nothing tells */
        return true;
    for (int i = 0; i < HOLD_LOOKS; i++)
        rg_pulse_look(pulse, p->pool, memory);
    rg_share s = rg_pulse_usual(pulse);
    rg_pulse_close(pulse);
    return rg_machine_holds(&s) && (p->n_threads == 1 || (s.meeting > MEETS && s.meeting < 1 / MEETS));
}

void rg_machine_measure(rg_machine *out, const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set)
{
    probe *p = new_probe(cpu, pool, n_threads);

    memset(out, 0, sizeof *out);
    if (!p)
        return;
    for (int i = 0; i < ROUNDS; i++) {
        measure_roofs(p, working_set, out);
        if (roofs_hold(out, p, !working_set))
            break;
    }
    rg_free(p);
}

/* ---- the pulse --------------------------------------------------------------------------------------------------- */

enum {
    LOOKS = 1024,
    PULSE_THREADS = 256,
    PULSE_BYTES = 128 << 20, /* gone through in turn, so that what is read is in no cache, */
    LOOK_BYTES = 32 << 20,   /* so much by all threads together, */
    CHUNKS = 32,             /* shared out as operations are */
    MEETINGS = 32,
    CACHE_WARM = 24,         /* reads of CACHE_BYTES until they come from the last cache whatever was in it before, */
    CACHE_READS = 4,         /* and beside the others */
    MEET_EVERY = 8,          /* operations of a step, after which threads look at the clock together */
    PAUSE_NS = 5000000,      /* between looks while waiting */
};

/* Seconds of arithmetic, at full speed; and from a look to the next one within a step. */
static const double LOOK_S = 2e-4, WITHIN_EVERY_S = 0.03;

/* Of the most that a look has seen, what is quiet: noise is less, a shared core is half; threads meet in one core
 * sooner, by half, than in two that share a cache, and in two that do not, four times later than these. */
static const double QUIET = 0.8, NEAR = 1 / 3.0;

/* 1 / share of some looks. */
typedef struct slow {
    double sum;
    int n;
} slow;

/* Shares of one roof.  Looks within a step and the one after it count as one: how slow they were on the mean. */
typedef struct looks {
    double v[LOOKS];
    int n;
    slow step, between; /* not yet in v; and since rg_pulse_between was asked */
    double last, most;
} looks;

/* A thread's part of a look. */
typedef struct part {
    _Alignas(64) double done;
    uint64_t begun, ended;
    uint32_t n_ops; /* of steps, that this thread has run */
} part;

struct rg_pulse {
    rg_reader reader; /* first */
    const rg_cpu *cpu;
    int n_threads;
    double read_bytes_s, cache_bytes_s, f32_ops_s, meetings_s; /* the roofs */
    uint8_t *data;                  /* [PULSE_BYTES + CACHE_BYTES] */
    size_t at;                      /* of it, the next look's */
    uint64_t looked_ns;
    bool due;                       /* within a step, when threads meet */
    double within_s;
    part part[PULSE_THREADS];
    looks memory, cache, compute, meeting;
};

rg_pulse *rg_pulse_open(const rg_machine *m, const rg_cpu *cpu, int n_threads, rg_error *err)
{
    rg_pulse *p = rg_zalloc(sizeof *p);
    uint8_t *data = p ? rg_region_new(PULSE_BYTES + CACHE_BYTES) : NULL;

    if (!data) {
        rg_free(p);
        rg_fail_memory(err, PULSE_BYTES + CACHE_BYTES);
        return NULL;
    }
    RG_ASSERT(CACHE_BYTES == rg_rate_sets[RG_RATE_CACHE]);
    memset(data, 1, PULSE_BYTES + CACHE_BYTES);
    p->cpu = cpu;
    p->n_threads = n_threads < PULSE_THREADS ? n_threads : PULSE_THREADS;
    p->read_bytes_s = m->read_bytes_s;
    p->cache_bytes_s = m->cache_bytes_s;
    p->f32_ops_s = m->f32_ops_s;
    p->meetings_s = m->op_s > 0 ? n_threads / m->op_s : 0;
    p->data = data;
    return p;
}

void rg_pulse_close(rg_pulse *p)
{
    if (!p)
        return;
    rg_region_free(p->data, PULSE_BYTES + CACHE_BYTES);
    rg_free(p);
}

typedef enum look_at { AT_COMPUTE, AT_MEMORY, AT_MEETING, AT_CACHE } look_at;

/* Bytes that were read, all of them.  (Never 0: every byte is 1.) */
static double read_bytes(const rg_pulse *p, size_t at, size_t bytes)
{
    return p->cpu->stream(p->data + at, bytes) ? (double)bytes : 0;
}

/* By every thread, from when all are there. */
static void look(rg_pulse *p, rg_pool *pool, uint32_t *phase, int thread, look_at what)
{
    const double ops = LOOK_S * p->f32_ops_s / CHUNKS;
    const size_t bytes = LOOK_BYTES / CHUNKS, each = (size_t)CACHE_BYTES / (size_t)p->n_threads;
    const size_t cached = PULSE_BYTES + (size_t)thread * each;
    part *own = &p->part[thread];

    for (int i = 0; what == AT_CACHE && i < CACHE_WARM; i++)
        read_bytes(p, cached, each);
    rg_phase_end(pool, phase);
    own->done = 0;
    own->begun = rg_now_ns();
    for (int i = 0; what == AT_CACHE && i < CACHE_READS; i++)
        own->done += read_bytes(p, cached, each);
    for (; what == AT_MEETING && own->done < MEETINGS; own->done++)
        rg_phase_end(pool, phase);
    for (int i; (what == AT_COMPUTE || what == AT_MEMORY) && (i = rg_phase_take(pool, *phase)) < CHUNKS;)
        own->done += what == AT_COMPUTE ? 2 * p->cpu->peak_f32(ops / 2)
                                        : read_bytes(p, p->at + (size_t)i * bytes, bytes);
    own->ended = rg_now_ns();
    rg_phase_end(pool, phase);
}

static void add_look(slow *s, double share)
{
    s->sum += 1 / share;
    s->n++;
}

static double mean_look(const slow *s)
{
    return s->n > 0 ? s->n / s->sum : 0;
}

/* By one thread, after a look: what was given of a roof. */
static double keep(const rg_pulse *p, double roof, looks *seen, bool within)
{
    uint64_t first = p->part[0].begun, last = p->part[0].ended;
    double done = 0;

    for (int t = 0; t < p->n_threads; t++) {
        const part *one = &p->part[t];
        done += one->done;
        first = one->begun < first ? one->begun : first;
        last = one->ended > last ? one->ended : last;
    }
    double now = last > first && roof > 0 ? done / rg_seconds(first, last) / roof : 0;
    if (now > 0) {
        add_look(&seen->step, now);
        add_look(&seen->between, now);
        seen->last = now;
        seen->most = now > seen->most ? now : seen->most;
    }
    if (!within && seen->step.n > 0) {
        seen->v[seen->n++ % LOOKS] = mean_look(&seen->step);
        seen->step = (slow){ 0 };
    }
    return now;
}

static void move_on(rg_pulse *p)
{
    p->at = p->at + 2 * LOOK_BYTES <= PULSE_BYTES ? p->at + LOOK_BYTES : 0;
}

typedef struct alone {
    rg_pulse *p;
    rg_pool *pool;
    look_at what;
} alone;

static void look_alone(void *arg, int thread)
{
    const alone *a = arg;
    uint32_t phase = 0;

    look(a->p, a->pool, &phase, thread, a->what);
}

rg_share rg_pulse_look(rg_pulse *p, rg_pool *pool, bool memory)
{
    alone a = { p, pool, AT_COMPUTE };
    rg_share s = { 0 };

    rg_pool_run(pool, p->n_threads, look_alone, &a);
    s.compute = keep(p, p->f32_ops_s, &p->compute, false);
    a.what = AT_MEETING;
    rg_pool_run(pool, p->n_threads, look_alone, &a);
    s.meeting = keep(p, p->meetings_s, &p->meeting, false);
    if (memory) {
        a.what = AT_CACHE;
        rg_pool_run(pool, p->n_threads, look_alone, &a);
        s.cache = keep(p, p->cache_bytes_s, &p->cache, false);
        a.what = AT_MEMORY;
        rg_pool_run(pool, p->n_threads, look_alone, &a);
        s.memory = keep(p, p->read_bytes_s, &p->memory, false);
        move_on(p);
    }
    p->looked_ns = rg_now_ns();
    return s;
}

/* At all, by the threads of a step. */
static void look_within(rg_pulse *p, rg_fwd *f)
{
    const struct {
        look_at what;
        double roof;
        looks *seen;
    } at[] = { { AT_COMPUTE, p->f32_ops_s, &p->compute },
               { AT_MEETING, p->meetings_s, &p->meeting },
               { AT_CACHE, p->cache_bytes_s, &p->cache },
               { AT_MEMORY, p->read_bytes_s, &p->memory } };
    uint64_t t0 = rg_now_ns();

    for (size_t i = 0; i < RG_LEN(at); i++) {
        look(p, f->pool, &f->phase, f->thread, at[i].what);
        if (f->thread == 0)
            keep(p, at[i].roof, at[i].seen, true);
        rg_fwd_barrier(f);
    }
    if (f->thread == 0) {
        move_on(p);
        p->looked_ns = rg_now_ns();
        p->within_s += rg_seconds(t0, p->looked_ns);
    }
    rg_fwd_barrier(f);
}

static void run_pulse(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_pulse *p = (rg_pulse *)(uintptr_t)self; /* ours, and not const: the reader is its first member */

    self->inner->run(self->inner, f, op);
    if (++p->part[f->thread].n_ops % MEET_EVERY)
        return;
    if (f->thread == 0)
        p->due = rg_seconds(p->looked_ns, rg_now_ns()) > WITHIN_EVERY_S;
    rg_fwd_barrier(f);
    if (p->due)
        look_within(p, f);
}

const rg_reader *rg_pulse_wrap(rg_pulse *p, const rg_reader *inner)
{
    p->reader = (rg_reader){ .run = run_pulse, .inner = inner };
    return &p->reader;
}

double rg_pulse_within_s(const rg_pulse *p)
{
    return p->within_s;
}

static double median(looks *seen)
{
    int n = seen->n < LOOKS ? seen->n : LOOKS;

    seen->n = 0;
    return n ? rg_quantile(seen->v, n, 0.5) : 0;
}

rg_share rg_pulse_usual(rg_pulse *p)
{
    return (rg_share){ median(&p->memory), median(&p->compute), median(&p->meeting), median(&p->cache) };
}

static double between(looks *seen)
{
    double mean = mean_look(&seen->between);

    seen->between = (slow){ 0 };
    if (seen->last > 0)
        add_look(&seen->between, seen->last);
    return mean;
}

rg_share rg_pulse_between(rg_pulse *p)
{
    return (rg_share){ between(&p->memory), between(&p->compute), between(&p->meeting), between(&p->cache) };
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

bool rg_pulse_quiet(const rg_pulse *p, const rg_share *s)
{
    if (s->meeting > 0 && p->n_threads > 1 && s->meeting < NEAR * larger(p->meeting.most, 1))
        return false;
    return s->compute >= QUIET * larger(p->compute.most, 1);
}

/* The last one outside of a step. */
static void forget_look(looks *seen)
{
    seen->n -= seen->n > 0;
    seen->between = (slow){ 0 };
}

rg_share rg_pulse_wait(rg_pulse *p, rg_pool *pool, bool memory, double *patience_s)
{
    const struct timespec pause = { .tv_nsec = PAUSE_NS };
    uint64_t t0 = rg_now_ns();
    rg_share s = rg_pulse_look(p, pool, memory);

    while (!rg_pulse_quiet(p, &s) && *patience_s > 0) {
        nanosleep(&pause, NULL);
        uint64_t now = rg_now_ns();
        *patience_s -= now > t0 ? rg_seconds(t0, now) : *patience_s; /* a clock may stand still */
        t0 = now;
        forget_look(&p->compute);
        forget_look(&p->meeting);
        if (memory) {
            forget_look(&p->cache);
            forget_look(&p->memory);
        }
        s = rg_pulse_look(p, pool, memory);
    }
    return s;
}
