/* diffusion.h -- the facts of a model that fills in masks instead of continuing a text. */
#ifndef RG_MODEL_DIFFUSION_H
#define RG_MODEL_DIFFUSION_H

#include <stdbool.h>
#include <stdint.h>

/* How a family shares out an answer's masks over its steps where no threshold is given (engine/denoise.h). */
typedef enum rg_schedule { RG_SCHEDULE_EVEN, RG_SCHEDULE_TIME } rg_schedule;

typedef struct rg_diffusion {
    int32_t mask_id;      /* -1: it is no such model */
    bool shifted;         /* the logits of a position stand at the row before it (of the first, at its own) */
    rg_schedule schedule;
    int32_t steps;        /* generation_config's; 0: it names none */
    float threshold;      /* likewise */
} rg_diffusion;

#endif
