/* texts.h -- the lines of seam that are timed in a shop (shop.h): operations on what the shop holds. */
#ifndef RG_MODEL_TEXTS_H
#define RG_MODEL_TEXTS_H

#include "model/shop.h"

enum { RG_SAY_PARTS = 8 };

/* Of the turn-th matrix; of a mixture, of the first three. */
rg_shop_text rg_say_linear, rg_say_linear_add, rg_say_gated, rg_say_embed, rg_say_moe;
/* Of the turn-th part of all matrices' RG_SAY_PARTS each, one after the other, each a product of its own. */
rg_shop_text rg_say_part;
/* Of activations of w->width columns; of routing. */
rg_shop_text rg_say_rmsnorm, rg_say_add, rg_say_act_mul, rg_say_softcap, rg_say_gather, rg_say_rotate, rg_say_route;
/* Of w->kv and w->n_heads. */
rg_shop_text rg_say_kv_store, rg_say_attention, rg_say_mla_attention;
/* Attention in the turn-th of many layers, each with its place in every block; and with a store before it. */
rg_shop_text rg_say_layer, rg_say_store_in_layer;
/* Of w->tail and w->h, in the turn-th of many layers. */
rg_shop_text rg_say_conv, rg_say_scan;

#endif
