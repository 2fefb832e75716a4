/* feed.c -- see feed.h.
 *
 * Opening goes over the files once and notes where each document lies; its text is read when its turn comes. */
#include "train/feed.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ckpt/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "train/batches.h"

enum { MAX_FILES = 256, WINDOW = 1 << 20, LONG = 1 << 16, LINE_CAP = 1 << 28 };

/* Where a document lies: bytes of a text, or rows of ids. */
typedef struct place {
    uint64_t offset;
    uint32_t n, file;
} place;

typedef enum file_kind { TEXT, LINES, IDS } file_kind;

typedef struct source {
    file_kind kind;
    rg_file *file;
    rg_int_tensor ids; /* of IDS */
    int64_t row;       /* its ids in a document */
} source;

/* The ids of a document, and which of them are to be learnt. */
typedef struct document {
    int32_t *ids;
    uint8_t *learn;
    int64_t n, room;
} document;

struct rg_feed {
    rg_feed_options o;
    rg_train_settings *s;
    rg_exact_batches exact;
    bool is_exact;
    source files[MAX_FILES];
    int n_files;
    place *places;
    int64_t n_places, room;
    uint32_t *order;
    int64_t order_epoch; /* that it is shuffled for; -1: none */
    rg_feed_place at;
    document doc;
    bool doc_there; /* it is the last one that was begun */
    rg_texts *micro;
    int32_t *ids, *documents, *targets; /* of a step */
};

/* ---- finding documents ------------------------------------------------------------------------------------------- */

static bool add_place(rg_feed *f, uint64_t offset, uint64_t n, rg_error *err)
{
    if (f->n_places == f->room) {
        const int64_t room = f->room ? 2 * f->room : 1024;
        place *more = room <= INT32_MAX ? rg_resize_array(f->places, (size_t)room, sizeof *more) : NULL;

        if (!more)
            return rg_fail_memory(err, (size_t)room * sizeof *more);
        f->places = more;
        f->room = room;
    }
    f->places[f->n_places++] = (place){ offset, (uint32_t)n, (uint32_t)f->n_files };
    return true;
}

/* Bytes of the border between two texts that begins at p; 0: none does. */
static size_t border_at(const char *p, size_t left)
{
    static const char *const marks[] = { "<|endoftext|>", "\n\n\n" };
    size_t n = 0;

    for (size_t i = 0; i < RG_LEN(marks) && !n; i++)
        n = strlen(marks[i]) <= left && !memcmp(p, marks[i], strlen(marks[i])) ? strlen(marks[i]) : 0;
    if (n)
        while (n < left && (p[n] == '\n' || p[n] == '\r'))
            n++;
    return n;
}

static bool is_blank(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\n' && p[i] != '\r' && p[i] != '\t')
            return false;
    return true;
}

/* A piece of the file from `from` on; *n of it. */
static char *window(const source *s, uint64_t from, size_t *n, rg_error *err)
{
    const uint64_t left = rg_file_size(s->file) - from;
    char *text = rg_alloc(WINDOW);

    *n = left < WINDOW ? (size_t)left : WINDOW;
    if (!text)
        return rg_fail_memory(err, WINDOW), NULL;
    if (!rg_file_read(s->file, from, text, *n, err)) {
        rg_free(text);
        return NULL;
    }
    return text;
}

/* How long the first document of text[0, n) is, and the border behind it; the rest of the file is there if `whole`. */
static size_t text_of(const char *text, size_t n, size_t *border)
{
    for (size_t i = 0; i < n; i++) {
        *border = border_at(text + i, n - i);
        if (*border)
            return i;
        if (i >= LONG && text[i] == '\n') { /* a long text is cut at a line's end */
            *border = 1;
            return i;
        }
    }
    *border = 0;
    return n;
}

static bool find_texts(rg_feed *f, rg_error *err)
{
    const source *s = &f->files[f->n_files];
    const uint64_t size = rg_file_size(s->file);
    bool ok = true;

    for (uint64_t from = 0; ok && from < size;) {
        size_t n, border, at = 0;
        char *text = window(s, from, &n, err);

        ok = text;
        while (ok && at < n) {
            const size_t len = text_of(text + at, n - at, &border);
            if (at && at + len + border >= n && from + n < size)
                break; /* it may go on behind the window */
            if (!is_blank(text + at, len))
                ok = add_place(f, from + at, len, err);
            at += len + border;
        }
        rg_free(text);
        from += at;
    }
    return ok;
}

