/* block.c -- the threads of a block as fibers.
 *
 * Each fiber goes on until it waits or returns, then the next.  Who comes last to a barrier or to what lanes do together
 * makes the others ready; when none is ready and not all have returned, somebody waits for who will not come. */
#include "support/cuda/block.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#ifdef EMULATED_WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK = 256 << 10, GUARD = 4096, COPIES = 256, DYNAMIC = 256 << 10 };

typedef enum fiber_state { READY, AT_BLOCK, AT_WARP, RETURNED } fiber_state;

typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    int group;
} copy;

typedef struct fiber {
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    void *fake_stack; /* AddressSanitizer's */
    fiber_state state;
    const char *where; /* it waits */
    emulated_call call;
    void *argument;
    copy copies[COPIES]; /* under way, the oldest first */
    int n_copies, group;
} fiber;

emulated_place emulated;
bool emulated_is_late;

/* Dynamic shared memory: the launch's bytes, then a fence that nobody may write. */
_Alignas(16) unsigned char rgk_dynamic[DYNAMIC];

static struct {
    const emulated_launch *launch;
    fiber fibers[EMULATED_MAX_THREADS], scheduler;
    unsigned char *stacks;
    int n_returned, n_at_block, n_at_warp[EMULATED_MAX_THREADS / EMULATED_WARP];
    const void *scheduler_stack;
    size_t scheduler_bytes;
} run;

/* ---- going from one to another ------------------------------------------------------------------------------------ */

#if defined(__x86_64__)

/* Keep what a call keeps, leave the stack pointer in *from, and go on where `to` was left. */
void emulated_switch(void **from, void *to);

__asm__(".text\n"
        ".type emulated_switch, @function\n"
        ".globl emulated_switch\n"
        ".hidden emulated_switch\n"
        "emulated_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emulated_switch, . - emulated_switch\n");

static void prepare(fiber *f, unsigned char *stack, void (*entry)(void))
{
    void **top = (void **)(void *)(stack + STACK);

    *--top = NULL; /* whoever called entry */
    *--top = (void *)(uintptr_t)entry;
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    f->stack_pointer = top;
}

static void change(fiber *from, fiber *to)
{
    emulated_switch(&from->stack_pointer, to->stack_pointer);
}

#else

static void prepare(fiber *f, unsigned char *stack, void (*entry)(void))
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, entry, 0);
}

static void change(fiber *from, fiber *to)
{
    swapcontext(&from->context, &to->context);
}

#endif

static unsigned char *stack_of(int thread)
{
    return run.stacks + (size_t)thread * (STACK + GUARD) + GUARD;
}

static void to_thread(int thread)
{
    emulated.thread = thread;
#ifdef EMULATED_WITH_ASAN
    __sanitizer_start_switch_fiber(&run.scheduler.fake_stack, stack_of(thread), STACK);
#endif
    change(&run.scheduler, &run.fibers[thread]);
#ifdef EMULATED_WITH_ASAN
    __sanitizer_finish_switch_fiber(run.scheduler.fake_stack, NULL, NULL);
#endif
}

/* The thread that runs waits, or has returned and does not come back. */
static void to_scheduler(bool for_good)
{
    fiber *f = &run.fibers[emulated.thread];

    (void)for_good;
#ifdef EMULATED_WITH_ASAN
    __sanitizer_start_switch_fiber(for_good ? NULL : &f->fake_stack, run.scheduler_stack, run.scheduler_bytes);
#endif
    change(f, &run.scheduler);
#ifdef EMULATED_WITH_ASAN
    __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
#endif
}

