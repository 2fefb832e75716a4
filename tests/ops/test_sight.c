/* test_sight.c -- which keys a row sees, block by block, against the terms pair by pair; and what has to stay of a
 * sequence: every position that a row to come sees, and no more blocks than are asked for. */
#include "support/sight.h"
#include "support/test.h"

#include <string.h>

enum { N = 700, BLOCKS = (N + RG_BLOCK - 1) / RG_BLOCK, HEADS = 4, CASES = 300 };

static int32_t below(rg_rng *g, int n)
{
    return (int32_t)rg_rng_below(g, (uint32_t)n);
}

static rg_sight_term random_term(rg_rng *g)
{
    const int most = below(g, 3) ? 200 : 20;
    rg_sight_term t = { .kind = (rg_term_kind)(1 + below(g, RG_TERM_LISTED)), .size = 1 + below(g, most), .step = 1 };

    if (below(g, 20) == 0)
        t.kind = RG_TERM_ALL;
    if (t.kind == RG_TERM_WINDOW)
        t.step = 1 + below(g, 2) * below(g, 9);
    if (t.kind == RG_TERM_SUMMARY)
        t.step = 1 + below(g, t.size);
    return t;
}

static void random_patterns(rg_rng *g, rg_patterns *p)
{
    memset(p, 0, sizeof *p);
    p->n_patterns = 1 + below(g, 3);
    for (int k = 0; k < p->n_patterns; k++) {
        p->patterns[k].n_terms = below(g, 4);
        for (int n = 0; n < p->patterns[k].n_terms; n++)
            p->patterns[k].terms[n] = random_term(g);
    }
    for (int h = 0; h < HEADS; h++)
        p->of_head[h] = (uint8_t)(h < p->n_patterns ? h : below(g, p->n_patterns));
    p->n_listed = below(g, 4);
    for (int n = 0, at = 0; n < p->n_listed; n++)
        p->listed[n] = at += 1 + below(g, 250);
}

static rg_sight random_sight(rg_rng *g, int i, rg_patterns *p)
{
    if (i % 4 == 0)
        return (rg_sight){ .window = below(g, 3) ? 1 + below(g, 300) : 0 };
    random_patterns(g, p);
    return (rg_sight){ .patterns = p };
}

static void bits_are_the_definition(void **state)
{
    rg_rng g = { .seed = test_seed };
    rg_patterns p;

    (void)state;
    for (int c = 0; c < CASES; c++) {
        const rg_sight s = random_sight(&g, c, &p);
        const int head = below(&g, HEADS), i = below(&g, N);
        int n_seen = 0, n_blocks = 0, low = i;

        for (int b = 0; b < BLOCKS; b++) {
            const uint64_t bits = rg_sight_bits(&s, head, i, i + 1, b);

            for (int j = 0; j < RG_BLOCK; j++)
                assert_int_equal(bits >> j & 1, test_sees(&s, head, i, b * RG_BLOCK + j));
            n_seen += __builtin_popcountll(bits);
            n_blocks += bits != 0;
        }
        for (int h = 0; h < HEADS; h++)
            for (int j = i; j >= 0; j--)
                low = test_sees(&s, h, i, j) && j < low ? j : low;
        assert_true(rg_sight_low(&s, i) <= low);
        const rg_seen count = rg_sight_count(&s, head, i);
        const int32_t most = rg_sight_most(&s);
        assert_true(count.keys >= n_seen && count.blocks >= n_blocks && count.keys <= i + 1 && count.blocks <= i / RG_BLOCK + 1);
        assert_true(!most || n_seen <= most);
        if (!s.patterns)
            assert_true(count.keys == n_seen && count.blocks == n_blocks && rg_sight_low(&s, i) == low);
    }
}

/* A window on both sides, of rows that see what comes after them. */
static void windows_lie_around(void **state)
{
    (void)state;
    for (int window = 0; window < 140; window += 23)
        for (int i = 0; i < 300; i += 7) {
            const rg_sight s = { .window = window, .around = true };

            for (int j = 0; j < 320; j++) {
                const bool want = j < 300 && (!window || (j - i < window && i - j < window));

                assert_int_equal(rg_sight_bits(&s, 0, i, 300, j / RG_BLOCK) >> j % RG_BLOCK & 1, want);
                assert_true(!want || (j >= rg_sight_low(&s, i) && j < rg_sight_end(&s, i, 300)));
            }
        }
}

