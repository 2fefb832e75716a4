/* Tests of the pools and of the prefix index on their own: what is taken, kept, evicted, matched and forgotten. */
#include "support/test.h"

#include <string.h>

#include "base/mem.h"
#include "engine/prefix.h"

enum { N = 8 };

/* ---- pools ------------------------------------------------------------------------------------------------------- */

typedef struct evictions {
    int32_t block[64];
    int n;
} evictions;

static void note(void *arg, int32_t block)
{
    evictions *e = arg;

    e->block[e->n++] = block;
}

static void blocks_are_held_cached_or_free(void **state)
{
    evictions e = { .n = 0 };
    rg_error err;
    rg_blocks *p = rg_blocks_new(N, note, &e, &err);
    int32_t b[N];

    (void)state;
    assert_ok(p, err);
    for (int i = 0; i < N; i++)
        b[i] = rg_blocks_take(p);
    assert_int_equal(rg_blocks_take(p), -1);
    assert_int_equal(rg_blocks_held(p), N);
    rg_blocks_hold(p, b[2]);
    rg_blocks_drop(p, b[2]);
    assert_int_equal(rg_blocks_references(p, b[2]), 1);
    for (int i = 0; i < 4; i++)
        rg_blocks_remember(p, b[i], true);
    for (int i = 3; i >= 0; i--) /* 3 is the oldest */
        rg_blocks_drop(p, b[i]);
    rg_blocks_check(p);
    assert_int_equal(rg_blocks_available(p), 4);
    rg_blocks_hold(p, b[3]);            /* back from the cache */
    rg_blocks_remember(p, b[1], false); /* now free, and taken first */
    rg_blocks_check(p);
    assert_int_equal(rg_blocks_take(p), b[1]);
    assert_int_equal(e.n, 0);
    assert_int_equal(rg_blocks_take(p), b[2]);
    assert_int_equal(rg_blocks_take(p), b[0]);
    assert_int_equal(rg_blocks_take(p), -1);
    assert_int_equal(e.n, 2);
    assert_true(e.block[0] == b[2] && e.block[1] == b[0]);
    rg_blocks_check(p);
    rg_blocks_free(p);
}

static void random_holds_agree_with_a_count(void **state)
{
    rg_rng g = { .seed = test_seed };
    evictions e = { .n = 0 };
    rg_error err;
    rg_blocks *p = rg_blocks_new(N, note, &e, &err);
    int references[N] = { 0 };
    bool remembered[N] = { false };

    (void)state;
    for (int i = 0; i < 50000; i++) {
        int32_t b = (int32_t)rg_rng_below(&g, N);
        int n_free = 0;

        e.n = 0;
        switch (rg_rng_below(&g, 4)) {
        case 0:
            for (int k = 0; k < N; k++)
                n_free += !references[k] && !remembered[k];
            b = rg_blocks_take(p);
            if (b < 0)
                break;
            assert_true(!references[b] && remembered[b] == !n_free && e.n == !n_free);
            references[b] = 1;
            remembered[b] = false;
            break;
        case 1:
            if (references[b] || remembered[b])
                rg_blocks_hold(p, b), references[b]++;
            break;
        case 2:
            if (references[b])
                rg_blocks_drop(p, b), references[b]--;
            break;
        default:
            if (remembered[b] || references[b])
                rg_blocks_remember(p, b, remembered[b] = !remembered[b]);
        }
        for (int k = 0; k < N; k++)
            assert_true(rg_blocks_references(p, k) == references[k] && rg_blocks_remembered(p, k) == remembered[k]);
        rg_blocks_check(p);
    }
    rg_blocks_free(p);
}

/* ---- the prefix index -------------------------------------------------------------------------------------------- */

enum { GLOBAL, WINDOW, SLOTS, N_GROUPS };

typedef struct world {
    rg_state_spec spec;
    rg_blocks *pools[N_GROUPS];
    rg_prefix *prefix;
} world;

typedef struct evict_arg {
    world *w;
    int group;
} evict_arg;

static evict_arg evict_args[N_GROUPS];

static void evicted(void *arg, int32_t block)
{
    evict_arg *e = arg;

    rg_prefix_forget(e->w->prefix, e->group, block);
}

static void world_open(world *w, int n_groups, int32_t n_blocks, int32_t room)
{
    rg_error err;

    *w = (world){ .spec = { .n_groups = n_groups } };
    w->spec.group[GLOBAL] = (rg_group){ .per = RG_PER_POSITION, .kept.all = true };
    w->spec.group[WINDOW] = (rg_group){ .per = RG_PER_POSITION, .kept.window = 100 };
    w->spec.group[SLOTS].per = RG_PER_SEQUENCE;
    for (int g = 0; g < n_groups; g++) {
        evict_args[g] = (evict_arg){ w, g };
        w->pools[g] = rg_blocks_new(n_blocks, evicted, &evict_args[g], &err);
        assert_ok(w->pools[g], err);
    }
    w->prefix = rg_prefix_new(&w->spec, w->pools, room, &err);
    assert_ok(w->prefix, err);
}

