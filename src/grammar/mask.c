/* mask.c -- see mask.h. */
#include "grammar/mask.h"

#include "base/hash.h"
#include "base/mem.h"

enum {
    LINKS = 1 << 13,
    ARENA = 24 << 20,
    START = 1,      /* the config that all begins with; 0 is DEAD */
    WORK = 1 << 18, /* frames visited for one link; beyond that only single bytes are allowed, so that an answer can
                     *   still continue */
};

/* One link of a chain: a frame, below the frames of the links before it. */
typedef struct link {
    uint32_t before; /* link + 1; 0: this frame is the top */
    uint32_t node;
    uint64_t data;
    bool open;       /* to be taken together with the next one: no mask of its own */
    bool lost;       /* more alternatives continue here than are followed, so the mask may lack ids */
    uint32_t after;  /* link + 1 of the last one before that has a mask: its exits are where this one begins */
    uint32_t n_ids;  /* in ids, or if that is NULL in bits */
    uint32_t n_exits;
    const uint32_t *ids, *exits;
    const uint64_t *bits;
} link;

struct rg_masks {
    pthread_rwlock_t stay; /* held shared while links are read, exclusively while they are dropped */
    pthread_mutex_t lock;  /* of what is below, while it is looked at or added to; not held while a mask is made */
    const rg_form *f;
    const rg_grammar_vocab *v;
    link *link; /* [LINKS] */
    uint32_t n_links;
    uint16_t *slot; /* [2 * LINKS], hash -> link + 1 */
    char *arena;
    size_t used, most_used;
};

rg_masks *rg_masks_new(const rg_form *f, const rg_grammar_vocab *v)
{
    rg_masks *m = rg_zalloc(sizeof *m);

    if (!m)
        return NULL;
    pthread_rwlock_init(&m->stay, NULL);
    pthread_mutex_init(&m->lock, NULL);
    m->f = f;
    m->v = v;
    m->link = rg_array(LINKS, sizeof *m->link);
    m->slot = rg_array((size_t)LINKS * 2, sizeof *m->slot);
    m->arena = rg_region_new(ARENA);
    if (!m->link || !m->slot || !m->arena) {
        rg_masks_free(m);
        return NULL;
    }
    return m;
}

void rg_masks_free(rg_masks *m)
{
    if (!m)
        return;
    pthread_rwlock_destroy(&m->stay);
    pthread_mutex_destroy(&m->lock);
    rg_free(m->link);
    rg_free(m->slot);
    rg_region_free(m->arena, ARENA);
    rg_free(m);
}

size_t rg_masks_bytes(rg_masks *m)
{
    size_t used;

    pthread_mutex_lock(&m->lock);
    used = m->most_used;
    pthread_mutex_unlock(&m->lock);
    return used + LINKS * sizeof *m->link + (size_t)LINKS * 2 * sizeof *m->slot;
}

/* ---- the automaton of one mask ----------------------------------------------------------------------------------- */

typedef struct maker {
    const rg_form *f;
    const rg_grammar_vocab *v;
    rg_mask_scratch *w;
    uint32_t work;
    bool lost; /* a step from the beginning left something out */
    uint32_t from;    /* the depth at which the link's frames begin */
    uint32_t n_begun; /* how often it was started afresh, after which configs have other numbers */
    uint16_t path[256];
    uint8_t byte[256];
} maker;

static void sort_heads(rg_heads *h)
{
    for (uint32_t i = 1; i < h->n; i++) {
        uint32_t id = h->id[i], k = i;
        for (; k && h->id[k - 1] > id; k--)
            h->id[k] = h->id[k - 1];
        h->id[k] = id;
    }
}

/* The config of these stacks; RG_UNKNOWN: no room for it. */
static uint16_t config_of(maker *m, rg_heads *h)
{
    rg_mask_scratch *w = m->w;
    rg_mask_config *c;
    uint32_t at;

    if (!h->n)
        return RG_DEAD;
    sort_heads(h);
    at = (uint32_t)rg_hash(h->id, h->n * sizeof *h->id, 0) & (RG_CONFIG_SLOTS - 1);
    for (; w->slot[at]; at = (at + 1) & (RG_CONFIG_SLOTS - 1)) {
        c = &w->config[w->slot[at]];
        if (c->n == h->n && !memcmp(w->heads + c->from, h->id, h->n * sizeof *h->id))
            return w->slot[at];
    }
    if (w->n_configs == RG_CONFIGS || w->n_heads + h->n > RG_CONFIG_HEADS || w->stacks.n > w->stacks.cap - 512)
        return RG_UNKNOWN;
    w->slot[at] = (uint16_t)w->n_configs;
    c = &w->config[w->n_configs];
    *c = (rg_mask_config){ .from = w->n_heads, .n = h->n };
    for (uint32_t i = 0; i < h->n; i++) {
        w->heads[w->n_heads++] = h->id[i];
        c->exit |= rg_stack_may_end(m->f, &w->stacks, h->id[i], RG_STACK_BASE);
    }
    memset(w->row + (size_t)w->n_configs * 256, 0xff, 256 * sizeof *w->row);
    return (uint16_t)w->n_configs++;
}

