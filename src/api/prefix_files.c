/* prefix_files.c -- see prefix_files.h.
 *
 * The identity is a hash of everything but ids and tenant that the bits of K/V and of recurrent state depend on.  Of
 * the checkpoint: sizes and times of its files, the table of its tensors, and samples of their values; hashing all of
 * it would make each start read the weights twice, and names or times alone do not tell two trainings apart. */
#include "api/prefix_files.h"

#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "model/adapter_file.h"
#include "model/share.h"

enum {
    ARITHMETIC = 1, /* raised when steps give other bits than before, within a version */
    MOST_SPARSITY = 64 << 20,
};

static const uint64_t DEFAULT_BYTES = (uint64_t)8 << 30;

/* ---- while checkpoints are open ---------------------------------------------------------------------------------- */

static bool read_adapter(const rg_adapter_option *from, uint64_t *out, rg_error *err)
{
    rg_adapter_file f = { 0 };
    uint64_t print[2];
    char *settings = NULL;
    size_t n = 0;
    bool ok = rg_adapter_file_open(&f, from->path, err) && rg_checkpoint_fingerprint(f.ckpt, print, err);

    if (ok) {
        settings = rg_checkpoint_side_file(f.ckpt, "adapter_config.json", &n, NULL);
        *out = rg_hash(print, sizeof print, 0) ^ (settings ? rg_hash(settings, n, 1) : 0);
    }
    rg_free(settings);
    rg_adapter_file_close(&f);
    return ok;
}

static bool read_sparsity(const char *how, uint64_t *out, rg_error *err)
{
    size_t n;
    char *text = rg_path_look(how) == RG_PATH_FILE ? rg_file_slurp(how, MOST_SPARSITY, &n, err) : rg_strdup(how);

    if (!text)
        return false;
    *out = rg_hash(text, rg_path_look(how) == RG_PATH_FILE ? n : strlen(text), 1);
    rg_free(text);
    return true;
}

bool rg_prefix_files_check(const rg_options *o, rg_error *err)
{
    if (o->prefix_bytes && !o->prefix_folder)
        return rg_fail(err, RG_E_USAGE, "prefix_bytes (--prefix-memory) limits the files of prefix_folder "
                       "(--prefix-cache), which is not given");
    if (o->prefix_folder && o->no_prefix_cache)
        return rg_fail(err, RG_E_USAGE, "prefix_folder (--prefix-cache) keeps cached prefixes, and none are cached: "
                       "leave out no_prefix_cache (--no-prefix-cache)");
    return !o->prefix_folder || *o->prefix_folder ||
           rg_fail(err, RG_E_USAGE, "prefix_folder (--prefix-cache) is empty: name a folder");
}

bool rg_prefix_files_read(rg_prefix_files *f, const rg_options *o, const rg_backend *b, const rg_checkpoint *ckpt,
                          rg_error *err)
{
    f->folder = o->prefix_folder;
    if (!f->folder)
        return true;
    f->most_bytes = o->prefix_bytes ? o->prefix_bytes : DEFAULT_BYTES;
    f->backend = b;
    f->attention_sparsity = o->attention_sparsity;
    for (size_t i = 0; o->recipe[i] && i + 1 < sizeof f->recipe; i++)
        f->recipe[i] = (char)tolower((unsigned char)o->recipe[i]);
    if (!rg_checkpoint_fingerprint(ckpt, f->checkpoint, err) ||
        (o->sparsity && !read_sparsity(o->sparsity, &f->sparsity, err)))
        return false;
    f->adapters = rg_array((size_t)o->n_adapters, sizeof *f->adapters);
    if (!f->adapters)
        return rg_fail_memory(err, (size_t)o->n_adapters * sizeof *f->adapters);
    for (int32_t i = 0; i < o->n_adapters; i++)
        if (!read_adapter(&o->adapters[i], &f->adapters[i], err))
            return false;
    return true;
}