/* ---- what goes wrong ---------------------------------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 2, 3))) static void die(int thread, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "emulated CUDA: kernel %s, block (%d, %d, %d), thread %d of %d: ", run.launch->kernel->name,
            emulated.block[0], emulated.block[1], emulated.block[2], thread, emulated.threads);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

void emulated_check(bool ok, const char *what)
{
    if (!ok)
        die(emulated.thread, "%s", what);
}

static const char *calls[] = {
    [EMULATED_NONE] = "nothing",
    [EMULATED_SYNC_WARP] = "rgk_sync_warp",
    [EMULATED_SHUFFLE] = "rgk_shuffle",
    [EMULATED_MMA] = "rgk_mma",
};

/* Nobody is ready: name one who waits, and one who will not come. */
__attribute__((noreturn)) static void deadlock(void)
{
    int at_warp = -1, at_block = -1;

    for (int t = emulated.threads - 1; t >= 0; t--) {
        at_warp = run.fibers[t].state == AT_WARP ? t : at_warp;
        at_block = run.fibers[t].state == AT_BLOCK ? t : at_block;
    }
    const fiber *f = &run.fibers[at_warp];

    if (at_block < 0)
        die(at_warp, "deadlock: %s at %s waits for lanes that have returned", calls[f->call], f->where);
    die(at_warp, "deadlock: %s at %s waits for its warp, and thread %d waits for the block at %s", calls[f->call],
        f->where, at_block, run.fibers[at_block].where);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------ */

/* If all that have not returned are at the barrier, and at the same one, they go on. */
static void leave_block(void)
{
    int first = -1;

    if (!run.n_at_block || run.n_at_block + run.n_returned < emulated.threads)
        return;
    for (int t = 0; t < emulated.threads; t++) {
        fiber *f = &run.fibers[t];

        if (f->state != AT_BLOCK)
            continue;
        first = first < 0 ? t : first;
        if (strcmp(f->where, run.fibers[first].where) != 0)
            die(t, "waits for the block at %s, and thread %d at %s", f->where, first, run.fibers[first].where);
        f->state = READY;
    }
    run.n_at_block = 0;
}

void emulated_sync(const char *where)
{
    fiber *f = &run.fibers[emulated.thread];

    f->where = where;
    f->state = AT_BLOCK;
    run.n_at_block++;
    leave_block();
    if (f->state == AT_BLOCK)
        to_scheduler(false);
}

static float bf16(uint32_t word, int half)
{
    const uint32_t bits = half ? word & 0xffff0000u : word << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* device.h says which lane holds what. */
static void multiply(fiber *lanes)
{
    float a[16][16], b[16][8];

    for (int lane = 0; lane < EMULATED_WARP; lane++) {
        const emulated_multiplying *m = lanes[lane].argument;
        const int g = lane / 4, t = lane % 4;

        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < 4; j++)
                a[g + 8 * (j % 2)][2 * t + 8 * (j / 2) + i] = bf16(m->a[j], i);
            for (int j = 0; j < 2; j++)
                b[2 * t + 8 * j + i][g] = bf16(m->b[j], i);
        }
    }
    for (int lane = 0; lane < EMULATED_WARP; lane++) {
        const emulated_multiplying *m = lanes[lane].argument;

        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;

            for (int k = 0; k < 16; k++)
                m->c[i] = fmaf(a[row][k], b[k][column], m->c[i]);
        }
    }
}

static void shuffle(fiber *lanes, int first)
{
    for (int lane = 0; lane < EMULATED_WARP; lane++) {
        emulated_shuffling *s = lanes[lane].argument;
        const emulated_shuffling *from;

        if (s->from < 0 || s->from >= EMULATED_WARP)
            die(first + lane, "rgk_shuffle at %s asks for lane %d", lanes[lane].where, s->from);
        from = lanes[s->from].argument;
        s->got = from->given;
    }
}

/* If all lanes of the warp are there, do what they came for; they go on.  Lanes that have returned are not missed where
 * nothing is wanted of them. */
static void leave_warp(int warp)
{
    const int first = warp * EMULATED_WARP;
    fiber *lanes = &run.fibers[first], *one = NULL;
    int there = 0, gone = 0;

    for (int lane = 0; lane < EMULATED_WARP; lane++) {
        const bool exists = first + lane < emulated.threads;

        gone += !exists || lanes[lane].state == RETURNED;
        if (!exists || lanes[lane].state != AT_WARP)
            continue;
        there++;
        one = one ? one : &lanes[lane];
        if (lanes[lane].call != one->call || strcmp(lanes[lane].where, one->where) != 0)
            die(first + lane, "lanes of a warp differ: %s at %s, and thread %d: %s at %s", calls[lanes[lane].call],
                lanes[lane].where, (int)(one - run.fibers), calls[one->call], one->where);
    }
    if (!there || there + (one->call == EMULATED_SYNC_WARP ? gone : 0) < EMULATED_WARP)
        return;
    if (one->call == EMULATED_SHUFFLE)
        shuffle(lanes, first);
    else if (one->call == EMULATED_MMA)
        multiply(lanes);
    for (int lane = 0; lane < EMULATED_WARP; lane++)
        if (lanes[lane].state == AT_WARP)
            lanes[lane].state = READY;
    run.n_at_warp[warp] = 0;
}

void emulated_together(emulated_call call, const char *where, void *argument)
{
    fiber *f = &run.fibers[emulated.thread];
    const int warp = emulated.thread / EMULATED_WARP;

    f->call = call;
    f->where = where;
    f->argument = argument;
    f->state = AT_WARP;
    if (++run.n_at_warp[warp] == EMULATED_WARP || run.n_returned || emulated.threads % EMULATED_WARP)
        leave_warp(warp);
    if (f->state == AT_WARP)
        to_scheduler(false);
}

/* ---- copies in the background ------------------------------------------------------------------------------------- */

static void copy_now(const copy *c)
{
    if (c->from)
        memcpy(c->to, c->from, 16);
    else
        memset(c->to, 0, 16);
}

