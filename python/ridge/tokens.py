"""Text to ids and back, and conversations by the checkpoint's own template."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _header as h
from ._library import call, library
from .errors import InputError
from .handle import Handle

Ids = Union[Sequence[int], npt.NDArray[np.integer]]
Prompt = Union[str, bytes, Ids]
Message = Mapping[str, Any]

__all__ = ["Tokens", "Prompt", "Ids", "Message"]


def is_one(prompts: Any) -> bool:
    """A prompt alone, and not a list of them."""
    if isinstance(prompts, (str, bytes)):
        return True
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1
    return len(prompts) > 0 and not isinstance(prompts[0], (str, bytes, Sequence, np.ndarray))


def ids_of(ids: Ids) -> npt.NDArray[np.int32]:
    """Ids as the library takes them."""
    given = np.asarray(ids)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InputError(f"a prompt is a text or a list of ids, not {type(ids).__name__} of {given.dtype}")
    if given.size and not -2**31 <= int(given.min()) <= int(given.max()) < 2**31:
        raise InputError(f"the prompt has an id that is none: {int(given.max())}")
    return np.ascontiguousarray(given, np.int32)


def bytes_of(text: Union[str, bytes]) -> bytes:
    return text.encode() if isinstance(text, str) else text


def taken_ids(pointer: Any, n: int) -> List[int]:
    """Ids that the library made; they are freed."""
    try:
        return pointer[:n]
    finally:
        library.rg_ids_free(pointer)


class Tokens(Handle):
    """The part of Engine that turns text into ids."""

    def encode(self, text: Union[str, bytes], *, add_special_tokens: bool = True, plain: bool = False) -> List[int]:
        """Ids of a text.  plain: it is a user's, and cannot produce special tokens."""
        data, ids, n = bytes_of(text), ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        flags = (0 if add_special_tokens else h.RG_ENCODE_NO_SPECIAL) | (h.RG_ENCODE_PLAIN if plain else 0)
        with self._use() as pointer:
            call("rg_encode", pointer, data, len(data), flags, ctypes.byref(ids), ctypes.byref(n))
        return taken_ids(ids, n.value)

    def decode(self, ids: Ids, *, skip_special_tokens: bool = False) -> str:
        """Text of ids."""
        given, n = ids_of(ids), ctypes.c_size_t()
        at = given.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        with self._use() as pointer:
            text = call("rg_decode", pointer, at, len(given), skip_special_tokens, ctypes.byref(n))
        try:
            return ctypes.string_at(text, n.value).decode("utf-8", "replace")
        finally:
            library.rg_text_free(text)

    def id_bytes(self, token: int, *, skip_special_tokens: bool = False) -> bytes:
        """The bytes of one id as they stand within a text, which need not be whole characters."""
        n = ctypes.c_size_t()
        if not 0 <= token < self.vocab_size:
            raise InputError(f"{token} is no id of the vocabulary of {self.vocab_size}")
        with self._use() as pointer:
            return ctypes.string_at(library.rg_id_bytes(pointer, token, skip_special_tokens, ctypes.byref(n)), n.value)

    @property
    def vocab_size(self) -> int:
        raise NotImplementedError

    def _ids(self, prompt: Prompt) -> npt.NDArray[np.int32]:
        return ids_of(self.encode(prompt) if isinstance(prompt, (str, bytes)) else prompt)

    def _prompts(self, prompts: Any) -> Tuple[List[npt.NDArray[np.int32]], Callable[[List[Any]], Any]]:
        """Ids of one prompt or of several, and what makes of a list of results what the caller expects."""
        if is_one(prompts):
            return [self._ids(prompts)], lambda results: results[0]
        return [self._ids(p) for p in prompts], lambda results: results

    # ---- conversations ----

    @property
    def has_chat_template(self) -> bool:
        """There is one that can be used."""
        with self._use() as pointer:
            return bool(library.rg_chat_has_template(pointer))

    def _chat(self, messages: Sequence[Message], tools: Optional[Sequence[Mapping[str, Any]]], variables: Optional[Mapping[str, Any]],
              add_generation_prompt: bool, continue_final_message: bool) -> Tuple[List[int], str]:
        whole: Dict[str, Any] = {**(variables or {}), "messages": list(messages)}
        if tools is not None:
            whole["tools"] = list(tools)
        data = json.dumps(whole, ensure_ascii=False).encode()
        options = h.rg_chat_options(no_generation_prompt=not add_generation_prompt, continue_final=continue_final_message)
        ids, n, text = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t(), ctypes.c_void_p()
        conversation = call("rg_json_new", data, len(data))
        try:
            with self._use() as pointer:
                call("rg_chat_encode", pointer, conversation, ctypes.byref(options), ctypes.byref(ids), ctypes.byref(n),
                     ctypes.byref(text))
        finally:
            library.rg_json_close(conversation)
        try:
            return taken_ids(ids, n.value), ctypes.string_at(text.value or 0).decode("utf-8", "replace")
        finally:
            library.rg_text_free(text)

    def render(self, messages: Sequence[Message], tools: Optional[Sequence[Mapping[str, Any]]] = None, *,
               variables: Optional[Mapping[str, Any]] = None, add_generation_prompt: bool = True,
               continue_final_message: bool = False) -> str:
        """The text that the checkpoint's chat template makes of a conversation.  variables: of the template
        (`enable_thinking`).  continue_final_message: the last message stays open, and the answer continues it."""
        return self._chat(messages, tools, variables, add_generation_prompt, continue_final_message)[1]

    def encode_chat(self, messages: Sequence[Message], tools: Optional[Sequence[Mapping[str, Any]]] = None, *,
                    variables: Optional[Mapping[str, Any]] = None, add_generation_prompt: bool = True,
                    continue_final_message: bool = False) -> List[int]:
        """Its ids: the text of messages cannot produce special tokens, as it could if what `render` gives were encoded."""
        return self._chat(messages, tools, variables, add_generation_prompt, continue_final_message)[0]
