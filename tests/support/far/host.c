/* host.c -- the far back end on the host: its process, the verbs of weights and of state; see far.h.
 *
 * The process answers one message after the other and speaks only when it is asked, so neither side ever waits for the
 * other to read. */
#include "support/far/host.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the process ------------------------------------------------------------------------------------------------- */

enum { LONGEST_STEP_S = 60 };

typedef struct constant {
    void *bytes;
    size_t n;
} constant;

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* of the socket and of what follows */
    pthread_mutex_t step;
    int fd;
    pid_t pid;
    uint32_t last_number;
    constant *constants; /* [n_constants], the first of them number 1 */
    uint32_t n_constants;
    uint64_t bytes[FAR_KINDS], n_ops[RG_OP_COUNT], n_steps;
} far = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, .step = PTHREAD_MUTEX_INITIALIZER };

static const rg_backend backend;

static _Noreturn void is_gone(void)
{
    fprintf(stderr, "the process of the far back end is gone\n");
    abort();
}

static void end(void)
{
    close(far.fd);
    waitpid(far.pid, NULL, 0);
}

static void start(void)
{
    static const char path[] = RG_BUILD_DIR "/tests/far_device";
    char number[16];
    int fds[2];

    RG_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    snprintf(number, sizeof number, "%d", fds[1]);
    far.pid = fork();
    if (far.pid == 0) {
        fcntl(fds[1], F_SETFD, 0);
        execl(path, path, number, (char *)NULL);
        _exit(127);
    }
    RG_ASSERT(far.pid > 0);
    close(fds[1]);
    far.fd = fds[0];
    atexit(end);
}

int far_process(void)
{
    far_backend();
    return far.pid;
}

static void add_counts(const uint64_t bytes[FAR_KINDS])
{
    for (int k = 0; k < FAR_KINDS; k++)
        far.bytes[k] += bytes[k];
}

void far_add_counts(const uint64_t bytes[FAR_KINDS])
{
    pthread_mutex_lock(&far.lock);
    add_counts(bytes);
    pthread_mutex_unlock(&far.lock);
}

void far_tell(far_verb verb, far_wire *w)
{
    pthread_mutex_lock(&far.lock);
    add_counts(w->bytes);
    if (!far_send(far.fd, verb, w))
        is_gone();
    pthread_mutex_unlock(&far.lock);
    far_reset(w);
}

void far_ask(far_verb verb, far_wire *w)
{
    uint32_t answered;

    pthread_mutex_lock(&far.lock);
    add_counts(w->bytes);
    if (!far_send(far.fd, verb, w) || !far_receive(far.fd, &answered, w))
        is_gone();
    pthread_mutex_unlock(&far.lock);
    RG_ASSERT(answered == verb);
}

bool far_succeeded(far_wire *w, rg_error *err)
{
    rg_error theirs;
    bool ok;

    FAR_GET(w, ok);
    if (!ok) {
        FAR_GET(w, theirs);
        if (err)
            *err = theirs;
    }
    return ok;
}

uint32_t far_next_number(void)
{
    pthread_mutex_lock(&far.lock);
    const uint32_t number = ++far.last_number;
    pthread_mutex_unlock(&far.lock);
    return number;
}

/* Constants are sent once and stay: they are few and small.  Called within a step, so by one thread at a time. */
uint32_t far_constant(const void *bytes, size_t n, bool is_rope)
{
    far_wire w = { 0 };

    for (uint32_t i = 0; i < far.n_constants; i++)
        if (far.constants[i].n == n && !memcmp(far.constants[i].bytes, bytes, n))
            return i + 1;
    far.constants = realloc(far.constants, (far.n_constants + 1) * sizeof *far.constants);
    far.constants[far.n_constants] = (constant){ malloc(n), n };
    memcpy(far.constants[far.n_constants++].bytes, bytes, n);
    FAR_PUT(&w, is_rope);
    far_put(&w, bytes, n);
    far_tell(FAR_constant, &w);
    far_fini(&w);
    return far.n_constants;
}

