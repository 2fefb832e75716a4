/* driver.c -- CUDA's driver for a device that this program emulates: memory is the host's, kernels run in the call that
 * launches them (or, if that is wished, when the host waits for them), and calls that a GPU would refuse are refused
 * with CUDA's numbers. */
#include "support/cuda/emulated.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cuda/block.h"

#define EXPORTED __attribute__((visibility("default")))

#define CALL(name, arguments) EXPORTED int name arguments;
#include "ops/cuda/driver.def"
#undef CALL

enum { MAX_KERNELS = 128, DEFAULT_SHARED = 48 << 10, FENCE = 64, FENCE_BYTE = 0xa5, FILLED = 16 << 20 };

/* CUDA's numbers of errors, and what they mean. */
#define ERRORS(E)                                                                                                      \
    E(SUCCESS, 0, "no error")                                                                                          \
    E(INVALID_VALUE, 1, "invalid argument")                                                                            \
    E(OUT_OF_MEMORY, 2, "out of memory")                                                                               \
    E(NOT_INITIALIZED, 3, "initialization error")                                                                      \
    E(INVALID_DEVICE, 101, "invalid device ordinal")                                                                   \
    E(INVALID_IMAGE, 200, "device kernel image is invalid")                                                            \
    E(INVALID_CONTEXT, 201, "invalid device context")                                                                  \
    E(INVALID_HANDLE, 400, "invalid resource handle")                                                                  \
    E(NOT_FOUND, 500, "named symbol not found")                                                                        \
    E(CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing")                                    \
    E(CAPTURE_INVALIDATED, 901, "operation failed due to a previous error during capture")

typedef enum cuda_error {
#define E(name, number, text) name = number,
    ERRORS(E)
#undef E
} cuda_error;

typedef struct allocation {
    struct allocation *next;
    unsigned char *at;
    size_t bytes;
} allocation;

typedef struct function {
    const emulated_kernel *kernel;
    int max_shared; /* bytes of dynamic shared memory */
    uint64_t launches;
} function;

/* What a stream or a graph does: a launch (f), or a copy of bytes. */
typedef struct node {
    function *f;
    void *params;
    int grid[3], threads, shared_bytes;
    void *to;
    const void *from;
    size_t bytes;
    bool inward;
} node;

typedef struct list {
    node *at;
    int n, room;
} list;

typedef struct stream {
    struct stream *next;
    bool alone; /* what waits for all streams does not wait for this one */
    bool captures, is_broken;
    int mode;
    list waiting, captured;
} stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static _Thread_local bool has_context;
static allocation *allocations, *pinned;
static function functions[MAX_KERNELS];
static stream null_stream = { .next = NULL }, *streams = &null_stream;
static size_t memory = (size_t)8 << 30;
static emulated_counts counts;
static int context_token, module_token;

EXPORTED const unsigned char ridge_emulated_image[16] = "emulated";

/* ---- what tests ask ----------------------------------------------------------------------------------------------- */

EXPORTED emulated_counts emulated_count(void)
{
    emulated_counts c;

    pthread_mutex_lock(&lock);
    c = counts;
    pthread_mutex_unlock(&lock);
    return c;
}

EXPORTED uint64_t emulated_launches(const char *kernel)
{
    uint64_t n = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_KERNELS && functions[i].kernel; i++)
        if (!strcmp(functions[i].kernel->name, kernel))
            n = functions[i].launches;
    pthread_mutex_unlock(&lock);
    return n;
}

EXPORTED void emulated_set_memory(size_t bytes)
{
    pthread_mutex_lock(&lock);
    memory = bytes;
    pthread_mutex_unlock(&lock);
}

EXPORTED void emulated_set_late(bool late)
{
    pthread_mutex_lock(&lock);
    emulated_is_late = late;
    pthread_mutex_unlock(&lock);
}

/* ---- entering and leaving a call ---------------------------------------------------------------------------------- */

/* Every call that needs a context begins with this: the lock, or the error. */
static int enter(void)
{
    if (!initialized)
        return NOT_INITIALIZED;
    if (!has_context)
        return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    return SUCCESS;
}

static int leave(int error)
{
    pthread_mutex_unlock(&lock);
    return error;
}

#define ENTER                                                                                                          \
    do {                                                                                                               \
        const int entered = enter();                                                                                   \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
    } while (0)

