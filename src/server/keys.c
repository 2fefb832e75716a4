/* keys.c -- see keys.h. */
#include "server/keys.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"

enum { KEY_BYTES = 512 };

typedef struct key {
    uint8_t bytes[KEY_BYTES]; /* zeros follow */
    size_t n;
    float weight;
    char owner[RG_OWNER_ROOM];
} key;

struct rg_keys {
    int32_t n;
    key item[];
};

static void name_owner(const char *text, size_t n, char out[RG_OWNER_ROOM])
{
    uint8_t hash[32];

    rg_sha256(text, n, hash);
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

rg_keys *rg_keys_new(const char *const *text, int32_t n, rg_error *err)
{
    rg_keys *k = rg_zalloc_tail(sizeof *k, (size_t)n, sizeof k->item[0]);

    if (!k)
        return rg_fail_memory(err, (size_t)n * sizeof k->item[0]), NULL;
    for (k->n = 0; k->n < n; k->n++) {
        size_t len = strlen(text[k->n]);
        if (!len || len > KEY_BYTES) {
            rg_keys_free(k);
            return rg_fail(err, RG_E_USAGE, "an API key has %zu bytes: want 1 to %d", len, KEY_BYTES), NULL;
        }
        memcpy(k->item[k->n].bytes, text[k->n], len);
        k->item[k->n].n = len;
        name_owner(text[k->n], len, k->item[k->n].owner);
    }
    return k;
}

void rg_keys_weigh(rg_keys *k, const float *weights)
{
    for (int32_t i = 0; i < k->n; i++)
        k->item[i].weight = weights ? weights[i] : 0;
}

float rg_keys_weight(const rg_keys *k, int32_t i)
{
    return i >= 0 && i < k->n ? k->item[i].weight : 0;
}

const char *rg_keys_owner(const rg_keys *k, int32_t i)
{
    return i >= 0 && i < k->n ? k->item[i].owner : "";
}

void rg_keys_free(rg_keys *k)
{
    if (k)
        explicit_bzero(k->item, (size_t)k->n * sizeof k->item[0]);
    rg_free(k);
}

int32_t rg_keys_count(const rg_keys *k)
{
    return k->n;
}

int32_t rg_keys_find(const rg_keys *k, const char *given, size_t n)
{
    uint8_t padded[KEY_BYTES] = { 0 };
    int32_t found = -1;

    memcpy(padded, given, n < KEY_BYTES ? n : KEY_BYTES);
    for (int32_t i = 0; i < k->n; i++) { /* every byte of every key, found or not */
        volatile uint8_t differ = k->item[i].n != n;
        for (size_t b = 0; b < KEY_BYTES; b++)
            differ |= k->item[i].bytes[b] ^ padded[b];
        found = differ ? found : i;
    }
    explicit_bzero(padded, sizeof padded);
    return found;
}
