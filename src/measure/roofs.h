/* roofs.h -- the limits of this machine: how fast it reads memory, and how fast it multiplies and adds.
 *
 * No operation can be faster than its roof.  How close the engine's own operations come is in rates.h. */
#ifndef RG_MEASURE_ROOFS_H
#define RG_MEASURE_ROOFS_H

#include "ops/backend.h"

/* What this machine can do at most, with so many threads. */
typedef struct rg_roofs {
    int n_threads;
    double read_bytes_s;                      /* of the working set: from memory, or from a cache that holds it */
    double f32_ops_s, bf16_ops_s, int8_ops_s; /* 0: no recipe has such arithmetic here */
} rg_roofs;

/* Measure the roofs in at most 0.3 s, the bandwidth of a working set of so many bytes (0: of memory).  False and *err:
 * no memory or no threads. */
bool rg_roofs_probe(rg_roofs *out, const rg_backend *backend, int n_threads, double working_set,
                    rg_error *err) RG_MUST_CHECK;

/* Bytes per second of reading a buffer of this size again and again; the fastest of some tries. */
bool rg_roofs_bandwidth(double *bytes_s, const rg_backend *backend, rg_pool *pool, size_t bytes,
                        rg_error *err) RG_MUST_CHECK;

/* True if a fast step multiplies weights of this type as int8; else as bf16 or f32. */
bool rg_roofs_in_int8(rg_type weights);
/* The peak that binds products with weights of a type: int8 or bf16 where a fast step multiplies so, else f32. */
double rg_roofs_peak(const rg_roofs *r, rg_type weights, bool exact);
/* That peak was beaten: it is ops_s at least. */
void rg_roofs_raise_peak(rg_roofs *r, rg_type weights, bool exact, double ops_s);

#endif
