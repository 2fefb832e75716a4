/* test_simulation.c -- the engine simulated from a seed: one or two loops over fake models, and everything that happens to them:
 * the clock, allocations that fail, who comes when and of which tenant, how many rows a step has, drafts, cancels, preemption,
 * state that is gone with a rank.
 * Each answer is compared with that of its request alone, and after each turn of a loop its lists, pools and index are checked.
 *
 * A failing seed is named and replays by its number: test_simulation --seed N.  What the simulation finds is shown by five
 * faults, planted between the engine's parts by functions that this program alone puts there (--wrap, ../CMakeLists.txt). */
#include "engine/alone.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/fair.h"
#include "engine/scheduler_inner.h"

typedef enum fault { NO_FAULT, LOST_CANCEL, FREED_TWICE, STALE_PREFIX, WRONG_TURN, ONE_BIT, N_FAULTS } fault;

static const char *const faults[] = { "none",           "a lost cancel",         "a block freed twice",
                                      "a stale prefix", "a wrong tenant's turn", "one bit in one row" };

enum {
    SEEDS = 400,
    ALL_SEEDS = 10000,
    MOST_UNTIL_FOUND = 1000,
    N_LOOPS = 2,
    N_LIVES = 8,
    STEPS = 60,
    MOST_STEPS = 4000
};

/* ---- what stands between the engine's parts ---------------------------------------------------------------------- */

static struct {
    fault fault;
    int after;               /* so many chances are passed over first */
    int32_t before[MAX_LEN]; /* a prompt that was looked for, [n_before] */
    int32_t n_before;
    rg_request *named; /* who the queue said is next */
} plant;

/* True once in a simulation: when the fault is to show. */
static bool shows(fault f)
{
    return plant.fault == f && plant.after-- == 0;
}

int __real_rg_scheduler_reap(rg_scheduler *s, bool all);
int __wrap_rg_scheduler_reap(rg_scheduler *s, bool all);
void __real_rg_blocks_drop(rg_blocks *p, int32_t block);
void __wrap_rg_blocks_drop(rg_blocks *p, int32_t block);
int32_t __real_rg_seq_match(rg_states *s, rg_seq *q, const int32_t *ids, int32_t n, rg_uncached *why);
int32_t __wrap_rg_seq_match(rg_states *s, rg_seq *q, const int32_t *ids, int32_t n, rg_uncached *why);
rg_request *__real_rg_fair_first_of(rg_fair *f, bool (*may)(void *arg, const rg_request *r), void *arg);
rg_request *__wrap_rg_fair_first_of(rg_fair *f, bool (*may)(void *arg, const rg_request *r), void *arg);
rg_request *__real_rg_fair_first(rg_fair *f);
rg_request *__wrap_rg_fair_first(rg_fair *f);
void __real_rg_fair_take(rg_fair *f, rg_request *r);
void __wrap_rg_fair_take(rg_fair *f, rg_request *r);

static struct world *now; /* what is simulated */

typedef struct world {
    rg_rng g;
    int n_loops, n_done, n_refused, n_lost;
    struct part {
        const mix *m;
        fake *f;
        rg_loop *loop;
        rg_rng budgets;
        oracle o;
        live lives[MAX_LIVE];
        int cancelled_for[MAX_LIVE]; /* steps since */
        bool is_lost, loses_next; /* its state: now, and in the step to come */
    } of[N_LOOPS];
} world;

/* The request that loses its cancel. */
static rg_request *cancelled_one(void)
{
    for (int k = 0; k < now->n_loops; k++)
        for (int i = 0; i < N_LIVES; i++)
            if (now->of[k].lives[i].r && atomic_load(&now->of[k].lives[i].r->cancelled))
                return now->of[k].lives[i].r;
    return NULL;
}

int __wrap_rg_scheduler_reap(rg_scheduler *s, bool all)
{
    rg_request *r = plant.fault == LOST_CANCEL ? cancelled_one() : NULL;

    if (r && shows(LOST_CANCEL))
        atomic_store(&r->cancelled, false);
    return __real_rg_scheduler_reap(s, all);
}

