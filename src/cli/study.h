/* study.h -- `ridge study`: what several models do side by side.  Each study is a command of its own behind that name:
 * one file, and one line in study.c. */
#ifndef RG_CLI_STUDY_H
#define RG_CLI_STUDY_H

#include "cli/cli.h"

/* The name of a model's file without folders and ending, or of its folder, which a config.json is called by; into out,
 * which is returned. */
const char *study_name(const char *path, char out[64]);

#endif
