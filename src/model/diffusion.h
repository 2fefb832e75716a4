/* diffusion.h -- the facts of a model that fills in masks instead of continuing a text. */
#ifndef RG_MODEL_DIFFUSION_H
#define RG_MODEL_DIFFUSION_H

#include <stdbool.h>
#include <stdint.h>

/* How a family shares out an answer's masks over its steps where no threshold is given (engine/denoise.h). */
typedef enum rg_schedule { RG_SCHEDULE_EVEN, RG_SCHEDULE_TIME } rg_schedule;

/* Of a model that refines a canvas of ids instead of filling in masks (DiffusionGemma): it begins as noise, and after
 * each evaluation ids that are not accepted become noise again. */
typedef struct rg_canvas {
    int32_t length;       /* positions; 0: it is no such model */
    float t_min, t_max;   /* the temperature falls from t_max to near t_min */
    float entropy_bound;  /* ids are accepted, the least entropy first, while the sum of those before is at most this */
    float confidence;     /* it is done when the mean entropy is below this, */
    int32_t stability;    /*   and the likeliest ids were the same in so many evaluations before */
} rg_canvas;

typedef struct rg_diffusion {
    int32_t mask_id;      /* -1: it fills in no masks */
    rg_canvas canvas;
    bool shifted;         /* the logits of a position stand at the row before it (of the first, at its own) */
    rg_schedule schedule;
    int32_t steps;        /* generation_config's; 0: it names none */
    float threshold;      /* likewise */
} rg_diffusion;

/* False: it continues a text, or embeds one. */
static inline bool rg_diffusion_fills(const rg_diffusion *d)
{
    return d->mask_id >= 0 || d->canvas.length > 0;
}

#endif
