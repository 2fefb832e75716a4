/* test_emulator.c -- the emulated GPU does what device.h and CUDA's driver promise, and finds what they forbid. */
#include "support/cuda/emulated.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/cuda/emulator_kernels.h"
#include "support/cuda/block.h"

#define CALL(name, arguments) int name arguments;
#include "ops/cuda/driver.def"
#undef CALL

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static void *module;

static int begin(void **state)
{
    void *context;
    int device;

    (void)state;
    emulated_set_late(false);
    assert_int_equal(cuInit(0), 0);
    assert_int_equal(cuDeviceGet(&device, 0), 0);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), 0);
    assert_int_equal(cuCtxSetCurrent(context), 0);
    assert_int_equal(cuModuleLoadData(&module, ridge_emulated_image), 0);
    return 0;
}

static void *function(const char *name)
{
    void *f;

    assert_int_equal(cuModuleGetFunction(&f, module, name), 0);
    return f;
}

static void launch_on(void *stream, const char *name, int blocks, int threads, int shared_bytes, void *params)
{
    assert_int_equal(cuLaunchKernel(function(name), (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                    (unsigned)shared_bytes, stream, &params, NULL),
                     0);
}

static void launch(const char *name, int blocks, int threads, int shared_bytes, void *params)
{
    launch_on(NULL, name, blocks, threads, shared_bytes, params);
    assert_int_equal(cuStreamSynchronize(NULL), 0);
}

/* The device's memory is ours, so that its addresses are pointers. */
static void *device(size_t bytes)
{
    uint64_t at;

    assert_int_equal(cuMemAlloc_v2(&at, bytes), 0);
    return (void *)(uintptr_t)at;
}

static void device_free(void *at)
{
    assert_int_equal(cuMemFree_v2((uint64_t)(uintptr_t)at), 0);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------ */

static void threads_know_their_place(void **state)
{
    rgk_places_params p = { device(3 * 40 * sizeof *p.y) };
    void *params = &p;

    (void)state;
    assert_int_equal(cuLaunchKernel(function("rgk_places"), 3, 2, 5, 40, 1, 1, 0, NULL, &params, NULL), 0);
    for (int i = 0; i < 3 * 40; i++) {
        const int32_t expected[5] = { i % 40, 40, i / 40, 1, 4 }; /* the last block of y and z */

        assert_memory_equal(p.y[i], expected, sizeof expected);
    }
    device_free(p.y);
}

static void barriers(void **state)
{
    enum { BLOCKS = 3, THREADS = 1024 };
    float *x = device(BLOCKS * THREADS * sizeof *x), *y = device(BLOCKS * sizeof *y);
    rgk_sums_params p = { x, y };

    (void)state;
    for (int i = 0; i < BLOCKS * THREADS; i++)
        x[i] = (float)(i % 1000);
    for (int late = 0; late < 2; late++) {
        emulated_set_late(late);
        launch("rgk_sums", BLOCKS, THREADS, THREADS * (int)sizeof *x, &p);
        for (int b = 0; b < BLOCKS; b++) {
            double sum = 0.0;

            for (int i = 0; i < THREADS; i++)
                sum += x[b * THREADS + i];
            assert_true((double)y[b] == sum);
        }
    }
    device_free(x);
    device_free(y);
}

static void lanes_shuffle(void **state)
{
    float *x = device(96 * sizeof *x), *y = device(96 * sizeof *y);
    rgk_turned_params p = { x, y, 5 };

    (void)state;
    for (int i = 0; i < 96; i++)
        x[i] = (float)i;
    for (int late = 0; late < 2; late++) {
        emulated_set_late(late);
        launch("rgk_turned", 1, 96, 0, &p);
        for (int i = 0; i < 96; i++)
            assert_true(y[i] == x[i / 32 * 32 + (i % 32 + 5) % 32]);
    }
    device_free(x);
    device_free(y);
}

static float bf16_value(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void products_of_warps(void **state)
{
    uint16_t *a = device(16 * 16 * sizeof *a), *b = device(16 * 8 * sizeof *b);
    float *c = device(16 * 8 * sizeof *c), expected[16][8];
    rgk_product_params p = { a, b, c };
    rg_rng r = { test_seed, 0 };

    (void)state;
    for (int i = 0; i < 16 * 16; i++)
        a[i] = (uint16_t)(0x3f00 + rg_rng_below(&r, 256) + rg_rng_below(&r, 2) * 0x8000);
    for (int i = 0; i < 16 * 8; i++) {
        b[i] = (uint16_t)(0x3f00 + rg_rng_below(&r, 256) + rg_rng_below(&r, 2) * 0x8000);
        c[i] = (float)(i + 1);
    }
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            float sum = c[row * 8 + column];

            for (int k = 0; k < 16; k++)
                sum = fmaf(bf16_value(a[row * 16 + k]), bf16_value(b[k * 8 + column]), sum);
            expected[row][column] = sum;
        }
    launch("rgk_product", 1, 32, 0, &p);
    assert_memory_equal(c, expected, sizeof expected);
    device_free(a);
    device_free(b);
    device_free(c);
}

/* A wait that is missing is found where copies are late; where they are not, nobody would see it. */
static void copies_in_the_background(void **state)
{
    enum { N = 7, THREADS = 64 };
    uint32_t *x = device(N * THREADS * 16), *y = device(THREADS * 16), expected[THREADS * 4] = { 0 };

    (void)state;
    for (int i = 0; i < N * THREADS * 4; i++) {
        x[i] = (uint32_t)i * 2654435761u;
        expected[i % (THREADS * 4)] += i < (N - 1) * THREADS * 4 ? x[i] : 0;
    }
    for (int waits = 0; waits < 2; waits++)
        for (int late = 0; late < 2; late++) {
            rgk_pipeline_params p = { x, y, N, waits };

            emulated_set_late(late);
            launch("rgk_pipeline", 1, THREADS, 0, &p);
            assert_int_equal(!memcmp(y, expected, sizeof expected), waits || !late);
        }
    device_free(x);
    device_free(y);
}

static void words(void **state)
{
    static const uint32_t a[4] = { 0x3f803f80u, 0xbf804000u, 0x7f800000u, 0x04030201u };
    static const uint32_t b[4] = { 0x3f80bf80u, 0x43004080u, 0x7f80ff80u, 0x04030201u };
    uint32_t sum[4], bytes[4];
    rgk_words_params p = { a, b, sum, bytes, 0x7150u };

    (void)state;
    launch("rgk_words", 1, 4, 0, &p);
    assert_int_equal(sum[0], 0x40000000u);
    assert_int_equal(sum[1], 0x42fe40c0u);
    assert_int_equal(sum[2], 0x7f80ff80u);
    assert_int_equal(bytes[0], 0x3f3fbf80u);
    assert_int_equal(bytes[3], 0x04020201u);
}

static void shared_memory_holds_anything(void **state)
{
    uint32_t y[8];
    rgk_shared_params p = { y };

    (void)state;
    for (int n = 0; n < 2; n++) {
        launch("rgk_shared", 2, 1, 16, &p);
        for (int i = 0; i < 4; i++)
            assert_int_equal(y[4 + i], UINT32_MAX); /* for every block */
    }
}

/* ---- what is wrong ------------------------------------------------------------------------------------------------ */

/* Launch it in another process, which must end itself and say this. */
static void is_found(rgk_wrong_kind kind, int threads, const char *said)
{
    int ends[2], status;
    char text[4096];
    size_t n = 0;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        rgk_wrong_params p = { device(16), kind, kind == RGK_PAST_SHARED ? 64 : 4 };

        dup2(ends[1], 2);
        launch("rgk_wrong", 1, threads, 64, &p);
        _exit(0);
    }
    close(ends[1]);
    while (n < sizeof text - 1 && (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!strstr(text, said))
        fail_msg("it says: %s", text);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void faults_are_found(void **state)
{
#ifdef EMULATED_WITH_ASAN
    static const char *past[] = { "use-after-poison", "heap-buffer-overflow" };
#else
    static const char *past[] = { "wrote past the end of the block's 64 bytes of dynamic shared memory",
                                  "kernel rgk_wrong wrote past the end of an allocation of 16 bytes" };
#endif

    (void)state;
    is_found(RGK_ONE_RETURNS_NOT, 64, "kernel rgk_wrong, block (0, 0, 0), thread 3 of 64: deadlock: rgk_sync_warp at ");
    is_found(RGK_TWO_BARRIERS, 64, "thread 3 of 64: waits for the block at ");
    is_found(RGK_LANES_DIFFER, 64, "thread 3 of 64: lanes of a warp differ: rgk_shuffle at ");
    is_found(RGK_LANE_IS_MISSING, 64, "deadlock: rgk_shuffle at ");
    is_found(RGK_NO_SUCH_LANE, 64, "asks for lane 32");
    is_found(RGK_SKEW_LOAD, 64, "thread 0 of 64: 16 bytes are loaded from an address that is no multiple of 16");
    is_found(RGK_INEXACT, 64, "a sum of two bf16 is not exact");
    is_found(RGK_PAST_DEVICE, 96, "thread 0 of 96: the block has more threads than the kernel is made for");
    is_found(RGK_PAST_SHARED, 64, past[0]);
    is_found(RGK_PAST_DEVICE, 64, past[1]);
}

/* ---- the driver --------------------------------------------------------------------------------------------------- */

static void device_is_described(void **state)
{
    char name[64];
    int n, value;
    const char *text;

    (void)state;
    assert_int_equal(cuDeviceGetCount(&n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(cuDeviceGetName(name, sizeof name, 0), 0);
    assert_string_equal(name, "emulated");
    assert_int_equal(cuDeviceGetAttribute(&value, 75, 0), 0);
    assert_int_equal(value, 9);
    assert_int_equal(cuDeviceGetAttribute(&value, 16, 0), 0);
    assert_int_equal(value, 4);
    assert_int_equal(cuDeviceGet(&value, 1), 101);
    assert_int_equal(cuGetErrorString(2, &text), 0);
    assert_string_equal(text, "out of memory");
    assert_int_equal(cuGetErrorString(12345, &text), 1);
}

static void calls_are_refused(void **state)
{
    rgk_turned_params p = { NULL, NULL, 0 };
    void *params = &p, *f = function("rgk_turned"), *found;

    (void)state;
    assert_int_equal(cuModuleLoadData(&found, "something else"), 200);
    assert_int_equal(cuModuleGetFunction(&found, module, "rgk_nothing"), 500);
    assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 1056, 1, 1, 0, NULL, &params, NULL), 1);
    assert_int_equal(cuLaunchKernel(f, 0, 1, 1, 32, 1, 1, 0, NULL, &params, NULL), 1);
    assert_int_equal(cuLaunchKernel(f, 1, 65536, 1, 32, 1, 1, 0, NULL, &params, NULL), 1);
    assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, (48 << 10) + 1, NULL, &params, NULL), 1);
    assert_int_equal(cuFuncSetAttribute(f, 8, (227 << 10) + 1), 1);
    assert_int_equal(cuFuncSetAttribute(f, 8, 227 << 10), 0);
    assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, (227 << 10) + 1, NULL, &params, NULL), 1);
    assert_int_equal(cuLaunchKernel(&p, 1, 1, 1, 32, 1, 1, 0, NULL, &params, NULL), 400);
    assert_int_equal(cuStreamSynchronize(&p), 400);
    assert_int_equal(cuCtxSetCurrent(NULL), 0);
    assert_int_equal(cuStreamSynchronize(NULL), 201);
}

