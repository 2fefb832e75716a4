/* tour_steps.c -- the lecture (Stanford CS336, spring 2025, lecture 10, "Inference"), step by step.  What it says is
 * in docs/LECTURE.md at more length, with where each idea lives in the code. */
#include <stdio.h>

#include "cli/tour.h"

/* ---- what is planned --------------------------------------------------------------------------------------------- */

static const tour_planned *lecture(const tour_facts *f, int64_t batch, bool grouped)
{
    const tour_planned *p = f->lecture;

    while (p->batch != batch || p->grouped != grouped)
        p++;
    return p;
}

#define SAY(...) snprintf(out, TOUR_TEXT, __VA_ARGS__)
#define PLANNED(name) static void name(const tour_facts *f, char out[TOUR_TEXT])

PLANNED(plan_words)
{
    const double words_s = 1e11 / 86400, chip = lecture(f, 256, true)->row.throughput;

    SAY("%.2f million words a second, a token each: %.0f H100s with Llama 2 13B, 8 K/V heads, 256 at once",
        words_s / 1e6, words_s / chip);
}

PLANNED(plan_ridge)
{
    SAY("H100: %.0f operations a byte", f->h100.m.roofs.bf16_ops_s / f->h100.m.roofs.read_bytes_s);
}

PLANNED(plan_b_star)
{
    SAY("from batch %.0f on an H100 computes longer than it reads; here from %.0f", lecture(f, 1,
        false)->row.critical_batch,
        f->b_star);
}

PLANNED(plan_attention)
{
    (void)f;
    SAY("1,024 positions: %.0f in prefill, %.3f in generation, and 5 with 5 query heads on a K/V head", 1024.0 / 2,
        1024.0 / 1025);
}

static void say_rows(const tour_facts *f, bool grouped, char out[TOUR_TEXT])
{
    const rg_plan_row *a = &lecture(f, 1, grouped)->row, *b = &lecture(f, 64, grouped)->row,
                      *c = &lecture(f, 256, grouped)->row;

    SAY("batch 1, 64, 256: %.1f, %.1f, %.1f GB; %.2f, %.2f, %.2f ms; %.1f, %.1f, %.1f tokens/s%s",
        a->memory.total / 1e9, b->memory.total / 1e9, c->memory.total / 1e9,
        1e3 * a->latency_s, 1e3 * b->latency_s, 1e3 * c->latency_s,
        a->throughput, b->throughput, c->throughput, c->fits ? "" : " (256 does not fit)");
}

PLANNED(plan_table)
{
    say_rows(f, false, out);
}

PLANNED(plan_grouped)
{
    say_rows(f, true, out);
}

PLANNED(plan_first)
{
    const tour_planned *p = lecture(f, 1, false);

    SAY("H100, 1,024 ids: %.1f ms; two copies: the same, twice the throughput", 1e3 * p->row.ttft_s);
}

PLANNED(plan_latent)
{
    (void)f;
    SAY("60 layers in bf16: %d bytes a token against %d", 60 * 576 * 2, 60 * 2 * 16384 * 2);
}

PLANNED(plan_local)
{
    const double window = 1024;
    double part[3], s = 2048;

    (void)f;
    for (int i = 0; i < 3; i++, s *= 4)
        part[i] = (s + 5 * window) / (6 * s);
    SAY("one global layer in 6, windows of 1,024: %.2f, %.2f, %.2f of the cache at 2,048, 8,192, 32,768 positions",
        part[0], part[1], part[2]);
}

PLANNED(plan_formats)
{
    const double kv = 0.839, reads = 26.03, of[] = { 1, 8.5 / 16, 4.5 / 16 };

    (void)f;
    SAY("Llama 2 13B, batch 1, against bf16: 8 bits with scales %.2f times as quick, 4 bits %.2f", (reads + kv) /
        (reads * of[1] + kv),
        (reads + kv) / (reads * of[2] + kv));
}

