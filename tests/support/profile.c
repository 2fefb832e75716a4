/* profile.c -- see profile.h. */
#include "support/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/model.h"
#include "support/test.h"

void test_profile(rg_profile *p, int n_threads)
{
    rg_rates *r = &p->rates;

    memset(p, 0, sizeof *p);
    p->roofs = (rg_roofs){ .n_threads = n_threads, .read_bytes_s = 20e9, .f32_ops_s = 100e9, .bf16_ops_s = 200e9,
                           .int8_ops_s = 400e9 };
    for (int i = 0; i < RG_RATE_SETS; i++)
        r->set_bytes_s[i] = 110e9 - 10e9 * i;
    for (int i = 0; i < 2 * RG_LAYOUT_COUNT; i++)
        for (int k = 0; k < RG_RATE_PLACES && i / 2 != RG_LAYOUT_NONE; k++)
            for (int n = 0; n < RG_RATE_ROWS; n++)
                r->product[i % 2][i / 2].value_s[k][n] = 1e-12 * (rg_rate_rows[n] + i + 40 * k);
    for (int i = 0; i < 2 * RG_LAYOUT_COUNT; i++) {
        rg_product_rate *product = &r->product[i % 2][i / 2];
        for (int n = 0; n < RG_RATE_OUTS && i / 2 != RG_LAYOUT_NONE; n++)
            product->out_s[n] = 1e-11 * (i + n);
        product->in_s = i / 2 != RG_LAYOUT_NONE && i % 2 == 0 ? 1e-12 * (50 + i) : 0;
    }
    for (int i = 0; rg_rate_kv_type(i / 2) < RG_TYPE_COUNT; i++)
        for (int n = 0; n < RG_RATE_QUERIES; n++) {
            rg_attention_rate *a = &r->attention[i % 2][rg_rate_kv_type(i / 2)];
            a->pair_s[n] = 1e-10 * (i + 20 - n);
            a->column_s[n] = 1e-11 * (i + 20 - n);
            a->far_pair_s[n] = 1e-10 * (i + 50 - n);
            a->far_column_s[n] = 1e-11 * (i + 50 - n);
        }
    for (int k = 0; k < RG_RATE_PLACES; k++)
        r->line_s[k] = 1e-9 * (7 + 2 * k), r->first_byte_s[k] = 1e-11 * (3 + k);
    r->angle_s = 4e-8;
    r->step_s = 30e-6;
    for (int k = 0; k < RG_OP_COUNT; k++) {
        r->fixed_s[k] = 1e-6 + 1e-8 * k;
        r->shared_s[k] = 2e-6 + 1e-8 * k;
        r->cell_s[k] = 1e-10 + 1e-12 * k;
    }
}

const char *test_profile_folder(int n_threads)
{
    static char folder[512];
    rg_error err = { 0 };
    rg_profile p;

    const char *cache = test_scratch("cache");
    snprintf(folder, sizeof folder, "%s/ridge", cache);
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    test_profile(&p, n_threads);
    assert_ok(rg_profile_save(&p, folder, rg_backend_find("auto", &err), &err), err);
    return folder;
}