static void memory_is_counted(void **state)
{
    const emulated_counts before = emulated_count();
    size_t available, total;
    uint64_t at, other;
    char bytes[64] = "kept";

    (void)state;
    emulated_set_memory(before.held_bytes + 1000);
    assert_int_equal(cuMemGetInfo_v2(&available, &total), 0);
    assert_int_equal(available, 1000);
    assert_int_equal(cuMemAlloc_v2(&at, 1001), 2);
    assert_int_equal(cuMemAlloc_v2(&at, 0), 1);
    assert_int_equal(cuMemAlloc_v2(&at, 600), 0);
    assert_int_equal(cuMemAlloc_v2(&other, 401), 2);
    assert_int_equal(cuMemcpyHtoD_v2(at + 536, bytes, sizeof bytes), 0);
    assert_int_equal(cuMemcpyHtoD_v2(at + 537, bytes, sizeof bytes), 1);
    assert_int_equal(cuMemcpyDtoD_v2(at, at + 536, sizeof bytes), 0);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(cuMemcpyDtoH_v2(bytes, at, sizeof bytes), 0);
    assert_string_equal(bytes, "kept");
    assert_int_equal(cuMemsetD8_v2(at, 0, 601), 1);
    assert_int_equal(cuMemFree_v2(at), 0);
    assert_int_equal(cuMemFree_v2(at), 1);
    assert_int_equal(emulated_count().held, before.held);
    assert_int_equal(emulated_count().bytes_in - before.bytes_in, sizeof bytes);
    assert_int_equal(emulated_count().allocations - before.allocations, 1);
    emulated_set_memory((size_t)8 << 30);
}

