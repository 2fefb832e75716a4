/* trie.h -- the pieces of a vocabulary as a tree of bytes: every piece that a text begins with, in one walk.
 *
 * Built once from sorted pieces; the children of a node lie side by side.  Knows bytes and ids. */
#ifndef RG_TEXT_TRIE_H
#define RG_TEXT_TRIE_H

#include "text/vocab.h"

typedef struct rg_trie_node {
    uint32_t child;    /* the first of its children; 0: none */
    uint16_t children; /* so many */
    uint8_t label;     /* the byte that leads here */
    int32_t id;        /* of the piece that ends here; -1: none */
} rg_trie_node;

typedef struct rg_trie {
    rg_trie_node *node; /* [n]; 0 is the root */
    uint32_t n;
    uint32_t first[256]; /* of the root's children by label; 0: none */
} rg_trie;

/* Make a trie of the pieces of v that keep admits (NULL: all).  Among equal pieces the last counts. */
bool rg_trie_init(rg_trie *t, const rg_vocab *v, bool (*keep)(const rg_vocab *v, int32_t id), rg_error *err);
void rg_trie_fini(rg_trie *t);

/* The child of node by a byte; 0: none. */
static inline uint32_t rg_trie_step(const rg_trie *t, uint32_t node, unsigned char byte)
{
    const rg_trie_node *n = &t->node[node];
    uint32_t from = n->child, to = from + n->children;

    if (!node)
        return t->first[byte];
    while (to - from > 8) {
        uint32_t mid = from + (to - from) / 2;
        if (t->node[mid].label <= byte)
            from = mid;
        else
            to = mid;
    }
    for (; from < to; from++)
        if (t->node[from].label == byte)
            return from;
    return 0;
}

#endif
