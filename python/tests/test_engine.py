"""Opening, closing, errors, hosts, and that the package's structs are the library's."""
import ctypes
import dataclasses
import inspect
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import ridge
from conftest import BINARY, GOLDEN, ROOT, SMALL, TALES
from ridge import _header, _library, results


# ---- structs cannot drift ----

def make_header(tmp_path, text):
    (tmp_path / "ridge.h").write_text(text)
    subprocess.run([sys.executable, str(ROOT / "python" / "generate.py"), str(tmp_path / "ridge.h"), str(tmp_path)], check=True)


def compiles(tmp_path):
    return subprocess.run(["cc", "-std=c17", "-fsyntax-only", f"-I{tmp_path}", str(tmp_path / "layout.c")],
                          capture_output=True, text=True)


def test_layouts_are_the_compilers(tmp_path):
    header = (ROOT / "include" / "ridge.h").read_text()
    make_header(tmp_path, header)
    assert compiles(tmp_path).returncode == 0
    assert (tmp_path / "_header.py").read_text() == pathlib.Path(_header.__file__).read_text()
    for change, culprit in (("int32_t top_k; ", "rg_sampling.top_k"), ("const char *tenant;", "rg_params.tenant")):
        assert change in header
        name = change.split()[-1].strip("*;")
        (tmp_path / "ridge.h").write_text(header.replace(change, f"double before_{name}; {change}", 1))
        said = compiles(tmp_path)
        assert said.returncode != 0 and culprit in said.stderr


def test_new_members_are_read(tmp_path):
    header = (ROOT / "include" / "ridge.h").read_text()
    make_header(tmp_path, header.replace("typedef struct rg_top {", "typedef struct rg_top {\n    bool odd, *strange; const char *const *name; "
                                                                   "double (*f)(void *a, const int32_t *b); uint64_t many[3]; uint8_t bytes[5];"))
    assert compiles(tmp_path).returncode == 0
    names = {}
    exec((tmp_path / "_header.py").read_text(), names)
    assert [n for n, _ in names["rg_top"]._fields_] == ["odd", "strange", "name", "f", "many", "bytes", "id", "logprob"]


def test_every_struct_and_function_is_there():
    for struct in _header.STRUCTS:
        assert _library.library.rg_size_of(struct.__name__.encode()) == ctypes.sizeof(struct), struct
    declared = {line.split("(")[0].split()[-1].lstrip("*") for line in (ROOT / "include" / "ridge.h").read_text().splitlines()
                if line.startswith("RG_API")}
    assert declared == set(_header.FUNCTIONS)
    assert ridge.__version__ == _header.VERSION == _library.library.rg_version().decode()