void __wrap_rg_blocks_drop(rg_blocks *p, int32_t block)
{
    __real_rg_blocks_drop(p, block);
    if (rg_blocks_references(p, block) > 0 && shows(FREED_TWICE))
        __real_rg_blocks_drop(p, block);
}

/* Stale: what is found was computed from another prompt, that of the request before. */
int32_t __wrap_rg_seq_match(rg_states *s, rg_seq *q, const int32_t *ids, int32_t n, rg_uncached *why)
{
    const bool other =
        plant.n_before && plant.n_before <= n && memcmp(plant.before, ids, (size_t)plant.n_before * sizeof *ids);
    const bool stale = other && plant.n_before > 1 && shows(STALE_PREFIX);
    const int32_t found = __real_rg_seq_match(s, q, stale ? plant.before : ids, stale ? plant.n_before : n, why);

    if (stale && !found)
        plant.after = 0; /* it was not cached: the next one */
    if (n <= MAX_LEN) {
        memcpy(plant.before, ids, (size_t)n * sizeof *ids);
        plant.n_before = n;
    }
    return found;
}

/* Any waiting request of another tenant than r's. */
static rg_request *of_another(const rg_request *r)
{
    for (int k = 0; k < now->n_loops; k++)
        for (int i = 0; i < N_LIVES; i++) {
            rg_request *other = now->of[k].lives[i].r;
            bool same_loop = false;
            for (int j = 0; j < N_LIVES; j++)
                same_loop |= now->of[k].lives[j].r == r;
            if (same_loop && other && other->turn.state == RG_LIST_WAITING && !other->params.background &&
                other->who.tenant != r->who.tenant)
                return other;
        }
    return NULL;
}

static rg_request *name_next(rg_request *r)
{
    rg_request *other = r && plant.fault == WRONG_TURN ? of_another(r) : NULL;

    plant.named = r;
    return other && shows(WRONG_TURN) ? other : r;
}

rg_request *__wrap_rg_fair_first_of(rg_fair *f, bool (*may)(void *arg, const rg_request *r), void *arg)
{
    return name_next(__real_rg_fair_first_of(f, may, arg));
}

rg_request *__wrap_rg_fair_first(rg_fair *f)
{
    return name_next(__real_rg_fair_first(f));
}

/* Who begins is whose turn it is. */
void __wrap_rg_fair_take(rg_fair *f, rg_request *r)
{
    assert_ptr_equal(r, plant.named);
    __real_rg_fair_take(f, r);
}

/* ---- what happens ------------------------------------------------------------------------------------------------- */

static bool rarely(void *arg, size_t bytes)
{
    (void)bytes;
    return rg_rng_below(arg, 40) != 0;
}

static void change_one_bit(void *arg, int thread, int i, float *logits);

/* The model's step, of which perhaps one bit of one row is wrong. */
static rg_sink true_sink;

static void change_one_bit(void *arg, int thread, int i, float *logits)
{
    uint32_t bits;

    (void)arg;
    if (shows(ONE_BIT)) {
        float *at = &logits[now->g.seed % VOCAB];
        memcpy(&bits, at, sizeof bits);
        bits ^= 1u << 20;
        memcpy(at, &bits, sizeof bits);
    }
    true_sink.logits(true_sink.arg, thread, i, logits);
}

static struct part *part_of(const rg_runner *self)
{
    return &now->of[&now->of[0].f->runner == self ? 0 : 1];
}

static bool keeps_state(const rg_runner *self)
{
    return !part_of(self)->is_lost;
}

static void fill_state(const fake *f, int byte)
{
    for (int g = 0; g < f->spec.n_groups; g++)
        for (int32_t b = 0; b < rg_store_n_blocks(f->runner.store, g); b++)
            rg_store_fill(f->runner.store, g, b, byte);
}

static void renew_state(rg_runner *self)
{
    assert_true(part_of(self)->is_lost);
    fill_state(part_of(self)->f, 0);
    part_of(self)->is_lost = false;
}

