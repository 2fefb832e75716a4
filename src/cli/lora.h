/* lora.h -- --lora NAME=PATH: adapters as the command line names them. */
#ifndef RG_CLI_LORA_H
#define RG_CLI_LORA_H

#include "cli/cli.h"

typedef struct cli_loras {
    cli_strings given;
    rg_adapter_option item[CLI_STRINGS_ROOM];
    int n;
    char name[CLI_STRINGS_ROOM][128];
} cli_loras;

#define CLI_LORA_OPTION(v, use)                                                                                        \
    {                                                                                                                  \
        "--lora", CLI_STRINGS, &(v).given, "NAME=PATH", use                                                            \
    }

/* Fill in item; without "NAME=" an adapter is called by the last part of its path. */
bool cli_loras_read(cli_loras *v, rg_error *err);
/* The same where every row has the one adapter that is given, if one is. */
bool cli_loras_read_one(cli_loras *v, rg_error *err);

#endif
