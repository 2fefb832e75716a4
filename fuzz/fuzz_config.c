/* fuzz_config.c -- any bytes as the config.json of a model, of any family: refused cleanly, or a model is declared by it. */
#include "fuzz.h"

#include <sys/stat.h>

#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char dir[] = "/tmp/ridge-fuzz-XXXXXX", path[64];
    static rg_config config; /* it is large */

    if (!path[0]) {
        if (!mkdtemp(dir))
            abort();
        snprintf(path, sizeof path, "%s/config.json", dir);
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
    size_t live = rg_mem_count().n_live;
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, NULL);
    if (c && rg_config_read(&config, c, NULL)) {
        (void)rg_config_generates(&config);
        rg_model_close(rg_model_declare(&config, &(rg_model_options){ .declared_type = RG_F32, .declare_only = true }, NULL));
    }
    rg_checkpoint_close(c);
    if (rg_mem_count().n_live != live)
        abort();
    return 0;
}
