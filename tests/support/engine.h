/* engine.h -- engines for tests of the public API. */
#ifndef RG_TEST_ENGINE_H
#define RG_TEST_ENGINE_H

#include "ridge.h"
#include "support/test.h"

/* One thread, which computes every format exactly, with K/V as f32: what goldens compare with. */
static inline rg_options test_exact_options(int32_t max_seqs)
{
    rg_options o = rg_options_default();

    o.n_threads = 1;
    o.recipe = "exact";
    o.kv_type = "f32";
    o.kv_bytes = (size_t)64 << 20;
    o.max_seqs = max_seqs;
    return o;
}

/* An engine of the checkpoint at path; what cannot be opened fails the test. */
static inline rg_engine *test_open(const char *path, const rg_options *o)
{
    rg_error err = { 0 };
    rg_engine *e = rg_open(path, o, &err);

    assert_ok(e, err);
    return e;
}

#endif
