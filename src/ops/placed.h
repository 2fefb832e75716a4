/* placed.h -- a weight's matrices as a back end holds them.
 *
 * A file has rows in a format (quant/); a back end makes a layout of its own from them, in memory that only it reads
 * and writes.  The floors above hold the handle below, and put and get rows by the verbs of rg_backend. */
#ifndef RG_OPS_PLACED_H
#define RG_OPS_PLACED_H

#include "base/file.h"
#include "quant/quant.h"

typedef struct rg_backend rg_backend;

/* What is to be placed: n_mats matrices of [rows, cols], whose rows come as values of this type. */
typedef struct rg_placing {
    rg_type type;
    int64_t n_mats, rows, cols;
    bool ordered; /* each matrix has an order of columns; at first that of the columns */
    bool wide;    /* columns that meet zeros are to be skipped where the back end can: a wish; not of ordered ones */
    bool vector;  /* one row of f32 that is read value by value, as operations read vectors and small tables */
} rg_placing;

/* A weight that was placed.  The back end's own struct begins with this; it belongs to who placed it (rg_placed_free).
 * Any number of threads may read it. */
typedef struct rg_placed {
    const rg_backend *owner;
    rg_type type;               /* in which its values are kept: as placed, or BF16 where that holds every F16 of it */
    int64_t n_mats, rows, cols; /* stacked matrices (experts, heads) of [rows, cols] */
    size_t bytes;               /* of memory that it takes; 0: it is paged */
    bool is_paged;              /* its matrices stay in a file and are read when they are wanted */
    bool is_folded;             /* kept in fewer bits than it is multiplied in: products need scratch for its columns */
} rg_placed;

/* ---- images in a file -------------------------------------------------------------------------------------------- */

/* Take the image of a matrix, or fill it, `bytes` of it, which are the host's to read or write during the call alone.
 * False and *err: it could not. */
typedef bool rg_image_take(void *arg, const void *image, size_t bytes, rg_error *err);
typedef bool rg_image_fill(void *arg, void *image, size_t bytes, rg_error *err);

enum { RG_PAGE_ALIGN = 4096 }; /* of pages in their file, which ends no sooner than the last page filled up to that */

/* The image of one matrix in a file. */
typedef struct rg_paged_page {
    uint64_t offset, hash; /* hash: rg_hash_pieces */
    size_t bytes;
} rg_paged_page;

typedef struct rg_paged_options {
    rg_file *file;        /* open, and read past the system's cache from now on; the pages' own, if they are made.
                           *   NULL: */
    const char *path;     /*   the one of this name is opened */
    const rg_paged_page *pages; /* copied */
    int n_pages;
    size_t bytes;         /* memory for pages at most */
    int at_once;          /* pages of each size that are held at once at least; fewer fit: refused */
    int n_readers;        /* threads that read */
} rg_paged_options;

typedef struct rg_paged_stats {
    uint64_t n_asked, n_read, n_failed; /* pages held, read, and not read for a fault */
    uint64_t n_unused;                  /* of those read, released without having been asked for: wrong guesses */
    uint64_t read_bytes;
    size_t bytes; /* memory of the cache */
} rg_paged_stats;

/* Matrices of several weights that stay in one file, and the memory into which they are read. */
typedef struct rg_paged rg_paged;

/* How a back end keeps matrices in a file. */
typedef struct rg_paging {
    /* False and *err: the memory is too little (it says what is needed).  Of the pages only sizes are looked at. */
    bool (*check)(const rg_paged_options *o, rg_error *err);
    /* NULL and *err: likewise, or the file cannot be opened, or there is no memory. */
    rg_paged *(*open)(const rg_paged_options *o, rg_error *err);
    void (*close)(rg_paged *p); /* NULL is fine; the weights that are its pages are not used any more */
    /* A weight whose matrices are pages from `first` on.  NULL and *err: as weight_new. */
    rg_placed *(*place)(const rg_backend *b, rg_paged *p, int first, const rg_placing *what, rg_error *err);
    rg_paged_stats (*count)(rg_paged *p); /* any thread */
} rg_paging;

#endif
