/* settings.c -- see settings.h. */
#include "train/settings.h"

#include <math.h>
#include <string.h>

#include "ckpt/json.h"
#include "base/mem.h"

static const char *const schedules[RG_RATE_SHAPES] = { "cosine", "linear", "constant", "wsd" };

static const char *const precisions[RG_PRECISIONS] = { "f32", "bf16" };

enum { DECAY_SHARE = 5 }; /* of wsd: the last fifth of the steps */

typedef enum kind { INT, REAL, SEED } kind;

/* Members by name, and what they may be. */
static const struct {
    const char *name, *too;
    kind kind;
    size_t at;
    double min, max;
} members[] = {
#define AT(field) offsetof(rg_train_settings, field)
    { "steps", NULL, INT, AT(steps), 1, 1e9 },
    { "warmup", NULL, INT, AT(warmup), 0, 1e9 },
    { "peak", "lr", REAL, AT(peak), 0, 100 },
    { "floor", NULL, REAL, AT(floor), 0, 1 },
    { "weight_decay", NULL, REAL, AT(weight_decay), 0, 100 },
    { "beta1", NULL, REAL, AT(beta1), 0, 1 },
    { "beta2", NULL, REAL, AT(beta2), 0, 1 },
    { "eps", NULL, REAL, AT(eps), 0, 1 },
    { "clip", NULL, REAL, AT(clip), 0, 1e9 },
    { "micro", "accumulate", INT, AT(micro), 1, 1 << 20 },
    { "rows", "batch", INT, AT(rows), 1, 1 << 20 },
    { "length", NULL, INT, AT(length), 2, 1 << 24 },
    { "init_std", NULL, REAL, AT(init_std), 0, 10 },
    { "seed", NULL, SEED, AT(seed), 0, 9007199254740992.0 },
#undef AT
};

rg_train_settings rg_train_settings_default(void)
{
    return (rg_train_settings){ .steps = 1000,
                                .warmup = 50,
                                .peak = 1e-3,
                                .floor = 0.1,
                                .weight_decay = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8,
                                .clip = 1,
                                .micro = 1,
                                .rows = 16,
                                .length = 256,
                                .init_std = 0.02 };
}

/* Its place among n names; n: it is none of them. */
static int by_name(const char *name, const char *const *names, int n)
{
    int i = 0;

    while (i < n && strcmp(name, names[i]))
        i++;
    return i;
}

bool rg_rate_shape_by_name(const char *name, rg_rate_shape *out)
{
    const int i = by_name(name, schedules, RG_RATE_SHAPES);

    if (i < RG_RATE_SHAPES)
        *out = (rg_rate_shape)i;
    return i < RG_RATE_SHAPES;
}

bool rg_precision_by_name(const char *name, rg_precision *out)
{
    const int i = by_name(name, precisions, RG_PRECISIONS);

    if (i < RG_PRECISIONS)
        *out = (rg_precision)i;
    return i < RG_PRECISIONS;
}

static double value_of(const rg_train_settings *s, size_t i)
{
    const char *at = (const char *)s + members[i].at;

    switch (members[i].kind) {
    case INT:
        return *(const int32_t *)(const void *)at;
    case SEED:
        return (double)*(const uint64_t *)(const void *)at;
    default:
        return *(const double *)(const void *)at;
    }
}

static bool set(rg_train_settings *s, size_t i, double v, rg_error *err)
{
    char *at = (char *)s + members[i].at;

    if (!(v >= members[i].min && v <= members[i].max) || (members[i].kind != REAL && v != floor(v)))
        return rg_fail(err, RG_E_INPUT, "setting '%s' is %g: %s from %g to %g is wanted", members[i].name, v,
                       members[i].kind == REAL ? "a number" : "a whole number", members[i].min, members[i].max);
    if (members[i].kind == INT)
        *(int32_t *)(void *)at = (int32_t)v;
    else if (members[i].kind == SEED)
        *(uint64_t *)(void *)at = (uint64_t)v;
    else
        *(double *)(void *)at = v;
    return true;
}

static size_t find(const char *name)
{
    size_t i = 0;

    while (i < RG_LEN(members) && strcmp(name, members[i].name) && !(members[i].too && !strcmp(name, members[i].too)))
        i++;
    return i;
}

