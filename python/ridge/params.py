"""How an answer is made: Params, and Grammar for what it must be."""
from __future__ import annotations

import ctypes
import dataclasses
import difflib
import json
import random
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from . import _header as h
from ._library import encoded, library
from .errors import InputError

__all__ = ["Params", "Grammar", "Thinking"]


@dataclass(frozen=True)
class Grammar:
    """What an answer must be.  Make one with the functions below; it may be used by any number of requests, and the engine
    keeps it compiled.

    after: the answer is free until this text first occurs in it, and bound behind it: "</think>" leaves the model's
    reasoning free.  open_objects: objects of a JSON schema may have properties that it does not list, unless it says that
    they may not."""

    kind: int
    text: str
    after: Optional[str] = None
    open_objects: bool = False

    @classmethod
    def json_schema(cls, schema: Any, *, after: Optional[str] = None, open_objects: bool = False) -> Grammar:
        """JSON of a schema: a dict, its text, or a Pydantic model."""
        if hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return cls(h.RG_GRAMMAR_JSON_SCHEMA, text, after, open_objects)

    @classmethod
    def json(cls, *, after: Optional[str] = None) -> Grammar:
        """Any JSON object."""
        return cls(h.RG_GRAMMAR_JSON, "", after)

    @classmethod
    def regex(cls, pattern: str, *, after: Optional[str] = None) -> Grammar:
        """The whole answer matches."""
        return cls(h.RG_GRAMMAR_REGEX, pattern, after)

    @classmethod
    def choice(cls, texts: Sequence[str], *, after: Optional[str] = None) -> Grammar:
        """One of these texts."""
        return cls(h.RG_GRAMMAR_CHOICE, json.dumps(list(texts)), after)

    @classmethod
    def gbnf(cls, rules: str, *, after: Optional[str] = None) -> Grammar:
        """Rules as in GBNF files: 'root ::= ...'."""
        return cls(h.RG_GRAMMAR_GBNF, rules, after)

    @classmethod
    def lark(cls, rules: str, *, after: Optional[str] = None) -> Grammar:
        """Rules and terminals as in Lark's files: 'start: ...'."""
        return cls(h.RG_GRAMMAR_LARK, rules, after)

    def _struct(self) -> h.rg_grammar_source:
        text = self.text.encode()
        return h.rg_grammar_source(kind=self.kind, text=text, n=len(text), after=encoded(self.after, "after"),
                                   open_objects=self.open_objects)


@dataclass(frozen=True)
class Thinking:
    """A budget for the reasoning that a model writes before its answer: once it is used up, the ids `end` are forced, which end
    the reasoning.  start: ids that begin it; none: the answer begins within it."""

    budget: int
    end: Sequence[int]
    start: Sequence[int] = ()


