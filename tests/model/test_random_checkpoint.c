/* Checkpoints that bench/random_checkpoint makes of a config alone: GGUF files that open, each tensor once, and no tensor
 * that no weight is made from. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>

static void opens(const char *config)
{
    const char *path = test_scratch("random.gguf");
    char command[1024];
    rg_error err = { 0 };

    snprintf(command, sizeof command, "%s/random_checkpoint %s q4_0 %s", RG_BUILD_DIR, config, path);
    if (system(command))
        fail_msg("%s", command);
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(ckpt, err);
    rg_model *m = rg_model_open(ckpt, &(rg_model_options){ 0 }, &err);
    if (!m)
        fail_msg("%s: %s", config, err.text);
    if (m->n_unused)
        fail_msg("%s: %d tensors are not used", config, m->n_unused);
    rg_model_close(m);
    rg_checkpoint_close(ckpt);
}

/* Tensors that several weights share, rows that GGUF has apart, stacked experts, a convolution's taps, factors of a rope. */
static void each_tensor_once(void **state)
{
    static const char *const goldens[] = { "llama",  "mixtral",    "gemma3",  "mamba",      "qwen3-next",
                                           "qwen35", "qwen35-moe", "gpt-oss", "gemma4-moe", "phi3" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(goldens); i++) {
        char config[256];

        snprintf(config, sizeof config, RG_TEST_DATA "/%s/config.json", goldens[i]);
        opens(config);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_tensor_once) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
