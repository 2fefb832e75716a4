"""An engine: a model, its tokenizer, and the thread that runs it."""
from __future__ import annotations

import ctypes
import math
import os
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _header as h
from ._library import call, encoded, library
from .errors import BusyError, InputError, UsageError
from .handle import Handle
from .params import Params, array_of, put, struct_of
from .request import WAIT_S, Request
from .results import Found, Info, PromptLogprobs, Result, Token, info_of, plain
from .tokens import Ids, Message, Prompt, ids_of
from .vectors import Vectors

__all__ = ["Engine", "Host", "open"]

DEFAULT_TOKENS = 128  # of an answer, as `ridge run`


class Host(Handle):
    """What several engines of a process share: the threads that compute, and a budget of memory (0: no limit)."""

    _what = "host"

    def __init__(self, *, n_threads: int = 0, memory_bytes: int = 0) -> None:
        options = h.rg_host_options()
        put(options, n_threads=n_threads, memory_bytes=memory_bytes)
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet()
        super().__init__(call("rg_host_open", ctypes.byref(options)))

    @property
    def left(self) -> Optional[int]:
        """Bytes of the budget that no engine has; None: there is no limit."""
        with self._use() as pointer:
            left = library.rg_host_left(pointer)
        return None if left == 2**64 - 1 else left

    def close(self) -> None:
        """Its engines are to be closed before."""
        if any(not e.closed for e in self._engines) and self._is_own_process():
            raise UsageError("the host still has engines: close them first")
        super().close()

    def _free(self, pointer: int) -> None:
        library.rg_host_close(pointer)

    def __repr__(self) -> str:
        return f"<ridge.Host: {'closed' if self.closed else f'{sum(not e.closed for e in self._engines)} engines'}>"


