/* profile.h -- what is known of this machine: its roofs and the rates of the engine's operations.  It is measured once
 * and kept in a file.
 *
 * A profile is valid for one processor, instruction set, number of threads and version of ridge.  Its file is text, a
 * name and its numbers a line, and ends with a line "end". */
#ifndef RG_MEASURE_PROFILE_H
#define RG_MEASURE_PROFILE_H

#include "measure/rates.h"
#include "measure/roofs.h"

typedef struct rg_profile {
    rg_roofs roofs;
    rg_rates rates;
    bool busy; /* the rounds of measuring were so far apart that the machine had other work; such a one is not kept */
} rg_profile;

/* Read the profile of this machine from `folder`; false: there is none that fits (not an error). */
bool rg_profile_load(rg_profile *out, const char *folder, const rg_backend *backend, int n_threads);
/* Write it whole or not at all; makes the folder and its parent if needed.  A busy one is refused, and what was kept
 * before stays. */
bool rg_profile_save(const rg_profile *p, const char *folder, const rg_backend *backend, rg_error *err) RG_MUST_CHECK;

#define RG_PROFILE_MOST_S 19.5 /* what a user waits for; the step at hand takes some tenths of a second more */

/* Measure all of it, in RG_ROUNDS rounds.  A round that is not done after most_s seconds is given up and no other is
 * begun, so that a busy machine has fewer rounds; only the first one takes as long as it takes.  progress (may be NULL)
 * is told which part is done, from 0 to 1. */
bool rg_profile_measure(rg_profile *out, const rg_backend *backend, int n_threads, double most_s,
                        void (*progress)(void *arg, double done), void *arg, rg_error *err) RG_MUST_CHECK;

/* Where the profile of this machine lies in `folder`.  False: the name is too long for out[room]. */
bool rg_profile_path(char *out, size_t room, const char *folder, const rg_backend *backend, int n_threads);

/* The processor's name, cut to room: on x86 its model, on ARM the numbers of maker and part. */
void rg_processor_name(char *out, size_t room);

#endif