static bool find_lines(rg_feed *f, rg_error *err)
{
    const source *s = &f->files[f->n_files];
    const uint64_t size = rg_file_size(s->file);
    uint64_t begun = 0;
    bool ok = true;

    for (uint64_t from = 0; ok && from < size; from += WINDOW) {
        size_t n;
        char *text = window(s, from, &n, err);

        ok = text;
        for (size_t i = 0; ok && i <= n; i++) {
            if (i < n ? text[i] != '\n' : from + n < size)
                continue;
            if (from + i - begun > LINE_CAP)
                ok = rg_fail(err, RG_E_LIMIT, "%s: a line is longer than %d bytes", rg_file_path(s->file), LINE_CAP);
            else if (from + i > begun + 1)
                ok = add_place(f, begun, from + i - begun, err);
            begun = from + i + 1;
        }
        rg_free(text);
    }
    return ok;
}

static bool find_rows(rg_feed *f, const char *path, rg_error *err)
{
    source *s = &f->files[f->n_files];
    rg_checkpoint *c = rg_checkpoint_open_tensors(path, err);
    int got = c ? rg_int_tensor_read(c, "ids", &s->ids, err) : -1;
    bool ok = got >= 0;

    if (ok && !got)
        got = rg_int_tensor_read(c, "input_ids", &s->ids, err);
    ok = got > 0 || (!got && rg_fail(err, RG_E_INPUT, "%s: there is no tensor 'ids' or 'input_ids'", path));
    rg_checkpoint_close(c);
    if (!ok)
        return false;
    s->row = s->ids.shape[s->ids.n_dims - 1];
    for (int64_t i = 0; ok && i < s->ids.n; i += s->row)
        ok = add_place(f, (uint64_t)i, (uint64_t)s->row, err);
    return ok;
}

static bool ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), k = strlen(end);

    return n >= k && !strcmp(path + n - k, end);
}

static bool add_file(rg_feed *f, const char *path, rg_error *err)
{
    source *s = &f->files[f->n_files];
    const int64_t before = f->n_places;
    bool ok;

    if (f->n_files == MAX_FILES)
        return rg_fail(err, RG_E_LIMIT, "more than %d files of documents", MAX_FILES);
    if (ends_with(path, ".safetensors")) {
        s->kind = IDS;
        ok = find_rows(f, path, err);
    } else {
        s->kind = ends_with(path, ".jsonl") ? LINES : TEXT;
        s->file = rg_file_open(path, err);
        ok = s->file && (s->kind == LINES ? find_lines(f, err) : find_texts(f, err));
    }
    f->n_files++;
    if (ok && f->n_places == before)
        return rg_fail(err, RG_E_INPUT, "%s: there is no document in it", path);
    return ok &&
           (s->kind != TEXT || f->o.tokenizer ||
            rg_fail(err, RG_E_USAGE, "%s: there is no tokenizer to make ids of text: give one by --tokenizer", path));
}

/* ---- one document ------------------------------------------------------------------------------------------------ */

static bool add_ids(document *d, const int32_t *ids, int64_t n, bool learn, rg_error *err)
{
    if (d->n + n > d->room) {
        const int64_t room = 2 * (d->n + n);
        int32_t *more = rg_resize_array(d->ids, (size_t)room, sizeof *more);
        uint8_t *marks = more ? rg_resize_array(d->learn, (size_t)room, 1) : NULL;

        d->ids = more ? more : d->ids;
        d->learn = marks ? marks : d->learn;
        if (!more || !marks)
            return rg_fail_memory(err, (size_t)room * sizeof *more);
        d->room = room;
    }
    for (int64_t i = 0; i < n; i++) {
        d->ids[d->n] = ids[i];
        d->learn[d->n++] = learn;
    }
    return true;
}