/* While a stream captures, calls that might wait for it are refused, and the capture is spoilt. */
static bool is_captured(void)
{
    bool found = false;

    for (stream *s = streams; s; s = s->next)
        if (s->captures && s->mode != 2) {
            s->is_broken = true;
            found = true;
        }
    return found;
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

static bool is_within(const allocation *a, const void *at, size_t bytes)
{
    const unsigned char *p = at;

    return p >= a->at && bytes <= a->bytes && (size_t)(p - a->at) <= a->bytes - bytes;
}

/* The device has all of these bytes. */
static bool has(uint64_t at, size_t bytes)
{
    for (const allocation *a = allocations; a; a = a->next)
        if (is_within(a, (const void *)(uintptr_t)at, bytes))
            return true;
    return false;
}

static allocation *allocate(allocation **all, size_t bytes)
{
    allocation *a = malloc(sizeof *a);
    void *at = NULL;

#ifdef EMULATED_WITH_ASAN
    if (!a || posix_memalign(&at, 256, bytes) != 0) {
#else
    if (!a || posix_memalign(&at, 256, bytes + FENCE) != 0) {
#endif
        free(a);
        return NULL;
    }
    *a = (allocation){ *all, at, bytes };
    memset(at, 0xff, bytes < FILLED ? bytes : FILLED); /* NaN to whoever reads before something is written */
#ifndef EMULATED_WITH_ASAN
    memset(a->at + bytes, FENCE_BYTE, FENCE);
#endif
    *all = a;
    counts.allocations++;
    return a;
}

/* The bytes of what is at this address, and it is gone; false: nothing begins there. */
static bool release(allocation **all, const void *at, size_t *bytes)
{
    for (; *all; all = &(*all)->next) {
        allocation *a = *all;

        if (a->at != at)
            continue;
        *all = a->next;
        *bytes = a->bytes;
        free(a->at);
        free(a);
        return true;
    }
    return false;
}

static void check_fences(const char *kernel)
{
#ifndef EMULATED_WITH_ASAN
    for (const allocation *a = allocations; a; a = a->next)
        for (int i = 0; i < FENCE; i++)
            if (a->at[a->bytes + (size_t)i] != FENCE_BYTE) {
                fprintf(stderr, "emulated CUDA: kernel %s wrote past the end of an allocation of %zu bytes\n", kernel,
                        a->bytes);
                abort();
            }
#else
    (void)kernel;
#endif
}

/* ---- streams ------------------------------------------------------------------------------------------------------ */

static void node_do(const node *n)
{
    if (!n->f) {
        memcpy(n->to, n->from, n->bytes);
        *(n->inward ? &counts.bytes_in : &counts.bytes_out) += n->bytes;
        return;
    }
    const emulated_launch l = { n->f->kernel, n->params, { n->grid[0], n->grid[1], n->grid[2] }, n->threads,
                                n->shared_bytes };

    emulated_run(&l);
    check_fences(n->f->kernel->name);
    n->f->launches++;
    counts.launches++;
}

static bool list_add(list *l, const node *n)
{
    node copy = *n;

    if (l->n == l->room) {
        const int room = l->room ? 2 * l->room : 64;
        node *at = realloc(l->at, (size_t)room * sizeof *at);

        if (!at)
            return false;
        l->at = at;
        l->room = room;
    }
    if (n->f) {
        copy.params = malloc(n->f->kernel->params_bytes);
        if (!copy.params)
            return false;
        memcpy(copy.params, n->params, n->f->kernel->params_bytes);
    }
    l->at[l->n++] = copy;
    return true;
}

static void list_clear(list *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->at[i].params);
    free(l->at);
    *l = (list){ NULL, 0, 0 };
}

static void flush(stream *s)
{
    list l = s->waiting;

    s->waiting = (list){ NULL, 0, 0 };
    for (int i = 0; i < l.n; i++)
        node_do(&l.at[i]);
    list_clear(&l);
}

static void flush_all(bool those_alone_too)
{
    for (stream *s = streams; s; s = s->next)
        if (those_alone_too || !s->alone)
            flush(s);
}

/* NULL: there is none of this handle. */
static stream *stream_of(void *handle)
{
    for (stream *s = streams; s; s = s->next)
        if (s == (handle ? handle : &null_stream))
            return s;
    return NULL;
}

static int enqueue(stream *s, const node *n)
{
    if (s->captures)
        return list_add(&s->captured, n) ? SUCCESS : OUT_OF_MEMORY;
    if (!emulated_is_late) {
        flush(s);
        node_do(n);
        return SUCCESS;
    }
    return list_add(&s->waiting, n) ? SUCCESS : OUT_OF_MEMORY;
}

/* ---- the device --------------------------------------------------------------------------------------------------- */

int cuInit(unsigned flags)
{
    if (flags)
        return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; !initialized && emulated_kernels[i].name; i++) {
        if (i == MAX_KERNELS) {
            fputs("emulated CUDA: more kernels than this driver has room for\n", stderr);
            abort();
        }
        functions[i] = (function){ &emulated_kernels[i], DEFAULT_SHARED, 0 };
    }
    initialized = true;
    return leave(SUCCESS);
}