/* Start afresh with the one stack of the link's frames. */
static uint16_t begin(maker *m, const rg_masks *masks, const link *l)
{
    rg_mask_scratch *w = m->w;
    uint32_t id = RG_STACK_BASE;

    m->n_begun++;
    w->n_configs = 1; /* DEAD */
    w->n_heads = 0;
    memset(w->slot, 0, RG_CONFIG_SLOTS * sizeof *w->slot);
    rg_stacks_reset(&w->stacks);
    for (;; l = &masks->link[l->before - 1]) {
        id = l->node == RG_END ? RG_STACK_END : rg_stacks_push(&w->stacks, l->node, l->data, id);
        if (l->before == l->after)
            break;
    }
    if (id == RG_STACK_NONE) {
        m->lost = true;
        return RG_DEAD;
    }
    w->reached = (rg_heads){ .n = 1, .id = { id } };
    return config_of(m, &w->reached);
}

static uint16_t after_byte(maker *m, uint16_t from, uint8_t byte)
{
    rg_mask_scratch *w = m->w;
    uint16_t *to = &w->row[(size_t)from * 256 + byte];

    if (*to == RG_UNKNOWN) {
        rg_step(m->f, &w->stacks, w->heads + w->config[from].from, w->config[from].n, byte, &w->reached);
        m->lost |= w->stacks.lost && from == START; /* what is lost later is found when the answer gets there */
        m->work += w->stacks.n_todo + w->reached.n;
        *to = config_of(m, &w->reached);
    }
    return *to;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* There was no room: start again and return to the same place, at the given depth, by the same bytes. */
static uint16_t again(maker *m, const rg_masks *masks, const link *l, uint32_t from, uint32_t depth)
{
    uint16_t c = begin(m, masks, l);

    m->path[from] = c;
    for (uint32_t d = from + 1; d <= depth && c != RG_DEAD && c != RG_UNKNOWN; d++)
        m->path[d] = c = after_byte(m, c, m->byte[d]);
    return c == RG_UNKNOWN ? RG_DEAD : c; /* there is never room for it: it is not allowed */
}

/* ---- plain characters of a string ----
 *
 * Within a string nearly all ids are allowed that are plain characters alone: they lead back to the same stacks.  These
 * ids are taken as a whole, and only the places at which such a text ends are looked at. */

static bool visit(maker *m, const rg_masks *masks, const link *l, uint32_t begin_at, uint32_t end);

/* True if any plain character leads from this config back to it, as far as one id goes. */
static bool is_text(const maker *m, uint16_t c)
{
    const rg_mask_config *config = &m->w->config[c];
    uint64_t far = (uint64_t)m->v->longest + 1;
    const rg_grammar_node *node;
    const rg_frame *top;

    if (c == RG_DEAD || c == RG_UNKNOWN || config->n != 1 || config->exit || !m->v->text_bits)
        return false;
    top = &m->w->stacks.frame[m->w->heads[config->from]];
    node = &m->f->node[top->node];
    if (node->kind != RG_NODE_REP || !m->f->node[node->a].any_char)
        return node->any_text;
    if (top->data < node->min)
        return node->min - top->data > far;
    return node->max == RG_FOREVER || node->max - top->data > far;
}

static void allow(rg_mask_scratch *w, const rg_grammar_vocab *v, int32_t id)
{
    for (; id >= 0; id = v->same[id])
        w->bits[id >> 6] |= 1ULL << (id & 63);
}

/* The first stop at or after a place. */
static uint32_t stop_at(const rg_grammar_vocab *v, uint32_t place)
{
    uint32_t low = 0, high = v->n_text_stops;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (v->text_stop[middle].piece < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Look at the stops of a text within [begin_at, end).  The text begins at this depth in config `text`; a stop that
 * makes the automaton start afresh leaves the rest to the caller.  The place where it stopped; end: at none. */
static uint32_t visit_stops(maker *m, const rg_masks *masks, const link *l, uint16_t text, uint32_t depth,
                            uint32_t begin_at, uint32_t end)
{
    const rg_grammar_vocab *v = m->v;
    uint32_t begun = m->n_begun;

    for (uint32_t i = stop_at(v, begin_at); i < v->n_text_stops && v->text_stop[i].piece < end; i++) {
        const rg_text_stop *stop = &v->text_stop[i];
        const rg_piece *piece = &v->piece[stop->piece];
        const uint8_t *bytes = (const uint8_t *)v->data + v->offset[stop->id];
        uint16_t c = text, had;

        memcpy(m->byte + depth + 1, bytes + depth, piece->depth - depth);
        for (uint32_t k = piece->depth - stop->partial; stop->partial && k < piece->depth && c != RG_UNKNOWN; k++)
            c = after_byte(m, c, bytes[k]);
        if (c == RG_UNKNOWN)
            return stop->piece;
        if (stop->partial) {
            if (c != RG_DEAD)
                allow(m->w, v, piece->id);
            continue;
        }
        had = m->path[piece->depth - 1];
        m->path[piece->depth - 1] = text;
        if (!visit(m, masks, l, stop->piece, piece->skip))
            return UINT32_MAX;
        if (m->n_begun != begun)
            return piece->skip;
        m->path[piece->depth - 1] = had;
    }
    return end;
}

/* Everything below a place, where the config is one of plain characters.  False: too many exits. */
static bool visit_text(maker *m, const rg_masks *masks, const link *l, uint32_t place)
{
    const rg_grammar_vocab *v = m->v;
    uint32_t depth = v->piece[place].depth, end = v->piece[place].skip, at = place + 1;

    for (uint32_t i = v->text_before[place + 1]; place && i < v->text_before[end]; i++)
        m->w->bits[v->text_id[i] >> 6] |= 1ULL << (v->text_id[i] & 63);
    for (uint32_t i = 0, n = rg_vocab_words(v); !place && i < n; i++)
        m->w->bits[i] |= v->text_bits[i];
    while (at < end) {
        uint16_t text = m->path[depth];
        uint32_t next = visit_stops(m, masks, l, text, depth, at, end);

        if (next == UINT32_MAX)
            return false;
        if (next < end) { /* started afresh, or no room: begin again from here */
            text = again(m, masks, l, m->from, depth);
            if (next == at || text == RG_DEAD)
                return visit(m, masks, l, at, end);
            m->path[depth] = text;
        }
        at = next;
    }
    return true;
}

/* From the root, where all but a few bytes lead to one config of plain characters: those as a whole, the others one by
 * one. False: it is not so, and nothing has been done; *ok false: too many exits. */
static bool visit_key(maker *m, const rg_masks *masks, const link *l, bool *ok)
{
    static const char probes[] = "x7~";
    const rg_grammar_vocab *v = m->v;
    uint16_t start = m->path[0], text = RG_DEAD;
    uint32_t end = v->piece[0].skip, begun = m->n_begun;

    for (const char *p = probes; v->text_bits && *p && !is_text(m, text); p++)
        text = after_byte(m, start, (uint8_t)*p);
    if (!is_text(m, text))
        return false;
    for (uint32_t i = 1; i < end; i = v->piece[i].skip)
        if (after_byte(m, start, v->piece[i].byte) == RG_UNKNOWN || after_byte(m, text, v->piece[i].byte) == RG_UNKNOWN)
            return false;
    for (uint32_t i = 0, n = rg_vocab_words(v); i < n; i++)
        m->w->bits[i] |= v->text_bits[i];
    *ok = true;
    for (uint32_t i = 1, next; i < end && *ok; i = next) {
        uint16_t c = m->n_begun == begun ? after_byte(m, start, v->piece[i].byte) : RG_UNKNOWN;

        next = v->piece[i].skip;
        if (c != RG_UNKNOWN && c == after_byte(m, text, v->piece[i].byte)) {
            uint32_t stopped = visit_stops(m, masks, l, text, 0, i, next);
            *ok = stopped != UINT32_MAX;
            m->path[0] = START;
            if (*ok && stopped < next)
                *ok = visit(m, masks, l, i, next);
            continue;
        }
        for (uint32_t k = v->text_before[i]; k < v->text_before[next]; k++)
            m->w->bits[v->text_id[k] >> 6] &= ~(1ULL << (v->text_id[k] & 63));
        *ok = visit(m, masks, l, i, next);
    }
    return true;
}

/* Visit the places [begin_at, end) of the tree, which lie below a place whose config is known.  False: too many exits.
 * */
static bool visit(maker *m, const rg_masks *masks, const link *l, uint32_t begin_at, uint32_t end)
{
    rg_mask_scratch *w = m->w;
    const rg_piece *piece = m->v->piece;

    for (uint32_t i = begin_at; i < end;) {
        uint32_t depth = piece[i].depth;
        uint16_t c;

        if (m->work > WORK && depth > m->from + 1) {
            i = piece[i].skip;
            continue;
        }
        m->byte[depth] = piece[i].byte;
        c = after_byte(m, m->path[depth - 1], piece[i].byte);
        if (c == RG_UNKNOWN)
            c = again(m, masks, l, m->from, depth);
        if (c == RG_DEAD) {
            i = piece[i].skip;
            continue;
        }
        m->path[depth] = c;
        allow(w, m->v, piece[i].id);
        if (w->config[c].exit && piece[i].skip > i + 1) {
            if (w->n_exits == RG_EXITS)
                return false;
            w->exits[w->n_exits++] = i;
        }
        if (piece[i].skip > i + 1 && m->v->text_bits && m->v->text_place[i] && is_text(m, c)) {
            if (!visit_text(m, masks, l, i))
                return false;
            i = piece[i].skip;
            continue;
        }
        i++;
    }
    return true;
}

/* Visit everything below a place in the tree, where the link's frames begin.  False: too many exits. */
static bool walk(maker *m, const rg_masks *masks, const link *l, uint32_t place)
{
    bool ok;

    m->from = m->v->piece[place].depth;
    if (m->v->text_bits && m->v->text_place[place] && is_text(m, m->path[m->from]))
        return visit_text(m, masks, l, place);
    if (!place && visit_key(m, masks, l, &ok))
        return ok;
    return visit(m, masks, l, place + 1, m->v->piece[place].skip);
}

static void *keep(rg_masks *m, const void *p, size_t bytes)
{
    void *to = m->arena + m->used;

    memcpy(to, p, bytes);
    m->used += (bytes + 7) & ~(size_t)7; /* fits: the arena has room for it */
    return to;
}

/* The mask in the scratch memory becomes the link's: as a list where that is shorter. */
static void keep_mask(rg_masks *m, const rg_mask_scratch *w, link *l)
{
    uint32_t n_words = rg_vocab_words(m->v), n = 0;

    for (uint32_t i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcountll(w->bits[i]);
    l->exits = keep(m, w->exits, w->n_exits * sizeof *l->exits);
    l->n_exits = w->n_exits;
    if (n > n_words) {
        l->bits = keep(m, w->bits, n_words * sizeof *l->bits);
        return;
    }
    uint32_t *ids = (uint32_t *)(m->arena + m->used);
    m->used += ((n + 1) & ~(size_t)1) * sizeof *ids; /* fits: the arena has room for it */
    l->ids = ids;
    for (uint32_t i = 0; i < n_words; i++)
        for (uint64_t b = w->bits[i]; b; b &= b - 1)
            ids[l->n_ids++] = i * 64 + (uint32_t)__builtin_ctzll(b);
}

/* The link's mask, into the scratch memory; or it is open, and has none. */
static void make(const rg_masks *m, rg_mask_scratch *w, link *l)
{
    static const uint32_t root[1];
    const uint32_t *at = l->after ? m->link[l->after - 1].exits : root;
    uint32_t n = l->after ? m->link[l->after - 1].n_exits : 1;
    maker k = { .f = m->f, .v = m->v, .w = w };
    uint16_t start = begin(&k, m, l);

    memset(w->bits, 0, rg_vocab_words(m->v) * sizeof *w->bits);
    w->n_exits = 0;
    l->open = l->node != RG_END && w->config[start].exit;
    for (uint32_t i = 0; i < n && !l->open && start != RG_DEAD; i++) {
        k.path[m->v->piece[at[i]].depth] = start;
        l->open = !walk(&k, m, l, at[i]);
    }
    l->lost = k.lost;
}

/* ---- the memory -------------------------------------------------------------------------------------------------- */

/* Counts so far from a bound that no id can reach it are treated as equal: each repetition takes at least a byte. */
static uint64_t alike(const rg_masks *m, const rg_frame *frame)
{
    const rg_grammar_node *node = &m->f->node[frame->node];
    uint64_t far = (uint64_t)m->v->longest + 1;

    if (node->kind != RG_NODE_REP)
        return frame->data;
    if (frame->data < node->min)
        return node->min - frame->data > far ? 0 : frame->data;
    return node->max == RG_FOREVER || node->max - frame->data > far ? node->min : frame->data;
}

/* Where in slot the link is or, if it is not remembered, would be. */
static uint32_t place_of(const rg_masks *m, const link *key)
{
    struct {
        uint32_t before, node;
        uint64_t data;
    } k = { key->before, key->node, key->data };
    uint32_t at = (uint32_t)rg_hash(&k, sizeof k, 0) & (2 * LINKS - 1);

    for (; m->slot[at]; at = (at + 1) & (2 * LINKS - 1)) {
        const link *l = &m->link[m->slot[at] - 1];
        if (l->before == k.before && l->node == k.node && l->data == k.data)
            break;
    }
    return at;
}

static const link *look_up(rg_masks *m, const link *key)
{
    uint16_t i;

    pthread_mutex_lock(&m->lock);
    i = m->slot[place_of(m, key)];
    pthread_mutex_unlock(&m->lock);
    return i ? &m->link[i - 1] : NULL;
}

/* Remember what was made; another thread may have been quicker.  NULL: there is no room. */
static const link *add(rg_masks *m, const rg_mask_scratch *w, link *l)
{
    size_t most = rg_vocab_words(m->v) * sizeof(uint64_t) + RG_EXITS * sizeof(uint32_t) + 64;
    const link *added = NULL;
    uint32_t at;

    pthread_mutex_lock(&m->lock);
    at = place_of(m, l);
    if (m->slot[at]) {
        added = &m->link[m->slot[at] - 1];
    } else if (m->n_links < LINKS && m->used + most <= ARENA) {
        if (!l->open)
            keep_mask(m, w, l);
        if (m->used > m->most_used)
            m->most_used = m->used;
        m->link[m->n_links++] = *l;
        m->slot[at] = (uint16_t)m->n_links;
        added = &m->link[m->n_links - 1];
    }
    pthread_mutex_unlock(&m->lock);
    return added;
}

/* The link for this frame after those before; it is made if it is not there.  NULL: there is no room for it. */
static const link *find(rg_masks *m, uint32_t before, const rg_frame *frame)
{
    link key = { .before = before, .node = frame->node, .data = alike(m, frame) };
    const link *l = look_up(m, &key);
    rg_mask_scratch *w;

    if (l)
        return l;
    if (before)
        key.after = m->link[before - 1].open ? m->link[before - 1].after : before;
    w = rg_mask_scratch_take(m->v);
    make(m, w, &key);
    l = add(m, w, &key);
    rg_mask_scratch_give(w);
    return l;
}

static void forget(rg_masks *m)
{
    m->n_links = 0;
    m->used = 0;
    memset(m->slot, 0, (size_t)LINKS * 2 * sizeof *m->slot);
}

static void add_link(const rg_masks *m, const link *l, uint64_t *bits)
{
    if (l->bits)
        for (uint32_t i = 0, n = rg_vocab_words(m->v); i < n; i++)
            bits[i] |= l->bits[i];
    for (uint32_t i = 0; i < l->n_ids; i++)
        bits[l->ids[i] >> 6] |= 1ULL << (l->ids[i] & 63);
}

/* Add what one stack allows; *lost becomes true if its mask may lack something.  False: there is no room for what has
 * to be remembered. */
static bool add_stack(rg_masks *m, const rg_stacks *s, uint32_t id, uint64_t *bits, bool *lost)
{
    uint32_t before = 0;

    for (;; id = s->frame[id].below) {
        const link *l = find(m, before, &s->frame[id]);
        if (!l)
            return false;
        *lost |= l->lost;
        if (!l->open)
            add_link(m, l, bits);
        if (id == RG_STACK_END || (!l->open && !l->n_exits))
            return true;
        before = (uint32_t)(l - m->link) + 1;
    }
}

bool rg_masks_find(rg_masks *m, const rg_stacks *s, const rg_heads *heads, uint64_t *bits)
{
    bool room = true, lost = false;

    memset(bits, 0, rg_vocab_words(m->v) * sizeof *bits);
    pthread_rwlock_rdlock(&m->stay);
    for (uint32_t i = 0; i < heads->n && room; i++)
        room = add_stack(m, s, heads->id[i], bits, &lost);
    pthread_rwlock_unlock(&m->stay);
    if (room)
        return !lost;
    pthread_rwlock_wrlock(&m->stay);
    for (uint32_t i = 0; i < heads->n; i++)
        if (!add_stack(m, s, heads->id[i], bits, &lost)) {
            forget(m);
            lost |= !add_stack(m, s, heads->id[i], bits, &lost); /* the memory was cleared, so there is room */
        }
    pthread_rwlock_unlock(&m->stay);
    return !lost;
}
