/* test_models_command.c -- every command takes models by the names that people know; list and show tell what is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/command.h"
#include "support/model.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define DIGEST "aaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccdddd"

/* What `ridge list` calls the models that are shipped. */
#define SHIPPED \
    "family/based\n" "family/block-diffusion\n" "family/cla2\n" \
    "family/gated-delta/gated-delta.gguf\n" "family/gqa/gqa.gguf\n" "family/jamba/jamba.gguf\n" \
    "family/lightning-full/lightning-full.gguf\n" "family/mamba/mamba.gguf\n" \
    "family/mamba2/mamba2.gguf\n" "family/masked-diffusion/masked-diffusion.gguf\n" \
    "family/mha/mha.gguf\n" "family/mla/mla.gguf\n" "family/mqa/mqa.gguf\n" "family/recall-mha\n" \
    "family/window-global\n" "tales-1m\n" "tales-7m\n"

static char root[400];

/* NAME below root, a link to a file. */
static void put_link(const char *name, const char *to)
{
    char path[1000];

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *s = strchr(path + strlen(root) + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        mkdir(path, 0755);
        *s = '/';
    }
    assert_true(!to || symlink(to, path) == 0);
}

static int set_up(void **state)
{
    static const char *const files[] = { "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                         "chat_template.jinja" };
    char from[700], to[700];

    (void)state;
    snprintf(root, sizeof root, "%s", test_scratch("homes"));
    mkdir(root, 0755);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(from, sizeof from, RG_SOURCE_DIR "/models/tales-1m/%s", files[i]);
        snprintf(to, sizeof to, "hf/hub/models--acme--tales/snapshots/" COMMIT "/%s", files[i]);
        put_link(to, from);
    }
    put_link("hf/hub/models--acme--tales/refs/main", NULL);
    snprintf(to, sizeof to, "%s/hf/hub/models--acme--tales/refs/main", root);
    test_write_text(to, COMMIT "\n");
    snprintf(to, sizeof to, "%s/hf/hub/models--acme--tales/snapshots/" COMMIT "/README.md", root);
    test_write_text(to, "---\nlicense: apache-2.0\n---\n# Tales\n");
    put_link("hf/hub/models--acme--small-GGUF/snapshots/x/small-F32.gguf", RG_TEST_DATA "/stories260K.gguf");
    put_link("ollama/blobs/sha256-" DIGEST, RG_TEST_DATA "/stories260K.gguf");
    put_link("ollama/manifests/registry.ollama.ai/library/stories/latest", NULL);
    snprintf(to, sizeof to, "%s/ollama/manifests/registry.ollama.ai/library/stories/latest", root);
    test_write_text(to,
                    "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:" DIGEST
                    "\"}]}");
    put_link("hf/hub/models--acme--broken/snapshots/x/config.json", "/nonexistent");
    put_link("hf/hub/models--acme--damaged/snapshots/x/damaged-Q8_0.gguf", RG_SOURCE_DIR "/README.md");
    snprintf(to, sizeof to, "%s/hf", root);
    setenv("HF_HOME", to, 1);
    snprintf(to, sizeof to, "%s/ollama", root);
    setenv("OLLAMA_MODELS", to, 1);
    snprintf(to, sizeof to, "%s/llama", root);
    setenv("LLAMA_CACHE", to, 1);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    return 0;
}

static void every_command_takes_them(void **state)
{
    static const char *const names[] = { "acme/tales", "acme/small-GGUF", "acme/small-GGUF:f32", "stories", "stories:latest" };
    static const char *const commands[] = {
        "run %s -p Once -n 2 --json", "tokenize %s -p Once --json",    "inspect %s --json",
        "logits %s --ids 1,2 --json", "plan %s --machine h100 --json", "run -hf %s -p Once -n 2 --json"
    };
    char args[500];

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++)
        for (size_t k = 0; k < RG_LEN(commands); k++) {
            snprintf(args, sizeof args, commands[k], names[i]);
            json_decref(command_json(args));
        }
    assert_int_equal(command_run("chat acme/tales -n 2 --quiet"), 0);
    command_refuses("run acme/small-GGUF:q8_0 -p x", 1, "no GGUF file of type q8_0; there is F32");
    command_refuses("run acme/nothing -p x", 1, "`ridge pull` fetches");
    command_refuses("run nothing -p x", 1, "nothing: no such file or folder, here or under the models folder");
}

