"""A request that runs: its tokens as they come, and what it has made in the end."""
from __future__ import annotations

import ctypes
import math
import threading
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _header as h
from ._library import call, library, text_at
from .errors import ClosedError, FileError, InputError
from .params import Params
from .results import FINISH, Answer, PromptLogprobs, Result, Token, Usage, usage_of

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Request"]

WAIT_S = 0.1  # between two looks whether the interpreter wants to be heard (Ctrl-C)

FAILURES = {
    h.RG_FINISH_NO_WEIGHTS: (FileError, "experts that the answer needs could not be read"),
    h.RG_FINISH_NOT_FINITE: (InputError, "the model computed NaN or infinity: its weights are damaged, or too large for the recipe "
                                         "(recipe='exact' may help)"),
    h.RG_FINISH_LOST: (FileError, "ranks that computed the answer ended time and again"),
}


class Request:
    """One prompt and the answers to it, made by Engine.submit.  Iterating waits for tokens; `with` closes, and closing
    cancels what still runs.  Threads may share it: each token goes to one of them."""

    def __init__(self, engine: Engine, params: h.rg_params, ids: npt.NDArray[np.int32], stop: List[str], stop_ids: List[int],
                 source: Optional[Tuple[Request, int, int]] = None) -> None:
        self._engine, self._ids, self._stop, self._stop_ids = engine, ids, stop, stop_ids
        self._lock = threading.RLock()
        self._seen, self._ended = ctypes.c_uint64(), False
        self._n, self._logprobs = params.n_samples, params.sampling.n_logprobs >= 0
        self._prompt_scored, self._prompt_logits, self._trace = params.prompt_logprobs, params.prompt_logits, params.diffusion.trace
        self._scores = params.beam.n_beams > 0 or params.best_of > params.n_samples or params.search.simulations > 0
        self.seed: int = params.sampling.seed
        self._pointer: Optional[int] = None
        with engine._use() as pointer:
            self._pointer = (call("rg_submit", pointer, ctypes.byref(params)) if source is None else
                             call("rg_fork", pointer, source[0]._alive(), source[1], source[2], ctypes.byref(params)))
            engine._requests.add(self)

    # ---- tokens ----

    def poll(self) -> Optional[Token]:
        """The next token if there is one by now; else None, as after the last (see `ended`)."""
        token = h.rg_token()
        with self._lock:
            found = library.rg_poll(self._alive(), ctypes.byref(token))
            self._ended = found < 0
            if found <= 0:
                return None
            if token.finish in FAILURES:
                kind, text = FAILURES[token.finish]
                raise kind(text)
            return self._token(token)

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        while True:
            token = self.poll()
            if token is not None:
                return token
            if self._ended:
                raise StopIteration
            self._engine._wait(self._seen)

    def _token(self, t: h.rg_token) -> Token:
        stop: Union[str, int, None] = None
        if t.finish == h.RG_FINISH_STOP:
            stop = self._stop[t.stop] if t.stop >= 0 else t.stop_id if t.stop_id >= 0 else None
        return Token(t.sample, t.id, text_at(t, "text", t.n_text), None if math.isnan(t.logprob) else t.logprob,
                     [(t.top[k].id, t.top[k].logprob) for k in range(t.n_top)], FINISH[t.finish], stop)

    @property
    def ended(self) -> bool:
        """All tokens were read."""
        return self._ended

    def cancel(self) -> None:
        """Stop within one step; what was generated can still be read, and answers end as "cancelled"."""
        with self._lock:
            library.rg_cancel(self._alive())

    def fork(self, n_output: int, ids: Sequence[int] = (), params: Optional[Params] = None, *, sample: int = 0,
             **changes: Any) -> Request:
        """A request that goes on from where this one stands behind n_output ids of an answer, and then `ids`: it shares the
        state of what both begin with, and gives what Engine.submit gives for all these ids.  Adapter, tenant, salt and given
        rows are this request's."""
        with self._lock:
            return self._engine._fork(self, sample, n_output, ids, (params or Params()).replace(**changes))

    def result(self) -> Result:
        """Wait for the end, and give all of it.  Tokens that were iterated before are not in it."""
        answers = [Answer() for _ in range(self._n)]
        texts: List[List[str]] = [[] for _ in answers]
        logprobs: List[List[float]] = [[] for _ in answers]
        for token in self:
            answer = answers[token.sample]
            texts[token.sample].append(token.text)
            if token.id >= 0:
                answer.ids.append(token.id)
                if self._logprobs:
                    logprobs[token.sample].append(math.nan if token.logprob is None else token.logprob)
                    answer.top_logprobs.append(token.top)
            if token.finish_reason:
                answer.finish_reason, answer.stop = token.finish_reason, token.stop
        for k, answer in enumerate(answers):
            answer.text = "".join(texts[k])
            answer.logprobs = np.array(logprobs[k], np.float32) if self._logprobs else None
            answer.score = self.score(k) if self._scores else None
        return Result(self._ids.tolist(), answers, self.seed, self.usage, self.prompt_logprobs() if self._prompt_scored else None,
                      self.prompt_logits() if self._prompt_logits else None, self.trace() if self._trace else None)

    # ---- what it has made ----

    @property
    def prompt_ids(self) -> List[int]:
        return self._ids.tolist()

    @property
    def usage(self) -> Usage:
        with self._lock:
            return usage_of(library.rg_request_usage(self._alive()))

    def score(self, sample: int = 0) -> Optional[float]:
        """The score by which a beam search or best_of chose this answer; None before its end."""
        with self._lock:
            found = library.rg_request_answer_score(self._alive(), sample)
        return None if math.isnan(found) else found

    def prompt_logprobs(self) -> PromptLogprobs:
        """Of the ids of the prompt that are computed by now; of others NaN."""
        n = len(self._ids)
        logprobs, ranks = np.full(n, np.nan, np.float32), np.zeros(n, np.int32)
        tops: List[List[tuple[int, float]]] = [[] for _ in range(n)]
        one = h.rg_prompt_logprob()
        with self._lock:
            for i in range(1, n):
                if library.rg_request_prompt_logprob(self._alive(), i, ctypes.byref(one)):
                    logprobs[i], ranks[i] = one.logprob, one.rank
                    tops[i] = [(one.top[k].id, one.top[k].logprob) for k in range(one.n_top)]
        return PromptLogprobs(self._ids.copy(), logprobs, ranks, tops)

    def prompt_logits(self) -> npt.NDArray[np.float32]:
        """[positions that are computed, vocabulary]: row i has the raw logits of the id after position i."""
        rows, n = [], ctypes.c_int32()
        with self._lock:
            for i in range(len(self._ids)):
                row = library.rg_request_prompt_logits(self._alive(), i, ctypes.byref(n))
                if not row:
                    break
                rows.append(np.ctypeslib.as_array(row, (n.value,)))
            return np.array(rows, np.float32).reshape(len(rows), -1)

    def _vector(self, function: str) -> Optional[npt.NDArray[np.float32]]:
        n = ctypes.c_int32()
        with self._lock:
            numbers = getattr(library, function)(self._alive(), ctypes.byref(n))
            return np.ctypeslib.as_array(numbers, (n.value,)).copy() if numbers else None

    def trace(self, sample: int = 0) -> List[npt.NDArray[np.int32]]:
        """Of a diffusion model, the ids of prompt and answer after each evaluation."""
        rows: List[npt.NDArray[np.int32]] = []
        n = ctypes.c_int32()
        with self._lock:
            while True:
                ids = library.rg_request_trace(self._alive(), sample, len(rows), ctypes.byref(n))
                if not ids:
                    return rows
                rows.append(np.ctypeslib.as_array(ids, (n.value,)).copy())

    # ---- its end ----

    def _alive(self) -> int:
        if self._pointer is None:
            raise ClosedError("the request was closed")
        self._engine._check_process()
        return self._pointer

    def close(self) -> None:
        """Cancel it if it runs, and free it; more than once is fine."""
        with self._lock:
            pointer, self._pointer = self._pointer, None
            if pointer is not None and self._engine._is_own_process():
                library.rg_request_close(pointer)

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *why: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._pointer is None else "ended" if self._ended else "running"
        return f"<ridge.Request: {len(self._ids)} prompt ids, {state}>"
