/* cli.h -- what every subcommand shares: its entry in the table, options as data, and how results and errors are
 * printed.
 *
 * A subcommand is one file with one rg_command; main.c holds their table.  Options are a table of names and places;
 * nothing is abbreviated, "--x v" and "--x=v" are the same. */
#ifndef RG_CLI_CLI_H
#define RG_CLI_CLI_H

#include "base/buf.h"
#include "library/library.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_INT,     /* int32_t */
    CLI_U64,     /* uint64_t */
    CLI_FLOAT,   /* float */
    CLI_BYTES,   /* size_t: 1000, 64K, 2G */
    CLI_STRING,  /* const char * */
    CLI_STRINGS, /* cli_strings: repeatable */
    CLI_INTS,    /* cli_ints: 1,2,3 */
} cli_kind;

enum { CLI_STRINGS_ROOM = 64 };

typedef struct cli_strings {
    const char *item[CLI_STRINGS_ROOM];
    int n;
} cli_strings;

typedef struct cli_ints {
    int32_t *item; /* freed by cli_ints_fini */
    size_t n;
    bool given;
} cli_ints;

void cli_ints_fini(cli_ints *v);
/* What a list may hold: numbers from min to max, so many at most; and whose option it is, for messages. */
typedef struct cli_ints_rule {
    const char *command, *option;
    int32_t min, max;
    size_t most;
} cli_ints_rule;
/* Give a list that was not given n values, and check it.  It is not empty. */
bool cli_ints_settle(cli_ints *v, const int32_t *values, size_t n, const cli_ints_rule *rule, rg_error *err);
/* The largest of them, or least. */
int32_t cli_ints_most(const cli_ints *v, int32_t least);

typedef struct cli_option {
    const char *name;  /* "--temperature", or "-n" */
    cli_kind kind;
    void *to;
    const char *value; /* what its value is called in the help: "N" */
    const char *help;
    double min, max;   /* of numbers; both 0: any that fits */
    bool *given;       /* set when it was; may be NULL */
} cli_option;

/* Options that several subcommands have, for their tables.  unless: what --kv-type is when it is not given; when: what
 * --remeasure depends on. */
#define CLI_KV_TYPE_OPTION(to, unless)                                                                                 \
    { "--kv-type", CLI_STRING, &(to), "TYPE", "f32, f16, bf16, q8 or q4 (default: " unless ")" }
#define CLI_KV_AS_WEIGHTS "f32 for F32 weights, else bf16"
#define CLI_PACK_CACHE_OPTION(to)                                                                                      \
    { "--pack-cache", CLI_STRING, &(to), "DIR", "keep packed weights here, so that the next start only reads them" }
#define CLI_SPARSITY_OPTION(to)                                                                                        \
    { "--sparsity", CLI_STRING, &(to), "FILE",                                                                         \
      "inputs below these thresholds (of shrink sparsity) count as 0, and steps of one row skip their columns; "       \
      "zeros: only what ReLU makes 0" }
#define CLI_ATTENTION_SPARSITY_OPTION(to)                                                                              \
    { "--attention-sparsity", CLI_FLOAT, &(to), "THRESHOLD",                                                           \
      "attention leaves out blocks of 64 keys whose weights are all below it (lossy, as 1e-4; default: 0, none)", 0,   \
      0.999999 }
#define CLI_EXPERT_MEMORY_OPTION(to)                                                                                   \
    { "--expert-memory", CLI_BYTES, &(to), "BYTES", "memory for experts, the others being read when they are needed" }
#define CLI_CSV_OPTION(to) { "--csv", CLI_STRING, &(to), "FILE", "also write the rows to a file" }
#define CLI_REMEASURE_OPTION(to, when)                                                                                 \
    { "--remeasure", CLI_FLAG, &(to), NULL, when "measure this machine anew, whatever is known of it" }

/* Options that every subcommand takes. */
typedef struct cli_common {
    int32_t threads; /* 0: as many as there are cores */
    int32_t ranks;   /* processes that share a model; 0: 1 */
    const char *isa, *recipe;
    bool pin, numa_copies; /* of commands that compute steps */
    bool json, quiet;
} cli_common;

/* Start the processes of --ranks, once, before there are threads; c->threads becomes those of each. */
bool cli_ranks_start(cli_common *c, rg_error *err);
rg_ranks *cli_ranks(void); /* NULL: there are none */
int cli_ranks_best(uint64_t weight_bytes); /* ranks that serve a model of this size best here; 1: one process */
/* This process is one that mpirun has started: take its place among the ranks.  *follows: it was another than rank 0,
 * and has done what there was to do.  host_ranks, delay_us: for tests (rg_ranks_join).  False and *err: MPI is not
 * there. */
bool cli_ranks_join(bool *follows, int host_ranks, int delay_us, rg_error *err);
void cli_ranks_stop(void);

typedef struct cli_command {
    const char *name, *arguments, *summary;
    const char *notes; /* more of its help; may be NULL */
    int (*run)(int argc, char **argv);
    int n_positional;   /* arguments that are no options, at most */
    const char *recipe; /* its default; NULL: fast */
    const char *const *words; /* what the first argument may be, ends with NULL; NULL: it is free */
    bool words_have_options;  /* each word is a command of its own */
} cli_command;