PLANNED(plan_speculation)
{
    const double a = 0.7, k = 4, cost = 0.1;
    double ids = 0, chance = 1;

    (void)f;
    for (int i = 0; i <= (int)k; i++, chance *= a)
        ids += chance;
    SAY("4 guesses, each right by 0.7: %.2f ids a step; a draft at a tenth of the cost: %.2f times as quick", ids,
        ids / (1 + k * cost));
}

PLANNED(plan_padding)
{
    (void)f;
    SAY("lengths 3, 9, 5: 17 rows; padded 27, of which 37 %% are waste");
}

/* ---- what was measured ------------------------------------------------------------------------------------------- */

PLANNED(measure_three)
{
    SAY("first token of %d ids %.1f ms; %.2f ms a token; %.0f tokens/s for %d at once", TOUR_PROMPT, 1e3 * f->prefill_s,
        1e3 * f->step[0].measured_s, f->step[f->n_steps - 1].batch / f->step[f->n_steps - 1].measured_s,
        f->step[f->n_steps - 1].batch);
}

PLANNED(measure_ridge)
{
    const rg_roofs *r = &f->here.m.roofs;

    SAY("%.1f GB/s; %.0f f32, %.0f int8 GOP/s: %.0f and %.0f operations a byte", r->read_bytes_s / 1e9,
        r->f32_ops_s / 1e9,
        r->int8_ops_s / 1e9, r->f32_ops_s / r->read_bytes_s, r->int8_ops_s / r->read_bytes_s);
}

PLANNED(measure_cache)
{
    SAY("%d ids after %d: %.1f ms with the cache, %.1f ms without: %.1f times", TOUR_PROMPT / 8, TOUR_PROMPT / 8,
        1e3 * f->cached_s, 1e3 * f->naive_s, f->naive_s / f->cached_s);
}

PLANNED(measure_table)
{
    int n = 0;

    for (int i = 0; i < f->n_steps && n < TOUR_TEXT - 1; i++)
        n += snprintf(out + n, (size_t)(TOUR_TEXT - n), "%s%d: %.2f ms (planned %.2f)", i ? ", " : "batch ",
        f->step[i].batch,
                      1e3 * f->step[i].measured_s, 1e3 * f->step[i].planned_s);
}

PLANNED(measure_first)
{
    SAY("%d ids: %.1f ms, planned %.1f", TOUR_PROMPT, 1e3 * f->prefill_s, 1e3 * f->prefill_planned_s);
}

PLANNED(measure_bytes)
{
    SAY("the shipped model: %.0f bytes of K/V a position, %.1f MB of weights", f->kv_bytes, f->weight_bytes / 1e6);
}

PLANNED(measure_draft)
{
    SAY("%.2f ids a step, %.2f times as quick as without (%.0f and %.0f ms for %d ids)", f->ids_a_step,
        f->plain_s / f->drafted_s, 1e3 * f->drafted_s, 1e3 * f->plain_s, TOUR_IDS);
}

PLANNED(measure_self)
{
    if (f->self_ids_a_step > 0)
        SAY("its own weights in 4 bits as draft: %.2f ids a step", f->self_ids_a_step);
    else
        SAY("this model's weights have 4 bits already");
}

PLANNED(measure_together)
{
    SAY("%d answers one after the other %.0f ms, at once %.0f ms: %.1f times", TOUR_ANSWERS, 1e3 * f->alone_s,
        1e3 * f->together_s, f->alone_s / f->together_s);
}

PLANNED(measure_same)
{
    SAY("ids and log-probabilities of %d answers, alone and together: %s", TOUR_ANSWERS,
        f->same_alone ? "the same bits" : "they DIFFER");
}

PLANNED(measure_paging)
{
    SAY("%d answers to one prompt: %.0f KB written, %.0f KB held, %.0f KB if none were shared", TOUR_ANSWERS,
        f->live / 1e3, f->held / 1e3, f->apart / 1e3);
}

/* ---- the lecture ------------------------------------------------------------------------------------------------- */

static const char memory[] = "memory", arithmetic[] = "arithmetic";

