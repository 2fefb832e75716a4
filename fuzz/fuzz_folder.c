/* fuzz_folder.c -- folders of models, changed (patched.h), and opened as what they are: one program for each FUZZ_KIND, by the
 * table below.  Refused cleanly, or opened and closed, and nothing leaked. */
#include "patched.h"

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "model/model.h"
#include "text/tokenizer.h"

#define GOLDEN "tests/golden/"
#define QUANTIZED(name) { GOLDEN "quantized/" name, { "config.json", "model.safetensors" } }

int fsync(int fd); /* nothing that is written here need outlive a crash of the machine */

int fsync(int fd)
{
    (void)fd;
    return 0;
}

static patched_folder safetensors[] = {
    { GOLDEN "llama", { "config.json", "model.safetensors" } },
    { GOLDEN "mamba", { "config.json", "model.safetensors" } },
    { NULL, { "config.json", "model.safetensors.index.json", "a.safetensors" } }, /* made by make_sharded */
};

static const patched_folder torch[] = { { GOLDEN "torch", { "config.json", "pytorch_model.bin" } } };

static const patched_folder quantized[] = {
    QUANTIZED("gptq-4bit-g32-v2"), QUANTIZED("gptq-3bit-g32"), QUANTIZED("gptq-8bit-all"), QUANTIZED("awq-gemm-g32"),
    QUANTIZED("ct-int4-g32"), QUANTIZED("ct-int8-channel"), QUANTIZED("ct-fp8-tensor"), QUANTIZED("ct-mxfp4"),
    QUANTIZED("bnb-nf4"), QUANTIZED("bnb-int8"), QUANTIZED("fp8-block-scale-inv"),
};

static const patched_folder adapter[] = {
    { GOLDEN "adapters/llama", { "adapter_config.json", "adapter_model.safetensors" } },
    { GOLDEN "adapters/llama-gguf", { "adapter.gguf" } },
};

static const patched_folder drafter[] = {
    { GOLDEN "speculation/eagle1", { "config.json", "model.safetensors" } },
    { GOLDEN "speculation/eagle3", { "config.json", "model.safetensors" } },
    { GOLDEN "speculation/medusa", { "config.json", "medusa_lm_head.safetensors" } },
};

static bool target_open(rg_checkpoint **c, rg_model **m)
{
    *c = rg_checkpoint_open(GOLDEN "llama", RG_CKPT_DEFAULT, NULL);
    *m = *c ? rg_model_open(*c, &(rg_model_options){ 0 }, NULL) : NULL;
    return *m;
}

static void open_model(const char *path, const rg_model_options *o)
{
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, NULL);

    if (c)
        rg_model_close(rg_model_open(c, o, NULL));
    rg_checkpoint_close(c);
}

static void open_plain(const char *path)
{
    open_model(path, &(rg_model_options){ 0 });
}

static void open_adapter(const char *path)
{
    static rg_checkpoint *base;
    char gguf[600];

    if (!base && !(base = rg_checkpoint_open(GOLDEN "llama", RG_CKPT_DEFAULT, NULL)))
        abort();
    snprintf(gguf, sizeof gguf, "%s/adapter.gguf", path);
    const rg_adapter_source from = { .name = "a", .path = rg_path_look(gguf) == RG_PATH_FILE ? gguf : path };
    rg_model_close(rg_model_open(base, &(rg_model_options){ .adapters = &from, .n_adapters = 1 }, NULL));
}

static void open_drafter(const char *path)
{
    static rg_checkpoint *c;
    static rg_model *m;

    if (!m && !target_open(&c, &m))
        abort();
    open_model(path, &(rg_model_options){ .target = m });
}

/* A pack file that was made of a sound model. */
static patched_folder pack[1];

static void open_pack(const char *path)
{
    static rg_checkpoint *c;

    if (!c && !(c = rg_checkpoint_open(GOLDEN "mamba", RG_CKPT_DEFAULT, NULL)))
        abort();
    rg_model_close(rg_model_open(c, &(rg_model_options){ .pack_cache = path }, NULL));
}

static bool note_name(void *arg, const char *name)
{
    snprintf(arg, 256, "%s", name);
    return false;
}

static void make_pack(void)
{
    static char dir[] = "/tmp/ridge-pack-XXXXXX", name[256];

    if (!mkdtemp(dir))
        abort();
    open_pack(dir);
    if (!rg_dir_list(dir, note_name, name, NULL) || !name[0])
        abort();
    pack[0] = (patched_folder){ dir, { name } };
}

static void copy(const char *from, const char *dir, const char *name)
{
    char path[600];
    size_t n;
    char *data = rg_file_slurp(from, PATCHED_MOST, &n, NULL);

    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = data ? fopen(path, "wb") : NULL;
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
    rg_free(data);
}

/* The golden llama by an index. */
static void make_sharded(void)
{
    static char dir[] = "/tmp/ridge-sharded-XXXXXX";
    char path[600];
    rg_checkpoint *c = rg_checkpoint_open(GOLDEN "llama", RG_CKPT_DEFAULT, NULL);

    if (!c || !mkdtemp(dir))
        abort();
    copy(GOLDEN "llama/config.json", dir, "config.json");
    copy(GOLDEN "llama/model.safetensors", dir, "a.safetensors");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    fprintf(f, "{\"metadata\": {}, \"weight_map\": {");
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++)
        fprintf(f, "%s\"%s\": \"a.safetensors\"", i ? ", " : "", rg_checkpoint_tensor(c, i)->name);
    fprintf(f, "}}");
    fclose(f);
    rg_checkpoint_close(c);
    safetensors[2].path = dir;
}

typedef struct kind {
    const char *name;
    const patched_folder *all;
    int n;
    void (*open)(const char *path);
    void (*begin)(void); /* NULL: nothing to begin with */
} kind;

static const kind kinds[] = {
    { "safetensors", safetensors, RG_LEN(safetensors), open_plain, make_sharded },
    { "torch", torch, RG_LEN(torch), open_plain, NULL },
    { "quantized", quantized, RG_LEN(quantized), open_plain, NULL },
    { "adapter", adapter, RG_LEN(adapter), open_adapter, NULL },
    { "drafter", drafter, RG_LEN(drafter), open_drafter, NULL },
    { "pack", pack, RG_LEN(pack), open_pack, make_pack },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const kind *k;
    int which;

    if (!k) {
        for (k = kinds; strcmp(k->name, FUZZ_KIND);)
            k++;
        if (k->begin)
            k->begin();
        for (int i = 0; i < k->n; i++) /* what is made once is made now */
            k->open(patched(k->all, k->n, (uint8_t[]){ (uint8_t)i }, 1, &which));
    }
    const char *path = patched(k->all, k->n, data, n, &which);
    size_t live = rg_mem_count().n_live;
    k->open(path);
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
