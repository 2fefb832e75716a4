/* files.c -- /v1/files: what batches read and write.  Names are kept and given back, and mean nothing here. */
#include <string.h>

#include "server/batch/batches.h"
#include "server/http/multipart.h"

#define PREFIX "/v1/files/" /* of the path to one file */

enum { MAX_NAME = 4096, USUAL_FILES = 1000, MOST_FILES = 10000 };

static const char batch_purpose[] = "batch";

static void write_file(rg_buf *b, const rg_file_record *f)
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", f->id);
    rg_out_text(b, "object", "file");
    rg_out_int(b, "bytes", f->bytes);
    rg_out_int(b, "created_at", f->created_s);
    rg_out_null(b, "expires_at");
    rg_out_string(b, "filename", f->name, f->n_name);
    rg_out_text(b, "purpose", f->purpose);
    rg_out_text(b, "status", "processed");
    rg_out_null(b, "status_details");
    rg_out_close(b, '}');
}

static const rg_refusal unknown = {
    .status = 404, .code = "not_found", .param = "file_id", .text = "There is no such file."
};

static void reply_file(rg_task *t, const rg_file_record *f)
{
    rg_buf out;

    rg_buf_init(&out, 1 << 20);
    write_file(&out, f);
    rg_reply_json(t->served, t->x, &out);
}

/* ---- POST /v1/files ---------------------------------------------------------------------------------------------- */

static void keep_file(rg_task *t, rg_batch_store *st)
{
    rg_file_record f = { .name = t->name, .n_name = t->n_name, .purpose = t->purpose };
    rg_error err = { 0 };
    rg_stored got = rg_store_add_file(st, t->owner, &f, t->data, t->n, &err);

    if (got == RG_STORE_DONE)
        reply_file(t, &f);
    else
        rg_task_fail(t, st, got, &unknown, &err);
}

static bool is_text(const rg_part *p, const char *text)
{
    return p->n == strlen(text) && !memcmp(p->data, text, p->n);
}

static bool read_form(rg_task *t, rg_refusal *e)
{
    static const char lasts[] = "expires_after"; /* and its [anchor] and [seconds] */
    size_t n;
    char *body = (char *)(uintptr_t)rg_exchange_body(t->x, &n); /* ours alone, and read in place */
    rg_part part[RG_MULTIPART_MOST];
    int n_parts = rg_multipart_read(rg_exchange_header(t->x, "Content-Type"), body, n, part);
    const rg_part *purpose = rg_multipart_find(part, n_parts, "purpose");
    const rg_part *file = rg_multipart_find(part, n_parts, "file");

    if (n_parts < 0)
        return rg_refuse(e, 400, "invalid_form", NULL, "The body must be multipart/form-data.");
    if (!purpose)
        return rg_refuse_field(e, "purpose", "'purpose' is missing.");
    if (!is_text(purpose, batch_purpose))
        return rg_refuse_field(e, "purpose", "'purpose' must be batch: files have no other use here.");
    for (int i = 0; i < n_parts; i++)
        if (part[i].n_name >= strlen(lasts) && !memcmp(part[i].name, lasts, strlen(lasts)))
            return rg_refuse(e, 400, "unsupported_value", "expires_after", "'expires_after' is not supported.");
    if (!file || !file->filename)
        return rg_refuse_field(e, "file", "'file' must be a file.");
    if (file->n_filename > MAX_NAME)
        return rg_refuse_field(e, "file", "The file's name has more than %d bytes.", MAX_NAME);
    t->purpose = batch_purpose;
    t->name = file->filename;
    t->n_name = file->n_filename;
    t->data = file->data;
    t->n = file->n;
    return true;
}

void rg_api_file_new(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_task *t = rg_task_new(s, x, keep_file);

    if (t)
        rg_task_end_reading(t, read_form(t, &e), &e);
}

/* ---- GET /v1/files ----------------------------------------------------------------------------------------------- */

static void list_one(void *arg, const rg_file_record *f)
{
    rg_listing *l = arg;

    rg_listing_add(l, f->id);
    write_file(&l->out, f);
}

static void list_files(rg_task *t, rg_batch_store *st)
{
    rg_listing l;
    rg_error err = { 0 };

    rg_listing_open(&l);
    rg_listing_reply(&l, t, st, rg_store_files(st, t->owner, &t->page, list_one, &l, &err), &err);
}

void rg_api_files(rg_served *s, rg_exchange *x)
{
    static const char *const purposes[] = { "batch", "batch_output" };
    const char *purpose = rg_exchange_query(x, "purpose");
    rg_refusal e = { 0 };
    rg_task *t = rg_task_new(s, x, list_files);

    if (!t)
        return;
    for (size_t i = 0; purpose && i < RG_LEN(purposes); i++)
        if (!strcmp(purpose, purposes[i]))
            t->page.purpose = purposes[i];
    if (purpose && !t->page.purpose)
        t->page.purpose = ""; /* no file has another one */
    rg_task_end_reading(t, rg_task_read_page(t, USUAL_FILES, MOST_FILES, &e), &e);
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static void show_file(rg_task *t, rg_batch_store *st)
{
    rg_file_record f;
    rg_error err = { 0 };
    rg_stored got = rg_store_file(st, t->owner, t->id, &f, &err);

    if (got == RG_STORE_DONE)
        reply_file(t, &f);
    else
        rg_task_fail(t, st, got, &unknown, &err);
}

static void send_file(rg_task *t, rg_batch_store *st)
{
    rg_file_record f;
    rg_error err = { 0 };
    rg_stored got = rg_store_file(st, t->owner, t->id, &f, &err);

    if (got == RG_STORE_DONE)
        rg_batches_send(t, &f);
    else
        rg_task_fail(t, st, got, &unknown, &err);
}

void rg_api_file(rg_served *s, rg_exchange *x)
{
    rg_task *t = rg_task_new(s, x, show_file);

    if (!t)
        return;
    bool content = rg_task_read_id(t, PREFIX, "/content");
    if (content)
        t->run = send_file;
    rg_task_end_reading(t, content || rg_task_read_id(t, PREFIX, ""), &unknown);
}

static void delete_file(rg_task *t, rg_batch_store *st)
{
    rg_error err = { 0 };
    rg_refusal e = unknown;
    rg_buf out;
    rg_stored got = rg_store_remove_file(st, t->owner, t->id, &err);

    if (got == RG_STORE_DONE) {
        rg_buf_init(&out, 1 << 12);
        rg_out_open(&out, NULL, '{');
        rg_out_text(&out, "id", t->id);
        rg_out_text(&out, "object", "file");
        rg_out_bool(&out, "deleted", true);
        rg_out_close(&out, '}');
        rg_reply_json(t->served, t->x, &out);
        return;
    }
    if (got == RG_STORE_IN_USE) {
        rg_refuse(&e, 409, "file_in_use", "file_id", "A batch that has not ended reads this file: cancel it first.");
        got = RG_STORE_NONE;
    }
    rg_task_fail(t, st, got, &e, &err);
}

void rg_api_file_delete(rg_served *s, rg_exchange *x)
{
    rg_task *t = rg_task_new(s, x, delete_file);

    if (t)
        rg_task_end_reading(t, rg_task_read_id(t, PREFIX, ""), &unknown);
}
