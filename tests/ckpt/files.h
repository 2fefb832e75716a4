/* files.h -- a scratch directory for the tests of this floor, and bytes put together by hand. */
#ifndef RG_TESTS_CKPT_FILES_H
#define RG_TESTS_CKPT_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"

static char scratch[64];

/* scratch "/" name; four are kept. */
static inline const char *in_scratch(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *out = path[turn++ % 4];

    snprintf(out, sizeof path[0], "%s/%s", scratch, name);
    return out;
}

static inline void put_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in_scratch(name), "wb");

    if (!f || (n && fwrite(data, 1, n, f) != n) || fclose(f))
        abort();
}

static inline void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

static inline int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/ridge-ckpt-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int remove_scratch(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", scratch);
    return system(command);
}

static inline void u8(rg_buf *b, uint8_t v)
{
    rg_buf_add(b, &v, 1);
}

static inline void u32(rg_buf *b, uint32_t v)
{
    rg_buf_add(b, &v, 4);
}

static inline void u64(rg_buf *b, uint64_t v)
{
    rg_buf_add(b, &v, 8);
}

static inline void str(rg_buf *b, const char *s)
{
    u64(b, strlen(s));
    rg_buf_str(b, s);
}

static inline void gguf_head(rg_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_entries)
{
    rg_buf_reset(b);
    rg_buf_str(b, "GGUF");
    u32(b, version);
    u64(b, n_tensors);
    u64(b, n_entries);
}

static inline void gguf_tensor(rg_buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                               uint64_t offset)
{
    str(b, name);
    u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++)
        u64(b, dims[i]);
    u32(b, type);
    u64(b, offset);
}

static inline void pad(rg_buf *b, size_t align)
{
    while (b->n % align)
        u8(b, 0);
}

/* A safetensors file from its header's text and the size of its data. */
static inline void put_safetensors(const char *name, const char *header, size_t n_data)
{
    rg_buf b;

    rg_buf_init(&b, 1 << 28);
    u64(&b, strlen(header));
    rg_buf_str(&b, header);
    for (size_t i = 0; i < n_data; i++)
        u8(&b, (uint8_t)i);
    put_file(name, b.data, b.n);
    rg_buf_fini(&b);
}

#endif