/* ---- identity ---------------------------------------------------------------------------------------------------- */

static void add_text(rg_sha256_state *s, const char *text)
{
    rg_sha256_add(s, text, strlen(text) + 1);
}

/* The places of everything in a block follow from the config and from these. */
static void add_state(rg_sha256_state *s, const rg_state_spec *spec)
{
    const uint64_t about[] = { (uint64_t)spec->n_groups, (uint64_t)spec->n_layers, (uint64_t)spec->max_draft,
                               (uint64_t)spec->sees, RG_BLOCK };

    rg_sha256_add(s, about, sizeof about);
    for (int g = 0; g < spec->n_groups; g++) {
        const uint64_t group[] = { (uint64_t)spec->group[g].per, spec->group[g].block_bytes };

        rg_sha256_add(s, group, sizeof group);
    }
}

static rg_block_name identity_of(const rg_prefix_files *f, const rg_model *m)
{
    const uint64_t numbers[] = { ARITHMETIC, f->checkpoint[0], f->checkpoint[1], f->sparsity,
                                 f->backend->image_version(f->backend), m->link ? (uint64_t)m->link->n : 1 };
    uint8_t full[32];
    rg_block_name name;
    rg_sha256_state s;

    rg_sha256_init(&s);
    add_text(&s, "ridge cached prefixes");
    add_text(&s, RG_VERSION);
    add_text(&s, f->backend->name);
    add_text(&s, f->recipe);
    add_text(&s, rg_kv_name(m->kv_type));
    rg_sha256_add(&s, numbers, sizeof numbers);
    rg_sha256_add(&s, &f->attention_sparsity, sizeof f->attention_sparsity);
    add_state(&s, &m->state);
    rg_sha256_end(&s, full);
    memcpy(name.hash, full, sizeof name.hash);
    return name;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

bool rg_prefix_files_open(rg_prefix_files *f, rg_hosted *h, const rg_model *m, int32_t max_seq_len, rg_error *err)
{
    rg_durable_options o = { .folder = f->folder, .most_bytes = f->most_bytes, .spec = &m->state,
                             .max_blocks = max_seq_len / RG_BLOCK + 1 };

    if (!f->folder || !m->state.n_groups)
        return true;
    o.identity = identity_of(f, m);
    if (!rg_hosted_take(h, rg_durable_buffer_bytes(&m->state), "cached prefixes on their way to files", err))
        return false;
    f->durable = rg_durable_open(&o, err);
    return f->durable;
}

void rg_prefix_files_close(rg_prefix_files *f)
{
    rg_durable_close(f->durable);
    rg_free(f->adapters);
    *f = (rg_prefix_files){ 0 };
}

/* ---- later ------------------------------------------------------------------------------------------------------- */

void rg_prefix_files_change(rg_prefix_files *f, const rg_model *m, const uint64_t checkpoint[2])
{
    memcpy(f->checkpoint, checkpoint, sizeof f->checkpoint);
    if (!f->durable)
        return;
    const rg_block_name name = identity_of(f, m);

    rg_durable_rename(f->durable, &name);
}

uint64_t rg_prefix_files_adapter(const rg_prefix_files *f, int32_t adapter)
{
    return adapter && f->adapters ? f->adapters[adapter - 1] : 0;
}

void rg_prefix_files_count(const rg_prefix_files *f, rg_stats *s)
{
    const rg_durable_counts c = f->durable ? rg_durable_count(f->durable) : (rg_durable_counts){ 0 };

    s->n_prefix_found = c.n_found;
    s->n_prefix_missed = c.n_missed;
    s->prefix_bytes_read = c.read_bytes;
    s->prefix_bytes_written = c.written_bytes;
    s->n_prefix_damaged = c.n_damaged;
    s->n_prefix_failed = c.n_failed;
    s->prefix_file_bytes = c.folder_bytes;
}
