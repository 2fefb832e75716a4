/* qat_inside.h -- matrices on a grid, by layer: what the files of qat.h share.  RG_ALL_LAYERS: of all. */
#ifndef RG_TRAIN_QAT_INSIDE_H
#define RG_TRAIN_QAT_INSIDE_H

#include "train/qat.h"

enum { RG_ALL_LAYERS = -2 };

void rg_qat_pull_layer(rg_qat *q, int layer, rg_back_lane *lane);
void rg_qat_apply_layer(rg_qat *q, int layer, rg_back_lane *lane);
void rg_qat_lift_layer(rg_qat *q, int layer); /* masters become the weights behind the grid */
bool rg_qat_add_layer(rg_qat *q, int layer, rg_adamw *a, rg_error *err) RG_MUST_CHECK;
bool rg_qat_fix_layer(rg_qat *q, int layer, rg_error *err) RG_MUST_CHECK;

#endif