static void world_check(const world *w)
{
    for (int g = 0; g < w->spec.n_groups; g++)
        rg_blocks_check(w->pools[g]);
    rg_prefix_check(w->prefix);
}

static void world_close(world *w)
{
    world_check(w);
    rg_prefix_free(w->prefix);
    for (int g = 0; g < w->spec.n_groups; g++)
        rg_blocks_free(w->pools[g]);
}

/* A cached block of the group at the node. */
static int32_t cache(world *w, rg_node *node, int g)
{
    int32_t b = rg_blocks_take(w->pools[g]);

    assert_true(b >= 0 && rg_prefix_publish(w->prefix, node, g, b));
    rg_blocks_drop(w->pools[g], b);
    return b;
}

static void fill(int32_t *tokens, int n, int family)
{
    for (int i = 0; i < n; i++)
        tokens[i] = family * 1000 + i;
}

static int32_t match(const world *w, const int32_t *tokens, int32_t n, uint64_t salt)
{
    rg_node *path[64];
    int32_t n_matched;

    return rg_prefix_match(w->prefix, tokens, n, salt, path, &n_matched);
}

static void a_match_needs_every_group(void **state)
{
    int32_t tokens[6 * RG_BLOCK + 1], other[6 * RG_BLOCK];
    rg_node *node = NULL, *nodes[6];
    world w;

    (void)state;
    world_open(&w, N_GROUPS, 20, 20);
    fill(tokens, 6 * RG_BLOCK + 1, 1);
    for (int b = 0; b < 6; b++) {
        nodes[b] = node = rg_prefix_extend(w.prefix, node, 7, tokens + b * RG_BLOCK);
        cache(&w, node, GLOBAL);
        assert_ptr_equal(rg_prefix_extend(w.prefix, b ? nodes[b - 1] : NULL, 7, tokens + b * RG_BLOCK), node);
    }
    assert_int_equal(match(&w, tokens, 6 * RG_BLOCK + 1, 7), 0); /* no window, no snapshot */
    /* A row at 256 sees [157, 256]: blocks 2 and 3. */
    cache(&w, nodes[2], WINDOW);
    cache(&w, nodes[3], WINDOW);
    assert_int_equal(match(&w, tokens, 6 * RG_BLOCK + 1, 7), 0);
    cache(&w, nodes[3], SLOTS);
    assert_int_equal(match(&w, tokens, 6 * RG_BLOCK + 1, 7), 4 * RG_BLOCK);
    assert_int_equal(match(&w, tokens, 4 * RG_BLOCK + 1, 7), 4 * RG_BLOCK);
    assert_int_equal(match(&w, tokens, 4 * RG_BLOCK, 7), 0); /* always less than n */
    assert_int_equal(match(&w, tokens, 6 * RG_BLOCK + 1, 8), 0);
    memcpy(other, tokens, sizeof other);
    other[70]++;
    assert_int_equal(match(&w, other, 6 * RG_BLOCK, 7), 0);
    cache(&w, nodes[0], SLOTS);
    assert_int_equal(match(&w, other, 6 * RG_BLOCK, 7), 0); /* 64 needs window block 0 */
    cache(&w, nodes[0], WINDOW);
    assert_int_equal(match(&w, other, 6 * RG_BLOCK, 7), RG_BLOCK);
    world_check(&w);
    rg_prefix_clear(w.prefix);
    assert_int_equal(match(&w, tokens, 6 * RG_BLOCK + 1, 7), 0);
    world_close(&w);
}

