/* profile.h -- profiles with made-up numbers, so that what is predicted from them is known and nothing is measured. */
#ifndef RG_TEST_PROFILE_H
#define RG_TEST_PROFILE_H

#include "measure/profile.h"

/* All numbers differ from each other, and none is a measured one. */
void test_profile(rg_profile *p, int n_threads);
/* The cache folder of the commands that this test runs is from now on one of its own, with such a profile of this
 * machine in it; its folder of profiles. */
const char *test_profile_folder(int n_threads);

#endif
