/* goldens.h -- the models of tests/golden: their folders, and the files in these. */
#ifndef RG_TEST_GOLDENS_H
#define RG_TEST_GOLDENS_H

#include <stdio.h>

#include "support/test.h"

static const char *const test_goldens[] = {
#define GOLDEN(test, folder, worlds) folder,
#define WHOLE(test, folder) folder,
#define ENCODER(test, folder) folder,
#include "model/goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER
};

/* The path of a golden's file; valid as test_data's is. */
static inline const char *test_golden(const char *folder, const char *file)
{
    char name[128];

    snprintf(name, sizeof name, "%s/%s", folder, file);
    return test_data(name);
}

#endif
