/* tokenize.c -- `ridge tokenize`: text to ids, and ids back to text. */
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "text/tokenizer.h"

extern const cli_command cli_tokenize;

typedef struct tokenize_options {
    cli_args args;
    const char *text, *file;
    bool no_special, plain;
    cli_ints ids;
} tokenize_options;

static bool back(const tokenize_options *o, const rg_tokenizer *t, rg_error *err)
{
    size_t n;

    for (size_t i = 0; i < o->ids.n; i++)
        if (o->ids.item[i] < 0 || o->ids.item[i] >= rg_tokenizer_size(t))
            return rg_fail(err, RG_E_INPUT, "tokenize: id %d is not in the vocabulary of %d", o->ids.item[i],
                           rg_tokenizer_size(t));
    char *text = rg_tokenizer_decode(t, o->ids.item, o->ids.n, o->no_special, &n, err);
    bool ok = text;

    if (ok && o->args.common.json) {
        cli_json *j = cli_json_new();
        cli_json_open(j, NULL, '{');
        cli_json_string(j, "text", text, n);
        cli_json_close(j);
        ok = cli_json_print(j) || rg_fail(err, RG_E_IO, "tokenize: standard output cannot be written");
    } else if (ok) {
        fwrite(text, 1, n, stdout);
        putchar('\n');
    }
    rg_free(text);
    return ok;
}

/* A piece as text, or, where it is not UTF-8, as hex: "<e2 96>". */
static void print_piece(cli_json *j, rg_string piece)
{
    char hex[64] = "<";
    int n = 1;

    if (!rg_utf8_valid(piece.data, piece.n)) {
        for (size_t i = 0; i < piece.n && n < (int)sizeof hex - 5; i++)
            n += snprintf(hex + n, sizeof hex - (size_t)n, "%s%02x", i ? " " : "", (unsigned char)piece.data[i]);
        hex[n++] = '>';
        cli_json_string(j, NULL, hex, (size_t)n);
        return;
    }
    cli_json_string(j, NULL, piece.data, piece.n);
}

static bool forth(const tokenize_options *o, const rg_tokenizer *t, rg_error *err)
{
    unsigned flags = (o->no_special ? RG_ENCODE_NO_SPECIAL : 0u) | (o->plain ? RG_ENCODE_PLAIN : 0u);
    rg_ids ids = { 0 };
    size_t n;
    char *text = cli_text(o->text, o->file, &n, err);
    bool ok = text && rg_tokenizer_encode(t, text, n, flags, &ids, err);

    rg_free(text);
    if (ok && o->args.common.json) {
        cli_json *j = cli_json_new();
        cli_json_open(j, NULL, '{');
        cli_json_open(j, "ids", '[');
        for (size_t i = 0; i < ids.n; i++)
            cli_json_int(j, NULL, ids.id[i]);
        cli_json_close(j);
        cli_json_open(j, "pieces", '[');
        for (size_t i = 0; i < ids.n; i++)
            print_piece(j, rg_tokenizer_piece(t, ids.id[i]));
        cli_json_close(j);
        cli_json_close(j);
        ok = cli_json_print(j) || rg_fail(err, RG_E_IO, "tokenize: standard output cannot be written");
    } else if (ok) {
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%d", i ? " " : "", ids.id[i]);
        putchar('\n');
    }
    rg_ids_fini(&ids);
    return ok;
}

static int run(int argc, char **argv)
{
    static tokenize_options o;
    const cli_option options[] = {
        { "-p", CLI_STRING, &o.text, "TEXT", "the text (default: standard input)" },
        { "-f", CLI_STRING, &o.file, "FILE", "the text from a file" },
        { "--no-special", CLI_FLAG, &o.no_special, NULL, "leave out what the tokenizer adds (BOS, EOS)" },
        { "--plain", CLI_FLAG, &o.plain, NULL, "the text is foreign: no special token comes of it" },
        { "--ids", CLI_INTS, &o.ids, "1,2,3", "ids back to text" },
        { NULL },
    };
    char path[1024];
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_tokenize, options, argc, argv);
    if (status >= 0)
        return status;
    if (!o.args.n_positional)
        return cli_usage("tokenize: MODEL is missing; see `ridge tokenize --help`");
    if ((o.text != NULL) + (o.file != NULL) + o.ids.given > 1)
        return cli_usage("tokenize: only one of -p, -f and --ids can be the text");
    if (!cli_find_model(o.args.positional[0], path, sizeof path, &err))
        return cli_fail(&err);
    rg_tokenizer *t = rg_tokenizer_open_path(path, &err);
    if (!t && err.code == RG_OK)
        rg_fail(&err, RG_E_UNSUPPORTED, "%s: there is no tokenizer", path);
    bool ok = t && (o.ids.given ? back(&o, t, &err) : forth(&o, t, &err));
    rg_tokenizer_close(t);
    cli_ints_fini(&o.ids);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_tokenize = {
    .name = "tokenize", .arguments = "MODEL", .summary = "text to ids, or ids back to text", .run = run,
    .n_positional = 1,
};
