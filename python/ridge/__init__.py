"""Run large language models on CPUs: ridge's engine, from Python.

    import ridge

    with ridge.open("path/to/model.gguf") as engine:
        print(engine.generate("Once upon a time", max_tokens=50, temperature=0.8))
        for token in engine.stream("The cat"):
            print(token, end="", flush=True)
        print(engine.chat([{"role": "user", "content": "Hi!"}]).text)

The tokens and log-probabilities of a request do not depend, bit for bit, on what else runs beside it."""
from ._header import VERSION as __version__
from .engine import Engine, Host, open
from .errors import (BusyError, ClosedError, FileError, InputError, LimitError, OutOfMemoryError, RidgeError, UnsupportedError,
                     UsageError)
from .params import Grammar, Params, Thinking
from .request import Request
from .results import Answer, Found, Info, PromptLogprobs, Ranked, Result, Token, Usage

__all__ = ["Answer", "BusyError", "ClosedError", "Engine", "FileError", "Found", "Grammar", "Host", "Info", "InputError",
           "LimitError", "OutOfMemoryError", "Params", "PromptLogprobs", "Ranked", "Request", "Result", "RidgeError", "Thinking", "Token",
           "UnsupportedError", "UsageError", "Usage", "__version__", "open"]
