/* vote.h -- which of several answers are told: those on which most agree (self-consistency, Wang et al. 2022). */
#ifndef RG_SERVER_API_VOTE_H
#define RG_SERVER_API_VOTE_H

#include "server/call.h"

/* All answers of the call have ended.  Of each prompt the c->f.n_told that won are left as its choices, each with its
 * votes; the others are dropped, and their tokens stay counted.  Answers agree whose texts are the same: what follows
 * the last c->f.vote_after, or all of it, without blanks and full stops around it, in any case.  Of equally many votes
 * the answer that was drawn first wins. */
void rg_call_vote(rg_call *c);

#endif