/* Copies cannot be saved of what is gone. */
static bool told_of_store(void *arg, const rg_store_call *c)
{
    (void)c;
    return !((const struct part *)arg)->is_lost;
}

static void lose_state(struct part *p)
{
    fill_state(p->f, 0x5a);
    p->is_lost = true;
    now->n_lost++;
}

static void step_with_sink(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    rg_sink own = *sink;
    struct part *p = part_of(self);

    if (p->loses_next && !p->is_lost)
        lose_state(p);
    p->loses_next = false;
    if (p->is_lost)
        return;

    true_sink = *sink;
    own.logits = change_one_bit;
    fake_step(self, batch, &own);
}

static void open_part(world *w, int k)
{
    static const rg_preempt ways[] = { RG_PREEMPT_AUTO, RG_PREEMPT_RECOMPUTE, RG_PREEMPT_SWAP };
    struct part *p = &w->of[k];
    rg_error err = { 0 };

    p->m = &mixes[rg_rng_below(&w->g, RG_LEN(mixes))];
    p->f = fake_new(p->m, &err);
    assert_ok(p->f, err);
    p->f->runner.step = step_with_sink;
    p->f->runner.keeps_state = keeps_state;
    p->f->runner.renew_state = renew_state;
    p->is_lost = p->loses_next = false;
    rg_store_tell(p->f->runner.store, told_of_store, p);
    p->budgets = (rg_rng){ .seed = rg_rng_u64(&w->g) };
    rg_loop_options o = { .max_seqs = 1 + (int32_t)rg_rng_below(&w->g, 6),
                          .max_rows = MAX_ROWS,
                          .max_seq_len = MAX_LEN,
                          .max_waiting = 2 + (int32_t)rg_rng_below(&w->g, 8),
                          .use_prefixes = rg_rng_below(&w->g, 4) != 0,
                          .share_prefixes = rg_rng_below(&w->g, 2),
                          .static_batching = !rg_rng_below(&w->g, 6),
                          .preempt = ways[rg_rng_below(&w->g, 3)] };
    oracle_init(&p->o, p->lives, rg_rng_u64(&w->g));
    if (rg_rng_below(&w->g, 2)) {
        o.drafter = &p->o.d;
        o.max_draft = 1 + (int32_t)rg_rng_below(&w->g, FAKE_DRAFT);
    }
    if (rg_rng_below(&w->g, 2)) {
        o.step_s = 4e-4;
        o.pace = 1.5;
        o.roofs = (rg_step_roofs){ 1e9, 1e9, 1e9 };
        p->f->runner.facts = (rg_step_facts){ .weight_bytes = 1e5, .row_bytes = 1e3, .row_ops = 1e4 };
    }
    p->loop = rg_loop_new(&p->f->runner, &o, &err);
    assert_ok(p->loop, err);
    rg_loop_set_budget(p->loop, budget_random, &p->budgets);
}

/* Somebody comes, goes, or is preempted. */
static void happen(world *w, struct part *p, bool more)
{
    for (int i = 0; i < N_LIVES; i++) {
        live *l = &p->lives[i];
        rg_error err = { 0 };

        if (!l->r && more && !rg_rng_below(&w->g, 10)) {
            if (live_open(l, p->m, p->loop, &w->g, 20 + rg_rng_below(&w->g, 100), &err))
                continue;
            assert_true(err.code == RG_E_BUSY || err.code == RG_E_LIMIT || err.code == RG_E_MEMORY);
            live_close(l);
            w->n_refused++;
        } else if (l->r && !l->cancelled && !rg_rng_below(&w->g, 100)) {
            l->cancelled = true;
            atomic_store(&l->r->cancelled, true);
            p->cancelled_for[i] = 0;
        }
    }
    if (!rg_rng_below(&w->g, 50))
        p->loses_next = true;
    else if (!rg_rng_below(&w->g, 50) && !p->is_lost)
        lose_state(p);
    if (!rg_rng_below(&w->g, 12))
        rg_loop_preempt(p->loop, (int)rg_rng_below(&w->g, 4),
                        rg_rng_below(&w->g, 2) ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE);
}

