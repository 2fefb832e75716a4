/* close_cases.h -- the part of kernel_cases.c about blocks of q4 as they are closed.
 *
 * Included there once, behind its random numbers, its guarded memory and its comparison of rows that are loaded. */
#ifndef RG_TEST_CLOSE_CASES_H
#define RG_TEST_CLOSE_CASES_H

/* A block of q4 from one of f32, with heads and without, and its rows read back; some values are no numbers. */
static bool cases_close(cases *c)
{
    static const int dims[][2] = { { 64, 64 }, { 128, 128 }, { 8, 8 }, { 33, 40 }, { 100, 96 }, { 1, 1 } };
    static uint8_t want[2 * 20 * MAX_N * 6];
    char what[96];

    for (int round = 0; round < 48; round++) {
        const int *dim = dims[round % (int)RG_LEN(dims)], heads = round % 4 == 3 ? 1 : 2;
        const rg_kv kv = { .type = RG_Q4_1, .n_heads = heads, .k_dim = dim[0] > dim[1] ? dim[0] : dim[1],
                           .v_dim = dim[1], .latent = heads == 1 };
        const rg_kv open = rg_kv_open(&kv);
        const size_t n = rg_kv_bytes(&open) / sizeof(float), bytes = rg_kv_bytes(&kv);
        float *x = walled(0, n * sizeof *x);
        uint8_t *to = walled(1, bytes);

        for (size_t i = 0; i < n; i++)
            x[i] = round % 5 == 1 && i % 97 == 3 ? INFINITY : round % 5 == 2 ? (float)(i % 7) : number(c, round % 4);
        memset(to, 7, bytes);
        for (int h = 0; h < heads; h++) {
            c->ref->close(&kv, h, (const uint8_t *)x, want);
            c->k->close(&kv, h, (const uint8_t *)x, to);
        }
        snprintf(what, sizeof what, "%s close k %d v %d", c->k->isa, kv.k_dim, kv.v_dim);
        if (memcmp(to, want, bytes)) {
            printf("%s: bytes differ\n", what);
            return false;
        }
        const uint8_t *row = rg_kv_at(&kv, to, heads - 1, RG_BLOCK - 1).v;
        if (rg_kv_v_values(&kv) && !load_same(c, row, NULL, RG_Q4_1, rg_kv_v_values(&kv), what))
            return false;
    }
    return true;
}

#endif
