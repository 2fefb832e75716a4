/* diffusion.h -- what language models by diffusion share: the id of a masked position, and keys of GGUF. */
#ifndef RG_MODEL_ARCH_DIFFUSION_H
#define RG_MODEL_ARCH_DIFFUSION_H

#include "model/arch/parts.h"

/* Reads the mask's id, and from GGUF whether logits are shifted; c->diffusion.shifted is set before, to what is meant
 * where a file does not say. */
bool finish_diffusion(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* Reads the facts of a canvas: its length, and how generation_config says that it is refined. */
bool finish_canvas(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* As put_gguf_decoder, with the keys of a model whose rows all see each other. */
bool put_gguf_diffusion(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

#endif
