"""What can go wrong, one class for each code of ridge.h; str(error) is one sentence that says what to do."""
from __future__ import annotations

from . import _header as h

__all__ = ["RidgeError", "InputError", "UnsupportedError", "FileError", "OutOfMemoryError", "LimitError", "BusyError",
           "UsageError", "ClosedError"]


class RidgeError(Exception):
    """Any error of ridge."""

    code: int = 0


class InputError(RidgeError, ValueError):
    """A file or a request is malformed."""

    code = h.RG_E_INPUT


class UnsupportedError(RidgeError):
    """Well-formed and understood, but ridge does not support it."""

    code = h.RG_E_UNSUPPORTED


class FileError(RidgeError, OSError):
    """The operating system refused."""

    code = h.RG_E_IO


class OutOfMemoryError(RidgeError, MemoryError):
    """An allocation failed."""

    code = h.RG_E_MEMORY


class LimitError(RidgeError, ValueError):
    """Larger than what the engine was opened for."""

    code = h.RG_E_LIMIT


class BusyError(RidgeError):
    """The queue is full.  retry_after: seconds after which the request is likely to be accepted."""

    code = h.RG_E_BUSY
    retry_after: int | None = None


class UsageError(RidgeError, ValueError):
    """The call is wrong."""

    code = h.RG_E_USAGE


class ClosedError(RidgeError):
    """The engine, host or request was closed, or belongs to the process that this one was forked from."""


_CLASSES = {c.code: c for c in (InputError, UnsupportedError, FileError, OutOfMemoryError, LimitError, BusyError, UsageError)}


def made(code: int, text: str) -> RidgeError:
    """The exception for an rg_error."""
    return _CLASSES.get(code, RidgeError)(text)
