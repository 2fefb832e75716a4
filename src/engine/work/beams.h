/* beams.h -- the beams of a request as its samples: place i of the search (beam.h) is sample i.
 *
 * Beams hold sequences all together or not at all: a request with beams begins with as many sequences as it has beams,
 * and gives all back when it is preempted.  One of them, the first that runs, then computes the state that all have in
 * common, and the others fork from it there, so that what is shared is held once however often the request was
 * preempted.  Their rows are planned like those of any samples; a beam whose candidates are listed waits for the
 * others, however many steps that takes. */
#ifndef RG_ENGINE_WORK_BEAMS_H
#define RG_ENGINE_WORK_BEAMS_H

#include "engine/beam.h"
#include "engine/work/work.h"

/* The search of a request; NULL: it has none. */
const rg_beams *rg_beams_of(const rg_request *r);

#endif
