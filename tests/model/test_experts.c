/* test_experts.c -- mixtures whose experts stay in a file: the same bits as in memory, whatever fits; how much is read;
 * and that a failed read costs the rows concerned and no others. */
#include "worlds.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/convert.h"
#include "ops/cpu/pack.h"
#include "ops/watch/watch.h"

enum { N_SEQS = 3, N_IDS = 40, N_VOCAB = 320, MAX_LEN = 64 };

static void open_model(test_model *t, const char *path, size_t expert_bytes)
{
    rg_error err = { 0 };
    const char *cache = test_scratch("cache");

    mkdir(cache, 0755);
    t->ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(t->ckpt, err);
    t->m = rg_model_open(t->ckpt, &(rg_model_options){ .n_threads = 2, .pack_cache = cache,
                                                       .expert_bytes = expert_bytes }, &err);
    assert_ok(t->m, err);
}

static size_t unpadded; /* bytes of all experts in memory, */

/* and in the file; least: of those that a step holds. */
static size_t expert_bytes(const rg_model *m, size_t *least)
{
    size_t all = 0;

    *least = unpadded = 0;
    for (int i = 0; i < m->weights.n; i++) {
        const rg_packed *p = rg_packed_of(m->weights.all[i].placed);
        int role = m->weights.spec[i]->role;

        if (role != W_GATE_EXPERTS && role != W_UP_EXPERTS && role != W_DOWN_EXPERTS)
            continue;
        size_t each = (rg_packed_mat_bytes(p) + 4095) / 4096 * 4096;
        all += each * (size_t)p->placed.n_mats;
        unpadded += p->placed.bytes;
        *least = each > *least ? each : *least;
    }
    *least *= 6; /* of two sizes, three each */
    return all;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

typedef struct run {
    test_rig rig;
    rg_seq *seq[N_SEQS];
    float logits[N_SEQS][N_IDS][N_VOCAB];
    int at; /* position of the rows of this step */
} run;

static void keep(void *arg, int feed, int row, float *logits)
{
    run *r = arg;

    memcpy(r->logits[feed][r->at + row], logits, sizeof r->logits[feed][0]);
}

static int32_t id_of(int s, int i)
{
    return (int32_t)((7 + 31 * s + 13 * i + i * i * (s + 1)) % N_VOCAB);
}

static void open_run_as(run *r, const test_model *t, test_rig_options o)
{
    rg_error err = { 0 };

    o.backend = rg_backend_find(test_isa ? test_isa : "auto", &err);
    assert_ok(o.backend, err);
    o.max_rows = N_SEQS * N_IDS;
    o.max_seqs = N_SEQS;
    o.max_len = MAX_LEN;
    test_rig_open(&r->rig, t, &o);
    for (int s = 0; s < N_SEQS; s++) {
        r->seq[s] = rg_seq_new(r->rig.states, MAX_LEN, 0, &err);
        assert_ok(r->seq[s], err);
    }
}

static void open_run(run *r, const test_model *t, bool exact, int n_threads)
{
    open_run_as(r, t, (test_rig_options){ .n_threads = n_threads, .exact = exact });
}

static void close_run(run *r)
{
    for (int s = 0; s < N_SEQS; s++)
        rg_seq_free(r->rig.states, r->seq[s]);
    test_rig_close(&r->rig);
}

/* The next n ids of each sequence, in one step. */
static void step(run *r, int n)
{
    test_feed feeds[N_SEQS];
    int32_t ids[N_SEQS][N_IDS];

    r->at = r->seq[0]->length;
    for (int s = 0; s < N_SEQS; s++) {
        for (int i = 0; i < n; i++)
            ids[s][i] = id_of(s, r->at + i);
        assert_true(rg_seq_grow(r->rig.states, r->seq[s], r->at + n));
        feeds[s] = (test_feed){ .seq = r->seq[s], .ids = ids[s], .n = n };
    }
    test_rig_step(&r->rig, feeds, N_SEQS, keep, r);
    for (int s = 0; s < N_SEQS; s++)
        rg_seq_advance(r->rig.states, r->seq[s], n, 0, NULL);
}

/* A prompt, then id by id. */
static void run_all(run *r, const test_model *t, bool exact, int n_threads)
{
    open_run(r, t, exact, n_threads);
    step(r, N_IDS - 8);
    for (int i = 0; i < 8; i++)
        step(r, 1);
    close_run(r);
}

static run want, have;

/* A golden in 8 bits, whose products round what they read. */
static const char *in_8_bits(const char *golden)
{
    rg_error err = { 0 };
    rg_convert_report report;
    rg_checkpoint *from = rg_checkpoint_open(test_data(golden), RG_CKPT_DEFAULT, &err);
    const char *to = test_scratch("q8.gguf");

    assert_ok(from, err);
    assert_ok(rg_convert(&report, from, to, &(rg_convert_options){ .type = RG_Q8_0, .n_threads = 1 }, &err), err);
    rg_convert_report_fini(&report);
    rg_checkpoint_close(from);
    return to;
}

static void bits_are_those_of_experts_in_memory(void **state)
{
    static const char *const models[] = { "mixtral", "mixtral/model.gguf", NULL, "qwen3-moe", "deepseek-v2", "qwen35-moe",
                                          "act-order" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        char path[600];
        size_t all, least;
        test_model resident;

        snprintf(path, sizeof path, "%s", !models[i]                       ? in_8_bits("mixtral")
                                          : !strcmp(models[i], "act-order") ? world_act_order("mixtral")
                                                                            : test_data(models[i]));
        test_model_open(&resident, path, NULL);
        all = expert_bytes(resident.m, &least);
        for (int exact = 0; exact < 2; exact++) {
            size_t sizes[] = { least, all / 2 > least ? all / 2 : least, all };

            run_all(&want, &resident, exact, 2);
            for (int k = 0; k < 3; k++) {
                test_model paged;

                open_model(&paged, path, sizes[k]);
                run_all(&have, &paged, exact, 1 + k % 2);
                assert_memory_equal(have.logits, want.logits, sizeof want.logits);
                rg_expert_reads reads = rg_model_expert_reads(paged.m);
                assert_true(reads.bytes <= sizes[k]);
                assert_true(reads.n_read > 0 && reads.n_read - reads.n_unused <= reads.n_asked);
                assert_true(paged.m->weights.bytes <= resident.m->weights.bytes - unpadded + sizes[k]);
                test_model_close(&paged);
            }
        }
        test_model_close(&resident);
    }
}

/* With room for all of them each expert is read once; with room for half, less often than it is asked for. */
static void reads_are_counted(void **state)
{
    char path[600];
    size_t all, least;
    test_model t;

    (void)state;
    snprintf(path, sizeof path, "%s", test_data("qwen3-moe"));
    test_model_open(&t, path, NULL);
    all = expert_bytes(t.m, &least);
    test_model_close(&t);

    open_model(&t, path, all);
    run_all(&have, &t, false, 2);
    rg_expert_reads once = rg_model_expert_reads(t.m);
    run_all(&have, &t, false, 2);
    rg_expert_reads twice = rg_model_expert_reads(t.m);
    assert_true(once.n_read <= 3 * 3 * 8); /* three matrices of each of eight experts in three layers */
    assert_int_equal(twice.n_read, once.n_read);
    assert_int_equal(twice.bytes_read, once.bytes_read);
    assert_int_equal(twice.n_asked, 2 * once.n_asked);
    test_model_close(&t);

    open_model(&t, path, all / 2);
    run_all(&have, &t, false, 2);
    rg_expert_reads half = rg_model_expert_reads(t.m);
    assert_int_equal(half.n_asked, once.n_asked);
    assert_true(half.n_read > once.n_read && half.n_read < half.n_asked);
    assert_int_equal(half.bytes_read % half.n_read, 0); /* all of one size here */
    test_model_close(&t);
}

/* ---- guesses ----------------------------------------------------------------------------------------------------- */

static void count_seen(void *arg, const rg_watched *w)
{
    (void)w;
    ++*(int *)arg;
}

typedef struct watching {
    rg_watch watch;
    rg_act_stats *stats;
    int n_seen;
} watching;

static const rg_reader *watch_all(void *arg, const rg_reader *inner)
{
    watching *w = arg;

    return rg_watch_init(&w->watch, rg_act_stats_wrap(w->stats, inner), count_seen, &w->n_seen);
}

/* Values that a step shows while its experts are there, or come from a file. */
static void watch_steps(const test_model *t, watching *w)
{
    rg_error err = { 0 };

    *w = (watching){ .stats = rg_act_stats_new(&err) };
    assert_ok(w->stats, err);
    open_run_as(&have, t, (test_rig_options){ .n_threads = 2, .wrap = watch_all, .wrap_arg = w });
    for (int i = 0; i < 4; i++)
        step(&have, 1);
    close_run(&have);
    rg_watch_fini(&w->watch);
}

/* Those who look at values do not see how guesses are made. */
static void guesses_do_not_show(void **state)
{
    size_t least, all;
    test_model resident, paged;
    watching a, b;

    (void)state;
    test_model_open(&resident, test_data("qwen3-moe"), NULL);
    all = expert_bytes(resident.m, &least);
    open_model(&paged, test_data("qwen3-moe"), all);
    watch_steps(&resident, &a);
    watch_steps(&paged, &b);
    assert_int_equal(a.n_seen, b.n_seen);
    assert_int_equal(rg_act_stats_count(a.stats), rg_act_stats_count(b.stats));
    for (int i = 0; i < rg_act_stats_count(a.stats); i++) {
        rg_act_stat one = rg_act_stats_at(a.stats, i), other = rg_act_stats_at(b.stats, i);

        assert_string_equal(one.name, other.name);
        assert_memory_equal(one.n_rows, other.n_rows, (size_t)one.n_mats * sizeof *one.n_rows);
        assert_memory_equal(one.sum, other.sum, (size_t)(one.n_mats * one.n_channels) * sizeof *one.sum);
    }
    rg_act_stats_free(a.stats);
    rg_act_stats_free(b.stats);
    test_model_close(&paged);
    test_model_close(&resident);
}

/* ---- what cannot be read ----------------------------------------------------------------------------------------- */

static bool no_reads(void *arg, const char *operation)
{
    (void)arg;
    return strcmp(operation, "read") != 0;
}

static rg_runner *inner;
static void (*inner_step)(rg_runner *self, const rg_batch *batch, const rg_sink *sink);
static uint8_t failed[N_SEQS * N_IDS];

static void step_with_failures(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    rg_batch b = *batch;

    memset(failed, 0, sizeof failed);
    b.failed = failed;
    inner_step(self, &b, sink);
}

/* Some experts are in memory and nothing more can be read: rows that need others are lost, the others have their
 * bits. */
static void a_failed_read_costs_its_rows_alone(void **state)
{
    char path[600];
    size_t all, least;
    test_model resident, paged;
    int n_failed = 0;

    (void)state;
    snprintf(path, sizeof path, "%s", test_data("qwen3-moe"));
    test_model_open(&resident, path, NULL);
    all = expert_bytes(resident.m, &least);
    open_run(&want, &resident, false, 2);
    step(&want, 1);
    close_run(&want);

    open_model(&paged, path, all);
    open_run(&have, &paged, false, 2);
    test_feed feed = { .seq = have.seq[0], .ids = (int32_t[]){ id_of(0, 0) }, .n = 1 };
    assert_true(rg_seq_grow(have.rig.states, have.seq[0], 1));
    test_rig_step(&have.rig, &feed, 1, keep, &have); /* the first sequence alone: what it needs is read */
    inner = have.rig.runner;
    inner_step = inner->step;
    inner->step = step_with_failures;
    rg_file_set_gate(no_reads, NULL);
    memset(have.logits, 0, sizeof have.logits);
    step(&have, 1);
    rg_file_set_gate(NULL, NULL);
    for (int s = 0; s < N_SEQS; s++) {
        n_failed += failed[s];
        if (!failed[s])
            assert_memory_equal(have.logits[s][0], want.logits[s][0], sizeof want.logits[s][0]);
    }
    assert_int_equal(failed[0], 0);
    assert_true(n_failed > 0);
    assert_true(rg_model_expert_reads(paged.m).n_failed > 0);
    close_run(&have);

    open_run(&have, &paged, false, 2); /* and later all is well */
    step(&have, 1);
    for (int s = 0; s < N_SEQS; s++)
        assert_memory_equal(have.logits[s][0], want.logits[s][0], sizeof want.logits[s][0]);
    close_run(&have);
    test_model_close(&paged);
    test_model_close(&resident);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void refused(const char *path, size_t bytes, rg_code code, const char *says)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    assert_null(rg_model_open(c, &(rg_model_options){ .pack_cache = test_scratch("none"), .expert_bytes = bytes }, &err));
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, says));
    rg_checkpoint_close(c);
}

