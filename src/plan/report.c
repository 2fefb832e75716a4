/* report.c -- see report.h. */
#include "plan/report.h"

#include "plan/printed.h"

#include <stdio.h>

static double gb(double bytes)
{
    return bytes / 1e9;
}

/* "1.25 ms", three figures. */
static const char *time_text(double s, char out[32])
{
    double x = s * 1e3;
    const char *unit = "ms";

    if (x >= 10000) {
        x /= 1e3;
        unit = "s";
    } else if (x < 0.1) {
        x *= 1e3;
        unit = "us";
    }
    snprintf(out, 32, "%.*f %s", x < 10 ? 2 : x < 100 ? 1 : 0, x, unit);
    return out;
}

static const char *count_text(int64_t n, const char *none, char out[32])
{
    if (n > 0 && n < 10000000)
        snprintf(out, 32, "%lld", (long long)n);
    else
        snprintf(out, 32, "%s", n > 0 ? "any" : none);
    return out;
}

static double off(double predicted, double measured)
{
    return 100 * (predicted / measured - 1);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void put_machine(rg_buf *b, const rg_plan_machine *m, const rg_plan_subject *s)
{
    rg_buf_printf(b, "%s: %s", m->name, m->title);
    if (m->chips > 1)
        rg_buf_printf(b, " x %d", m->chips);
    rg_buf_printf(b, "; %.4g GB/s, ", gb(m->m.roofs.read_bytes_s));
    if (m->accelerator)
        rg_buf_printf(b, "%.4g bf16 TFLOP/s", m->m.roofs.bf16_ops_s / 1e12);
    else
        rg_buf_printf(b, "%.4g f32 and %.4g int8 GOP/s", m->m.roofs.f32_ops_s / 1e9, m->m.roofs.int8_ops_s / 1e9);
    rg_buf_printf(b, ", %.4g GB", gb(m->memory_bytes));
    if (s->method == RG_PLAN_COUNTED && m->m.rates)
        rg_buf_printf(b, "; kernels measured, %.1f us an operation", 1e6 * m->m.rates->fixed_s[RG_OP_LINEAR]);
    rg_buf_str(b, "\n");
}

/* What sequences keep, as `inspect` says it. */
static void put_state(rg_buf *b, const rg_model *m)
{
    rg_buf_printf(b, "state: %llu bytes per position, %llu per sequence (%s K/V)\n",
                  (unsigned long long)rg_state_bytes_per_position(&m->state),
                  (unsigned long long)rg_state_bytes_per_sequence(&m->state), rg_kv_name(m->kv_type));
}

static void put_head(rg_buf *b)
{
    rg_buf_printf(b, "%6s %7s %10s %-5s %10s %11s %11s %9s %-8s %7s %6s %6s\n", "batch", "seq", "memory GB", "fits",
                  "latency", "first token", "tokens/s", "ops/byte", "bound by", "most", "B*", "knee");
}

static void put_row(rg_buf *b, const rg_plan_row *r)
{
    char latency[32], ttft[32], most[32], knee[32];

    rg_buf_printf(b, "%6lld %7lld %10.2f %-5s %10s %11s %11.1f %9.2f %-8s %7s %6.0f %6s\n", (long long)r->batch,
                  (long long)r->seq, gb(r->memory.total), r->fits ? "yes" : "NO", time_text(r->latency_s, latency),
                  time_text(r->ttft_s, ttft), r->throughput, r->intensity, rg_bound_names[r->bound_by],
                  count_text(r->max_batch, "none", most), r->critical_batch, count_text(r->knee_batch, "-", knee));
}

static void put_parts(rg_buf *b, const rg_plan_report *r)
{
    bool differs = false;

    rg_buf_printf(b, "\nmemory by part, GB\n%6s %7s %10s %10s %10s %11s %10s %10s\n", "batch", "seq", "weights", "k/v",
                  "recurrent", "activations", "all", "of");
    for (int i = 0; i < r->n_rows; i++) {
        const rg_plan_memory *y = &r->rows[i].memory;
        rg_buf_printf(b, "%6lld %7lld %10.4g %10.4g %10.4g %11.4g %10.4g %10.4g%s\n", (long long)r->rows[i].batch,
                      (long long)r->rows[i].seq, gb(y->weights), gb(y->kv), gb(y->recurrent), gb(y->activations),
                      gb(y->total), gb(y->of), r->rows[i].fits ? "" : "   does not fit");
        differs |= r->rows[i].closed_latency_s > 0;
    }
    if (!differs)
        return;
    rg_buf_printf(b, "\nbeside the textbook (every matrix read once, the embedding included; memory / bandwidth)\n"
                     "%6s %7s %12s %12s %8s\n", "batch", "seq", "counted", "closed-form", "differ");
    for (int i = 0; i < r->n_rows; i++) {
        const rg_plan_row *x = &r->rows[i];
        char a[32], c[32];
        if (x->closed_latency_s > 0)
            rg_buf_printf(b, "%6lld %7lld %12s %12s %+7.1f %%\n", (long long)x->batch, (long long)x->seq,
                          time_text(x->latency_s, a), time_text(x->closed_latency_s, c),
                          off(x->latency_s, x->closed_latency_s));
    }
}

/* "8.08 ms (not 8.02)": a figure of the lecture, and where its own formula gives another. */
static const char *printed_text(double printed, double formula, const char *unit, char out[48])
{
    if (printed <= 0)
        snprintf(out, 48, "-");
    else if (rg_plan_printed_differs(printed, formula))
        snprintf(out, 48, "%.7g%s (not %.6g)", printed, unit, formula);
    else
        snprintf(out, 48, "%.7g%s", printed, unit);
    return out;
}

/* What the lecture prints, beside its formulae. */
static void put_printed(rg_buf *b, const rg_plan_report *r)
{
    char memory[48], latency[48], tokens[48];
    bool any = false;

    for (int i = 0; i < r->n_rows; i++) {
        const rg_plan_row *x = &r->rows[i];
        const rg_plan_printed *p = rg_plan_printed_of(r->subject, x);

        if (!p)
            continue;
        if (!any)
            rg_buf_printf(b, "\nprinted in the lecture; \"not\": what its own formula gives\n%6s %7s  %-26s %-24s %s\n",
                          "batch", "seq", "memory GB", "latency", "tokens/s");
        any = true;
        rg_buf_printf(b, "%6lld %7lld  %-26s %-24s %s\n", (long long)x->batch, (long long)x->seq,
                      printed_text(p->memory_gb, gb(x->memory.total), "", memory),
                      printed_text(p->latency_ms, 1e3 * x->latency_s, " ms", latency),
                      printed_text(p->tokens_s, x->throughput, "", tokens));
    }
}

static void put_measured(rg_buf *b, const rg_plan_report *r)
{
    char p[32], m[32];

    rg_buf_printf(b, "\n%-9s %6s %7s %12s %12s %9s\n", "", "batch", "seq", "predicted", "measured", "error");
    for (int i = 0; i < 2 * r->n_rows; i++) {
        const rg_plan_row *x = &r->rows[i / 2];
        bool prefill = i % 2;
        double predicted = prefill ? x->ttft_s : x->latency_s;
        double measured = prefill ? r->measured[i / 2].prefill_s : r->measured[i / 2].decode_s;
        if (measured > 0)
            rg_buf_printf(b, "%-9s %6lld %7lld %12s %12s %+7.1f %%\n", prefill ? "prefill" : "decode",
                          prefill ? 1 : (long long)x->batch, (long long)x->seq, time_text(predicted, p),
                          time_text(measured, m), off(predicted, measured));
    }
}

static void put_ops(rg_buf *b, const rg_plan_report *r)
{
    char t[32], m[32];

    rg_buf_printf(b, "\noperations on %s at batch %lld, seq %lld\n%-8s %-14s %-10s %5s %11s %11s %10s %9s %-8s%s\n",
                  r->rows[0].machine->name, (long long)r->rows[0].batch, (long long)r->rows[0].seq, "", "operation",
                  "makes", "times", "Gops", "MB", "ops/byte", "time", "bound by", r->measured ? "  measured" : "");
    for (int i = 0; i < r->ops->n; i++) {
        const rg_plan_op *o = &r->ops->op[i];
        if (o->ops > 0 || o->bytes > 0 || o->seconds > 0)
            rg_buf_printf(b, "%-8s %-14s %-10s %5d %11.4g %11.4g %10.3g %9s %-8s%10s\n",
                          o->prefill ? "prefill" : "decode", o->kind, o->name, o->count, o->ops / 1e9, o->bytes / 1e6,
                          o->bytes > 0 ? o->ops / o->bytes : 0, time_text(o->seconds, t), rg_bound_names[o->bound_by],
                          o->measured_s > 0 ? time_text(o->measured_s, m) : "");
    }
}

static void put_what_if(rg_buf *b, const rg_plan_report *r)
{
    const rg_what_if_row *base = &r->what_if->row[0];
    char t[32];

    rg_buf_printf(b, "\nwhat if, on %s at batch %lld, seq %lld\n%-38s %10s %10s %7s %11s %7s  %s\n",
                  r->rows[0].machine->name, (long long)r->rows[0].batch, (long long)r->rows[0].seq, "change",
                  "memory GB", "latency", "", "tokens/s", "", "formula");
    for (int i = 0; i < r->what_if->n; i++) {
        const rg_what_if_row *l = &r->what_if->row[i];
        rg_buf_printf(b, "%-38s %10.4g %10s %6.2fx %11.1f %6.2fx  %s%s\n", l->name, gb(l->memory_bytes),
                      time_text(l->latency_s, t), l->latency_s / base->latency_s, l->throughput,
                      l->throughput / base->throughput, l->formula, l->fits ? "" : "; does not fit");
    }
}

/* First token against prompts at once. */
static void put_prefills(rg_buf *b, const rg_plan_report *r)
{
    char ttft[32];

    rg_buf_printf(b, "\nprompts of %lld computed together on %s\n%7s %8s %6s %11s %11s %14s %-8s\n",
                  (long long)r->rows[0].seq, r->rows[0].machine->name, "prompts", "chunk", "steps", "first token",
                  "prompts/s", "activations GB", "bound by");
    for (int i = 0; i < r->n_prefills; i++) {
        const rg_plan_prefill *p = &r->prefills[i];
        rg_buf_printf(b, "%7lld %8lld %6lld %11s %11.4g %14.4g %-8s\n", (long long)p->prompts,
                      (long long)(p->chunk ? p->chunk : p->prompts * r->rows[0].seq), (long long)p->steps,
                      time_text(p->ttft_s, ttft), p->prompts_s, gb(p->activation_bytes), rg_bound_names[p->bound_by]);
    }
}

/* Diffusion: evaluations x rows. */
static void put_fills(rg_buf *b, const rg_plan_report *r)
{
    const bool own = r->subject->model->config.sees != RG_SEES_ALL;
    char each[32], all[32], first[32];

    rg_buf_printf(b,
                  "\nanswers of %lld ids in blocks of %lld on %s, at batch %lld, prompts of %lld\n"
                  "%-6s %14s %11s %10s %12s %10s %11s %11s %-8s\n",
                  (long long)r->fills[0].answer, (long long)r->fills[0].block, r->rows[0].machine->name,
                  (long long)r->rows[0].batch, (long long)(r->rows[0].seq - r->fills[0].answer), "cache",
                  "ids/evaluation", "evaluations", "rows each", "evaluation", "an answer", "first ids", "ids/s",
                  "bound by");
    for (int i = 0; i < r->n_fills; i++) {
        const rg_plan_fill *f = &r->fills[i];
        rg_buf_printf(b, "%-6s %14.4g %11.0f %10.1f %12s %10s %11s %11.1f %-8s\n",
                      own ? "exact" : rg_plan_cache_names[f->cache], f->per_evaluation, f->evaluations, f->rows,
                      time_text(f->seconds / f->evaluations, each), time_text(f->seconds, all),
                      time_text(f->first_s, first), f->throughput, rg_bound_names[f->bound_by]);
    }
    rg_buf_str(b,
               "latency above is that of one evaluation.  How many ids it finishes depends on text and threshold: an "
               "assumption here.\n");
}

void rg_report_text(rg_buf *b, const rg_plan_report *r)
{
    static const char *const methods[] = { "counted", "closed-form", "general" };
    const rg_plan_machine *last = NULL;

    rg_buf_printf(b, "%s, method %s\n", r->title, methods[r->subject->method]);
    if (r->subject->model && r->subject->method == RG_PLAN_COUNTED)
        put_state(b, r->subject->model);
    for (int i = 0; i < r->n_rows; i++) {
        if (r->rows[i].machine != last) {
            last = r->rows[i].machine;
            rg_buf_str(b, i ? "\n" : "");
            put_machine(b, last, r->subject);
            put_head(b);
        }
        put_row(b, &r->rows[i]);
    }
    put_parts(b, r);
    put_printed(b, r);
    if (r->n_prefills)
        put_prefills(b, r);
    if (r->n_fills)
        put_fills(b, r);
    if (r->measured)
        put_measured(b, r);
    if (r->ops)
        put_ops(b, r);
    if (r->what_if)
        put_what_if(b, r);
    rg_buf_str(b, "\nmost: the largest batch that fits.  B*: where weights take as long to read as to multiply.  knee: "
                  "from this batch on,\nthroughput gains less than 10 % for each doubling of latency.\n");
}

/* ---- CSV --------------------------------------------------------------------------------------------------------- */

void rg_report_csv(rg_buf *b, const rg_plan_report *r)
{
    rg_buf_str(b, "machine,chips,batch,seq,memory_bytes,weights_bytes,kv_bytes,recurrent_bytes,activation_bytes,"
                  "machine_bytes,fits,latency_ms,ttft_ms,throughput_tok_s,ops,bytes,intensity,bound_by,max_batch,"
                  "critical_batch,knee_batch,closed_form_latency_ms,measured_latency_ms,measured_ttft_ms,evaluations,"
                  "rows_per_evaluation,"
                  "ids_per_evaluation\n");
    for (int i = 0; i < r->n_rows; i++) {
        const rg_plan_row *x = &r->rows[i];
        const rg_plan_memory *y = &x->memory;
        rg_plan_measured m = r->measured ? r->measured[i] : (rg_plan_measured){ 0 };

        rg_buf_printf(b, "%s,%d,%lld,%lld,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%s,"
                         "%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%s,%lld,%.4g,%lld",
                      x->machine->name, x->machine->chips, (long long)x->batch, (long long)x->seq, y->total, y->weights,
                      y->kv, y->recurrent, y->activations, y->of, x->fits ? "true" : "false", 1e3 * x->latency_s,
                      1e3 * x->ttft_s, x->throughput, x->ops, x->bytes, x->intensity, rg_bound_names[x->bound_by],
                      (long long)x->max_batch, x->critical_batch, (long long)x->knee_batch);
        const double last[] = { 1e3 * x->closed_latency_s, 1e3 * m.decode_s, 1e3 * m.prefill_s, x->evaluations, x->rows,
                                x->per_evaluation };
        for (size_t k = 0; k < RG_LEN(last); k++) /* empty: does not apply */
            if (last[k] > 0)
                rg_buf_printf(b, ",%.6g", last[k]);
            else
                rg_buf_str(b, ",");
        rg_buf_str(b, "\n");
    }
}
