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
/* Call each for codes, scales and zeros of the layer's matrices, whose codes are fixed, in one order. */
typedef bool rg_qat_tensor_fn(void *arg, const char *name, rg_type type, const int64_t shape[2], void *values,
                              rg_error *err);
bool rg_qat_each_fixed(const rg_qat *q, int layer, rg_qat_tensor_fn *each, void *arg, rg_error *err);
/* The grid, and the rate of scales, as text. */
void rg_qat_describe(const rg_qat *q, rg_buf *to);

/* Write where training stands (qat_saved.c): layers before `layer` are done, and `step` steps of it, whose tensors and
 * moments are those of a (NULL: step is 0). */
bool rg_qat_blocks_save(const rg_qat *q, const rg_qat_blocks *b, int layer, int step, const rg_adamw *a,
                        rg_error *err) RG_MUST_CHECK;
/* The checkpoint to go on from: *at NULL: there is none, and the run begins at layer 0. */
bool rg_qat_blocks_open(const rg_qat *q, const rg_qat_blocks *b, rg_checkpoint **at, int *layer, int *step,
                        rg_error *err) RG_MUST_CHECK;
bool rg_qat_blocks_take_fixed(const rg_qat *q, int layer, rg_checkpoint *at, rg_error *err) RG_MUST_CHECK;
bool rg_qat_blocks_take_trained(rg_adamw *a, rg_checkpoint *at, rg_error *err) RG_MUST_CHECK;

#endif
