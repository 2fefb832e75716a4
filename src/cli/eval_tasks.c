/* eval_tasks.c -- see eval_tasks.h. */
#include "cli/eval_tasks.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { AT_ONCE = 16, MOST_CHOICES = 64, USUAL_TOKENS = 256 };

static const size_t most_bytes = (size_t)1 << 30;

typedef enum metric_id { ACC, ACC_NORM, EXACT_MATCH, N_METRICS } metric_id;

/* A mean of values that are 0 or 1. */
typedef struct metric {
    int64_t n, sum;
} metric;

typedef struct task {
    char *name;
    int64_t n;
    metric of[N_METRICS];
    double sum_logprob; /* of continuations alone, */
    int64_t n_single;   /*   so many of them */
} task;

/* One thing that a question asks the engine: a choice, or the answer. */
typedef struct asked {
    int32_t *ids;  /* from the engine */
    size_t n, from; /* scored from this one on */
    rg_request *request;
} asked;

typedef struct question {
    json_t *line;
    int64_t number; /* of the line */
    task *task;
    const json_t *choices; /* NULL: it is generated */
    json_t *single;        /* owned: a list of the one continuation; NULL: there are choices */
    asked of[MOST_CHOICES];
    size_t n;
} question;

typedef struct evaluation {
    const eval_tasks *o;
    rg_engine *engine;
    rg_info info;
    task *tasks;
    size_t n_tasks;
} evaluation;

static bool wrong(const evaluation *v, const question *q, const char *what, rg_error *err)
{
    return rg_fail(err, RG_E_INPUT, "%s: line %lld: %s", v->o->file, (long long)q->number, what);
}

