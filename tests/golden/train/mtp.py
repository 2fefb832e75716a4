#!/usr/bin/env python3
"""Makes tests/golden/train/mtp.safetensors: tests/golden/train/mtp.py, from the project's root; needs torch and safetensors.

A new module for further tokens of tests/golden/llama, drawn at random, and its loss and gradients in float64 by torch:
x = eh_proj [enorm(embedding of id t + 1); hnorm(h_t)], h_t being what enters the model's head; one Llama layer; the model's head
of shared_head.norm of it; cross-entropy with id t + 2, the mean over rows that have one."""
import json

import torch
from safetensors.torch import load_file, save_file

ROWS, LENGTH = 2, 24
torch.manual_seed(45)
c = json.load(open("tests/golden/llama/config.json"))
w = {k: v.double() for k, v in load_file("tests/golden/llama/model.safetensors").items()}
dim, heads, kv, ffn, eps = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "rms_norm_eps"))
size = c.get("head_dim") or dim // heads
rope = c.get("rope_parameters") or {"rope_theta": c.get("rope_theta", 1e4)}
layers = c["num_hidden_layers"]


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotated(x):
    angle = torch.arange(LENGTH).double()[:, None] * rope["rope_theta"] ** (-torch.arange(0, size, 2).double() / size)
    cos, sin = angle.cos().repeat(1, 2)[:, None], angle.sin().repeat(1, 2)[:, None]
    return x * cos + torch.cat((-x[..., size // 2:], x[..., :size // 2]), -1) * sin


def layer(x, p):
    """x [rows, LENGTH, dim]; p(name): a weight of the layer."""
    h = norm(x, p("input_layernorm"))
    q = rotated((h @ p("self_attn.q_proj").T).unflatten(-1, (heads, size)))
    k = rotated((h @ p("self_attn.k_proj").T).unflatten(-1, (kv, size))).repeat_interleave(heads // kv, 2)
    v = (h @ p("self_attn.v_proj").T).unflatten(-1, (kv, size)).repeat_interleave(heads // kv, 2)
    s = torch.einsum("bihd,bjhd->bhij", q, k) / size ** 0.5
    s = s.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf).softmax(-1)
    x = x + torch.einsum("bhij,bjhd->bihd", s, v).flatten(2) @ p("self_attn.o_proj").T
    h = norm(x, p("post_attention_layernorm"))
    return x + (torch.nn.functional.silu(h @ p("mlp.gate_proj").T) * (h @ p("mlp.up_proj").T)) @ p("mlp.down_proj").T


at = f"model.layers.{layers}."
shapes = {"self_attn.q_proj": (heads * size, dim), "self_attn.k_proj": (kv * size, dim), "self_attn.v_proj": (kv * size, dim),
          "self_attn.o_proj": (dim, heads * size), "mlp.gate_proj": (ffn, dim), "mlp.up_proj": (ffn, dim), "mlp.down_proj": (dim, ffn),
          "eh_proj": (dim, 2 * dim), "enorm": (dim,), "hnorm": (dim,), "input_layernorm": (dim,), "post_attention_layernorm": (dim,),
          "shared_head.norm": (dim,)}
made = {at + k + ".weight": (torch.randn(s) * 0.1 if len(s) > 1 else 1 + 0.2 * torch.randn(s)) for k, s in shapes.items()}
ids = torch.randint(0, c["vocab_size"], (ROWS, LENGTH))
table = w["model.embed_tokens.weight"]
h = table[ids]
for i in range(layers):
    h = layer(h, lambda name: w[f"model.layers.{i}.{name}.weight"])
h = norm(h, w["model.norm.weight"])
p = {k: v.double().requires_grad_() for k, v in made.items()}
get = lambda name: p[at + name + ".weight"]
after = torch.cat((table[ids[:, 1:]], table[torch.zeros(ROWS, 1, dtype=torch.int64)]), 1)  # the last row has no loss, and no row sees it
x = torch.cat((norm(after, get("enorm")), norm(h, get("hnorm"))), -1) @ get("eh_proj").T
x = norm(layer(x, get), get("shared_head.norm"))
logits = x @ w.get("lm_head.weight", table).T
loss = torch.nn.functional.cross_entropy(logits[:, :-2].flatten(0, 1), ids[:, 2:].flatten())
loss.backward()
out = {"input_ids": ids.to(torch.int32), "loss": loss.detach()[None].float()}
out.update(made)
out.update({"grad." + k: v.grad.float() for k, v in p.items()})
save_file({k: v.contiguous() for k, v in out.items()}, "tests/golden/train/mtp.safetensors")
print(f"loss {loss.item():.12f}")
