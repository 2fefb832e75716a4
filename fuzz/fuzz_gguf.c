/* fuzz_gguf.c -- any bytes as a GGUF file: opened, every key and tensor looked at, and made into a model if they can be. */
#include "fuzz.h"

#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "model/model.h"
#include "text/tokenizer.h"

static void look(void *arg, const char *key, rg_meta_type type, bool understood)
{
    char text[80];

    (void)type;
    (void)understood;
    rg_meta_text(arg, key, text, sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    int fd = fuzz_file(data, n, path);
    size_t live = rg_mem_count().n_live;
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, NULL);

    if (c) {
        rg_meta_each(c, look, c);
        rg_model_close(rg_model_open(c, &(rg_model_options){ .declared_type = RG_F32 }, NULL));
        rg_tokenizer_close(rg_tokenizer_open(c, NULL));
    }
    rg_checkpoint_close(c);
    close(fd);
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