/* A text that is the user's: it makes no special tokens.  begins: what the tokenizer puts in front is. */
static bool add_text(rg_feed *f, const char *text, size_t n, bool begins, bool learn, rg_error *err)
{
    rg_ids ids = { 0 };
    const unsigned flags = RG_ENCODE_PLAIN | (begins ? 0 : RG_ENCODE_NO_SPECIAL);

    if (!f->o.tokenizer)
        return rg_fail(err, RG_E_USAGE, "there is no tokenizer to make ids of text: give one by --tokenizer");
    const bool ok = rg_tokenizer_encode(f->o.tokenizer, text, n, flags, &ids, err) &&
                    add_ids(&f->doc, ids.id, (int64_t)ids.n, learn, err);
    rg_ids_fini(&ids);
    return ok;
}

/* The id that ends a text, unless the tokenizer has put it there. */
static bool add_end(rg_feed *f, rg_error *err)
{
    const int32_t eos = f->o.tokenizer ? rg_tokenizer_eos(f->o.tokenizer) : -1;

    return eos < 0 || (f->doc.n && f->doc.ids[f->doc.n - 1] == eos) || add_ids(&f->doc, &eos, 1, true, err);
}

static bool add_list(rg_feed *f, const json_t *list, const char *path, rg_error *err)
{
    bool ok = true;

    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const int32_t id = json_is_integer(v) ? (int32_t)json_integer_value(v) : -1;

        ok = json_is_integer(v) ? add_ids(&f->doc, &id, 1, true, err)
                                : rg_fail(err, RG_E_INPUT, "%s: a line's ids are not all whole numbers", path);
    }
    return ok;
}

static bool add_line(rg_feed *f, const char *line, size_t n, const char *path, rg_error *err)
{
    json_t *v = rg_json_parse(path, line, n, err);
    const json_t *text = json_object_get(v, "text"), *prompt = json_object_get(v, "prompt");
    const json_t *completion = json_object_get(v, "completion"), *ids = json_object_get(v, "ids");
    bool ok = v;

    if (ok && json_is_array(v))
        ok = add_list(f, v, path, err);
    else if (ok && json_is_array(ids))
        ok = add_list(f, ids, path, err);
    else if (ok && json_is_string(text))
        ok = add_text(f, json_string_value(text), json_string_length(text), true, true, err) && add_end(f, err);
    else if (ok && json_is_string(prompt) && json_is_string(completion))
        ok = add_text(f, json_string_value(prompt), json_string_length(prompt), true, false, err) &&
             add_text(f, json_string_value(completion), json_string_length(completion), false, true, err) &&
             add_end(f, err);
    else if (ok)
        ok = rg_fail(err, RG_E_INPUT, "%s: a line has neither 'text', nor 'prompt' and 'completion', nor 'ids'", path);
    json_decref(v);
    return ok;
}

static bool read_document(rg_feed *f, const place *p, rg_error *err)
{
    const source *s = &f->files[p->file];
    char *text;
    bool ok;

    f->doc.n = 0;
    if (s->kind == IDS)
        return add_ids(&f->doc, s->ids.at + p->offset, p->n, true, err);
    text = rg_alloc(p->n);
    ok = (text || rg_fail_memory(err, p->n)) && rg_file_read(s->file, p->offset, text, p->n, err);
    if (ok && s->kind == LINES)
        ok = is_blank(text, p->n) || add_line(f, text, p->n, rg_file_path(s->file), err);
    else if (ok)
        ok = add_text(f, text, p->n, true, true, err) && add_end(f, err);
    rg_free(text);
    for (int64_t i = 0; ok && i < f->doc.n; i++)
        if (f->doc.ids[i] < 0 || f->doc.ids[i] >= f->o.vocab_size)
            ok = rg_fail(err, RG_E_INPUT, "id %d of the data is not in the model's vocabulary of %d", f->doc.ids[i],
                         f->o.vocab_size);
    return ok;
}

/* ---- the order of documents -------------------------------------------------------------------------------------- */