static const char *text_of(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static bool encode(const evaluation *v, const char *text, size_t n, int32_t **ids, size_t *n_ids, rg_error *err)
{
    return rg_encode(v->engine, text, n, v->o->no_special ? RG_ENCODE_NO_SPECIAL : RG_ENCODE_DEFAULT, ids, n_ids, err);
}

/* The ids of a context and what follows it: both are encoded together, and what follows has those beyond the context's
 * own; spaces at the end of the context belong to what follows.  Too long a context loses its beginning. */
static bool encode_pair(const evaluation *v, const char *context, const char *text, asked *a, rg_error *err)
{
    size_t n = strlen(context), n_text = strlen(text), n_context = n, keep = (size_t)v->info.max_seq_len, before;
    int32_t *alone = NULL;
    char *both = rg_alloc_tail(n, n_text, 1);

    if (!both)
        return rg_fail_memory(err, n + n_text);
    memcpy(both, context, n);
    memcpy(both + n, text, n_text);
    while (n_context && isspace((unsigned char)both[n_context - 1]))
        n_context--;
    bool ok = encode(v, both, n + n_text, &a->ids, &a->n, err) && encode(v, both, n_context, &alone, &before, err);
    rg_free(both);
    rg_ids_free(alone);
    if (!ok)
        return false;
    a->from = before < a->n ? before : a->n - 1;
    if (!a->n || !a->from)
        return rg_fail(err, RG_E_INPUT, "a choice needs a context before it, or a tokenizer that adds a first token, "
                       "and a token of its own");
    if (a->n > keep) {
        size_t cut = a->n - keep;
        memmove(a->ids, a->ids + cut, keep * sizeof *a->ids);
        a->n = keep;
        a->from = a->from > cut ? a->from - cut : 1;
    }
    return true;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static bool ask_choice(evaluation *v, question *q, const char *context, const char *text, rg_error *err)
{
    asked *a = &q->of[q->n++];

    if (!encode_pair(v, context, text, a, err))
        return false;
    const rg_params p = { .prompt = a->ids, .n_prompt = (int32_t)a->n, .n_samples = 1, .prompt_logprobs = true,
                          .sampling = rg_sampling_default() };
    a->request = rg_submit(v->engine, &p, err);
    return a->request;
}

static bool ask_answer(evaluation *v, question *q, const char *context, rg_error *err)
{
    const json_t *until = json_object_get(q->line, "until"), *most = json_object_get(q->line, "max_tokens");
    const char *stop[MOST_CHOICES];
    size_t n_stop = json_is_array(until) ? json_array_size(until) : 0;
    asked *a = &q->of[q->n++];
    int64_t tokens = USUAL_TOKENS;

    if (n_stop > MOST_CHOICES || (most && (!rg_json_whole(most, &tokens) || tokens < 1 || tokens > INT32_MAX)))
        return wrong(v, q, "'until' has too many texts, or 'max_tokens' is no number above 0", err);
    for (size_t i = 0; i < n_stop; i++)
        if (!(stop[i] = json_string_value(json_array_get(until, i))) || !*stop[i])
            return wrong(v, q, "'until' must be a list of texts", err);
    if (!encode(v, context, strlen(context), &a->ids, &a->n, err))
        return false;
    size_t keep = tokens < v->info.max_seq_len ? (size_t)(v->info.max_seq_len - tokens) : 1;
    if (a->n > keep) {
        memmove(a->ids, a->ids + a->n - keep, keep * sizeof *a->ids);
        a->n = keep;
    }
    rg_params p = { .prompt = a->ids, .n_prompt = (int32_t)a->n, .n_samples = 1, .max_tokens = (int32_t)tokens,
                    .stop = stop, .n_stop = (int32_t)n_stop, .sampling = rg_sampling_default() };
    p.sampling.temperature = 0;
    a->request = a->n ? rg_submit(v->engine, &p, err) : NULL;
    return a->request || (a->n ? false : wrong(v, q, "the context is empty", err));
}

/* The task of a name, new if there is none yet. */
static task *find_task(evaluation *v, const char *name, rg_error *err)
{
    for (size_t i = 0; i < v->n_tasks; i++)
        if (!strcmp(v->tasks[i].name, name))
            return &v->tasks[i];
    const size_t room = v->n_tasks + 1;
    task *more = rg_resize_array(v->tasks, room, sizeof *more);
    char *own = rg_strdup(name);
    if (more)
        v->tasks = more;
    if (!more || !own) {
        rg_free(own);
        return rg_fail_memory(err, sizeof *more), NULL;
    }
    v->tasks[v->n_tasks] = (task){ .name = own };
    return &v->tasks[v->n_tasks++];
}

static bool ask(evaluation *v, question *q, rg_error *err)
{
    const char *context = text_of(q->line, "context"), *one = text_of(q->line, "continuation");
    const json_t *answers = json_object_get(q->line, "answers");
    int64_t gold;

    q->choices = json_object_get(q->line, "choices");
    if (one) {
        q->single = json_array();
        if (json_array_append(q->single, json_object_get(q->line, "continuation")))
            return rg_fail_memory(err, 0);
        q->choices = q->single;
    }
    if (!context || (!q->choices == !answers))
        return wrong(v, q, "want a text 'context', and one of 'choices', 'continuation' and 'answers'", err);
    if (answers)
        return (json_is_array(answers) && json_array_size(answers)) ? ask_answer(v, q, context, err)
                                                                     : wrong(v, q, "'answers' must be texts", err);
    if (!json_is_array(q->choices) || !json_array_size(q->choices) || json_array_size(q->choices) > MOST_CHOICES)
        return wrong(v, q, "'choices' must be a list of 1 to 64 texts", err);
    if (!one && (!rg_json_whole(json_object_get(q->line, "gold"), &gold) || gold < 0 ||
                 gold >= (int64_t)json_array_size(q->choices)))
        return wrong(v, q, "'gold' must be the number of one of 'choices', from 0", err);
    for (size_t i = 0; i < json_array_size(q->choices); i++) {
        const char *text = json_string_value(json_array_get(q->choices, i));
        if (!text || !*text)
            return wrong(v, q, "'choices' must be texts that are not empty", err);
        if (!ask_choice(v, q, context, text, err))
            return false;
    }
    return true;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void note(metric *m, bool value)
{
    m->n++;
    m->sum += value;
}

/* The log-probability of what follows; *greedy: each id of it was the best one. */
static double score_of(const asked *a, bool *greedy)
{
    rg_prompt_logprob l;
    double sum = 0;

    *greedy = true;
    for (size_t i = a->from; i < a->n; i++)
        if (rg_request_prompt_logprob(a->request, (int32_t)i, &l)) {
            sum += (double)l.logprob;
            *greedy &= l.rank == 1;
        }
    return sum;
}

static size_t characters(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static double length_of(const question *q, size_t i)
{
    const json_t *given = json_array_get(json_object_get(q->line, "lengths"), i);
    const char *text = json_string_value(json_array_get(q->choices, i));
    const double n = given ? json_number_value(given) : (double)characters(text + (*text == ' '));

    return n > 0 ? n : 1;
}

static void judge_choices(question *q)
{
    double scores[MOST_CHOICES];
    size_t best = 0, best_norm = 0;
    const size_t gold = (size_t)json_integer_value(json_object_get(q->line, "gold"));
    bool greedy = false;

    for (size_t i = 0; i < q->n; i++) {
        scores[i] = score_of(&q->of[i], &greedy);
        best = scores[i] > scores[best] ? i : best;
        best_norm = scores[i] / length_of(q, i) > scores[best_norm] / length_of(q, best_norm) ? i : best_norm;
    }
    note(&q->task->of[ACC], q->single ? greedy : best == gold);
    if (q->single) {
        q->task->sum_logprob += scores[0];
        q->task->n_single++;
    } else {
        note(&q->task->of[ACC_NORM], best_norm == gold);
    }
}

/* Put the part of a text that counts into to. */
static void settle(const question *q, const char *text, rg_buf *to)
{
    const bool strip = json_is_true(json_object_get(q->line, "strip"));
    const bool any_case = json_is_true(json_object_get(q->line, "ignore_case"));
    const bool no_marks = json_is_true(json_object_get(q->line, "ignore_punctuation"));

    for (; *text; text++) {
        char c = any_case ? (char)tolower((unsigned char)*text) : *text;
        bool counts = !no_marks || !ispunct((unsigned char)c);
        if (counts && !(strip && !to->n && isspace((unsigned char)c)))
            rg_buf_add(to, &c, 1);
    }
    while (strip && to->n && isspace((unsigned char)to->data[to->n - 1]))
        to->data[--to->n] = 0;
}

static bool judge_answer(question *q, const rg_buf *text, rg_error *err)
{
    const json_t *answers = json_object_get(q->line, "answers");
    rg_buf own, other;
    bool right = false;

    rg_buf_init(&own, most_bytes);
    rg_buf_init(&other, most_bytes);
    settle(q, text->data ? text->data : "", &own);
    for (size_t i = 0; i < json_array_size(answers) && !right; i++) {
        const char *s = json_string_value(json_array_get(answers, i));
        rg_buf_reset(&other);
        settle(q, s ? s : "", &other);
        right = own.n == other.n && (!own.n || !memcmp(own.data, other.data, own.n));
    }
    bool ok = !own.failed && !other.failed;
    rg_buf_fini(&own);
    rg_buf_fini(&other);
    note(&q->task->of[EXACT_MATCH], right);
    return ok || rg_fail_memory(err, text->n);
}

/* Wait for what was asked, and count it. */
static bool judge(question *q, rg_error *err)
{
    rg_buf text;
    bool ok = true;

    rg_buf_init(&text, most_bytes);
    for (size_t i = 0; ok && i < q->n; i++) {
        rg_token t = { .finish = RG_RUNNING };
        while (rg_next(q->of[i].request, &t))
            rg_buf_add(&text, t.text, t.n_text);
        ok = cli_finished(t.finish, err) && (!text.failed || rg_fail_memory(err, text.n));
    }
    if (ok && q->choices)
        judge_choices(q);
    else if (ok)
        ok = judge_answer(q, &text, err);
    q->task->n += ok;
    rg_buf_fini(&text);
    return ok;
}

static void close_question(question *q)
{
    for (size_t i = 0; i < q->n; i++) {
        rg_request_close(q->of[i].request);
        rg_ids_free(q->of[i].ids);
    }
    json_decref(q->single);
    json_decref(q->line);
    *q = (question){ 0 };
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static bool read_question(evaluation *v, const char *line, size_t n, int64_t number, question *q, rg_error *err)
{
    q->number = number;
    q->line = rg_json_load(line, n, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(q->line))
        return wrong(v, q, "it is not an object in JSON", err);
    const char *name = text_of(q->line, "task");
    q->task = find_task(v, name ? name : "tasks", err);
    return q->task;
}

/* A few questions are asked at once, and answered in their order. */
static bool run_all(evaluation *v, const char *text, size_t n_text, rg_error *err)
{
    question *q = rg_array(AT_ONCE, sizeof *q);
    bool ok = q || rg_fail_memory(err, AT_ONCE * sizeof *q);
    int64_t number = 0;

    for (const char *at = text, *end = text + n_text; ok && at < end && !cli_interrupted();) {
        size_t n = 0;
        size_t names[AT_ONCE]; /* tasks move while more are found */

        for (; ok && n < AT_ONCE && at < end; number++) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            size_t n_line = (size_t)((stop ? stop : end) - at);
            bool blank = strspn(at, " \t\r") >= n_line;

            if (!blank) {
                ok = read_question(v, at, n_line, number + 1, &q[n], err);
                names[n] = ok ? (size_t)(q[n].task - v->tasks) : 0;
                ok = ok && ask(v, &q[n], err);
                n++;
            }
            at += n_line + 1;
        }
        for (size_t i = 0; ok && i < n; i++) {
            q[i].task = &v->tasks[names[i]];
            ok = judge(&q[i], err);
        }
        for (size_t i = 0; q && i < AT_ONCE; i++)
            close_question(&q[i]);
        cli_progress(v->o->args->common.quiet ? (void *)(uintptr_t)v->o : NULL, "answering",
                     (double)(at < end ? at - text : (ptrdiff_t)n_text) / (double)n_text);
    }
    rg_free(q);
    return ok;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static const char *const metric_names[N_METRICS] = { "acc", "acc_norm", "exact_match" };

static double value_of(const metric *m)
{
    return (double)m->sum / (double)m->n;
}

/* The standard error of the mean, as lm-eval has it: the sample's standard deviation divided by the root of n. */
static double error_of(const metric *m)
{
    double p = value_of(m), n = (double)m->n;

    return m->n > 1 ? sqrt(p * (1 - p) * n / (n - 1) / n) : (double)NAN;
}

static bool print_json(const evaluation *v)
{
    cli_json *j = cli_json_new();
    char key[64];

    cli_json_open(j, NULL, '{');
    cli_json_open(j, "tasks", '[');
    for (size_t i = 0; i < v->n_tasks; i++) {
        const task *t = &v->tasks[i];

        cli_json_open(j, NULL, '{');
        cli_json_text(j, "task", t->name);
        cli_json_int(j, "n", t->n);
        for (int k = 0; k < N_METRICS; k++)
            if (t->of[k].n) {
                cli_json_float(j, metric_names[k], value_of(&t->of[k]));
                snprintf(key, sizeof key, "%s_stderr", metric_names[k]);
                cli_json_float(j, key, error_of(&t->of[k]));
            }
        if (t->n_single)
            cli_json_float(j, "perplexity", exp(-t->sum_logprob / (double)t->n_single));
        cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_close(j);
    return cli_json_print(j);
}

static void print_table(const evaluation *v)
{
    printf("|%-24s|%6s|%-12s|%8s|   |%8s|\n", "Tasks", "n", "Metric", "Value", "Stderr");
    printf("|------------------------|------|------------|--------|---|--------|\n");
    for (size_t i = 0; i < v->n_tasks; i++) {
        const task *t = &v->tasks[i];

        for (int k = 0; k < N_METRICS; k++)
            if (t->of[k].n)
                printf("|%-24s|%6lld|%-12s|%8.4f| ± |%8.4f|\n", t->name, (long long)t->n, metric_names[k],
                       value_of(&t->of[k]), error_of(&t->of[k]));
        if (t->n_single)
            printf("|%-24s|%6lld|%-12s|%8.4f|   |%8s|\n", t->name, (long long)t->n, "perplexity",
                   exp(-t->sum_logprob / (double)t->n_single), "");
    }
}

bool eval_tasks_run(eval_tasks *o, rg_error *err)
{
    evaluation v = { .o = o };
    size_t n;
    char *text = rg_file_slurp(o->file, most_bytes, &n, err);

    o->engine.kv_type = o->engine.kv_type ? o->engine.kv_type : "f32";
    o->engine.draft = "none";
    o->engine.max_seqs = AT_ONCE;
    v.engine = text ? cli_engine_open(&o->engine, o->args, err) : NULL;
    bool ok = v.engine && cli_engine_generates(&o->engine, v.engine, err);
    if (ok) {
        v.info = rg_engine_info(v.engine);
        ok = run_all(&v, text, n, err) &&
             (v.n_tasks || rg_fail(err, RG_E_INPUT, "%s: there is no question in it", o->file));
    }
    if (ok && o->args->common.json)
        ok = print_json(&v) || rg_fail(err, RG_E_IO, "eval: standard output cannot be written");
    else if (ok)
        print_table(&v);
    for (size_t i = 0; i < v.n_tasks; i++)
        rg_free(v.tasks[i].name);
    rg_free(v.tasks);
    rg_close(v.engine);
    rg_free(text);
    return ok;
}
