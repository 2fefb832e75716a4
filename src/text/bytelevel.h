/* bytelevel.h -- the 256 characters that stand for bytes in byte-level vocabularies, as GPT-2 published them: a byte
 * that prints in Latin-1 stands for itself, the 68 others are U+0100 and up, in order. */
#ifndef RG_TEXT_BYTELEVEL_H
#define RG_TEXT_BYTELEVEL_H

#include <stdint.h>

static inline uint32_t rg_byte_char(unsigned char b)
{
    return b <= 32 ? 256U + b : b >= 127 && b <= 160 ? 289U + (b - 127U) : b == 173 ? 323U : b;
}

static inline int rg_char_byte(uint32_t c) /* -1: stands for no byte */
{
    if (c >= 256)
        return c <= 288 ? (int)c - 256 : c <= 322 ? (int)c - 289 + 127 : c == 323 ? 173 : -1;
    return c <= 32 || (c >= 127 && c <= 160) || c == 173 ? -1 : (int)c;
}

#endif
