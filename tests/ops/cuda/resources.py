#!/usr/bin/env python3
"""What each GPU kernel takes: registers of a thread, bytes of shared memory of a fixed size, bytes spilled to memory.

    resources.py NVCC             compile all kernels for every architecture, and hold them against resources.txt
    resources.py NVCC --write     write resources.txt anew

A kernel may take fewer than the table says, and up to 8 registers more, since compilers differ; it spills no more."""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "resources.txt")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
SLACK = 8


def compiled(nvcc, architecture):
    """{kernel: (registers, shared bytes, spilled bytes)}"""
    root = os.path.join(HERE, "..", "..", "..")
    command = [nvcc, "-cubin", f"-arch={architecture}", "--fmad=false", "-std=c++17", "-O3", "-Xptxas", "-v", "-I", "src",
               "-o", os.devnull, "src/ops/cuda/kernels/all.cu"]
    r = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"resources: nvcc fails:\n{r.stdout}{r.stderr}")
    found, name, spilled = {}, None, 0
    for line in (r.stdout + r.stderr).splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name, spilled = m[1], 0
        elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(m[1]) + int(m[2])
        elif m := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = (int(m[1]), int(shared[1]) if shared else 0, spilled)
    return found


def read():
    table = {}
    with open(TABLE, encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                architecture, kernel, *numbers = line.split()
                table[architecture, kernel] = tuple(map(int, numbers))
    return table


def write(found):
    with open(TABLE, "w", encoding="utf-8") as f:
        f.write("# Made by resources.py --write: architecture, kernel, registers, bytes of shared memory, bytes spilled\n")
        for (architecture, kernel), numbers in sorted(found.items()):
            f.write(" ".join([architecture, kernel, *map(str, numbers)]) + "\n")


def differences(found, table):
    for key, (registers, shared, spilled) in sorted(found.items()):
        name = " ".join(key)
        if key not in table:
            yield f"{name} is not in resources.txt"
            continue
        most, most_shared, most_spilled = table[key]
        for what, n, limit in (("registers", registers, most + SLACK), ("bytes of shared memory", shared, most_shared),
                               ("spilled bytes", spilled, most_spilled)):
            if n > limit:
                yield f"{name} takes {n} {what}, {limit} at most"
    for key in sorted(set(table) - set(found)):
        yield f"{' '.join(key)} is in resources.txt, and no kernel"


def main():
    with ThreadPoolExecutor() as pool:
        each = list(pool.map(lambda a: compiled(sys.argv[1], a), ARCHITECTURES))
    found = {(a, k): v for a, of in zip(ARCHITECTURES, each) for k, v in of.items()}
    if "--write" in sys.argv:
        write(found)
    bad = list(differences(found, read()))
    for line in bad:
        print(f"resources: {line}")
    if not bad:
        print(f"resources: {len(found)} kernels as they should be")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
