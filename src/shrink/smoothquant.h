/* smoothquant.h -- SmoothQuant (Xiao et al. 2023): outliers of activations are moved into weights, so that both can be
 * rounded to 8 bits. */
#ifndef RG_SHRINK_SMOOTHQUANT_H
#define RG_SHRINK_SMOOTHQUANT_H

#include <stdint.h>

/* to [n] = act_max^alpha / w_max^(1 - alpha): what activations are divided by and weights multiplied by.  act_max,
 * w_max [n]: largest magnitudes of each channel. */
void rg_smooth_scales(const float *act_max, const float *w_max, int64_t n, float alpha, float *to);

#endif