def test_another_library_is_refused(tmp_path):
    (tmp_path / "a.c").write_text('#include <stddef.h>\nconst char *rg_version(void) { return "9.9.9"; }\n'
                                  "size_t rg_size_of(const char *name) { return name ? 1 : 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "a.so"), str(tmp_path / "a.c")], check=True)
    for library, said in ((tmp_path / "a.so", "9.9.9"), (tmp_path / "no.so", "cannot be used")):
        run = subprocess.run([sys.executable, "-c", "import ridge"], capture_output=True, text=True,
                             env={**os.environ, "RIDGE_LIBRARY": str(library)})
        assert run.returncode != 0 and "ImportError" in run.stderr and said in run.stderr


def test_python_knows_every_member():
    """Whoever adds a member to ridge.h learns here that Python's users want it, too."""
    def members(struct):
        return {name for name, _ in struct._fields_}

    options = set(inspect.signature(ridge.open).parameters) - {"path", "prefix_cache"}
    # ranks are started before a process has threads, which an interpreter cannot promise
    assert options == members(_header.rg_options) - {"no_prefix_cache", "n_adapters", "progress_arg", "ranks"}
    info = {f.name for f in dataclasses.fields(ridge.Info)}
    assert info == members(_header.rg_info) - {"n_eos", "n_embed_sizes"}
    assert {f.name for f in dataclasses.fields(ridge.Usage)} == members(_header.rg_usage)
    params = {f.name for f in dataclasses.fields(ridge.Params)}
    renamed = {"n_logprobs": "logprobs", "bias": "logit_bias", "n_samples": "n", "n_prompt_tops": "prompt_logprobs", "cache": "diffusion_cache",
               "n_groups": "n_beam_groups"}
    own = {"prompt", "n_prompt", "n_bias", "n_dry_breakers", "n_stop", "n_stop_ids", "n_given", "n_predicted", "sampling", "beam", "diffusion",
           "embed", "pool_from", "score", "second", "search", "scorer"}  # lists' lengths, structs inside, and what embed(), score() and search() set
    for struct in (_header.rg_params, _header.rg_sampling, _header.rg_beam_params, _header.rg_diffusion_params):
        assert {renamed.get(n, n) for n in members(struct) - own} <= params, struct
    assert set(results.FINISH) == {v for n, v in vars(_header).items() if n.startswith("RG_FINISH_")} | {_header.RG_RUNNING}


# ---- opening ----

def test_facts(tales):
    assert tales.info.architecture and tales.info.generates and tales.info.has_tokenizer and not tales.info.is_encoder
    assert tales.card["path"] == str(TALES) and tales.card["n_layers"] > 0
    assert str(TALES) in repr(tales) and tales.info.architecture in repr(tales)
    assert tales.stats()["n_steps"] >= 0 and len(tales.stats()["draft_accepted_at"]) == 127
    assert tales.has_room() and tales.forecast(1, 64) is None or tales.forecast(1, 64)["step_s"] > 0
    assert set(tales.limits()) == {"bytes_s", "ops_s"} and tales.info.given_dim == tales.info.dim
    assert tales.bandwidth() > 0 and tales.adapters == [] and tales.prompt_names() == []


def test_progress_and_options():
    told = []
    with ridge.open(TALES, progress=lambda what, done: told.append((what, done)), max_seq_len=64, isa="ref", **SMALL) as engine:
        assert engine.info.max_seq_len == 64 and engine.info.isa == "ref" and engine.info.n_threads == 2
        assert told and all(isinstance(what, str) and 0 <= done <= 1 for what, done in told)
        assert engine.generate("The cat", max_tokens=1000, ignore_eos=True).usage.n_output < 64
    assert engine.closed and "closed" in repr(engine)


def test_adapters():
    folder = next(p for p in sorted((GOLDEN / "adapters").iterdir()) if p.name == "llama")
    with ridge.open(GOLDEN / "llama", adapters={"mine": folder}, **SMALL) as engine:
        assert engine.adapters == ["mine"]
        base, adapted = (engine.generate([5, 6, 7, 8], max_tokens=6, temperature=0, ignore_eos=True, logprobs=0, adapter=a) for a in (None, "mine"))
        assert base.logprobs.tobytes() != adapted.logprobs.tobytes()
        with pytest.raises(ridge.InputError, match="other"):
            engine.generate([5], adapter="other")


def test_drafts_change_nothing(tales):
    with ridge.open(TALES, draft="ngram", **SMALL) as engine:
        text = "the cat and the dog and the cat and the dog and the"
        ours, plain = (e.generate(text, max_tokens=40, temperature=0, logprobs=0) for e in (engine, tales))
        assert ours.ids == plain.ids and ours.logprobs.tobytes() == plain.logprobs.tobytes()


# ---- errors ----

def test_errors_say_what_is_wrong(tales, tmp_path):
    with pytest.raises(ridge.RidgeError, match="no-such-model"):
        ridge.open(tmp_path / "no-such-model")
    with pytest.raises(OSError):
        ridge.open(tmp_path / "no-such-model")
    with pytest.raises(ridge.UsageError, match="recipe"):
        ridge.open(TALES, recipe="slow")
    for changes, kind, said in (({"temperature": -1}, ridge.InputError, "temperature"), ({"n": 0}, ridge.InputError, "n_samples"),
                                ({"max_tokens": 2 ** 32 + 5}, ridge.InputError, "max_tokens"), ({"seed": -1}, ridge.InputError, "seed"),
                                ({"seed": 2 ** 64}, ridge.InputError, "seed"), ({"stop_ids": [2 ** 33]}, ridge.InputError, "id"),
                                ({"stop": ["a\0b"]}, ridge.InputError, "zero"), ({"stop": [5]}, TypeError, "stop"),
                                ({"temprature": 1}, TypeError, "did you mean 'temperature'"), ({"top_k": "5"}, TypeError, "top_k"),
                                ({"remasking": "none"}, ridge.InputError, "remasking"), ({"early_stopping": 3}, ridge.InputError, "early_stopping"),
                                ({"prompt_logits": True}, ridge.InputError, "prompt_logprobs")):
        with pytest.raises(kind, match=said):
            tales.generate("The cat", **changes)
    for prompt in (["a", 5], [[1.5]], [[2 ** 40]], [-1], [tales.vocab_size], [[]], np.zeros((1, 2, 2), int)):
        with pytest.raises((ridge.InputError, TypeError)):
            tales.generate(prompt, temperature=0)
    with pytest.raises(ridge.LimitError):
        tales.generate([5] * (tales.info.max_seq_len + 1))
    with pytest.raises(ridge.InputError, match="parameters for"):
        tales.generate(["a", "b"], [ridge.Params()])
    assert issubclass(ridge.InputError, ValueError) and issubclass(ridge.OutOfMemoryError, MemoryError)
    assert tales.generate("The cat", max_tokens=2).ids  # and it goes on


# ---- closing ----

def test_closing_ends_what_others_do():
    engine = ridge.open(TALES, **SMALL)
    begun, ended = threading.Event(), []

    def read():
        try:
            for _ in engine.stream("The cat", max_tokens=100000, ignore_eos=True, n=8):
                begun.set()
        except ridge.ClosedError:
            pass
        ended.append(True)

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(60)
    engine.close()
    thread.join(60)
    assert ended and engine.closed
    engine.close()
    for use in (lambda: engine.generate("a"), lambda: engine.encode("a"), engine.stats):
        with pytest.raises(ridge.ClosedError):
            use()


def test_what_is_left_open_is_closed_at_the_end():
    code = (f"import ridge\nhost = ridge.Host(n_threads=1)\ne = ridge.open({str(TALES)!r}, host=host, kv_bytes=1 << 25)\n"
            "r = e.submit('The cat', max_tokens=10000, ignore_eos=True)\nprint(next(r).id >= 0)\n")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout == "True\n" and run.stderr == ""


def test_a_forked_child_is_told():
    code = (f"import os, ridge\ne = ridge.open({str(TALES)!r}, kv_bytes=1 << 25)\npid = os.fork()\n"
            "if not pid:\n    try:\n        e.generate('a')\n    except ridge.ClosedError as why:\n        os._exit(0 if 'fork' in str(why) else 2)\n"
            "    os._exit(1)\nassert os.waitpid(pid, 0)[1] == 0\nassert e.generate('The cat', max_tokens=2).ids\n")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_interrupts_are_heard():
    code = (f"import os, ridge, signal, threading\ne = ridge.open({str(TALES)!r}, max_seqs=1, kv_bytes=1 << 25)\n"
            "hold = e.submit('The cat', max_tokens=100000, ignore_eos=True, n=60)\n"
            "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "try:\n    e.generate('The dog', max_tokens=100000, ignore_eos=True, n=60)\nexcept KeyboardInterrupt:\n    print('heard')\n")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout == "heard\n", run.stderr


# ---- several engines ----

def test_engines_share_a_host(tales):
    with ridge.Host(n_threads=2, memory_bytes=1 << 30) as host:
        before = host.left
        one, two = (ridge.open(TALES, host=host, kv_bytes=32 << 20) for _ in range(2))
        assert host.left < before and "2 engines" in repr(host)
        want = tales.generate("The cat", max_tokens=20, seed=3).ids
        requests = [e.submit("The cat", max_tokens=20, seed=3) for e in (one, two)]
        assert [r.result().ids for r in requests] == [want, want]
        with pytest.raises(ridge.UsageError, match="engines"):
            host.close()
        with pytest.raises(ridge.LimitError):
            ridge.open(TALES, host=host, kv_bytes=2 << 30)
        del requests
        one.close()
        two.close()
        assert host.left == before
    assert ridge.Host().left is None
    with pytest.raises(ridge.ClosedError):
        ridge.open(TALES, host=host)


def test_the_package_is_typed():
    assert (pathlib.Path(ridge.__file__).parent / "py.typed").exists()
    assert not [n for n in ridge.__all__ if not hasattr(ridge, n)]
    assert os.path.exists(BINARY)
