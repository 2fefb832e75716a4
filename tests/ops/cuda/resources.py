#!/usr/bin/env python3
"""What each GPU kernel takes: registers of a thread, bytes of shared memory of a fixed size, bytes spilled to memory.

    resources.py NVCC             compile all kernels for every architecture, and hold them against resources.txt
    resources.py NVCC --write     write resources.txt anew