static json_t *named(json_t *models, const char *name)
{
    json_t *m;
    size_t i;

    json_array_foreach(models, i, m)
        if (!strcmp(json_string_value(json_object_get(m, "name")), name))
            return m;
    fail_msg("no %s in the list", name);
    return NULL;
}

static void list_and_show(void **state)
{
    json_t *j = command_json("list --json"), *models = json_object_get(j, "models"), *m;

    (void)state;
    m = named(models, "acme/tales");
    assert_string_equal(json_string_value(json_object_get(m, "place")), "hugging face");
    assert_string_equal(json_string_value(json_object_get(m, "architecture")), "llama");
    assert_string_equal(json_string_value(json_object_get(m, "type")), "bf16");
    assert_string_equal(json_string_value(json_object_get(m, "license")), "apache-2.0");
    assert_true(json_integer_value(json_object_get(m, "bytes")) > 1000000);
    assert_string_equal(json_string_value(json_object_get(named(models, "acme/small-GGUF:F32"), "type")), "f32");
    assert_string_equal(json_string_value(json_object_get(named(models, "stories:latest"), "place")), "ollama");
    assert_non_null(json_string_value(json_object_get(named(models, "acme/damaged:Q8_0"), "problem")));
    named(models, "tales-7m");
    json_decref(j);
    assert_int_equal(command_run("list"), 0);
    assert_non_null(strstr(command_out, "cannot be used: "));
    assert_int_equal(command_run("list --names"), 0);
    assert_non_null(strstr(command_out, "acme/tales\n"));
    assert_int_equal(command_run("list " RG_SOURCE_DIR "/models --names"), 0);
    assert_string_equal(command_out, SHIPPED);

    j = command_json("show acme/tales --json");
    m = json_array_get(json_object_get(j, "models"), 0);
    assert_int_equal(json_integer_value(json_object_get(m, "context")), 1024);
    assert_true(json_integer_value(json_object_get(m, "parameters")) > 500000);
    assert_non_null(strstr(json_string_value(json_object_get(m, "template")), "messages"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(m, "capabilities"), 0)), "completion");
    json_decref(j);
    j = command_json("show " RG_TEST_DATA "/bert-rerank --json");
    m = json_object_get(json_array_get(json_object_get(j, "models"), 0), "capabilities");
    assert_string_equal(json_string_value(json_array_get(m, 0)), "embedding");
    assert_string_equal(json_string_value(json_array_get(m, 1)), "rerank");
    json_decref(j);
    assert_int_equal(command_run("show tales-1m --template"), 0);
    assert_non_null(strstr(command_out, "quantization  bf16\n"));
    assert_non_null(strstr(command_out, "{%"));
    command_refuses("show acme/damaged", 1, "damaged-Q8_0.gguf");
}

static void pull_says_what_is_wrong(void **state)
{
    (void)state;
    command_refuses("pull", 2, "MODEL is missing");
    setenv("HF_ENDPOINT", "http://127.0.0.1:1/", 1);
    command_refuses("pull acme/tales", 1, "acme/tales: http://127.0.0.1:1/api/models/acme/tales");
    command_refuses("pull tales", 2, "is not ORG/NAME");
    command_refuses("run -hf acme/nothing -p x", 1, "acme/nothing: http://127.0.0.1:1/api/models/acme/nothing");
    setenv("HF_HUB_OFFLINE", "1", 1);
    command_refuses("pull acme/tales", 2, "HF_HUB_OFFLINE is set");
    json_decref(command_json("run -hf acme/tales -p Once -n 1 --json")); /* it is there */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_takes_them),
        cmocka_unit_test(list_and_show),
        cmocka_unit_test(pull_says_what_is_wrong),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("models command", tests, set_up, NULL);
}
