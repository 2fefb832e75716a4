/* steps.c -- GET /steps: the latest steps of a model, and the limits of the machine.  GET /trace/ID: how the time
 * of one request was spent, as JSON that Chrome's tracing and Perfetto open.  Neither opens a model. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/core.h"
#include "server/api/fields.h"
#include "server/json.h"
#include "server/models.h"
#include "server/steps.h"

enum { USUAL_STEPS = 512 };

/* A number of the query within least and most; `usual` if it is not given. */
static bool read_number(rg_exchange *x, const char *name, int64_t usual, int64_t least, int64_t most, int64_t *out,
                        rg_refusal *e)
{
    const char *text = rg_exchange_query(x, name);
    char *end = NULL;

    *out = usual;
    if (!text)
        return true;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return (end != text && !*end && !errno && *out >= least && *out <= most) ||
           rg_refuse_field(e, name, "'%s' must be a whole number between %lld and %lld.", name, (long long)least,
                           (long long)most);
}

/* Room for so many notes; NULL: refused. */
static rg_step_note *new_notes(rg_served *s, rg_exchange *x, int64_t n)
{
    rg_step_note *notes = rg_array((size_t)n, sizeof *notes);
    rg_refusal e = { 0 };

    if (!notes) {
        rg_refuse(&e, 503, "out_of_memory", NULL, "There is no memory for this answer now.");
        rg_reply_refusal(s, x, &e);
    }
    return notes;
}

static void write_step(rg_buf *out, const rg_step_note *n)
{
    rg_out_u64(out, "rows", n->n_rows);
    rg_out_int(out, "running", n->n_running);
    rg_out_u64(out, "output_tokens", n->n_output);
    rg_out_u64(out, "drafted_tokens", n->n_drafted);
    rg_out_u64(out, "accepted_tokens", n->n_accepted);
    rg_out_real(out, "ops", n->ops);
    rg_out_u64(out, "bytes", n->bytes);
    rg_out_real(out, "limit_s", n->limit_s);
    rg_out_int(out, "steps", n->n_steps);
}

/* The machine's limits with a model; zeros: it is not open, or they were not measured. */
static rg_limits limits_of(rg_served *s)
{
    rg_limits limits = { 0 };

    if (rg_served_hold(s)) {
        limits = rg_engine_limits(s->engine);
        rg_served_release(s);
    }
    return limits;
}

void rg_api_steps(rg_served *first, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_served *s = rg_models_told(first, x, &e);
    int64_t after, limit;
    uint64_t last;
    rg_buf out;

    if (!s || !read_number(x, "after", 0, 0, INT64_MAX, &after, &e) ||
        !read_number(x, "limit", USUAL_STEPS, 1, RG_STEPS_KEPT, &limit, &e)) {
        rg_reply_refusal(first, x, &e);
        return;
    }
    rg_step_note *notes = new_notes(s, x, limit);
    if (!notes)
        return;
    rg_limits limits = limits_of(s);
    int n = rg_steps_read(s->steps, (uint64_t)after, 0, notes, (int)limit, &last);
    uint64_t now = rg_now_ns();
    rg_buf_init(&out, (size_t)4 << 20);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "model", s->name);
    rg_out_real(&out, "bytes_per_s", limits.bytes_s);
    rg_out_real(&out, "ops_per_s", limits.ops_s);
    rg_out_u64(&out, "next", last);
    rg_out_open(&out, "steps", '[');
    for (int i = 0; i < n; i++) {
        rg_out_open(&out, NULL, '{');
        rg_out_u64(&out, "number", notes[i].number);
        rg_out_real(&out, "ago_s", rg_seconds(notes[i].end_ns, now));
        rg_out_real(&out, "took_s", notes[i].took_s);
        write_step(&out, &notes[i]);
        rg_out_close(&out, '}');
    }
    rg_out_close(&out, ']');
    rg_out_close(&out, '}');
    rg_free(notes);
    rg_reply_json(s, x, &out);
}

/* ---- one request's time ------------------------------------------------------------------------------------------ */

enum { LANE_REQUEST = 1, LANE_ENGINE = 2 };