/* What a stream does late is not there before the host has waited, and it reads the host's memory as it then is. */
static void streams(void **state)
{
    float *x = device(32 * sizeof *x), *y = device(32 * sizeof *y), *host;
    rgk_turned_params p = { x, y, 1 };
    void *stream;

    (void)state;
    assert_int_equal(cuMemHostAlloc((void **)&host, 64 * sizeof *host, 0), 0);
    assert_int_equal(cuStreamCreate(&stream, 1), 0);
    for (int late = 0; late < 2; late++) {
        emulated_set_late(late);
        for (int i = 0; i < 64; i++)
            host[i] = (float)i;
        assert_int_equal(cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)x, host, 32 * sizeof *x, stream), 0);
        launch_on(stream, "rgk_turned", 1, 32, 0, &p);
        assert_int_equal(cuMemcpyDtoHAsync_v2(host + 32, (uint64_t)(uintptr_t)y, 32 * sizeof *y, stream), 0);
        p.by = 7; /* launches have parameters of their own */
        assert_true(host[32] == (late ? 32.0f : 1.0f));
        assert_int_equal(cuStreamSynchronize(stream), 0);
        assert_true(host[32] == 1.0f && host[63] == 0.0f);
        p.by = 1;
    }
    assert_int_equal(cuStreamDestroy_v2(stream), 0);
    assert_int_equal(cuStreamDestroy_v2(stream), 400);
    assert_int_equal(cuMemFreeHost(host), 0);
    device_free(x);
    device_free(y);
}