/* A step that does not end crashed in its text, and cmocka went on with the next test: end what would wait for ever. */
void far_begin_step(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONGEST_STEP_S;
    if (pthread_mutex_timedlock(&far.step, &until)) {
        fprintf(stderr, "a step of the far back end did not end\n");
        abort();
    }
    far.n_steps++;
}

void far_note_op(rg_op_kind kind)
{
    far.n_ops[kind]++;
}

void far_end_step(void)
{
    pthread_mutex_unlock(&far.step);
}

void far_count(uint64_t bytes[FAR_KINDS])
{
    memcpy(bytes, far.bytes, sizeof far.bytes);
}

uint64_t far_count_steps(void)
{
    return far.n_steps;
}

void far_count_ops(uint64_t n[RG_OP_COUNT])
{
    memcpy(n, far.n_ops, sizeof far.n_ops);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static const far_weight *weight_of(const rg_placed *w)
{
    RG_ASSERT(w->owner == &backend);
    return (const far_weight *)w;
}

static rg_placed *weight_new(const rg_backend *b, const rg_placing *what, rg_error *err)
{
    far_weight *p = calloc(1, sizeof *p);
    far_wire w = { 0 };

    p->base.owner = b;
    p->number = far_next_number();
    p->what = *what;
    FAR_PUT(&w, p->number);
    far_put_placing(&w, what);
    far_ask(FAR_weight_new, &w);
    const bool ok = far_succeeded(&w, err);
    if (ok)
        far_get_placed(&w, &p->base);
    else
        free(p);
    far_fini(&w);
    return ok ? &p->base : NULL;
}

static void weight_free(rg_placed *placed)
{
    far_wire w = { 0 };

    FAR_PUT(&w, weight_of(placed)->number);
    far_tell(FAR_weight_free, &w);
    far_fini(&w);
    free(placed);
}

static void weight_put(rg_placed *placed, int64_t mat, int64_t row, const void *src)
{
    const rg_format *f = rg_format_of(placed->type);
    far_wire w = { 0 };

    FAR_PUT(&w, weight_of(placed)->number);
    FAR_PUT(&w, mat);
    FAR_PUT(&w, row);
    w.kind = FAR_WEIGHTS;
    far_put(&w, src, (size_t)(placed->cols / f->block_len * f->block_bytes));
    far_tell(FAR_weight_put, &w);
    far_fini(&w);
}

static void weight_order(rg_placed *placed, int64_t mat, const int32_t *order)
{
    far_wire w = { 0 };

    FAR_PUT(&w, weight_of(placed)->number);
    FAR_PUT(&w, mat);
    w.kind = FAR_WEIGHTS;
    far_put(&w, order, (size_t)placed->cols * sizeof *order);
    far_tell(FAR_weight_order, &w);
    far_fini(&w);
}

static void weight_end(rg_placed *placed)
{
    far_weight *p = (far_weight *)placed;
    far_wire w = { 0 };

    FAR_PUT(&w, weight_of(placed)->number);
    far_ask(FAR_weight_end, &w);
    far_get_placed(&w, placed);
    p->what.type = placed->type;
    far_fini(&w);
}

static void weight_get(const rg_placed *placed, int64_t mat, int64_t row, float *out)
{
    far_wire w = { 0 };

    FAR_PUT(&w, weight_of(placed)->number);
    FAR_PUT(&w, mat);
    FAR_PUT(&w, row);
    far_ask(FAR_weight_get, &w);
    w.kind = FAR_WEIGHTS;
    far_get(&w, out, (size_t)placed->cols * sizeof *out);
    far_add_counts(w.bytes);
    far_fini(&w);
}

static bool image_bytes(const rg_backend *b, const rg_placing *what, size_t *bytes, rg_error *err)
{
    far_wire w = { 0 };

    (void)b;
    far_put_placing(&w, what);
    far_ask(FAR_image_bytes, &w);
    const bool ok = far_succeeded(&w, err);
    if (ok)
        FAR_GET(&w, *bytes);
    far_fini(&w);
    return ok;
}

static uint64_t image_version(const rg_backend *b)
{
    far_wire w = { 0 };
    uint64_t version;

    (void)b;
    far_ask(FAR_image_version, &w);
    FAR_GET(&w, version);
    far_fini(&w);
    return version;
}

static bool image_save(const rg_placed *placed, int64_t mat, rg_image_take *take, void *arg, rg_error *err)
{
    far_wire w = { 0 };

    FAR_PUT(&w, weight_of(placed)->number);
    FAR_PUT(&w, mat);
    far_ask(FAR_image_save, &w);
    w.kind = FAR_WEIGHTS;
    const size_t bytes = w.n;
    const bool ok = take(arg, far_get_in_place(&w, bytes), bytes, err);
    far_add_counts(w.bytes);
    far_fini(&w);
    return ok;
}

static bool image_load(rg_placed *placed, int64_t mat, rg_image_fill *fill, void *arg, rg_error *err)
{
    far_wire w = { 0 };
    size_t bytes;

    FAR_PUT(&w, weight_of(placed)->number);
    FAR_PUT(&w, mat);
    w.kind = FAR_WEIGHTS;
    const bool ok = image_bytes(&backend, &weight_of(placed)->what, &bytes, err) &&
                    fill(arg, far_room(&w, bytes), bytes, err);
    if (ok)
        far_tell(FAR_image_load, &w);
    far_fini(&w);
    return ok;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

static void *copy_of(const void *p, size_t n)
{
    void *to = malloc(n + 1);

    RG_ASSERT(to);
    return n ? memcpy(to, p, n) : to;
}

static rg_state_memory *state_new(const rg_backend *b, const rg_state_shape *shape, rg_error *err)
{
    rg_state_memory *m = calloc(1, sizeof *m);
    far_wire w = { 0 };

    (void)b;
    m->number = far_next_number();
    m->groups = far_groups_of(shape);
    m->shape = *shape;
    m->shape.kv = copy_of(shape->kv, (size_t)shape->n_kv * sizeof *shape->kv);
    m->shape.buffer = NULL;
    FAR_PUT(&w, m->number);
    far_put_shape(&w, shape);
    far_ask(FAR_state_new, &w);
    if (!far_succeeded(&w, err)) {
        free((void *)(uintptr_t)m->shape.kv);
        free(m);
        m = NULL;
    }
    far_fini(&w);
    return m;
}

static void state_free(rg_state_memory *m)
{
    far_wire w = { 0 };

    if (!m)
        return;
    FAR_PUT(&w, m->number);
    far_tell(FAR_state_free, &w);
    far_fini(&w);
    free((void *)(uintptr_t)m->shape.kv);
    free(m);
}

static void state_copy(rg_state_memory *m, int group, int32_t from, int32_t to)
{
    far_wire w = { 0 };

    FAR_PUT(&w, m->number);
    FAR_PUT(&w, group);
    FAR_PUT(&w, from);
    FAR_PUT(&w, to);
    far_tell(FAR_state_copy, &w);
    far_fini(&w);
}

static void state_save(const rg_state_memory *m, int group, int32_t block, void *to)
{
    far_wire w = { 0 };

    FAR_PUT(&w, m->number);
    FAR_PUT(&w, group);
    FAR_PUT(&w, block);
    far_ask(FAR_state_save, &w);
    w.kind = FAR_STATE;
    far_get(&w, to, m->shape.block_bytes[group]);
    far_add_counts(w.bytes);
    far_fini(&w);
}

static void state_load(rg_state_memory *m, int group, int32_t block, const void *from)
{
    far_wire w = { 0 };

    FAR_PUT(&w, m->number);
    FAR_PUT(&w, group);
    FAR_PUT(&w, block);
    w.kind = FAR_STATE;
    far_put(&w, from, m->shape.block_bytes[group]);
    far_tell(FAR_state_load, &w);
    far_fini(&w);
}

static void state_fill(rg_state_memory *m, int group, int32_t block, int byte)
{
    far_wire w = { 0 };

    FAR_PUT(&w, m->number);
    FAR_PUT(&w, group);
    FAR_PUT(&w, block);
    FAR_PUT(&w, byte);
    far_tell(FAR_state_fill, &w);
    far_fini(&w);
}

static void state_move(rg_state_memory *m, int group, int32_t from_block, int from, int32_t to_block, int to)
{
    far_wire w = { 0 };

    FAR_PUT(&w, m->number);
    FAR_PUT(&w, group);
    FAR_PUT(&w, from_block);
    FAR_PUT(&w, from);
    FAR_PUT(&w, to_block);
    FAR_PUT(&w, to);
    far_tell(FAR_state_move, &w);
    far_fini(&w);
}

/* Of the tables, the entries that K/V in 4 bits has: the open part's group and the closed one's. */
static void state_close(rg_state_memory *m, const int32_t *const tables[RG_MAX_GROUPS], int32_t block)
{
    far_wire w = { 0 };

    FAR_PUT(&w, m->number);
    FAR_PUT(&w, block);
    for (int i = 0; i < m->shape.n_kv; i++) {
        const rg_kv *kv = &m->shape.kv[i];

        w.kind = FAR_TABLES;
        if (rg_kv_has_open(kv)) {
            FAR_PUT(&w, tables[kv->open_group][block]);
            FAR_PUT(&w, tables[kv->group][block]);
        }
    }
    far_tell(FAR_state_close, &w);
    far_fini(&w);
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* On this side, for what needs no memory of the process.  Not rg_backend_nth(0): everywhere.c says that this is far. */
const rg_backend *rg_cpu_backend(int i);

const rg_backend *far_ref(void)
{
    return rg_cpu_backend(0);
}

static bool is_fast(const rg_backend *b, rg_type type)
{
    (void)b;
    return far_ref()->is_fast(far_ref(), type);
}

/* What the process does as `ref` would, one step at a time: its arithmetic is measured as ref's. */
static double work(const rg_backend *b, rg_arithmetic kind, double n)
{
    (void)b;
    return far_ref()->work(far_ref(), kind, n);
}

static uint64_t stream(const rg_backend *b, const void *p, size_t n)
{
    (void)b;
    return far_ref()->stream(far_ref(), p, n);
}

static void host_multiply(const rg_backend *b, const rg_host_product *p)
{
    (void)b;
    far_ref()->host_multiply(far_ref(), p);
}

static void host_round(const rg_backend *b, uint16_t *to, const float *x, size_t n)
{
    (void)b;
    far_ref()->host_round(far_ref(), to, x, n);
}

static void host_activate(const rg_backend *b, rg_activation act, float *y, const float *x, size_t n)
{
    (void)b;
    far_ref()->host_activate(far_ref(), act, y, x, n);
}

static const rg_loops *host_loops(const rg_backend *b)
{
    (void)b;
    return far_ref()->host_loops(far_ref());
}

static void *activations(rg_lane *lane, size_t *bytes)
{
    (void)lane;
    *bytes = 0;
    return NULL;
}

static const rg_backend backend = {
    .name = "far",
    .is_fast = is_fast,
    .state_new = state_new,
    .state_free = state_free,
    .state_copy = state_copy,
    .state_save = state_save,
    .state_load = state_load,
    .state_fill = state_fill,
    .state_move = state_move,
    .state_close = state_close,
    .measure = far_measure,
    .open = far_lane_open,
    .close = far_lane_close,
    .submit = far_lane_submit,
    .wait = far_lane_wait,
    .weight_new = weight_new,
    .weight_free = weight_free,
    .weight_put = weight_put,
    .weight_order = weight_order,
    .weight_end = weight_end,
    .weight_get = weight_get,
    .image_bytes = image_bytes,
    .image_version = image_version,
    .image_save = image_save,
    .image_load = image_load,
    .work = work,
    .stream = stream,
    .host_multiply = host_multiply,
    .host_round = host_round,
    .host_activate = host_activate,
    .host_loops = host_loops,
    .activations = activations,
};

const rg_backend *far_backend(void)
{
    pthread_once(&far.once, start);
    return &backend;
}