int cuDeviceGetCount(int *n)
{
    if (!initialized)
        return NOT_INITIALIZED;
    *n = 1;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    if (!initialized)
        return NOT_INITIALIZED;
    if (ordinal != 0)
        return INVALID_DEVICE;
    *device = 0;
    return SUCCESS;
}

int cuDeviceGetName(char *name, int length, int device)
{
    if (!initialized)
        return NOT_INITIALIZED;
    if (device != 0)
        return INVALID_DEVICE;
    snprintf(name, (size_t)length, "emulated");
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    static const struct {
        int attribute, value;
    } all[] = {
        { 1, EMULATED_MAX_THREADS }, /* threads of a block */
        { 8, DEFAULT_SHARED },       /* bytes of a block's shared memory, unless more is asked for */
        { 10, EMULATED_WARP },
        { 16, 4 },                   /* multiprocessors */
        { 38, 1 << 20 },             /* bytes of the L2 cache */
        { 75, 9 },                   /* compute capability 9.0 */
        { 76, 0 },
        { 81, 228 << 10 },           /* bytes of a multiprocessor's shared memory */
        { 97, EMULATED_MAX_SHARED }, /* bytes of a block's shared memory, at most */
    };

    if (!initialized)
        return NOT_INITIALIZED;
    if (device != 0)
        return INVALID_DEVICE;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].attribute == attribute) {
            *value = all[i].value;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (!initialized)
        return NOT_INITIALIZED;
    if (device != 0)
        return INVALID_DEVICE;
    *context = &context_token;
    return SUCCESS;
}

int cuCtxSetCurrent(void *context)
{
    if (!initialized)
        return NOT_INITIALIZED;
    if (context && context != &context_token)
        return INVALID_CONTEXT;
    has_context = context;
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    ENTER;
    *total = memory;
    *available = memory > counts.held_bytes ? memory - counts.held_bytes : 0;
    return leave(SUCCESS);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------ */

int cuModuleLoadData(void **module, const void *image)
{
    ENTER;
    if (is_captured())
        return leave(CAPTURE_UNSUPPORTED);
    if (!image || memcmp(image, "emulated", 8) != 0)
        return leave(image ? INVALID_IMAGE : INVALID_VALUE);
    *module = &module_token;
    return leave(SUCCESS);
}

int cuModuleGetFunction(void **found, void *module, const char *name)
{
    ENTER;
    if (module != &module_token)
        return leave(INVALID_HANDLE);
    for (int i = 0; i < MAX_KERNELS && functions[i].kernel; i++)
        if (!strcmp(functions[i].kernel->name, name)) {
            *found = &functions[i];
            return leave(SUCCESS);
        }
    return leave(NOT_FOUND);
}

static function *function_of(void *handle)
{
    for (int i = 0; i < MAX_KERNELS && functions[i].kernel; i++)
        if (handle == &functions[i])
            return &functions[i];
    return NULL;
}

/* Attribute 8: the most bytes of dynamic shared memory; 9, how much of the cache is shared memory, changes nothing here. */
int cuFuncSetAttribute(void *handle, int attribute, int value)
{
    function *f;

    ENTER;
    f = function_of(handle);
    if (!f)
        return leave(INVALID_HANDLE);
    if (value < 0 || (attribute == 8 && value > EMULATED_MAX_SHARED) || (attribute != 8 && attribute != 9))
        return leave(INVALID_VALUE);
    if (attribute == 8)
        f->max_shared = value;
    return leave(SUCCESS);
}

int cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void *on, void **parameters, void **extra)
{
    function *f;
    stream *s;
    node n = { .threads = (int)block_x, .shared_bytes = (int)shared_bytes };

    ENTER;
    f = function_of(handle);
    s = stream_of(on);
    if (!f || !s)
        return leave(INVALID_HANDLE);
    if (!grid_x || !grid_y || !grid_z || grid_x > INT32_MAX || grid_y > 65535 || grid_z > 65535 || !block_x ||
        block_x > EMULATED_MAX_THREADS || block_y != 1 || block_z != 1 || shared_bytes > (unsigned)f->max_shared ||
        !parameters || extra)
        return leave(INVALID_VALUE);
    n.f = f;
    n.params = parameters[0];
    n.grid[0] = (int)grid_x;
    n.grid[1] = (int)grid_y;
    n.grid[2] = (int)grid_z;
    return leave(enqueue(s, &n));
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

int cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    allocation *a;

    ENTER;
    if (is_captured())
        return leave(CAPTURE_UNSUPPORTED);
    if (!bytes)
        return leave(INVALID_VALUE);
    if (bytes > memory || counts.held_bytes > memory - bytes || !(a = allocate(&allocations, bytes)))
        return leave(OUT_OF_MEMORY);
    counts.held++;
    counts.held_bytes += bytes;
    *at = (uint64_t)(uintptr_t)a->at;
    return leave(SUCCESS);
}