static void what_cannot_be_is_refused_before_packing(void **state)
{
    (void)state;
    refused(test_data("llama"), 1 << 20, RG_E_USAGE, "the model has none");
    refused(test_data("mixtral"), 4096, RG_E_LIMIT, "too few");
    assert_int_equal(rg_path_look(test_scratch("none")), RG_PATH_NONE);
}

/* Without a folder for it the file lies beside the checkpoint; a failed write is an error, since experts need it. */
static bool no_writes(void *arg, const char *operation)
{
    (void)arg;
    return strcmp(operation, "write") != 0;
}

static void the_file_lies_beside_the_checkpoint(void **state)
{
    char gguf[600];
    rg_error err = { 0 };
    rg_model *m = NULL;
    int n_packs = 0;

    (void)state;
    mkdir(test_scratch("beside"), 0755);
    snprintf(gguf, sizeof gguf, "%s", test_scratch("beside/model.gguf"));
    test_copy_file(test_data("mixtral/model.gguf"), gguf, NULL, NULL);
    rg_checkpoint *c = rg_checkpoint_open(gguf, RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    rg_file_set_gate(no_writes, NULL);
    assert_null(rg_model_open(c, &(rg_model_options){ .expert_bytes = 1 << 20 }, &err));
    rg_file_set_gate(NULL, NULL);
    assert_int_equal(err.code, RG_E_IO);
    m = rg_model_open(c, &(rg_model_options){ .expert_bytes = 1 << 20 }, &err);
    assert_ok(m, err);
    rg_model_close(m);
    rg_checkpoint_close(c);
    DIR *d = opendir(test_scratch("beside"));
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n_packs += strstr(e->d_name, "model.gguf-") == e->d_name && strstr(e->d_name, ".pack");
    closedir(d);
    assert_int_equal(n_packs, 1);
}

/* ---- a file that is replaced ------------------------------------------------------------------------------------- */

static struct {
    char pack[700], other[720];
    int left; /* operations before another file takes the pack's name */
} replaced;

static bool replace_it(void *arg, const char *operation)
{
    (void)arg, (void)operation;
    if (replaced.left-- == 0)
        assert_int_equal(rename(replaced.other, replaced.pack), 0);
    return true;
}

/* The one pack in the folder. */
static void find_pack(const char *folder)
{
    DIR *d = opendir(folder);

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".pack"))
            snprintf(replaced.pack, sizeof replaced.pack, "%s/%s", folder, e->d_name);
    closedir(d);
    snprintf(replaced.other, sizeof replaced.other, "%s.other", replaced.pack);
}