class Engine(Vectors):
    """See `ridge.open`.  Any thread may call anything; what several threads ask runs in one batch."""

    _what = "engine"

    def __init__(self, path: Union[str, os.PathLike[str]], options: h.rg_options, host: Optional[Host] = None) -> None:
        self._host, self._requests = host, weakref.WeakSet[Request]()
        if host is None:
            pointer = call("rg_open", encoded(path, "path"), ctypes.byref(options))
        else:
            with host._use() as options.host:
                pointer = call("rg_open", encoded(path, "path"), ctypes.byref(options))
                host._engines.add(self)
        super().__init__(pointer)
        self._sampling = library.rg_engine_info(pointer).sampling
        self.path = os.fspath(path)
        self.info: Info = info_of(library.rg_engine_info(pointer))
        self.card: Dict[str, Any] = plain(library.rg_engine_card(pointer))

    def _free(self, pointer: int) -> None:
        for request in list(self._requests):
            request.close()
        library.rg_close(pointer)

    def __repr__(self) -> str:
        i = self.info
        return (f"<ridge.Engine {self.path}: {i.architecture}, {i.n_parameters / 1e6:.1f} M parameters, "
                f"{self.card['weight_type']}, {i.max_seq_len} positions{', closed' if self.closed else ''}>")

    # ---- facts ----

    @property
    def vocab_size(self) -> int:
        return self.info.vocab_size

    @property
    def adapters(self) -> List[str]:
        """Names of its adapters."""
        with self._use() as pointer:
            return [library.rg_engine_adapter(pointer, i).decode() for i in range(self.info.n_adapters)]

    def stats(self) -> Dict[str, Any]:
        """What it has done since it was opened: the members of rg_stats."""
        with self._use() as pointer:
            return plain(library.rg_engine_stats(pointer))

    def bandwidth(self) -> float:
        """Bytes per second that this machine reads weights at, at most; may take 0.3 s to be measured."""
        with self._use() as pointer:
            return library.rg_engine_bandwidth(pointer)

    def limits(self) -> Dict[str, Any]:
        """The machine's roofline with this model: bytes_s that it reads and ops_s operations in a second, at most.  0: it was not
        measured (open with profile_folder, step_s or pace)."""
        with self._use() as pointer:
            return plain(library.rg_engine_limits(pointer))

    def forecast(self, batch: int, context: int) -> Optional[Dict[str, Any]]:
        """What a step of so many sequences after so many positions is expected to take: the members of rg_forecast.  None: the
        machine was not measured (open with profile_folder, step_s or pace)."""
        out = h.rg_forecast()
        with self._use() as pointer:
            return plain(out) if library.rg_engine_forecast(pointer, batch, context, ctypes.byref(out)) else None

    def has_room(self, tenant: Optional[str] = None) -> bool:
        """A request of this tenant would be accepted now."""
        with self._use() as pointer:
            return library.rg_engine_has_room(pointer, encoded(tenant, "tenant"))

    def update_weights(self, path: Union[str, os.PathLike[str]]) -> None:
        """Replace the weights by those of another checkpoint of the same shapes and types, such as a training's next step.
        Requests that are there end first, by the old weights.  On an error the old ones stay."""
        with self._use() as pointer:
            call("rg_engine_update_weights", pointer, encoded(path, "path"))

    def show(self, tokens: Sequence[Union[int, str]]) -> None:
        """Special tokens, by id or text, that answers with show_marks=True show as their text: marks of reasoning and calls.
        Once, before such requests."""
        ids: List[int] = []
        for t in tokens:
            found = self.encode(t, add_special_tokens=False) if isinstance(t, str) else [t]
            if len(found) != 1:
                raise InputError(f"{t!r} is no special token")
            ids += found
        with self._use() as pointer:
            call("rg_engine_show", pointer, array_of(ctypes.c_int32, ids), len(ids))

    # ---- requests ----

    def submit(self, prompt: Prompt, params: Optional[Params] = None, **changes: Any) -> Request:
        """Hand a prompt, a text or ids, to the engine, and go on; the Request gives tokens as they come.  changes: parameters
        that replace those of params (see Params)."""
        return self._submit(self._ids(prompt), (params or Params()).replace(**changes), DEFAULT_TOKENS)

    def _fork(self, source: Request, sample: int, n_output: int, more: Sequence[int], p: Params) -> Request:
        ids = np.ascontiguousarray(more, np.int32)
        return self._submit(ids, p, DEFAULT_TOKENS, (source, sample, n_output))

    def _submit(self, ids: npt.NDArray[np.int32], p: Params, usual: int,
                source: Optional[Tuple[Request, int, int]] = None) -> Request:
        s = struct_of(p, ids, self._sampling, usual if p.max_tokens is None else p.max_tokens, self.info.given_dim)
        stop = [p.stop] if isinstance(p.stop, (str, bytes)) else list(p.stop)
        try:
            if p.grammar is None:
                return Request(self, s, ids, stop, list(p.stop_ids), source)
            with self._use() as pointer:
                grammar = p.grammar._struct()
                grammar.show_marks = p.show_marks
                s.grammar = call("rg_grammar_new", pointer, ctypes.byref(grammar))
            try:
                return Request(self, s, ids, stop, list(p.stop_ids), source)
            finally:
                library.rg_grammar_close(s.grammar)
        except BusyError as why:
            with self._use() as pointer:
                why.retry_after = library.rg_engine_retry_after(pointer)
            raise

    def _wait(self, seen: ctypes.c_uint64) -> None:
        """For the end of a step later than those seen, or a moment."""
        with self._use() as pointer:
            library.rg_engine_wait(pointer, ctypes.byref(seen), WAIT_S)

    def _run(self, jobs: Sequence[Callable[[], Request]], finish: Callable[[Request], Any]) -> List[Any]:
        """Run requests together, and give what `finish` makes of each.  Enough are in the queue to fill the engine; one that
        finds the queue full waits for those before it."""
        running: List[Request] = []
        out: List[Any] = []
        most, n = 2 * self.card["max_seqs"], 0
        try:
            while len(out) < len(jobs):
                while n < len(jobs) and len(running) < most:
                    try:
                        running.append(jobs[n]())
                    except BusyError:
                        if not running:
                            raise
                        break
                    n += 1
                with running.pop(0) as request:
                    out.append(finish(request))
            return out
        finally:
            for request in running:
                request.close()

    def _answer(self, ids: Sequence[npt.NDArray[np.int32]], params: Union[Params, Sequence[Params], None], changes: Dict[str, Any],
                usual: int) -> List[Any]:
        each = [params or Params()] * len(ids) if params is None or isinstance(params, Params) else list(params)
        if len(each) != len(ids):
            raise InputError(f"{len(each)} parameters for {len(ids)} prompts")
        own = [p.replace(**changes) for p in each]
        return self._run([lambda i=i: self._submit(ids[i], own[i], usual) for i in range(len(ids))], Request.result)

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]], params: Union[Params, Sequence[Params], None] = None,
                 **changes: Any) -> Any:
        """Answers to prompts, which run in one batch: a Result for one prompt (a text, or ids), a list of them for a list.
        params: for all, or a list with one for each."""
        ids, shaped = self._prompts(prompts)
        return shaped(self._answer(ids, params, changes, DEFAULT_TOKENS))

    def stream(self, prompt: Prompt, params: Optional[Params] = None, **changes: Any) -> Iterator[Token]:
        """The tokens of an answer as they come; leaving the loop cancels the request."""
        return self._stream(self.submit(prompt, params, **changes))

    @staticmethod
    def _stream(request: Request) -> Iterator[Token]:
        with request:
            yield from request

    def chat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]], params: Optional[Params] = None, *,
             tools: Optional[Sequence[Mapping[str, Any]]] = None, variables: Optional[Mapping[str, Any]] = None,
             continue_final_message: bool = False, **changes: Any) -> Any:
        """The answer to a conversation by the checkpoint's chat template: a Result, or a list of them for several
        conversations, in one batch.  tools, variables: as the template takes them."""
        several = len(messages) > 0 and not isinstance(messages[0], Mapping)
        ids = [ids_of(self.encode_chat(m, tools, variables=variables, continue_final_message=continue_final_message,
                                       add_generation_prompt=not continue_final_message))
               for m in (messages if several else [messages])]  # type: ignore[list-item, misc]
        results = self._answer(ids, params, changes, self.info.max_seq_len)
        return results if several else results[0]

    def stream_chat(self, messages: Sequence[Message], params: Optional[Params] = None, *,
                    tools: Optional[Sequence[Mapping[str, Any]]] = None, variables: Optional[Mapping[str, Any]] = None,
                    continue_final_message: bool = False, **changes: Any) -> Iterator[Token]:
        """The same, token by token."""
        ids = self.encode_chat(messages, tools, variables=variables, continue_final_message=continue_final_message,
                               add_generation_prompt=not continue_final_message)
        return self._stream(self._submit(ids_of(ids), (params or Params()).replace(**changes), self.info.max_seq_len))

    # ---- what the model thinks of a prompt ----

    def prompt_logprobs(self, prompts: Union[Prompt, Sequence[Prompt]], *, top: int = 0) -> Any:
        """PromptLogprobs of one prompt, or a list of them for a list: how likely each id is after those before it, its rank,
        and the `top` best ids beside it.  Nothing is generated."""
        ids, shaped = self._prompts(prompts)
        results: List[Result] = self._answer(ids, Params(max_tokens=0, prompt_logprobs=top), {}, 0)
        found: List[Optional[PromptLogprobs]] = [r.prompt_logprobs for r in results]
        return shaped(found)

    def logits(self, prompts: Union[Prompt, Sequence[Prompt]]) -> Any:
        """[n, vocabulary] raw logits of one prompt, or a list of such arrays for a list: row i is of the id after position i.
        Those of `ridge logits` if the engine was opened with recipe="exact" and kv_type="f32"."""
        ids, shaped = self._prompts(prompts)
        results = self._answer(ids, Params(max_tokens=0, prompt_logprobs=0, prompt_logits=True), {}, 0)
        return shaped([r.prompt_logits for r in results])

    def search(self, prompt: Prompt, params: Optional[Params] = None, *, simulations: int = 64, leaves: int = 0, width: int = 0,
               span: int = 0, rollout: int = 0, explore: Optional[float] = None, length_penalty: float = 0.0,
               score: Optional[Callable[[List[int], npt.NDArray[np.float32]], float]] = None, reranker: Optional[Engine] = None,
               query: Optional[str] = None, **changes: Any) -> Found:
        """Monte Carlo tree search for the answer that `score(ids, logprobs)` likes best, or another engine that scores pairs of
        `query` and the answer's text; neither: the sum of its log-probabilities.  0 and None: as the engine has it
        (rg_search_params in ridge.h).  An exception of score's ends the search and is raised here."""
        ids, failed = self._ids(prompt), []
        p = (params or Params()).replace(**changes)
        s = struct_of(p, ids, self._sampling, DEFAULT_TOKENS if p.max_tokens is None else p.max_tokens, self.info.given_dim)
        put(s.search, simulations=simulations, leaves=leaves, width=width, span=span, rollout=rollout, length_penalty=length_penalty)
        s.search.explore = 0.0 if explore is None else explore or -1.0
        running: List[Request] = []

        def value(_: Any, at: Any, logprobs: Any, n: int) -> float:
            try:
                return float(score(at[:n], np.array(logprobs[:n], np.float32)))  # type: ignore[misc]
            except BaseException as why:  # told below: none can pass through C
                failed.append(why)
                running[0].cancel()
                return 0.0

        scorer = h.rg_scorer()
        if score is not None:
            scorer.score = h.rg_score(value)
        if reranker is not None:
            text = encoded(query, "query") or b""
            scorer.query, scorer.n_query = text, len(text)
            with reranker._use() as pointer:
                scorer.reranker = pointer
        if score is not None or reranker is not None:
            s.scorer = ctypes.pointer(scorer)
        stop = [p.stop] if isinstance(p.stop, (str, bytes)) else list(p.stop)
        with Request(self, s, ids, stop, list(p.stop_ids)) as request:
            running.append(request)
            result = request.result()
            if failed:
                raise failed[0] from None
            usage, found = result.usage, request.score(0)
        best = result.answers[0]
        return Found(best.ids, best.text if self.info.has_tokenizer else None, best.finish_reason == "stop",
                     math.nan if found is None else found, usage.n_nodes, usage.n_simulations, usage.n_rows)


