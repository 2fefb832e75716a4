"""What is open in the library: used by any thread, closed by one, once all others are out of it."""
from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from typing import Any, Iterator, Optional, TypeVar

from .errors import ClosedError

T = TypeVar("T", bound="Handle")

_open: weakref.WeakSet[Handle] = weakref.WeakSet()


class Handle:
    """Base of Engine and Host."""

    _what = "handle"

    def __init__(self, pointer: int) -> None:
        self._pointer: Optional[int] = pointer
        self._process = os.getpid()
        self._users, self._change = 0, threading.Condition()
        _open.add(self)

    def _free(self, pointer: int) -> None:
        """Give back what it holds; nobody uses it any more."""
        raise NotImplementedError

    def _is_own_process(self) -> bool:
        return os.getpid() == self._process

    def _check_process(self) -> None:
        """A forked child has the memory, and not the threads that compute."""
        if not self._is_own_process():
            raise ClosedError(f"this {self._what} belongs to the process that forked this one: open it here, or start processes "
                              "by 'spawn'")

    @contextlib.contextmanager
    def _use(self) -> Iterator[int]:
        """The pointer, which stays valid inside the block."""
        self._check_process()
        with self._change:
            if self._pointer is None:
                raise ClosedError(f"the {self._what} was closed")
            pointer = self._pointer
            self._users += 1
        try:
            yield pointer
        finally:
            with self._change:
                self._users -= 1
                self._change.notify_all()

    @property
    def closed(self) -> bool:
        return self._pointer is None

    def close(self) -> None:
        """Wait until other threads are out of it, and free it; more than once is fine."""
        if not self._is_own_process():
            return
        with self._change:
            pointer, self._pointer = self._pointer, None
            self._change.wait_for(lambda: not self._users)
        if pointer is not None:
            self._free(pointer)

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *why: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()


@atexit.register
def _close_all() -> None:
    for handle in sorted(_open, key=lambda h: h._what == "host"):  # engines before their hosts
        handle.close()