static bool shuffle(rg_feed *f, rg_error *err)
{
    rg_rng rng = { .seed = f->s->seed + 0x9e3779b97f4a7c15u * (uint64_t)(f->at.epoch + 1) };

    if (f->order_epoch == f->at.epoch)
        return true;
    if (!f->order)
        f->order = rg_array((size_t)f->n_places, sizeof *f->order);
    if (!f->order)
        return rg_fail_memory(err, (size_t)f->n_places * sizeof *f->order);
    for (int64_t i = 0; i < f->n_places; i++)
        f->order[i] = (uint32_t)i;
    for (int64_t i = f->n_places - 1; i > 0; i--) {
        const uint32_t k = rg_rng_below(&rng, (uint32_t)i + 1), swap = f->order[i];

        f->order[i] = f->order[k];
        f->order[k] = swap;
    }
    f->order_epoch = f->at.epoch;
    return true;
}

/* Begin the next document. */
static void next_document(rg_feed *f)
{
    if (f->at.next == f->n_places) {
        f->at.next = 0;
        f->at.epoch++;
    }
    f->at.next++;
    f->at.at = 0;
    f->doc_there = false;
}

/* The document that was begun last is in memory. */
static bool have_document(rg_feed *f, rg_error *err)
{
    if (f->doc_there)
        return true;
    f->doc_there = shuffle(f, err) && read_document(f, &f->places[f->order[f->at.next - 1]], err);
    return f->doc_there;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* One row of ids, which document each belongs to, and what it should predict. */
static bool fill_row(rg_feed *f, int32_t *ids, int32_t *documents, int32_t *targets, rg_error *err)
{
    const int length = f->s->length;
    int64_t empty = 0;

    for (int i = 0, number = 0; i < length;) {
        if (f->at.next == 0 || (f->doc_there && f->at.at >= f->doc.n)) {
            empty = f->doc.n ? 0 : empty + 1;
            if (empty > f->n_places)
                return rg_fail(err, RG_E_INPUT, "the documents are all empty");
            next_document(f);
            number++;
        }
        if (!have_document(f, err))
            return false;
        for (; i < length && f->at.at < f->doc.n; i++, f->at.at++) {
            const int64_t next = f->at.at + 1;

            ids[i] = f->doc.ids[f->at.at];
            documents[i] = f->o.joined ? 0 : number;
            targets[i] = i + 1 < length && next < f->doc.n && f->doc.learn[next] ? f->doc.ids[next] : RG_NO_TARGET;
        }
        if (f->o.joined && i < length && f->at.at >= f->doc.n && i > 0)
            targets[i - 1] = -1; /* the first id of what follows: below */
    }
    for (int i = 0; i + 1 < length; i++)
        if (targets[i] == -1)
            targets[i] = ids[i + 1];
    return true;
}

static bool next_exact(rg_feed *f, rg_error *err)
{
    const int64_t each = f->exact.rows * f->exact.length;

    if (f->at.step >= f->exact.steps)
        return rg_fail(err, RG_E_INPUT, "%s: there are no more than %lld steps", f->o.batches,
                       (long long)f->exact.steps);
    for (int64_t m = 0; m < f->exact.micro; m++) {
        const int64_t at = (f->at.step * f->exact.micro + m) * each;
        rg_texts *t = &f->micro[m];

        *t = (rg_texts){ .rows = (int)f->exact.rows,
                         .length = (int)f->exact.length,
                         .ids = f->exact.ids + at,
                         .document = f->exact.document ? f->exact.document + at : NULL,
                         .targets = f->exact.targets ? f->exact.targets + at : NULL };
        if (!t->targets) {
            rg_texts_targets(t, f->targets + m * each);
            t->targets = f->targets + m * each;
        }
    }
    f->at.step++;
    return true;
}

bool rg_feed_next(rg_feed *f, const rg_texts **micro, rg_error *err)
{
    const int64_t rows = f->s->rows, length = f->s->length, all = f->s->micro * rows;

    *micro = f->micro;
    if (f->is_exact)
        return next_exact(f, err);
    for (int64_t r = 0; r < all && f->o.maker; r++)
        f->o.maker->row(f->o.maker->arg, f->at.step * all + r, f->ids + r * length, f->targets + r * length);
    f->at.step += f->o.maker != NULL;
    for (int64_t r = 0; r < all && !f->o.maker; r++)
        if (!fill_row(f, f->ids + r * length, f->documents + r * length, f->targets + r * length, err))
            return false;
    for (int64_t m = 0; m < f->s->micro; m++)
        f->micro[m] = (rg_texts){ .rows = (int)rows,
                                  .length = (int)length,
                                  .ids = f->ids + m * rows * length,
                                  .document = f->o.maker ? NULL : f->documents + m * rows * length,
                                  .targets = f->targets + m * rows * length };
    return true;
}

bool rg_feed_held(rg_feed *f, int64_t steps, const rg_texts **batch, rg_error *err)
{
    const rg_feed_place was = f->at;
    const int64_t documents = 4 * (int64_t)f->s->rows;
    rg_feed_place to = { .step = f->o.maker || (f->is_exact && steps < f->exact.steps) ? steps : 0,
                         .next = f->n_places > documents ? f->n_places - documents + 1 : 1 };

    rg_feed_go_to(f, f->is_exact || f->o.maker ? (rg_feed_place){ .step = to.step } : to);
    const bool ok = rg_feed_next(f, batch, err);
    rg_feed_go_to(f, was);
    return ok;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool open_exact(rg_feed *f, rg_error *err)
{
    rg_train_settings *s = f->s;

    if (!rg_exact_batches_read(&f->exact, f->o.batches, err))
        return false;
    f->is_exact = true;
    s->micro = (int32_t)f->exact.micro;
    s->rows = (int32_t)f->exact.rows;
    s->length = (int32_t)f->exact.length;
    for (int64_t i = 0; f->exact.targets && i < f->exact.steps * f->exact.micro * f->exact.rows * f->exact.length; i++)
        if (f->exact.targets[i] != RG_NO_TARGET && (f->exact.targets[i] < 0 || f->exact.targets[i] >= f->o.vocab_size))
            return rg_fail(err, RG_E_INPUT, "%s: target %d is not in the vocabulary of %d, and not %d", f->o.batches,
                           f->exact.targets[i], f->o.vocab_size, RG_NO_TARGET);
    return true;
}

static bool make_room(rg_feed *f, rg_error *err)
{
    const size_t micro = (size_t)f->s->micro, rows = (size_t)f->s->rows, length = (size_t)f->s->length;
    size_t n;

    if (!rg_mul(micro, rows, &n) || !rg_mul(n, length, &n))
        return rg_fail_memory(err, SIZE_MAX);
    f->micro = rg_array(micro, sizeof *f->micro);
    f->ids = rg_array(n, sizeof *f->ids);
    f->documents = rg_array(n, sizeof *f->documents);
    f->targets = rg_array(n, sizeof *f->targets);
    return (f->micro && f->ids && f->documents && f->targets) || rg_fail_memory(err, n * 3 * sizeof *f->ids);
}

rg_feed *rg_feed_open(const rg_feed_options *o, rg_train_settings *settings, rg_error *err)
{
    rg_feed *f = rg_zalloc(sizeof *f);
    bool ok = f || rg_fail_memory(err, sizeof *f);

    if (!ok)
        return NULL;
    f->o = *o;
    f->s = settings;
    f->order_epoch = -1;
    if (o->batches)
        ok = open_exact(f, err);
    for (int i = 0; ok && !o->batches && !o->maker && i < o->n_files; i++)
        ok = add_file(f, o->files[i], err);
    ok = ok && make_room(f, err);
    if (!ok) {
        rg_feed_close(f);
        return NULL;
    }
    return f;
}

void rg_feed_close(rg_feed *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->n_files; i++) {
        rg_file_close(f->files[i].file);
        rg_free(f->files[i].ids.at);
    }
    rg_exact_batches_fini(&f->exact);
    rg_free(f->places);
    rg_free(f->order);
    rg_free(f->doc.ids);
    rg_free(f->doc.learn);
    rg_free(f->micro);
    rg_free(f->ids);
    rg_free(f->documents);
    rg_free(f->targets);
    rg_free(f);
}

rg_feed_place rg_feed_place_of(const rg_feed *f)
{
    return f->at;
}

void rg_feed_go_to(rg_feed *f, rg_feed_place to)
{
    f->at = to;
    f->doc_there = false;
    f->doc.n = 0;
}

int64_t rg_feed_steps(const rg_feed *f)
{
    return f->is_exact ? f->exact.steps : INT64_MAX;
}

int64_t rg_feed_documents(const rg_feed *f)
{
    return f->n_places;
}