/* The name of a lane, or (lane 0) of the process. */
static void write_lane(rg_buf *out, int lane, const char *name)
{
    rg_out_open(out, NULL, '{');
    rg_out_text(out, "ph", "M");
    rg_out_text(out, "name", lane ? "thread_name" : "process_name");
    rg_out_int(out, "pid", 1);
    rg_out_int(out, "tid", lane);
    rg_out_open(out, "args", '{');
    rg_out_text(out, "name", name);
    rg_out_close(out, '}');
    rg_out_close(out, '}');
}

/* Begin a span of time, in seconds from the request's arrival; its arguments follow. */
static void open_span(rg_buf *out, const char *name, int lane, double from_s, double to_s)
{
    rg_out_open(out, NULL, '{');
    rg_out_text(out, "name", name);
    rg_out_text(out, "cat", lane == LANE_ENGINE ? "engine" : "request");
    rg_out_text(out, "ph", "X");
    rg_out_real(out, "ts", 1e6 * from_s);
    rg_out_real(out, "dur", to_s > from_s ? 1e6 * (to_s - from_s) : 0);
    rg_out_int(out, "pid", 1);
    rg_out_int(out, "tid", lane);
    rg_out_open(out, "args", '{');
}

static void close_span(rg_buf *out)
{
    rg_out_close(out, '}');
    rg_out_close(out, '}');
}

/* Waiting, prefill and generation, one after the other. */
static void write_phases(rg_buf *out, const rg_answer_note *a)
{
    double whole_s = rg_seconds(a->since_ns, a->end_ns);
    double first_s = a->first_s > a->queue_s ? a->first_s : whole_s;

    open_span(out, "waiting", LANE_REQUEST, 0, a->queue_s);
    close_span(out);
    open_span(out, "prefill", LANE_REQUEST, a->queue_s, first_s);
    rg_out_int(out, "prompt_tokens", a->n_prompt);
    rg_out_int(out, "cached_tokens", a->n_cached);
    close_span(out);
    open_span(out, "generation", LANE_REQUEST, first_s, whole_s);
    rg_out_int(out, "output_tokens", a->n_output);
    rg_out_int(out, "drafted_tokens", a->n_drafted);
    rg_out_int(out, "accepted_tokens", a->n_accepted);
    close_span(out);
}

/* A step that was seen to end after the answer's end, but is of its time, ends with it. */
static void write_steps(rg_buf *out, const rg_answer_note *a, const rg_step_note *notes, int n)
{
    const double whole_s = rg_seconds(a->since_ns, a->end_ns);

    for (int i = 0; i < n && notes[i].number - (uint64_t)notes[i].n_steps < a->last_step; i++) {
        double seen_s = rg_seconds(a->since_ns, notes[i].end_ns), to_s = seen_s < whole_s ? seen_s : whole_s;
        double from_s = to_s - notes[i].took_s;
        open_span(out, notes[i].n_drafted ? "step with drafts" : "step", LANE_ENGINE, from_s > 0 ? from_s : 0, to_s);
        write_step(out, &notes[i]);
        close_span(out);
    }
}

void rg_api_trace(rg_served *s, rg_exchange *x)
{
    const char *id = rg_exchange_path(x) + strlen("/trace/");
    rg_refusal e = { 0 };
    rg_answer_note a;
    rg_served *each;
    rg_buf out;
    int i = 0;

    while ((each = rg_server_nth(s->server, i)) && !rg_steps_find(each->steps, id, rg_exchange_notes(x)->tenant, &a))
        i++;
    if (!each) {
        rg_refuse(&e, 404, "not_found", NULL, "No answer with this X-Request-Id is among the last %d.",
                  RG_ANSWERS_KEPT);
        rg_reply_refusal(s, x, &e);
        return;
    }
    rg_step_note *notes = new_notes(s, x, RG_STEPS_KEPT);
    if (!notes)
        return;
    int n = rg_steps_read(each->steps, 0, a.since_ns, notes, RG_STEPS_KEPT, NULL);
    rg_buf_init(&out, (size_t)8 << 20);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "displayTimeUnit", "ms");
    rg_out_open(&out, "traceEvents", '[');
    write_lane(&out, 0, "ridge");
    write_lane(&out, LANE_REQUEST, a.id);
    write_lane(&out, LANE_ENGINE, "the engine's steps");
    write_phases(&out, &a);
    write_steps(&out, &a, notes, n);
    rg_out_close(&out, ']');
    rg_out_close(&out, '}');
    rg_free(notes);
    rg_reply_json(s, x, &out);
}
