/* mistaken.c -- see mistaken.h. */
#include "ckpt/mistaken.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

enum { HEAD = 512, TOLD = 5, PATH_ROOM = 4096 };

/* ---- files ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *begins;
    size_t at; /* from this byte on */
    const char *advice;
} files[] = {
    { "version https://git-lfs", 0, "a pointer that Git LFS left: run `git lfs pull` in its folder" },
    { "<!DOCTYPE", 0, "a web page and no model: the download went wrong, fetch the file itself" },
    { "<!doctype", 0, "a web page and no model: the download went wrong, fetch the file itself" },
    { "<html", 0, "a web page and no model: the download went wrong, fetch the file itself" },
    { "<?xml", 0, "an XML text and no model: the download went wrong, or it belongs to another program" },
    { "\x1f\x8b", 0, "a gzip archive: unpack it and give what is inside" },
    { "\xfd" "7zXZ", 0, "an xz archive: unpack it and give what is inside" },
    { "\x28\xb5\x2f\xfd", 0, "a zstd archive: unpack it and give what is inside" },
    { "7z\xbc\xaf", 0, "a 7z archive: unpack it and give what is inside" },
    { "ustar", 257, "a tar archive: unpack it and give what is inside" },
    { "PK\x03\x04", 0, "a zip archive, or weights that PyTorch saved: give the folder that has config.json" },
    { "tjgg", 0, "a GGML file from before GGUF: fetch the model as GGUF" },
    { "lmgg", 0, "a GGML file from before GGUF: fetch the model as GGUF" },
    { "fmgg", 0, "a GGML file from before GGUF: fetch the model as GGUF" },
    { "GGUF", 0, "a GGUF file: its name must end in .gguf" },
};

const char *rg_mistaken_bytes(const char *bytes, size_t n)
{
    for (size_t i = 0; i < RG_LEN(files); i++) {
        const size_t at = files[i].at, length = strlen(files[i].begins);

        if (n >= at + length && !memcmp(bytes + at, files[i].begins, length))
            return files[i].advice;
    }
    return NULL;
}

void rg_mistaken_file(const char *path, const char *own, rg_error *err)
{
    rg_error why = { 0 };
    rg_file *f = rg_file_open(path, &why);
    uint64_t size = f ? rg_file_size(f) : 0;
    size_t n = size < HEAD ? (size_t)size : HEAD;
    char head[HEAD];
    const char *advice = NULL;

    if (f && !n)
        rg_fail(err, RG_E_INPUT, "%s: empty, too few bytes for a model: fetch it again", path);
    else if (f && rg_file_read(f, 0, head, n, &why))
        advice = rg_mistaken_bytes(head, n);
    if (advice && !(own && n >= strlen(own) && !memcmp(head, own, strlen(own))))
        rg_fail(err, RG_E_INPUT, "%s: %s", path, advice);
    rg_file_close(f);
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

/* Files that tell what a folder is, the most telling first. */
static const struct {
    const char *name, *advice;
} signs[] = {
    { "snapshots", "a folder of the Hugging Face cache: give the folder of one revision below its snapshots/" },
    { "model_index.json", "a pipeline that makes pictures, and no language model" },
    { "params.json", "weights in their authors' own form: fetch the model in the form of transformers (config.json and "
                     "safetensors)" },
    { "openvino_model.xml", "a model converted for OpenVINO: fetch the one that it was converted from" },
    { "model.onnx", "a model converted to ONNX: fetch the one that it was converted from" },
    { "onnx", "a model converted to ONNX: fetch the one that it was converted from" },
    { "model.safetensors", "weights without their config.json: fetch that too" },
    { "model.safetensors.index.json", "weights without their config.json: fetch that too" },
    { "pytorch_model.bin", "weights without their config.json: fetch that too" },
};

typedef struct found {
    char *gguf;    /* the first of them in the order of names */
    int n_ggufs;   /* models: the parts of a split one count once */
    rg_buf names;  /* of the first few */
    int sign;      /* the first of signs that is there; RG_LEN(signs): none is */
    bool failed;   /* no memory */
} found;

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);

    return n > n_end && !strcmp(name + n - n_end, end);
}

/* True if it is a part of a split file other than the first. */
static bool is_later_part(const char *name)
{
    unsigned no, of;
    int end = 0;
    const size_t n = strlen(name), tail = strlen("-00001-of-00001.gguf");

    return n > tail && sscanf(name + n - tail, "-%5u-of-%5u.gguf%n", &no, &of, &end) == 2 && end == (int)tail && no > 1;
}

static bool look_at(void *arg, const char *name)
{
    found *f = arg;

    for (int i = 0; i < f->sign; i++)
        if (!strcmp(name, signs[i].name))
            f->sign = i;
    if (!ends_in(name, ".gguf") || !strncmp(name, "mmproj", 6) || is_later_part(name))
        return true;
    if (f->n_ggufs++ < TOLD)
        rg_buf_printf(&f->names, "%s%s", f->n_ggufs > 1 ? ", " : "", name);
    if (!f->gguf || strcmp(name, f->gguf) < 0) {
        rg_free(f->gguf);
        f->gguf = rg_strdup(name);
        f->failed = f->failed || !f->gguf;
    }
    return !f->failed;
}

char *rg_mistaken_folder(const char *path, rg_error *err)
{
    found f = { .sign = (int)RG_LEN(signs) };
    char joined[PATH_ROOM], *file = NULL;

    rg_buf_init(&f.names, 4096);
    if (!rg_dir_list(path, look_at, &f, err))
        goto end;
    if (f.failed || f.names.failed)
        rg_fail_memory(err, strlen(path));
    else if (f.n_ggufs == 1 && !rg_path_join(joined, sizeof joined, path, f.gguf))
        rg_fail(err, RG_E_INPUT, "%s: the path is too long", path);
    else if (f.n_ggufs == 1 && !(file = rg_strdup(joined)))
        rg_fail_memory(err, strlen(joined));
    else if (f.n_ggufs > 1)
        rg_fail(err, RG_E_INPUT, "%s: %d models as GGUF (%.*s%s): give one of the files", path, f.n_ggufs,
                (int)f.names.n, f.names.data, f.n_ggufs > TOLD ? ", ..." : "");
    else if (!f.n_ggufs && f.sign < (int)RG_LEN(signs))
        rg_fail(err, RG_E_INPUT, "%s: no config.json; it looks like %s", path, signs[f.sign].advice);
    else if (!f.n_ggufs)
        rg_fail(err, RG_E_INPUT, "%s: no config.json and no GGUF file: give the folder or the file of a model", path);
end:
    rg_buf_fini(&f.names);
    rg_free(f.gguf);
    return file;
}
