"""What requests give: tokens as they come, answers, and facts of an engine."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, List, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _header as h

__all__ = ["Token", "Answer", "Result", "PromptLogprobs", "Ranked", "Usage", "Info", "Found"]

FINISH = {h.RG_RUNNING: None, h.RG_FINISH_STOP: "stop", h.RG_FINISH_LENGTH: "length", h.RG_FINISH_CANCELLED: "cancelled",
          h.RG_FINISH_DEADLINE: "deadline", h.RG_FINISH_GRAMMAR: "grammar", h.RG_FINISH_NO_WEIGHTS: "no_weights",
          h.RG_FINISH_NOT_FINITE: "not_finite", h.RG_FINISH_LOST: "lost"}
POOLINGS = {"model": h.RG_POOLING_MODEL, "last": h.RG_POOLING_LAST, "mean": h.RG_POOLING_MEAN, "cls": h.RG_POOLING_CLS,
            "max": h.RG_POOLING_MAX, "sqrt_mean": h.RG_POOLING_SQRT_MEAN, "weighted_mean": h.RG_POOLING_WEIGHTED_MEAN}
UNCACHED = {h.RG_UNCACHED_NOTHING: "nothing", h.RG_UNCACHED_NEW: "new", h.RG_UNCACHED_GONE: "gone", h.RG_UNCACHED_OFF: "off"}

Top = Tuple[int, float]  # an id and its log-probability


@dataclass(frozen=True)
class Token:
    """One id of an answer, or the end of one.  str() is its text."""

    sample: int                  # which answer, from 0
    id: int                      # -1: no id, only text that was held back, or the end
    text: str                    # whole characters that are certain from now on
    logprob: Optional[float]     # natural logarithm, of the raw logits; None unless asked for
    top: List[Top]               # the best ids, best first
    finish_reason: Optional[str]  # in the last token of an answer: "stop", "length", "cancelled", "deadline", "grammar"
    stop: Union[str, int, None]  # in the last token: the stop text or stop id that ended the answer

    def __str__(self) -> str:
        return self.text


@dataclass
class Answer:
    """One answer.  str() is its text."""

    ids: List[int] = field(default_factory=list)
    text: str = ""
    finish_reason: Optional[str] = None
    stop: Union[str, int, None] = None
    logprobs: Optional[npt.NDArray[np.float32]] = None  # [n ids]; None unless asked for
    top_logprobs: List[List[Top]] = field(default_factory=list)
    score: Optional[float] = None  # of beam search and best_of

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class PromptLogprobs:
    """Log-probabilities of a prompt's own ids; nothing comes before the first, whose logprob is NaN and rank 0."""

    ids: npt.NDArray[np.int32]         # [n]
    logprobs: npt.NDArray[np.float32]  # [n] natural logarithms, of the raw logits
    ranks: npt.NDArray[np.int32]       # [n] among all ids, from 1
    top: List[List[Top]]               # [n] the best ids at each place, best first


@dataclass(frozen=True)
class Usage:
    """What a request took; times in seconds, as in rg_usage."""

    n_prompt: int
    n_cached: int
    n_output: int
    n_prefilled: int
    n_preempted: int
    n_lost: int  # how often what was computed for it was lost with a rank
    n_steps: int
    n_drafted: int
    n_accepted: int
    n_predicted_accepted: int  # of these, ids of Params.predicted
    uncached: str
    n_rows: int  # computed for it
    search_blocks: int
    search_blocks_unshared: int
    search_blocks_copied: int
    n_simulations: int  # of a tree search, as is n_nodes
    n_nodes: int
    search_positions: int
    queue_s: float
    ttft_s: float
    total_s: float
    paced_s: float  # of n_paced ids, for the pace of generation
    n_paced: int
    steps_s: float
    limit_s: float


@dataclass(frozen=True)
class Result:
    """The answers to one prompt; the members of the first stand here too, and str() is its text."""

    prompt_ids: List[int]
    answers: List[Answer]
    seed: int
    usage: Usage
    prompt_logprobs: Optional[PromptLogprobs] = None
    prompt_logits: Optional[npt.NDArray[np.float32]] = None  # [n, vocabulary]
    trace: Optional[List[npt.NDArray[np.int32]]] = None      # of a diffusion model: ids after each evaluation

    @property
    def text(self) -> str:
        return self.answers[0].text

    @property
    def ids(self) -> List[int]:
        return self.answers[0].ids

    @property
    def logprobs(self) -> Optional[npt.NDArray[np.float32]]:
        return self.answers[0].logprobs

    @property
    def top_logprobs(self) -> List[List[Top]]:
        return self.answers[0].top_logprobs

    @property
    def finish_reason(self) -> Optional[str]:
        return self.answers[0].finish_reason

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Ranked:
    """A document that was ranked: its place in the list that was given, and the head's own score."""

    index: int
    score: float
    document: str


@dataclass(frozen=True)
class Found:
    """The best answer that a tree search saw."""

    ids: List[int]
    text: Optional[str]
    ended: bool
    score: float
    n_nodes: int
    n_simulations: int
    n_rows: int  # that were computed


@dataclass(frozen=True)
class Info:
    """Facts of an engine, as in rg_info."""

    architecture: str
    isa: str
    recipe: str
    kv_type: str
    attention_sparsity: float  # 0: attention leaves nothing out
    n_threads: int
    vocab_size: int
    max_seq_len: int
    bos_id: int
    eos_ids: List[int]
    n_parameters: int
    weight_bytes: int
    state_bytes: int
    position_bytes: int
    sequence_bytes: int
    has_tokenizer: bool
    generates: bool
    is_encoder: bool
    is_diffusion: bool
    max_whole_rows: int
    n_labels: int
    dim: int
    given_dim: int  # numbers of a row of Params.given
    embed_dim: int
    max_embed_ids: int
    embed: Optional[str]
    embed_refusal: str
    embed_sizes: Optional[List[int]]  # None: any length
    sampling: dict[str, Any]
    n_unused_tensors: int
    notes: str
    draft: str
    draft_path: str
    n_adapters: int
    adapter_bytes: int
    call_id_chars: int


def plain(struct: ctypes.Structure) -> dict[str, Any]:
    """A struct's numbers and texts; pointers are left out."""
    out = {}
    for name, *_ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, bytes):
            out[name] = value.decode("utf-8", "replace")
        elif isinstance(value, (bool, int, float)):
            out[name] = value
        elif isinstance(value, ctypes.Array):
            out[name] = list(value)
    return out


def info_of(i: h.rg_info) -> Info:
    facts = plain(i)
    eos = [i.eos_ids[k] for k in range(facts.pop("n_eos"))]
    n_sizes = facts.pop("n_embed_sizes")
    facts["embed"] = next((name for name, how in POOLINGS.items() if how == i.embed), None)
    facts["embed_refusal"] = facts.get("embed_refusal", "")
    return Info(**facts, eos_ids=eos, embed_sizes=None if n_sizes < 0 else [i.embed_sizes[k] for k in range(n_sizes)],
                sampling=plain(i.sampling))


def usage_of(u: h.rg_usage) -> Usage:
    return Usage(**{**plain(u), "uncached": UNCACHED[u.uncached]})