@dataclass(frozen=True)
class Params:
    """How an answer is made.  None: as the checkpoint says (its generation_config), or else off.  Names, ranges and the order
    of the rules are those of `ridge run` and of the server."""

    max_tokens: Optional[int] = None       # None: 128; of a chat, what the context has room for
    n: int = 1                             # answers, which share the prompt
    best_of: int = 0                       # above n: so many are drawn, and the likeliest are told
    seed: Optional[int] = None             # None: drawn, and told in the result
    temperature: Optional[float] = None    # 0: greedy
    top_k: Optional[int] = None
    top_p: Optional[float] = None
    min_p: Optional[float] = None
    typical_p: Optional[float] = None
    repetition_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    penalty_last_n: Optional[int] = None
    min_tokens: Optional[int] = None
    ignore_eos: Optional[bool] = None
    no_repeat_ngram: Optional[int] = None
    dry_multiplier: Optional[float] = None
    dry_base: Optional[float] = None
    dry_allowed_length: Optional[int] = None
    dry_penalty_last_n: Optional[int] = None
    dry_breakers: Optional[Sequence[str]] = None
    xtc_probability: Optional[float] = None
    xtc_threshold: Optional[float] = None
    top_n_sigma: Optional[float] = None
    dynatemp_range: Optional[float] = None
    dynatemp_exponent: Optional[float] = None
    mirostat: Optional[int] = None
    mirostat_tau: Optional[float] = None
    mirostat_eta: Optional[float] = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # -inf bans the id
    logprobs: Optional[int] = None         # log-probabilities of each id and of the k best; None: none
    logprobs_drawn: bool = False           # of the distribution that ids are drawn from, after all rules, not of the raw logits
    prompt_logprobs: Optional[int] = None  # likewise of the prompt's ids
    prompt_logits: bool = False            # the logits of every position of the prompt; needs prompt_logprobs
    stop: Union[str, Sequence[str]] = ()   # texts that end an answer and are not part of it
    stop_ids: Sequence[int] = ()
    grammar: Optional[Grammar] = None
    # Rows in place of ids, as encoders of pictures and of sound make them: [n, Info.given_dim] numbers from this position on; at
    # these positions the prompt has -1.  A row stands for what the embedding gives for an id, scaled as the family scales it.
    given: Mapping[int, npt.ArrayLike] = field(default_factory=dict)
    thinking: Optional[Thinking] = None
    predicted: Sequence[int] = ()          # ids that the answer is expected to be made of mostly: drafts; they change no answer
    show_marks: bool = False               # special tokens given to Engine.show are part of the text
    n_beams: int = 0                       # beam search
    length_penalty: float = 1.0
    early_stopping: Union[bool, str] = False  # True, False, "never"
    n_beam_groups: int = 0
    diversity: float = 0.0
    adapter: Optional[str] = None          # the name of one of the engine's adapters
    tenant: Optional[str] = None
    tenant_weight: float = 0.0
    cache_salt: Optional[str] = None
    uncached: bool = False                 # nothing is taken from cached prefixes
    priority: int = 0
    background: bool = False
    deadline_s: float = 0.0                # so many seconds after it began it ends with what it has; 0: never
    steps: int = 0                         # of diffusion models, as are the others
    block: int = 0
    remasking: Optional[str] = None        # "low_confidence", "entropy", "margin", "sequential", "dynamic"
    cfg_scale: float = 0.0
    threshold: float = 0.0
    diffusion_cache: str = "none"          # "none", "prefix", "dual"
    trace: bool = False

    def replace(self, **changes: Any) -> Params:
        """The same with changes; a name that there is not raises TypeError."""
        for name in changes:
            if name not in _NAMES:
                close = difflib.get_close_matches(name, _NAMES, 1)
                raise TypeError(f"no parameter is called {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        return dataclasses.replace(self, **changes) if changes else self


_NAMES = [f.name for f in dataclasses.fields(Params)]
_OF_SAMPLING = [name for name, _ in h.rg_sampling._fields_ if name in _NAMES and name not in ("seed", "dry_breakers")]
_ALIKE = ["best_of", "show_marks", "tenant_weight", "uncached", "priority", "background", "deadline_s", "prompt_logits"]


def put(struct: ctypes.Structure, **values: Any) -> None:
    """Set members; a number that does not fit into its member is refused, where ctypes would cut it."""
    for name, value in values.items():
        try:
            setattr(struct, name, value)
        except TypeError as why:
            raise TypeError(f"{name}: {why}") from None
        if isinstance(getattr(struct, name), int) and getattr(struct, name) != value:
            raise InputError(f"{name} is {value}: no such number is taken")


def texts_of(texts: Union[str, Sequence[str]], what: str) -> list[bytes]:
    return [encoded(t, what) or b"" for t in ([texts] if isinstance(texts, (str, bytes)) else texts)]


def array_of(kind: Any, items: Sequence[Any]) -> Any:
    """A C array, or NULL of nothing."""
    array = (kind * len(items))(*items)
    if kind is ctypes.c_int32 and list(array) != list(items):
        raise InputError(f"{next(i for i, x in zip(items, array) if i != x)} is no id of a token")
    return array if items else None


def _word(function: str, word: str, what: str) -> int:
    found = getattr(library, function)(encoded(word, what))
    if found < 0:
        raise InputError(f"{what} {word!r} is not known")
    return found


def _given(p: Params, dim: int) -> list[tuple[int, npt.NDArray[np.float32]]]:
    """Places and rows, in their order."""
    out = []
    for at in sorted(p.given):
        rows = np.ascontiguousarray(p.given[at], np.float32)
        if rows.ndim != 2 or rows.shape[1] != dim or not rows.size:
            raise InputError(f"given[{at}] has the shape {list(rows.shape)}: want rows of {dim} numbers, [n, {dim}]")
        out.append((at, rows))
    return out


def struct_of(p: Params, ids: Any, sampling: h.rg_sampling, max_tokens: int, given_dim: int) -> h.rg_params:
    """The parameters as rg_submit takes them; the struct keeps what it points to, but for ids.  sampling: the checkpoint's own."""
    s = h.rg_params(prompt=ctypes.cast(ids.ctypes.data, ctypes.POINTER(ctypes.c_int32)), n_prompt=len(ids), sampling=sampling)
    own = {name: getattr(p, name) for name in _OF_SAMPLING if getattr(p, name) is not None}
    put(s.sampling, seed=random.getrandbits(52) if p.seed is None else p.seed,
        n_logprobs=-1 if p.logprobs is None else p.logprobs, **own)
    put(s, max_tokens=max_tokens, n_samples=p.n, n_prompt_tops=p.prompt_logprobs or 0, **{name: getattr(p, name) for name in _ALIKE})
    s.prompt_logprobs = p.prompt_logprobs is not None
    array_of(ctypes.c_int32, list(p.logit_bias))
    s.sampling.bias = array_of(h.rg_logit_bias, [h.rg_logit_bias(id=i, bias=b) for i, b in p.logit_bias.items()])
    s.sampling.n_bias = len(p.logit_bias)
    if p.dry_breakers is not None:
        breakers = texts_of(p.dry_breakers, "dry_breakers")
        s.sampling.dry_breakers = array_of(ctypes.c_char_p, breakers) or (ctypes.c_char_p * 1)()
        s.sampling.n_dry_breakers = len(breakers)
    stop = texts_of(p.stop, "stop")
    s.stop, s.n_stop = array_of(ctypes.c_char_p, stop), len(stop)
    s.stop_ids, s.n_stop_ids = array_of(ctypes.c_int32, list(p.stop_ids)), len(p.stop_ids)
    s.rows = _given(p, given_dim)  # no member: it keeps them as long as the struct is there
    given = [h.rg_given_rows(n=len(rows), rows=rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))) for _, rows in s.rows]
    for one, (at, _) in zip(given, s.rows):
        put(one, at=at)
    s.given, s.n_given = array_of(h.rg_given_rows, given), len(given)
    s.predicted, s.n_predicted = array_of(ctypes.c_int32, list(p.predicted)), len(p.predicted)
    if p.thinking is not None:
        put(s.thinking, budget=p.thinking.budget)
        s.thinking.end, s.thinking.n_end = array_of(ctypes.c_int32, list(p.thinking.end)), len(p.thinking.end)
        s.thinking.start, s.thinking.n_start = array_of(ctypes.c_int32, list(p.thinking.start)), len(p.thinking.start)
    s.adapter, s.tenant, s.cache_salt = (encoded(getattr(p, x), x) for x in ("adapter", "tenant", "cache_salt"))
    _search(p, s)
    return s


def _search(p: Params, s: h.rg_params) -> None:
    """Of beam search and of diffusion models."""
    put(s.beam, n_beams=p.n_beams, length_penalty=p.length_penalty, n_groups=p.n_beam_groups, diversity=p.diversity,
        early_stopping=_word("rg_early_stopping_find", str(p.early_stopping).lower(), "early_stopping"))
    put(s.diffusion, steps=p.steps, block=p.block, cfg_scale=p.cfg_scale, threshold=p.threshold, trace=p.trace,
        cache=_word("rg_diffusion_cache_find", p.diffusion_cache, "diffusion_cache"))
    if p.remasking is not None:
        s.diffusion.remasking = _word("rg_remasking_find", p.remasking, "remasking")