/* What begins alike serves for as long as it does, be it a full block or a sequence's end. */
static void a_match_may_end_within_a_block(void **state)
{
    int32_t tokens[3 * RG_BLOCK], other[3 * RG_BLOCK];
    rg_node *node;
    world w;

    (void)state;
    world_open(&w, 2, 20, 20); /* no slots */
    fill(tokens, 3 * RG_BLOCK, 1);
    memcpy(other, tokens, sizeof other);
    node = rg_prefix_extend(w.prefix, NULL, 7, tokens);
    cache(&w, node, GLOBAL);
    assert_int_equal(match(&w, tokens, 40, 7), 0); /* the window group lacks it */
    cache(&w, node, WINDOW);
    assert_int_equal(match(&w, tokens, 40, 7), 39); /* less than n */
    assert_int_equal(match(&w, tokens, RG_BLOCK, 7), RG_BLOCK - 1);
    assert_int_equal(match(&w, tokens, 40, 8), 0);
    assert_int_equal(match(&w, tokens, 6, 7), 0); /* not worth a copy */
    other[30]++;
    assert_int_equal(match(&w, other, RG_BLOCK + 1, 7), 30);

    /* An end of 20, then one of 50 that has it too, then others. */
    rg_node *end = rg_prefix_extend_part(w.prefix, node, 7, tokens + RG_BLOCK, 20);
    cache(&w, end, GLOBAL);
    cache(&w, end, WINDOW);
    assert_int_equal(match(&w, tokens, 3 * RG_BLOCK, 7), RG_BLOCK + 20);
    assert_null(rg_prefix_extend_part(w.prefix, node, 7, tokens + RG_BLOCK, 20));
    assert_null(rg_prefix_extend_part(w.prefix, node, 7, tokens + RG_BLOCK, 12));
    end = rg_prefix_extend_part(w.prefix, node, 7, tokens + RG_BLOCK, 50);
    cache(&w, end, GLOBAL);
    cache(&w, end, WINDOW);
    assert_int_equal(rg_blocks_available(w.pools[GLOBAL]), 20);
    world_check(&w);
    assert_int_equal(match(&w, tokens, 3 * RG_BLOCK, 7), RG_BLOCK + 50);
    end = rg_prefix_extend(w.prefix, node, 7, tokens + RG_BLOCK);
    cache(&w, end, GLOBAL);
    cache(&w, end, WINDOW);
    world_check(&w);
    assert_int_equal(match(&w, tokens, 3 * RG_BLOCK, 7), 2 * RG_BLOCK);
    memcpy(other, tokens, sizeof other);
    other[RG_BLOCK + 33]++;
    assert_int_equal(match(&w, other, 3 * RG_BLOCK, 7), RG_BLOCK + 33);
    rg_prefix_clear(w.prefix);
    assert_int_equal(match(&w, tokens, 3 * RG_BLOCK, 7), 0);
    world_close(&w);
}

static void the_end_of_a_path_goes_first(void **state)
{
    int32_t tokens[2][4 * RG_BLOCK + 1], blocks[4];
    rg_node *node = NULL;
    world w;

    (void)state;
    world_open(&w, 1, 4, 20);
    fill(tokens[0], 4 * RG_BLOCK + 1, 1);
    for (int b = 0; b < 4; b++) {
        blocks[b] = rg_blocks_take(w.pools[0]);
        node = rg_prefix_extend(w.prefix, node, 0, tokens[0] + b * RG_BLOCK);
        assert_true(rg_prefix_publish(w.prefix, node, GLOBAL, blocks[b]));
        assert_false(rg_prefix_publish(w.prefix, node, GLOBAL, blocks[b]));
    }
    for (int b = 3; b >= 0; b--)
        rg_blocks_drop(w.pools[0], blocks[b]);
    for (int b = 3; b >= 0; b--) {
        assert_int_equal(match(&w, tokens[0], 4 * RG_BLOCK + 1, 0), (b + 1) * RG_BLOCK);
        assert_int_equal(rg_blocks_take(w.pools[0]), blocks[b]);
        world_check(&w);
    }
    world_close(&w);
}

static void the_oldest_leaf_makes_way(void **state)
{
    int32_t tokens[5][RG_BLOCK + 1];
    rg_node *nodes[4];
    world w;

    (void)state;
    world_open(&w, 1, 10, 3);
    for (int i = 0; i < 5; i++)
        fill(tokens[i], RG_BLOCK + 1, i);
    for (int i = 0; i < 3; i++) {
        nodes[i] = rg_prefix_extend(w.prefix, NULL, 0, tokens[i]);
        cache(&w, nodes[i], GLOBAL);
    }
    assert_int_equal(match(&w, tokens[0], RG_BLOCK + 1, 0), RG_BLOCK); /* 0 is now newer than 1 */
    nodes[3] = rg_prefix_extend(w.prefix, NULL, 0, tokens[3]);
    cache(&w, nodes[3], GLOBAL);
    assert_int_equal(match(&w, tokens[1], RG_BLOCK + 1, 0), 0);
    assert_int_equal(match(&w, tokens[0], RG_BLOCK + 1, 0), RG_BLOCK);
    world_check(&w);
    rg_prefix_pin(w.prefix, nodes[0]);
    rg_prefix_pin(w.prefix, nodes[2]);
    rg_prefix_pin(w.prefix, nodes[3]);
    assert_null(rg_prefix_extend(w.prefix, NULL, 0, tokens[4])); /* all are pinned */
    rg_prefix_clear(w.prefix);
    world_check(&w);
    rg_prefix_unpin(w.prefix, nodes[2]); /* nothing keeps it now */
    assert_non_null(rg_prefix_extend(w.prefix, nodes[0], 0, tokens[4]));
    cache(&w, rg_prefix_extend(w.prefix, nodes[0], 0, tokens[4]), GLOBAL);
    rg_prefix_unpin(w.prefix, nodes[0]); /* its child keeps it */
    rg_prefix_unpin(w.prefix, nodes[3]);
    world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_held_cached_or_free), cmocka_unit_test(random_holds_agree_with_a_count),
        cmocka_unit_test(a_match_needs_every_group),      cmocka_unit_test(a_match_may_end_within_a_block),
        cmocka_unit_test(the_end_of_a_path_goes_first),
        cmocka_unit_test(the_oldest_leaf_makes_way),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
