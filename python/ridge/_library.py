"""The shared library: found, loaded once, checked against what the package was built for, its errors made exceptions.

ctypes releases the interpreter's lock for the time of every call."""
from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

from . import _header as h
from . import errors

__all__ = ["library", "call", "encoded", "text_at"]


def _load() -> ctypes.CDLL:
    """RIDGE_LIBRARY, or the copy inside the package, or the system's."""
    own = Path(__file__).parent / "lib" / "libridge.so.0"
    name = os.environ.get("RIDGE_LIBRARY") or (str(own) if own.exists() else "libridge.so.0")
    try:
        lib = ctypes.CDLL(name)
        lib.rg_version.restype = ctypes.c_char_p
        lib.rg_size_of.restype, lib.rg_size_of.argtypes = ctypes.c_size_t, [ctypes.c_char_p]
        version = lib.rg_version().decode()
        differing = [s.__name__ for s in h.STRUCTS if lib.rg_size_of(s.__name__.encode()) != ctypes.sizeof(s)]
    except (OSError, AttributeError) as why:
        raise ImportError(f"ridge: the library {name} cannot be used: {why}") from None
    if version != h.VERSION or differing:
        raise ImportError(f"ridge: the library {name} is version {version} and this package was built for {h.VERSION}"
                          + (f"; these structs differ: {', '.join(differing)}" if differing else "")
                          + "; build the wheel again, or point RIDGE_LIBRARY at a library that fits")
    for function, (result, arguments) in h.FUNCTIONS.items():
        f = getattr(lib, function)
        f.restype, f.argtypes = result, arguments
    return lib


library = _load()


def call(function: str, *arguments: Any) -> Any:
    """Call a function whose last parameter is an rg_error, and which returns NULL or false when it fails."""
    error = h.rg_error()
    result = getattr(library, function)(*arguments, ctypes.byref(error))
    if not result:
        raise errors.made(error.code, error.text.decode("utf-8", "replace"))
    return result


def encoded(text: str | bytes | os.PathLike[str] | None, what: str) -> bytes | None:
    """A text as C takes it that ends with a zero."""
    if text is None:
        return None
    if not isinstance(text, (str, bytes, os.PathLike)):
        raise TypeError(f"{what} must be a text, not {type(text).__name__}")
    data = os.fsencode(text) if isinstance(text, os.PathLike) else text.encode() if isinstance(text, str) else text
    if b"\0" in data:
        raise errors.InputError(f"{what} has a zero byte in it")
    return data


def text_at(struct: ctypes.Structure, member: str, n: int) -> str:
    """A text of n bytes that a member of a struct points to; zeros in it are kept."""
    at = getattr(type(struct), member).offset
    address = ctypes.c_void_p.from_buffer(struct, at).value
    return ctypes.string_at(address, n).decode("utf-8", "replace") if n and address else ""


if sys.maxsize < 2**32:  # sizes of structs were made for the compiler's
    raise ImportError("ridge: needs a 64-bit Python")
