/* Tests of the verbs of weights: rows that were put come back decoded, images give them to another weight, the type
 * follows from the values, and what cannot be placed is refused. */
#include "support/test.h"

#include <string.h>

#include "base/mem.h"
#include "ops/backend.h"

enum { MATS = 2, ROWS = 20, COLS = 512 };

static const rg_placing shape = { .type = RG_F32, .n_mats = MATS, .rows = ROWS, .cols = COLS };

static rg_placed *place(const rg_placing *what)
{
    const rg_backend *b = rg_backend_nth(0);
    rg_error err;
    rg_placed *w = b->weight_new(b, what, &err);

    assert_ok(w, err);
    assert_ptr_equal(w->owner, b);
    assert_true(w->bytes > 0 && !w->is_paged);
    return w;
}

/* Random rows of a type, and what they decode to. */
static void put_rows(rg_placed *w, rg_rng *r, float *want)
{
    const rg_format *f = rg_format_of(w->type);
    float x[COLS];
    uint8_t row[COLS * sizeof(float)];

    for (int i = 0; i < MATS * ROWS; i++) {
        for (int k = 0; k < COLS; k++)
            x[k] = rg_rng_normal(r);
        f->encode(x, COLS / f->block_len, row);
        f->decode(row, COLS / f->block_len, want + i * COLS);
        w->owner->weight_put(w, i / ROWS, i % ROWS, row);
    }
}

static void expect_rows(const rg_placed *w, const float *want)
{
    float got[COLS];

    for (int i = 0; i < MATS * ROWS; i++) {
        w->owner->weight_get(w, i / ROWS, i % ROWS, got);
        assert_memory_equal(got, want + i * COLS, sizeof got);
    }
}

typedef struct image {
    uint8_t *bytes;
    size_t n;
} image;

static bool take(void *arg, const void *from, size_t bytes, rg_error *err)
{
    image *m = arg;

    (void)err;
    assert_int_equal(bytes, m->n);
    memcpy(m->bytes, from, bytes);
    return true;
}

static bool fill(void *arg, void *to, size_t bytes, rg_error *err)
{
    const image *m = arg;

    if (!m->n)
        return rg_fail(err, RG_E_IO, "no image");
    assert_int_equal(bytes, m->n);
    memcpy(to, m->bytes, bytes);
    return true;
}

static void rows_and_images_come_back(void **state)
{
    const rg_backend *b = rg_backend_nth(0);
    float *want = rg_array(MATS * ROWS * COLS, sizeof *want);
    rg_rng r = { .seed = test_seed };
    rg_error err;

    (void)state;
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        rg_placing what = shape;

        if (f->layout == RG_LAYOUT_NONE || !f->encode || (rg_type)type == RG_F16)
            continue;
        what.type = (rg_type)type;
        rg_placed *w = place(&what), *copy = place(&what);
        put_rows(w, &r, want);
        b->weight_end(w);
        assert_int_equal(w->type, type);
        expect_rows(w, want);

        image m = { 0 };
        assert_ok(b->image_bytes(b, &what, &m.n, &err), err);
        assert_int_equal(MATS * m.n, w->bytes);
        m.bytes = rg_alloc(m.n);
        for (int i = 0; i < MATS; i++) {
            assert_ok(b->image_save(w, i, take, &m, &err), err);
            assert_ok(b->image_load(copy, i, fill, &m, &err), err);
        }
        expect_rows(copy, want);
        m.n = 0;
        assert_false(b->image_load(copy, 0, fill, &m, &err));
        assert_int_equal(err.code, RG_E_IO);
        rg_free(m.bytes);
        rg_placed_free(w);
        rg_placed_free(copy);
    }
    rg_free(want);
    rg_placed_free(NULL);
}

/* F16 becomes BF16 where that holds every value, and only when it is asked for. */
static void the_type_follows_from_the_values(void **state)
{
    const uint16_t one = 0x3c00, fine = 0x3c01;
    const rg_placing what = { .type = RG_F16, .n_mats = 1, .rows = 1, .cols = 3 };
    float got[3];

    (void)state;
    for (int fits = 0; fits < 2; fits++) {
        const uint16_t row[3] = { one, fits ? one : fine, one };
        rg_placed *w = place(&what);

        w->owner->weight_put(w, 0, 0, row);
        assert_int_equal(w->type, RG_F16);
        w->owner->weight_end(w);
        assert_int_equal(w->type, fits ? RG_BF16 : RG_F16);
        w->owner->weight_get(w, 0, 0, got);
        assert_true(got[0] == 1 && (got[1] == 1) == fits && got[2] == 1);
        rg_placed_free(w);
    }
}

/* A row comes back with its columns where they belong, whatever their order in the panels. */
static void an_order_of_columns_is_kept(void **state)
{
    const rg_format *f = rg_format_of(RG_ZP4);
    rg_placing what = { .type = RG_ZP4, .n_mats = 1, .rows = 1, .cols = 64, .ordered = true };
    uint8_t row[1024] = { 0 };
    int32_t order[64];
    float want[64], got[64];
    rg_rng r = { .seed = test_seed };

    (void)state;
    for (int i = 0; i < 2 * f->block_bytes; i++)
        row[i] = (uint8_t)(rg_rng_u64(&r) & 0x3f); /* no NaN */
    f->decode(row, 64 / f->block_len, want);
    for (int k = 0; k < 64; k++)
        order[k] = 63 - k;
    rg_placed *w = place(&what);
    w->owner->weight_put(w, 0, 0, row);
    w->owner->weight_get(w, 0, 0, got);
    assert_memory_equal(got, want, sizeof got);
    w->owner->weight_order(w, 0, order);
    w->owner->weight_get(w, 0, 0, got);
    for (int k = 0; k < 64; k++)
        assert_memory_equal(&got[63 - k], &want[k], sizeof *got);
    rg_placed_free(w);
}

static void what_cannot_be_placed_is_refused(void **state)
{
    const rg_backend *b = rg_backend_nth(0);
    rg_placing what = shape;
    rg_error err;
    size_t bytes;

    (void)state;
    what.type = RG_I32;
    assert_null(b->weight_new(b, &what, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    assert_false(b->image_bytes(b, &what, &bytes, &err));
    what.type = RG_Q4_K;
    what.cols = 128;
    assert_null(b->weight_new(b, &what, &err));
    assert_int_equal(err.code, RG_E_INPUT);
}

/* All of a processor's back ends read what one of them placed, so its images too. */
static void back_ends_of_a_processor_share_images(void **state)
{
    const rg_backend *first = rg_backend_nth(0);

    (void)state;
    for (int i = 1; rg_backend_nth(i); i++)
        assert_true(rg_backend_nth(i)->image_version(rg_backend_nth(i)) == first->image_version(first));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_images_come_back),
        cmocka_unit_test(the_type_follows_from_the_values),
        cmocka_unit_test(an_order_of_columns_is_kept),
        cmocka_unit_test(what_cannot_be_placed_is_refused),
        cmocka_unit_test(back_ends_of_a_processor_share_images),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