/* All of them; from main. */
extern const cli_command *const *cli_commands;
extern size_t cli_n_commands;

/* Where an option's value came from: the later ones go before the earlier ones. */
typedef enum cli_source { CLI_UNSET, CLI_FILE, CLI_FILE_SECTION, CLI_ENVIRONMENT, CLI_LINE } cli_source;
enum { CLI_MOST_OPTIONS = 192 };

typedef struct cli_args {
    const cli_command *command;
    const cli_option *options; /* besides the common ones; ends with a NULL name; NULL: none */
    const char *positional[64];
    int n_positional;
    cli_common common;
    const char *model;                /* what -m, or a setting, says that MODEL is; NULL: nothing */
    unsigned char source[CLI_MOST_OPTIONS]; /* cli_source of each option, the common ones first */
    cli_source model_source;
    bool fetch; /* a model that is not there is to be fetched */
    const struct cli_alias *ignored[16]; /* other programs' options that change nothing, to be told once all is read */
    int n_ignored;
} cli_args;

/* Parse: the configuration file, then the environment (settings.h), then the command line; what -m names is the first
 * positional argument.  -1: go on; else the exit status to return at once (help was printed, or the usage was wrong and
 * said so). */
int cli_parse(cli_args *a, const cli_command *command, const cli_option *options, int argc, char **argv);

/* Call visit with every option of a command, its own and then the common ones; word: one of command->words whose own
 * options are meant, or NULL.  Nothing else of the command happens. */
typedef void cli_option_visitor(void *arg, const cli_option *o);
void cli_describe(const cli_command *command, const char *word, cli_option_visitor *visit, void *arg);

/* "ridge: WHAT: why" on standard error; returns EXIT_FAILED (EXIT_USAGE for RG_E_USAGE). */
int cli_fail(const rg_error *err);
int cli_usage(const char *fmt, ...) RG_PRINTF(1, 2);

/* An answer ended so.  False, and *err says why, if that is a failure of the model's. */
bool cli_finished(rg_finish finish, rg_error *err);

/* MODEL as given, by any of the names of library/library.h, or the shipped default for NULL. */
bool cli_find(const char *given, rg_library_model *out, rg_error *err);
/* The same; its path into out[room]. */
bool cli_find_model(const char *given, char *out, size_t room, rg_error *err);

/* Report that a checkpoint has n tensors that no weight is made from; prints nothing for 0, or with --quiet. */
void cli_warn_unused(const cli_common *common, const char *path, int n);
/* Warn of each line of a model's notes (rg_info.notes); prints nothing for "", or with --quiet. */
void cli_warn_notes(const cli_common *common, const char *path, const char *notes);

/* Text from -p, -f or standard input ("-f -"), byte for byte.  rg_free it. */
char *cli_text(const char *text, const char *file, size_t *n, rg_error *err);

/* A progress bar on a terminal's standard error; silence in a pipe or with --quiet. */
void cli_progress(void *arg_quiet, const char *what, double done);

/* Set by Ctrl-C once cli_catch_interrupt was called; a second one ends the program. */
void cli_catch_interrupt(void);
bool cli_interrupted(void);
void cli_interrupt_clear(void); /* the next Ctrl-C counts as the first */

/* The text in b as a file, whole or not at all; b is freed. */
bool cli_write_file(const char *path, rg_buf *b, rg_error *err);

/* JSON on standard output, built as text: numbers that are not finite become null, bytes that are not UTF-8 U+FFFD. */
typedef struct cli_json cli_json;
cli_json *cli_json_new(void);
void cli_json_open(cli_json *j, const char *key, char bracket); /* '{' or '['; key NULL in arrays and at the top */
void cli_json_close(cli_json *j);
void cli_json_string(cli_json *j, const char *key, const char *s, size_t n);
void cli_json_text(cli_json *j, const char *key, const char *s); /* NULL: null */
void cli_json_int(cli_json *j, const char *key, int64_t v);
void cli_json_u64(cli_json *j, const char *key, uint64_t v);
void cli_json_float(cli_json *j, const char *key, double v);
void cli_json_bool(cli_json *j, const char *key, bool v);
void cli_json_null(cli_json *j, const char *key);
/* Bring what was printed to standard output, all of it so far.  False: it cannot be written, now or before; *why (may
 * be NULL) is then the reason of the first failure, for people. */
bool cli_flush(const char **why);
/* Print it with a newline and free it.  False if it could not be built or written. */
bool cli_json_print(cli_json *j);
/* Write it to a file, whole or not at all, and free it. */
bool cli_json_write(cli_json *j, const char *path, rg_error *err);

/* Where models are looked for; from main. */
extern rg_places cli_places;
/* Its folder of models, the one beside the program; from main. */
extern const char *cli_models_dir;
/* Where profiles of this machine are kept (measure/profile.h); from main.  NULL: nowhere. */
extern const char *cli_profile_folder;
/* Where what is typed is kept from one time to the next; from main.  NULL: nowhere. */
extern const char *cli_state_folder;

#endif