/* What a sequence keeps: enough, never more than before, and as many blocks as are said. */
static void what_is_seen_later_stays(void **state)
{
    rg_rng g = { .seed = test_seed + 1 };
    rg_patterns p, q;
    int n_released = 0;

    (void)state;
    for (int c = 0; c < CASES; c++) {
        const rg_sight one = random_sight(&g, c, &p), other = random_sight(&g, c + c / 4 % 2, &q);
        const rg_sight *sights[] = { &one, &other };
        const int n_sights = 1 + below(&g, 2);
        static bool seen_from[N + 1][BLOCKS]; /* a row from here on sees a key of the block */
        rg_kept kept = { 0 };

        for (int k = 0; k < n_sights; k++)
            rg_kept_add(&kept, sights[k]);
        memset(seen_from, 0, sizeof seen_from);
        for (int i = N - 1; i >= 0; i--) {
            memcpy(seen_from[i], seen_from[i + 1], sizeof seen_from[i]);
            for (int b = 0; b <= i / RG_BLOCK; b++)
                for (int k = 0; k < n_sights; k++)
                    for (int h = 0; h < HEADS; h++)
                        seen_from[i][b] |= rg_sight_bits(sights[k], h, i, i + 1, b) != 0;
        }
        for (int at = 0; at < N; at++) {
            const int n_blocks = (at + RG_BLOCK - 1) / RG_BLOCK;
            int n_kept = 0;

            assert_true(at == 0 || rg_kept_from(&kept, at) >= rg_kept_from(&kept, at - 1));
            assert_true(rg_kept_from(&kept, at) <= at / RG_BLOCK);
            for (int b = 0; b < n_blocks; b++) {
                const bool stays = b >= rg_kept_from(&kept, at) || rg_kept_for_good(&kept, b);

                assert_true(stays || !seen_from[at][b]);
                n_kept += stays;
            }
            n_released += n_blocks - n_kept;
            assert_true(n_kept <= rg_kept_blocks(&kept, at, 1));
            assert_true(rg_kept_grows(&kept) || n_kept <= rg_kept_blocks(&kept, INT64_MAX, 1));
        }
    }
    assert_true(n_released > 1000);
}

/* The blocks of some patterns, one by one: what can go is gone. */
static void what_is_not_seen_goes(void **state)
{
    static const struct {
        rg_patterns p;
        int32_t at;
        const char *blocks; /* of the first positions: 1 stays */
    } cases[] = {
        { { 1, { { 2, { { RG_TERM_FIRST, 4, 1 }, { RG_TERM_WINDOW, 100, 1 } } } }, { 0 }, 0, { 0 } }, 640, "1000000011" },
        { { 1, { { 1, { { RG_TERM_CHUNK, 256, 1 } } } }, { 0 }, 0, { 0 } }, 600, "0000000011" },
        { { 1, { { 1, { { RG_TERM_CHUNK, 256, 1 } } } }, { 0 }, 0, { 0 } }, 512, "00000000" },
        { { 1, { { 2, { { RG_TERM_CHUNK, 128, 1 }, { RG_TERM_SUMMARY, 256, 10 } } } }, { 0 }, 0, { 0 } }, 640, "0001000100" },
        { { 1, { { 1, { { RG_TERM_WINDOW, 20, 10 } } } }, { 0 }, 0, { 0 } }, 640, "0000000111" },
        { { 1, { { 1, { { RG_TERM_STRIDE, 100, 1 } } } }, { 0 }, 0, { 0 } }, 640, "1111111111" },
        { { 1, { { 2, { { RG_TERM_LISTED, 1, 1 }, { RG_TERM_WINDOW, 5, 1 } } } }, { 0 }, 2, { 70, 300 } }, 300, "11111" },
        { { 1, { { 2, { { RG_TERM_LISTED, 1, 1 }, { RG_TERM_WINDOW, 5, 1 } } } }, { 0 }, 2, { 70, 300 } }, 640, "0100100001" },
    };

    (void)state;
    for (size_t c = 0; c < RG_LEN(cases); c++) {
        rg_kept kept = { 0 };

        rg_kept_add(&kept, &(rg_sight){ .patterns = &cases[c].p });
        for (int b = 0; cases[c].blocks[b]; b++)
            assert_int_equal(b >= rg_kept_from(&kept, cases[c].at) || rg_kept_for_good(&kept, b), cases[c].blocks[b] == '1');
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_definition),
        cmocka_unit_test(windows_lie_around),
        cmocka_unit_test(what_is_seen_later_stays),
        cmocka_unit_test(what_is_not_seen_goes),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("sight", tests, NULL, NULL);
}