/* What is no number: a pair of betas, names.  False, with *err as it was: it is no setting. */
static bool read_other(rg_train_settings *s, const char *name, const json_t *v, bool *known, rg_error *err)
{
    *known = true;
    if (!strcmp(name, "beta") || !strcmp(name, "betas")) {
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);

        if (json_array_size(v) != 2 || !json_is_number(a) || !json_is_number(b))
            return rg_fail(err, RG_E_INPUT, "setting '%s' is not a pair of numbers", name);
        return set(s, find("beta1"), json_number_value(a), err) && set(s, find("beta2"), json_number_value(b), err);
    }
    if (!strcmp(name, "schedule")) {
        if (json_is_string(v) && rg_rate_shape_by_name(json_string_value(v), &s->schedule))
            return true;
        return rg_fail(err, RG_E_INPUT, "setting 'schedule' is not one of cosine, linear, constant, wsd");
    }
    if (!strcmp(name, "precision")) {
        if (json_is_string(v) && rg_precision_by_name(json_string_value(v), &s->precision))
            return true;
        return rg_fail(err, RG_E_INPUT, "setting 'precision' is not one of f32, bf16");
    }
    *known = false;
    return true;
}

bool rg_train_settings_read(rg_train_settings *s, const char *text, size_t n, rg_buf *unknown, rg_error *err)
{
    json_t *all = rg_json_parse("settings", text, n, err), *v;
    const char *name;
    bool ok = all, known;

    if (ok && !json_is_object(all))
        ok = rg_fail(err, RG_E_INPUT, "the settings are no JSON object");
    if (ok)
        json_object_foreach(all, name, v)
        {
            const size_t i = find(name);

            if (i < RG_LEN(members) && !json_is_number(v))
                ok = rg_fail(err, RG_E_INPUT, "setting '%s' is no number", name);
            else if (i < RG_LEN(members))
                ok = set(s, i, json_number_value(v), err);
            else
                ok = read_other(s, name, v, &known, err);
            if (!ok)
                break;
            if (i == RG_LEN(members) && !known && unknown)
                rg_buf_printf(unknown, "%s%s", unknown->n ? ", " : "", name);
        }
    json_decref(all);
    return ok;
}

void rg_train_settings_write(const rg_train_settings *s, rg_buf *to)
{
    rg_buf_str(to, "{");
    for (size_t i = 0; i < RG_LEN(members); i++)
        rg_buf_printf(to, "\"%s\": %.17g, ", members[i].name, value_of(s, i));
    rg_buf_printf(to, "\"schedule\": \"%s\"", schedules[s->schedule]);
    if (s->precision != RG_PRECISION_F32) /* checkpoints of before do not tell it */
        rg_buf_printf(to, ", \"precision\": \"%s\"", precisions[s->precision]);
    rg_buf_str(to, "}");
}

bool rg_train_settings_check(const rg_train_settings *s, rg_error *err)
{
    rg_train_settings copy = *s;
    bool ok = true;

    for (size_t i = 0; ok && i < RG_LEN(members); i++)
        ok = set(&copy, i, value_of(s, i), err);
    if (ok && s->beta1 >= 1)
        return rg_fail(err, RG_E_INPUT, "setting 'beta1' is 1: it must be less");
    if (ok && s->beta2 >= 1)
        return rg_fail(err, RG_E_INPUT, "setting 'beta2' is 1: it must be less");
    return ok;
}

int64_t rg_train_decay_from(const rg_train_settings *s)
{
    return s->steps - s->steps / DECAY_SHARE;
}

/* It rises in `warmup` steps, and then falls to peak * floor at the last one. */
double rg_train_rate(const rg_train_settings *s, int64_t step)
{
    const int64_t from = rg_train_decay_from(s);

    if (step < s->warmup)
        return s->peak * (double)(step + 1) / s->warmup;
    const double f = (double)(step - s->warmup + 1) / (double)(s->steps - s->warmup);
    switch (s->schedule) {
    case RG_RATE_COSINE:
        return s->peak * (s->floor + (1 - s->floor) * (1 + cos(3.14159265358979323846 * f)) / 2);
    case RG_RATE_LINEAR:
        return s->peak * (1 - (1 - s->floor) * f);
    case RG_RATE_WSD:
        return step < from ? s->peak
                           : s->peak * (1 - (1 - s->floor) * (double)(step - from + 1) / (double)(s->steps - from));
    default:
        return s->peak;
    }
}
