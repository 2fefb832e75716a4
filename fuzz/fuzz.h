/* fuzz.h -- what the fuzzers share: bytes as a file that can be opened by path. */
#ifndef RG_FUZZ_H
#define RG_FUZZ_H

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A nameless file in memory that holds data; its path goes to out.  Close the descriptor that is returned. */
static inline int fuzz_file(const uint8_t *data, size_t n, char out[64])
{
    int fd = memfd_create("fuzz", 0);

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(out, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