int cuMemFree_v2(uint64_t at)
{
    size_t bytes;

    ENTER;
    if (is_captured())
        return leave(CAPTURE_UNSUPPORTED);
    flush_all(true);
    if (at && !release(&allocations, (const void *)(uintptr_t)at, &bytes))
        return leave(INVALID_VALUE);
    if (at) {
        counts.held--;
        counts.held_bytes -= bytes;
    }
    return leave(SUCCESS);
}

int cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    allocation *a;

    (void)flags; /* who may use it, and how: anybody here */
    ENTER;
    if (is_captured())
        return leave(CAPTURE_UNSUPPORTED);
    if (!bytes)
        return leave(INVALID_VALUE);
    a = allocate(&pinned, bytes);
    if (!a)
        return leave(OUT_OF_MEMORY);
    counts.pinned++;
    *at = a->at;
    return leave(SUCCESS);
}

int cuMemFreeHost(void *at)
{
    size_t bytes;

    ENTER;
    if (is_captured())
        return leave(CAPTURE_UNSUPPORTED);
    flush_all(true);
    if (!release(&pinned, at, &bytes))
        return leave(INVALID_VALUE);
    counts.pinned--;
    return leave(SUCCESS);
}

/* A copy that is over when the call returns: after all that streams have before it. */
static int copy(void *to, const void *from, size_t bytes, bool is_there, uint64_t *counted)
{
    if (is_captured())
        return CAPTURE_UNSUPPORTED;
    if (!is_there)
        return INVALID_VALUE;
    flush_all(false);
    memmove(to, from, bytes);
    if (counted)
        *counted += bytes;
    return SUCCESS;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    ENTER;
    return leave(copy((void *)(uintptr_t)to, from, bytes, has(to, bytes), &counts.bytes_in));
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    ENTER;
    return leave(copy(to, (const void *)(uintptr_t)from, bytes, has(from, bytes), &counts.bytes_out));
}

int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes)
{
    ENTER;
    return leave(copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, has(to, bytes) && has(from, bytes), NULL));
}

int cuMemsetD8_v2(uint64_t at, unsigned char byte, size_t n)
{
    ENTER;
    if (is_captured())
        return leave(CAPTURE_UNSUPPORTED);
    if (!has(at, n))
        return leave(INVALID_VALUE);
    flush_all(false);
    memset((void *)(uintptr_t)at, byte, n);
    return leave(SUCCESS);
}

/* Where a stream does it, pages of the host are read or written when it does. */
static int copy_later(void *to, const void *from, size_t bytes, bool is_there, bool inward, void *on)
{
    const node n = { .to = to, .from = from, .bytes = bytes, .inward = inward };
    stream *s = stream_of(on);

    if (!s)
        return INVALID_HANDLE;
    return is_there ? enqueue(s, &n) : INVALID_VALUE;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *on)
{
    ENTER;
    return leave(copy_later((void *)(uintptr_t)to, from, bytes, has(to, bytes), true, on));
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *on)
{
    ENTER;
    return leave(copy_later(to, (const void *)(uintptr_t)from, bytes, has(from, bytes), false, on));
}

