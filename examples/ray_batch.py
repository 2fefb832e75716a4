#!/usr/bin/env python3
"""Answer a large file of requests on many machines: Ray Data hands shards of it to workers, each of which runs `ridge batch`.

    pip install "ray[data]"
    python examples/ray_batch.py MODEL IN.jsonl OUT.jsonl --work /shared/job [--workers 8] [--threads 16] [-- --kv-type q8 ...]

IN has a request a line, as `ridge batch` takes them.  It is cut into shards below the work folder, which all machines must see under one path, as
they must see MODEL (or have it).  A shard is a task of Ray's; what a task writes is a file beside its shard, one answer a line.  When a worker, a
machine or this program is killed, the same command (or Ray, by itself) goes on with the lines that have no answer, so no line is lost and none is
answered twice.  When all are answered, OUT is put together in the order of IN's shards and appears at once.

Behind `--` come flags of `ridge batch`.  On a cluster: `ray start` on each machine, then this program on one of them with RAY_ADDRESS=auto."""
import argparse
import ctypes
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TRIES = 5       # of a shard whose `ridge batch` was killed
BUSY_S = 60     # an earlier `ridge batch` of the shard may take so long to go
PIECE = 1 << 20


def write_whole(path, write):
    """A file that is there whole or not at all."""
    beside = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    with open(beside, "wb") as f:
        write(f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(beside, path)


def fingerprint(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(PIECE):
            h.update(piece)
    return h.hexdigest()


def cut(source, work, n_lines):
    """The shards of a file: paths, in order.  A second run finds those of the first."""
    want = {"sha256": fingerprint(source), "lines_per_shard": n_lines}
    note = work / "shards.json"
    if note.exists():
        have = json.loads(note.read_text())
        if {k: have.get(k) for k in want} != want:
            sys.exit(f"ray_batch: {work} holds the shards of another file, or shards of another size: name another folder with --work")
        return [work / f"{i:06}.in.jsonl" for i in range(have["shards"])]
    shards, lines = [], []

    def end():
        shards.append(work / f"{len(shards):06}.in.jsonl")
        write_whole(shards[-1], lambda f: f.writelines(lines))
        lines.clear()

    with open(source, "rb") as f:
        for line in f:
            if line.strip():
                lines.append(line if line.endswith(b"\n") else line + b"\n")
            if len(lines) == n_lines:
                end()
    if lines:
        end()
    want["shards"] = len(shards)
    write_whole(note, lambda f: f.write(json.dumps(want).encode()))
    return shards


def end_with_parent():
    """In the child: it is killed when the worker that runs it is, so that nothing goes on writing unseen (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def wait_for_writer(out):
    """An earlier `ridge batch` of this shard, on whatever machine, holds a lock on its answers until it ends."""
    end = time.monotonic() + BUSY_S
    while out.exists() and time.monotonic() < end:
        with open(out, "rb+") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                time.sleep(0.2)


def answer(row, command, flags):
    """One shard, in a worker: a row with its counts."""
    shard = Path(row["shard"])
    out = shard.with_name(shard.name.replace(".in.", ".out."))
    for _ in range(TRIES):
        wait_for_writer(out)
        p = subprocess.run([*command, str(shard), str(out), "--resume", "--json", "--quiet", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, preexec_fn=end_with_parent)
        if p.returncode == 0:
            counts = json.loads(p.stdout)
            return {"shard": str(shard), "out": str(out), "done": counts["done"], "failed": counts["failed"], "lines": counts["lines"]}
        if p.returncode > 0:
            break  # it said why
    raise RuntimeError(f"{shard}: ridge batch ended with {p.returncode}: {p.stderr.strip()[-2000:]}")


def gather(rows, out):
    """Put the answers together, each shard's once and whole."""

    def write(f):
        for row in rows:
            n = 0
            with open(row["out"], "rb") as part:
                for line in part:
                    f.write(line)
                    n += 1
            if n != row["lines"]:
                sys.exit(f"ray_batch: {row['out']} has {n} answers to {row['lines']} lines")

    write_whole(out, write)


def main():
    p = argparse.ArgumentParser(usage="%(prog)s MODEL IN.jsonl OUT.jsonl [options] [-- flags of ridge batch]", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="as ridge takes it; each worker opens it")
    p.add_argument("source", metavar="IN.jsonl", type=Path)
    p.add_argument("out", metavar="OUT.jsonl", type=Path)
    p.add_argument("--work", type=Path, help="folder for shards, which all machines see (default: OUT.jsonl.work)")
    p.add_argument("--lines", type=int, default=1000, help="of a shard (default 1000)")
    p.add_argument("--workers", type=int, help="shards at once (default: as many as there are processors for)")
    p.add_argument("--threads", type=int, default=1, help="of each worker, and processors that Ray reserves for it (default 1)")
    p.add_argument("--ridge", default="ridge", help="the program, on each machine (default: ridge)")
    given, flags = sys.argv[1:], []
    if "--" in given:
        given, flags = given[:given.index("--")], given[given.index("--") + 1:]
    a = p.parse_args(given)
    if a.lines < 1 or a.threads < 1:
        p.error("--lines and --threads must be 1 or more")
    work = (a.work or Path(f"{a.out}.work")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    shards = cut(a.source, work, a.lines)

    import ray  # after what may be refused: it takes seconds

    command = [a.ridge, "batch", a.model]
    rows = ray.data.from_items([{"shard": str(s)} for s in shards], override_num_blocks=max(1, len(shards)))
    rows = rows.map(answer, fn_args=(command, ["--threads", str(a.threads), *flags]), num_cpus=a.threads,
                    compute=ray.data.TaskPoolStrategy(size=a.workers),
                    max_retries=-1)  # whoever is killed is followed by another
    done = sorted(rows.take_all(), key=lambda r: r["shard"]) if shards else []
    gather(done, a.out)
    n_failed = sum(r["failed"] for r in done)
    print(f"ray_batch: {sum(r['done'] for r in done)} answered, {n_failed} answered with an error, {len(done)} shards")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