/* One turn of a loop.  True: some of its requests have not ended. */
static bool turn(world *w, struct part *p)
{
    const bool scarce = !rg_rng_below(&w->g, 4);
    bool any = false;

    if (scarce)
        rg_mem_set_gate(rarely, &w->g);
    rg_loop_step(p->loop);
    rg_mem_set_gate(NULL, NULL);
    rg_loop_check(p->loop);
    for (int i = 0; i < N_LIVES; i++) {
        live *l = &p->lives[i];

        if (l->r && live_read(l)) {
            live_close(l);
            w->n_done++;
        } else if (l->r && l->cancelled) {
            assert_true(p->cancelled_for[i]++ < 2); /* it stops within a step */
        }
        any |= l->r != NULL;
    }
    return any;
}

/* Everything that the seed says. */
static void simulate(uint64_t seed)
{
    const size_t n_before = rg_mem_count().n_live;
    static world w;
    rg_rng clock = { .seed = seed + 2 };
    bool any = true;

    w = (world){ .g = { .seed = seed } };
    now = &w;
    plant.n_before = 0;
    plant.after = (int)(seed % 4);
    rg_clock_set(random_clock, &clock);
    w.n_loops = 1 + (int)rg_rng_below(&w.g, N_LOOPS);
    for (int k = 0; k < w.n_loops; k++)
        open_part(&w, k);
    for (int step = 0; step < STEPS || any; step++) {
        any = false;
        assert_true(step < MOST_STEPS); /* nobody waits for ever */
        for (int k = 0; k < w.n_loops; k++) {
            happen(&w, &w.of[k], step < STEPS);
            if (step >= STEPS || rg_rng_below(&w.g, 4))
                any |= turn(&w, &w.of[k]);
            else
                any = true;
        }
    }
    for (int k = 0; k < w.n_loops; k++) {
        rg_loop_free(w.of[k].loop);
        fake_free(w.of[k].f);
    }
    rg_clock_set(NULL, NULL);
    assert_int_equal(rg_mem_count().n_live, n_before);
}

/* ---- many seeds, in processes that may end at any of them --------------------------------------------------------- */

/* Simulate seeds [from, from + n), the fault planted, in another process.  The first that fails; -1: none. */
static int64_t first_failing(uint64_t from, uint64_t n, fault f)
{
    _Atomic uint64_t *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;

    assert_true(at != MAP_FAILED);
    const pid_t child = fork();
    if (!child) {
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* what fails ends the process */
        if (f != NO_FAULT && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)))
            _exit(2);
        plant.fault = f;
        for (uint64_t seed = from; seed < from + n; seed++) {
            atomic_store(at, seed);
            simulate(seed);
        }
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    const int64_t seed = (int64_t)atomic_load(at);
    munmap(at, sizeof *at);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? -1 : seed;
}

static void every_seed_holds(void **state)
{
    const uint64_t n = (uint64_t)(test_all() ? ALL_SEEDS : test_scale(SEEDS));
    const int64_t seed = first_failing(test_seed, n, NO_FAULT);

    (void)state;
    if (seed >= 0)
        fail_msg("seed %lld fails: test_simulation --seed %lld replays it", (long long)seed, (long long)seed);
    print_message("%d seeds from %d on\n", (int)n, (int)test_seed);
}

static void planted_faults_are_found(void **state)
{
    (void)state;
    for (int f = 1; f < N_FAULTS; f++) {
        const int64_t seed = first_failing(test_seed, MOST_UNTIL_FOUND, (fault)f);

        if (seed < 0)
            fail_msg("%s is not found in %d seeds", faults[f], MOST_UNTIL_FOUND);
        print_message("%s: found after %d seeds\n", faults[f], (int)((uint64_t)seed - test_seed + 1));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_seed_holds),
        cmocka_unit_test(planted_faults_are_found),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