/* ---- streams ------------------------------------------------------------------------------------------------------ */

int cuStreamCreate(void **made, unsigned flags)
{
    stream *s;

    ENTER;
    if (flags > 1)
        return leave(INVALID_VALUE);
    s = calloc(1, sizeof *s);
    if (!s)
        return leave(OUT_OF_MEMORY);
    s->alone = flags & 1;
    s->next = null_stream.next;
    null_stream.next = s;
    *made = s;
    return leave(SUCCESS);
}

int cuStreamDestroy_v2(void *handle)
{
    stream *s;

    ENTER;
    s = handle ? stream_of(handle) : NULL;
    if (!s)
        return leave(INVALID_HANDLE);
    flush(s);
    for (stream *p = streams; p; p = p->next)
        if (p->next == s)
            p->next = s->next;
    list_clear(&s->captured);
    free(s);
    return leave(SUCCESS);
}

int cuStreamSynchronize(void *handle)
{
    stream *s;

    ENTER;
    s = stream_of(handle);
    if (!s)
        return leave(INVALID_HANDLE);
    if (s->captures) {
        s->is_broken = true;
        return leave(CAPTURE_UNSUPPORTED);
    }
    flush(s);
    counts.waits++;
    return leave(SUCCESS);
}

/* ---- graphs: lists of what a stream would have done --------------------------------------------------------------- */

int cuStreamBeginCapture_v2(void *handle, int mode)
{
    stream *s;

    ENTER;
    s = stream_of(handle);
    if (!s)
        return leave(INVALID_HANDLE);
    if (s == &null_stream || s->captures || mode < 0 || mode > 2)
        return leave(s == &null_stream ? CAPTURE_UNSUPPORTED : INVALID_VALUE);
    s->captures = true;
    s->is_broken = false;
    s->mode = mode;
    return leave(SUCCESS);
}

int cuStreamEndCapture(void *handle, void **graph)
{
    list *l;
    stream *s;

    ENTER;
    s = stream_of(handle);
    if (!s || !s->captures)
        return leave(s ? INVALID_VALUE : INVALID_HANDLE);
    *graph = NULL;
    s->captures = false;
    l = s->is_broken ? NULL : malloc(sizeof *l);
    if (!l) {
        list_clear(&s->captured);
        return leave(s->is_broken ? CAPTURE_INVALIDATED : OUT_OF_MEMORY);
    }
    *l = s->captured;
    s->captured = (list){ NULL, 0, 0 };
    *graph = l;
    return leave(SUCCESS);
}

int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags)
{
    const list *from = graph;
    list *l;

    (void)flags;
    ENTER;
    if (!from)
        return leave(INVALID_VALUE);
    l = calloc(1, sizeof *l);
    for (int i = 0; l && i < from->n; i++)
        if (!list_add(l, &from->at[i])) {
            list_clear(l);
            free(l);
            l = NULL;
        }
    if (!l)
        return leave(OUT_OF_MEMORY);
    *executable = l;
    return leave(SUCCESS);
}

int cuGraphLaunch(void *executable, void *on)
{
    const list *l = executable;
    stream *s;
    int error = SUCCESS;

    ENTER;
    s = stream_of(on);
    if (!l || !s)
        return leave(l ? INVALID_HANDLE : INVALID_VALUE);
    for (int i = 0; i < l->n && !error; i++)
        error = enqueue(s, &l->at[i]);
    counts.graphs++;
    return leave(error);
}

static int destroy(list *l)
{
    ENTER;
    if (!l)
        return leave(INVALID_VALUE);
    list_clear(l);
    free(l);
    return leave(SUCCESS);
}

int cuGraphExecDestroy(void *executable)
{
    return destroy(executable);
}

int cuGraphDestroy(void *graph)
{
    return destroy(graph);
}

int cuGetErrorString(int error, const char **text)
{
    static const struct {
        int number;
        const char *text;
    } all[] = {
#define E(name, number, text) { number, text },
        ERRORS(E)
#undef E
    };

    *text = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].number == error)
            *text = all[i].text;
    return *text ? SUCCESS : INVALID_VALUE;
}