def open(path: Union[str, os.PathLike[str]], *, host: Optional[Host] = None, n_threads: int = 0, pin: bool = False,
         numa_copies: bool = False, isa: str = "auto", recipe: str = "fast", sparsity: Optional[str] = None,
         attention_sparsity: float = 0, whole_head: bool = False, kv_type: Optional[str] = None, max_seq_len: int = 0, max_seqs: int = 0, max_batch_rows: int = 0, kv_bytes: int = 0,
         max_waiting: int = 0, max_waiting_ids: int = 0, max_wait_s: float = 0, step_s: float = 0, pace: float = 0,
         share_prefixes: bool = False, static_batching: bool = False, prefix_cache: bool = True,
         prefix_folder: Union[str, os.PathLike[str], None] = None, prefix_bytes: int = 0,
         pack_cache: Union[str, os.PathLike[str], None] = None, draft: Optional[str] = None, verify: Optional[str] = None,
         max_draft: int = 0, preempt: Optional[str] = None, expert_bytes: int = 0,
         adapters: Optional[Mapping[str, Union[str, os.PathLike[str]]]] = None,
         chat_template: Union[str, os.PathLike[str], None] = None, profile_folder: Union[str, os.PathLike[str], None] = None,
         progress: Optional[Callable[[str, float], None]] = None) -> Engine:
    """Open a checkpoint (a GGUF file or a Hugging Face folder) and start its engine.

    Options are those of rg_options in ridge.h, with its meanings of 0 and None: `n_threads` (0: physical cores within the
    quota), `recipe` ("fast", "exact", "llm.int8", "round16"), `attention_sparsity` (a threshold; lossy), `kv_type` ("f32", "f16", "bf16", "q8", "q4"), `max_seq_len`, `max_seqs`
    (sequences that run at once), `kv_bytes` (memory for their state), `prefix_folder` (cached prefixes are kept there as files, `prefix_bytes` of them), `draft` ("auto", "ngram", a path ...; answers are the
    same with it), `adapters` (name: path), `chat_template` (a file, or one of the checkpoint's by name).  `host`: run beside
    the host's other engines, with its threads and its budget.  `progress(what, done)` is called while opening."""
    options = library.rg_options_default()
    put(options, n_threads=n_threads, pin=pin, numa_copies=numa_copies, max_seq_len=max_seq_len, max_seqs=max_seqs,
        max_batch_rows=max_batch_rows, kv_bytes=kv_bytes, max_waiting=max_waiting, max_waiting_ids=max_waiting_ids,
        max_wait_s=max_wait_s, step_s=step_s, pace=pace, share_prefixes=share_prefixes, static_batching=static_batching,
        no_prefix_cache=not prefix_cache, prefix_bytes=prefix_bytes, max_draft=max_draft, expert_bytes=expert_bytes, attention_sparsity=attention_sparsity, whole_head=whole_head)
    for name, text in (("isa", isa), ("recipe", recipe), ("sparsity", sparsity), ("kv_type", kv_type), ("pack_cache", pack_cache),
                       ("prefix_folder", prefix_folder),
                       ("draft", draft), ("verify", verify), ("preempt", preempt), ("chat_template", chat_template),
                       ("profile_folder", profile_folder)):
        setattr(options, name, encoded(text, name))
    named = [h.rg_adapter_option(name=encoded(n, "an adapter's name"), path=encoded(p, "an adapter's path"))
             for n, p in (adapters or {}).items()]
    options.adapters, options.n_adapters = array_of(h.rg_adapter_option, named), len(named)
    if progress is not None:
        tell = progress
        options.progress = type(options.progress)(lambda _, what, done: tell(what.decode(), 1.0 if math.isnan(done) else done))
    return Engine(path, options, host)