const tour_step tour_steps[] = {
    { .title = "Why inference matters",
      .idea = "Training is paid once, inference with every answer.",
      .lecture = "OpenAI was said to make 100 billion words a day", .planned = plan_words,
      .command = "ridge plan CONFIG --machine h100 --batch 256" },
    { .title = "Three measures",
      .idea = "Time to the first token and time a token are what a person waits for; throughput is what bulk work "
              "needs.",
      .lecture = "high throughput does not imply low latency", .measured = measure_three,
      .command = "ridge run --json" },
    { .title = "Arithmetic intensity",
      .idea = "Operations for each byte that is moved; a machine has its own ratio, the ridge of the roofline.",
      .formula = "X [B, D] times W [D, F]: 2 B D F operations over 2 B D + 2 D F + 2 B F bytes, about B",
      .lecture = "H100: 989e12 / 3.35e12 = 295", .planned = plan_ridge, .measured = measure_ridge,
      .command = "ridge machine" },
    { .title = "Batch is the lever of a product",
      .idea = "Generation multiplies a row of each request with all weights: its intensity is the number of requests.",
      .formula = "MLP: 6 B T D F operations over 4 B T D + 4 B T F + 6 D F bytes, about B T",
      .lecture = "below 295 memory limits", .planned = plan_b_star, .binds = memory,
      .command = "ridge plan CONFIG --machine h100,here --batch 1,64,256" },
    { .title = "The K/V cache",
      .idea = "A causal model's prefix never changes, so that its keys and values are kept, and a token costs one "
              "row.",
      .formula = "O(T) a token in place of O(T^2)",
      .lecture = "prefill at once, then one by one", .measured = measure_cache, .binds = memory,
      .command = "ridge bench --no-cache --context 64" },
    { .title = "Attention's intensity",
      .idea = "Each sequence has keys and values of its own: no batch makes generation's attention denser.",
      .formula = "S T / (S + T): S / 2 in prefill, below 1 in generation",
      .lecture = "prefill waits for arithmetic, generation for memory", .planned = plan_attention, .binds = memory,
      .command = "ridge plan CONFIG --machine h100 --ops" },
    { .title = "Latency and throughput on paper",
      .idea = "If memory decides: latency = (weights + K/V) / bandwidth, throughput = B / latency.",
      .formula = "K/V = S K H L 2 2 bytes; parameters = 2 V D + 3 D F L + (2 D N H + 2 D K H) L",
      .lecture = "Llama 2 13B on an H100, 1,024 positions: 124.6, 2,689 and 3,561 tokens/s", .planned = plan_table,
      .measured = measure_table, .binds = memory,
      .command = "ridge plan CONFIG --machine h100 --batch 1,64,256 --method closed-form" },
    { .title = "The first token, and copies",
      .idea = "Prefill is the first token's time.  M copies of the model give M times the throughput.",
      .formula = "2 P S / peak",
      .lecture = "smaller batches in prefill, larger ones in generation", .planned = plan_first,
      .measured = measure_first, .binds = arithmetic,
      .command = "ridge plan CONFIG --machine h100 --what-if" },
    { .title = "Fewer K/V heads (MQA, GQA)",
      .idea = "Query heads share keys and values: the cache shrinks by N / K, so that more sequences fit.",
      .formula = "K/V = S K H L 4 bytes",
      .lecture = "40 heads to 8: 33.4 GB and 6,416 tokens/s at batch 64", .planned = plan_grouped,
      .measured = measure_bytes, .binds = memory,
      .command = "ridge plan CONFIG --machine h100 --what-if" },
    { .title = "Latent attention (MLA)",
      .idea = "Keys and values are projected down to one short vector a token.",
      .formula = "512 + 64 numbers for 2 x 16,384",
      .lecture = "DeepSeek-V2: 16,384 to 512", .planned = plan_latent, .binds = memory,
      .command = "ridge run family/mla" },
    { .title = "Keys shared across layers (CLA)",
      .idea = "Neighbouring layers read one cache.",
      .formula = "half of the memory, all of the reads",
      .lecture = "a better frontier of perplexity against cache", .binds = memory,
      .command = "ridge shrink cla; ridge run family/cla2; ridge plan CONFIG --what-if" },
    { .title = "Local attention, mixed with global",
      .idea = "A window's cache does not grow; a few global layers carry what is far away.",
      .formula = "L W positions in place of L S",
      .lecture = "character.ai: one global layer in 6, K/V shared across layers", .planned = plan_local,
      .binds = memory,
      .command = "ridge shrink window; ridge run family/window-global" },
    { .title = "State-space models",
      .idea = "A recurrence with a fixed state replaces the cache; a small state forgets.",
      .formula = "h = A h + B x, y = C h",
      .lecture = "S4 fails at associative recall, Mamba matches transformers at 1B; Jamba mixes 1:7", .binds = memory,
      .command = "ridge study recall CONFIG...; ridge study family -o DIR" },
    { .title = "Linear attention",
      .idea = "exp(q k) as a polynomial: a dot product of features, whose sums run along.",
      .formula = "1 + s + s^2 / 2: 273 features of 16 dimensions",
      .lecture = "BASED: linear and local; MiniMax-01: 456B, linear with some full", .binds = memory,
      .command = "ridge run family/lightning-full" },
    { .title = "Diffusion",
      .idea = "All positions at once from noise, refined in passes.",
      .formula = "evaluations x rows",
      .lecture = "far more tokens a second than any model that writes one id after the other", .binds = arithmetic,
      .command = "ridge run family/block-diffusion --steps 4 --trace --json" },
    { .title = "Number formats",
      .idea = "Fewer bytes are less time.",
      .formula = "fp32 4, bf16 2, fp8 and int8 1, int4 0.5",
      .lecture = "bf16 is inference's default", .planned = plan_formats, .binds = memory,
      .command = "ridge quantize; ridge plan CONFIG --what-if" },
    { .title = "Quantization",
      .idea = "A few large values need care, all others few bits: LLM.int8() computes outliers apart, AWQ scales what "
              "activations find important.",
      .lecture = "AWQ: 4 times less memory, 3.2 times as quick",
      .command = "ridge shrink awq; ridge shrink gptq; ridge shrink qat" },
    { .title = "Pruning and distillation",
      .idea = "Drop the layers, heads and channels that matter least; a student then learns from the original.",
      .lecture = "Minitron: 15B to 8B with hardly any loss",
      .command = "ridge shrink prune --heal TEXT; ridge distill" },
    { .title = "Speculative sampling",
      .idea = "Checking several ids takes one step: a cheap draft guesses, and what is kept is an exact sample.",
      .formula = "keep x with min(1, target(x) / draft(x)), else draw from max(0, target - draft)",
      .lecture = "about 2 times as quick", .planned = plan_speculation, .measured = measure_draft,
      .binds = "spare arithmetic",
      .command = "ridge run --draft MODEL --verify rejection" },
    { .title = "Medusa, EAGLE, and every shortcut as a draft",
      .idea = "Heads or a layer that read the model's features; or the model's own smaller self.",
      .lecture = "any shortcut above can be a draft, and the result stays exact", .measured = measure_self,
      .binds = "spare arithmetic",
      .command = "ridge run --draft self:q4" },
    { .title = "Continuous batching",
      .idea = "After every step newcomers join and those who are done leave.",
      .lecture = "Orca: nobody waits for a batch", .measured = measure_together,
      .command = "ridge serve --batching continuous" },
    { .title = "Selective batching",
      .idea = "Attention runs by sequence, all else on the rows of all; company changes no bit of an answer.",
      .lecture = "lengths 3, 9, 5 become [17, H]", .planned = plan_padding, .measured = measure_same,
      .command = "ridge prove" },
    { .title = "PagedAttention",
      .idea = "Blocks anywhere, as in virtual memory; shared prefixes share blocks, which are copied when written.",
      .lecture = "no room is lost inside of requests and between them", .measured = measure_paging, .binds = memory,
      .command = "ridge run --n 8" },
};

const int tour_n_steps = sizeof tour_steps / sizeof *tour_steps;