void emulated_copy(void *to, const void *from)
{
    fiber *f = &run.fibers[emulated.thread];
    const copy c = { to, from, f->group };

    if (!emulated_is_late) {
        copy_now(&c);
        return;
    }
    emulated_check(f->n_copies < COPIES, "more copies are under way than this emulator keeps");
    f->copies[f->n_copies++] = c;
}

void emulated_copy_commit(void)
{
    run.fibers[emulated.thread].group++;
}

void emulated_copy_wait(int n)
{
    fiber *f = &run.fibers[emulated.thread];
    int over = 0;

    while (over < f->n_copies && f->copies[over].group < f->group - n)
        copy_now(&f->copies[over++]);
    f->n_copies -= over;
    memmove(f->copies, f->copies + over, (size_t)f->n_copies * sizeof *f->copies);
}

/* ---- a block ------------------------------------------------------------------------------------------------------ */

/* No frame of it is ever left, so it keeps none that a sanitizer would look after. */
__attribute__((no_sanitize_address)) static void thread_begins(void)
{
#ifdef EMULATED_WITH_ASAN
    __sanitizer_finish_switch_fiber(NULL, &run.scheduler_stack, &run.scheduler_bytes);
#endif
    run.launch->kernel->run(run.launch->params);
    run.fibers[emulated.thread].state = RETURNED;
    run.n_returned++;
    leave_block();
    leave_warp(emulated.thread / EMULATED_WARP);
    to_scheduler(true);
    abort();
}

static void run_block(void)
{
    const int n = emulated.threads;

    run.n_returned = run.n_at_block = 0;
    memset(run.n_at_warp, 0, sizeof run.n_at_warp);
    for (int t = 0; t < n; t++) {
        fiber *f = &run.fibers[t];

        f->state = READY;
        f->n_copies = f->group = 0;
        f->fake_stack = NULL;
        prepare(f, stack_of(t), thread_begins);
    }
    while (run.n_returned < n) {
        bool went_on = false;

        for (int i = 0; i < n; i++) {
            const int t = emulated_is_late ? n - 1 - i : i;

            if (run.fibers[t].state != READY)
                continue;
            to_thread(t);
            went_on = true;
        }
        if (!went_on)
            deadlock();
    }
}

/* Stacks of all threads that a block can have, with a page before each that nobody may touch. */
static void make_stacks(void)
{
    const size_t bytes = (size_t)EMULATED_MAX_THREADS * (STACK + GUARD);

    run.stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (run.stacks == MAP_FAILED) {
        fputs("emulated CUDA: no memory for stacks\n", stderr);
        abort();
    }
    for (int t = 0; t < EMULATED_MAX_THREADS; t++)
        mprotect(stack_of(t) - GUARD, GUARD, PROT_NONE);
}

#ifndef EMULATED_WITH_ASAN
extern unsigned char shared_begins[] __asm__("__start_emulated_shared") __attribute__((weak, visibility("hidden")));
extern unsigned char shared_ends[] __asm__("__stop_emulated_shared") __attribute__((weak, visibility("hidden")));
#endif

/* Shared memory holds anything when a block begins: NaN here; what has a fixed size, when the kernel begins. */
static void fill_fixed(void)
{
#ifndef EMULATED_WITH_ASAN
    if (shared_begins)
        memset(shared_begins, 0xff, (size_t)(shared_ends - shared_begins));
#endif
}

static void fill_shared(const emulated_launch *l)
{
#ifdef EMULATED_WITH_ASAN
    __asan_unpoison_memory_region(rgk_dynamic, sizeof rgk_dynamic);
    __asan_poison_memory_region(rgk_dynamic + l->shared_bytes, sizeof rgk_dynamic - (size_t)l->shared_bytes);
    memset(rgk_dynamic, 0xff, (size_t)l->shared_bytes);
#else
    memset(rgk_dynamic, 0xff, (size_t)l->shared_bytes + 256);
#endif
}

static void check_fence(const emulated_launch *l)
{
#ifndef EMULATED_WITH_ASAN
    for (int i = 0; i < 256; i++)
        if (rgk_dynamic[l->shared_bytes + i] != 0xff)
            die(0, "a thread wrote past the end of the block's %d bytes of dynamic shared memory", l->shared_bytes);
#else
    (void)l;
#endif
}

void emulated_run(const emulated_launch *l)
{
    if (!run.stacks)
        make_stacks();
    run.launch = l;
    emulated.threads = l->threads;
    fill_fixed();
    for (int z = 0; z < l->grid[2]; z++)
        for (int y = 0; y < l->grid[1]; y++)
            for (int x = 0; x < l->grid[0]; x++) {
                emulated.block[0] = x;
                emulated.block[1] = y;
                emulated.block[2] = z;
                fill_shared(l);
                run_block();
                check_fence(l);
            }
}