/* A file of the same size with nothing of the pack but its beginning and end. */
static void make_other(const char *pack, size_t n)
{
    char *text = calloc(n, 1);
    FILE *f = fopen(replaced.other, "wb");

    assert_true(text && f);
    memcpy(text, pack, 64);
    memcpy(text + n - 256, pack + n - 256, 256);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(text);
}

/* Two starts at once: whenever another one's file takes the name while this one starts, the experts are those of the file
 * that was opened. */
static void another_file_of_the_same_name_is_not_read(void **state)
{
    const char *cache = test_scratch("replaced");
    char path[600];
    size_t least, n;
    rg_error err = { 0 };
    test_model resident;
    char *pack = NULL;

    (void)state;
    mkdir(cache, 0755);
    snprintf(path, sizeof path, "%s", test_data("mixtral"));
    test_model_open(&resident, path, NULL);
    (void)expert_bytes(resident.m, &least);
    run_all(&want, &resident, true, 2);
    replaced.left = -1;
    int at = -1;
    for (; replaced.left < 0; at++) { /* until a start has fewer operations than that */
        test_model paged = { .ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err) };
        rg_model_options o = { .n_threads = 1, .pack_cache = cache, .expert_bytes = least };

        assert_ok(paged.ckpt, err);
        if (pack) { /* as the first start left it */
            FILE *f = fopen(replaced.pack, "wb");
            assert_true(f && fwrite(pack, 1, n, f) == n && !fclose(f));
            make_other(pack, n);
            replaced.left = at;
            rg_file_set_gate(replace_it, NULL);
        }
        paged.m = rg_model_open(paged.ckpt, &o, &err);
        rg_file_set_gate(NULL, NULL);
        assert_ok(paged.m, err);
        run_all(&have, &paged, true, 1);
        assert_memory_equal(have.logits, want.logits, sizeof want.logits);
        test_model_close(&paged);
        if (!pack) {
            find_pack(cache);
            pack = rg_file_slurp(replaced.pack, (size_t)64 << 20, &n, &err);
            assert_ok(pack, err);
        }
    }
    assert_true(at > 20);
    rg_free(pack);
    test_model_close(&resident);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_experts_in_memory),
        cmocka_unit_test(reads_are_counted),
        cmocka_unit_test(guesses_do_not_show),
        cmocka_unit_test(a_failed_read_costs_its_rows_alone),
        cmocka_unit_test(what_cannot_be_is_refused_before_packing),
        cmocka_unit_test(the_file_lies_beside_the_checkpoint),
        cmocka_unit_test(another_file_of_the_same_name_is_not_read),
    };

    test_init(argc, argv);
    rg_log_set_level(RG_LOG_ERROR - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
