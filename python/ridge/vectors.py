"""Embeddings, and scores of pairs of texts."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _header as h
from ._library import call, encoded, library
from .errors import InputError, UnsupportedError
from .params import Params, struct_of
from .request import Request
from .results import POOLINGS, Info, Ranked
from .tokens import Prompt, Tokens, bytes_of, ids_of, is_one, taken_ids

__all__ = ["Vectors"]


@dataclass
class _Text:
    """A text, or a pair, as ids; rg_text_ids says what its members mean."""

    ids: npt.NDArray[np.int32]
    pool_from: int = 0
    second: int = 0


class Vectors(Tokens):
    """The part of Engine that makes vectors and scores of texts."""

    info: Info

    def _run(self, jobs: Sequence[Callable[[], Request]], finish: Callable[[Request], Any]) -> List[Any]:
        raise NotImplementedError

    def _options(self, truncate: bool, prompt_name: Optional[str]) -> h.rg_text_options:
        info = self.info
        most = min(info.max_whole_rows, info.max_embed_ids) if info.is_encoder else info.max_embed_ids
        return h.rg_text_options(prompt=encoded(prompt_name, "prompt_name"), max_ids=most if truncate else 0)

    def _made(self, function: str, text: Any, n: Any, options: h.rg_text_options) -> _Text:
        out = h.rg_text_ids()
        with self._use() as pointer:
            call(function, pointer, text, n, ctypes.byref(options), ctypes.byref(out))
        return _Text(ids_of(taken_ids(out.ids, out.n)), out.pool_from, out.second)

    def _text(self, text: Prompt, options: h.rg_text_options) -> _Text:
        if isinstance(text, (str, bytes)):
            return self._made("rg_encode_to_embed", bytes_of(text), len(bytes_of(text)), options)
        ids = ids_of(text)
        with self._use() as pointer:
            second = library.rg_pair_second(pointer, ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), len(ids))
        return _Text(ids, 0, second)

    def _job(self, text: _Text, **members: Any) -> Callable[[], Request]:
        def submit() -> Request:
            params = struct_of(Params(seed=0), text.ids, h.rg_sampling(n_logprobs=-1), 0, self.info.given_dim)
            params.pool_from, params.second = text.pool_from, text.second
            for name, value in members.items():
                setattr(params, name, value)
            return Request(self, params, text.ids, [], [])  # type: ignore[arg-type]
        return submit

    @staticmethod
    def _vector(function: str) -> Callable[[Request], npt.NDArray[np.float32]]:
        def read(request: Request) -> npt.NDArray[np.float32]:
            reason = None
            for token in request:
                reason = token.finish_reason
            vector = request._vector(function)
            if vector is None:
                raise InputError(f"nothing was made of the text: its request ended as {reason!r}")
            return vector
        return read

    def prompt_names(self) -> List[str]:
        """The checkpoint's prompts for texts that are embedded."""
        names: List[str] = []
        with self._use() as pointer:
            while True:
                name = library.rg_engine_prompt(pointer, len(names))
                if name is None:
                    return names
                names.append(name.decode())

    def embed(self, texts: Union[Prompt, Sequence[Prompt]], *, pooling: str = "model", prompt_name: Optional[str] = None,
              truncate: bool = False, normalize: bool = False, dim: Optional[int] = None) -> npt.NDArray[np.float32]:
        """[n, dim] embeddings of texts (or of ids), or [dim] of one alone.

        pooling: "model" (as the checkpoint says, with what it has behind the pooling), "last", "mean", "cls", "max",
        "sqrt_mean", "weighted_mean".  prompt_name: which of the checkpoint's prompts stands in front of each text; "": none;
        None: its default one.  truncate: cut texts to what the model takes.  dim: cut vectors to their first numbers.
        normalize: divide each by its length, after that."""
        if pooling not in POOLINGS:
            raise InputError(f"pooling {pooling!r} is not one of {', '.join(POOLINGS)}")
        if dim is not None and dim < 1:
            raise InputError(f"dim is {dim}: want 1 or more")
        options, one = self._options(truncate, prompt_name), is_one(texts)
        made = [self._text(t, options) for t in ([texts] if one else texts)]  # type: ignore[list-item]
        rows = self._run([self._job(t, embed=POOLINGS[pooling]) for t in made], self._vector("rg_request_embedding"))
        out = np.array(rows, np.float32) if rows else np.empty((0, self.info.embed_dim), np.float32)
        if dim is not None and dim > out.shape[1]:
            raise InputError(f"dim is {dim}, and embeddings have {out.shape[1]} numbers")
        out = out[:, :dim]
        if normalize:
            length = np.sqrt(np.cumsum(out.astype(np.float64) ** 2, axis=1)[:, -1:])  # added one by one, as `ridge embed` does
            out = (out / np.where(length > 0, length, 1)).astype(np.float32)
        return out[0] if one else out

    def score(self, pairs: Sequence[Tuple[str, str]], *, truncate: bool = False) -> npt.NDArray[np.float32]:
        """[n] scores of pairs of texts by a reranker's head, or [n, labels] if it gives several: its own numbers, without a
        sigmoid."""
        if not self.info.n_labels:
            raise UnsupportedError(f"{self.info.architecture} has no head that scores pairs of texts")
        options, made = self._options(truncate, None), []
        for first, second in pairs:
            texts = (ctypes.c_char_p * 2)(bytes_of(first), bytes_of(second))
            sizes = (ctypes.c_size_t * 2)(len(bytes_of(first)), len(bytes_of(second)))
            made.append(self._made("rg_encode_pair_to_score", texts, sizes, options))
        rows = self._run([self._job(t, score=True) for t in made], self._vector("rg_request_head_scores"))
        out = np.array(rows, np.float32).reshape(len(rows), self.info.n_labels)
        return out[:, 0] if self.info.n_labels == 1 else out

    def rerank(self, query: str, documents: Sequence[str], *, top_n: Optional[int] = None, truncate: bool = False) -> List[Ranked]:
        """Documents by how well they answer a query, best first."""
        scores = self.score([(query, d) for d in documents], truncate=truncate)
        if scores.ndim != 1:
            raise UnsupportedError(f"the head of {self.info.architecture} gives {self.info.n_labels} scores: use score()")
        order = sorted(range(len(documents)), key=lambda i: (-scores[i], i))
        return [Ranked(i, float(scores[i]), documents[i]) for i in order[:top_n]]