static void graphs(void **state)
{
    float *x = device(32 * sizeof *x), *y = device(32 * sizeof *y), host[32];
    rgk_turned_params p = { x, y, 1 };
    const uint64_t launches = emulated_launches("rgk_turned");
    void *stream, *graph, *executable;
    uint64_t at;

    (void)state;
    assert_int_equal(cuStreamCreate(&stream, 0), 0);
    assert_int_equal(cuStreamBeginCapture_v2(stream, 0), 0);
    assert_int_equal(cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)x, host, sizeof host, stream), 0);
    launch_on(stream, "rgk_turned", 1, 32, 0, &p);
    assert_int_equal(cuStreamEndCapture(stream, &graph), 0);
    assert_int_equal(emulated_launches("rgk_turned"), launches);
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    assert_int_equal(cuGraphDestroy(graph), 0);
    p.by = 3;
    for (int round = 0; round < 4; round++) {
        emulated_set_late(round % 2);
        for (int i = 0; i < 32; i++)
            host[i] = (float)(100 * round + i);
        assert_int_equal(cuGraphLaunch(executable, stream), 0);
        assert_int_equal(cuStreamSynchronize(stream), 0);
        assert_true(y[4] == (float)(100 * round + 5));
    }
    assert_int_equal(emulated_launches("rgk_turned"), launches + 4);
    assert_int_equal(cuGraphExecDestroy(executable), 0);

    /* what may not happen meanwhile spoils a capture */
    assert_int_equal(cuStreamBeginCapture_v2(stream, 0), 0);
    assert_int_equal(cuMemAlloc_v2(&at, 16), 900);
    assert_int_equal(cuStreamSynchronize(stream), 900);
    assert_int_equal(cuStreamEndCapture(stream, &graph), 901);
    assert_int_equal(cuStreamDestroy_v2(stream), 0);
    device_free(x);
    device_free(y);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_know_their_place, begin),
        cmocka_unit_test_setup(barriers, begin),
        cmocka_unit_test_setup(lanes_shuffle, begin),
        cmocka_unit_test_setup(products_of_warps, begin),
        cmocka_unit_test_setup(copies_in_the_background, begin),
        cmocka_unit_test_setup(words, begin),
        cmocka_unit_test_setup(shared_memory_holds_anything, begin),
        cmocka_unit_test_setup(faults_are_found, begin),
        cmocka_unit_test_setup(device_is_described, begin),
        cmocka_unit_test_setup(calls_are_refused, begin),
        cmocka_unit_test_setup(memory_is_counted, begin),
        cmocka_unit_test_setup(streams, begin),
        cmocka_unit_test_setup(graphs, begin),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("emulator", tests, NULL, NULL);
}
