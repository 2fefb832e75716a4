/* test_library.c -- models by the names that people know, in the folders where other programs put them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library/library.h"
#include "support/model.h"
#include "support/test.h"

static char root[400];
static rg_places places;

/* A file below root with so many bytes, and the folders on its way. */
static void put(const char *name, size_t bytes)
{
    char path[1000];

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *s = strchr(path + strlen(root) + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        mkdir(path, 0755);
        *s = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++)
        fputc('x', f);
    fclose(f);
}

static void put_text(const char *name, const char *text)
{
    char path[1000];

    put(name, 0);
    snprintf(path, sizeof path, "%s/%s", root, name);
    test_write_text(path, text);
}

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define DIGEST "aaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccdddd"

static int set_up(void **state)
{
    static char models[500], hub[500], ollama[500], llama[500];

    (void)state;
    snprintf(root, sizeof root, "%s", test_scratch("places"));
    mkdir(root, 0755);
    snprintf(models, sizeof models, "%s/models", root);
    snprintf(hub, sizeof hub, "%s/hub", root);
    snprintf(ollama, sizeof ollama, "%s/ollama", root);
    snprintf(llama, sizeof llama, "%s/llama", root);
    places = (rg_places){ models, hub, ollama, llama };

    put("models/plain/config.json", 2);
    put("models/plain/model.safetensors", 100);
    put("models/one/the-file-Q8_0.gguf", 50);
    put("models/two/a-Q4_0.gguf", 10);
    put("models/two/a-Q8_0.gguf", 20);
    put("models/file.gguf", 5);
    put("models/team/inner/config.json", 2);
    put("models/team/inner/model-00001-of-00002.safetensors", 30);
    put("models/team/inner/model-00002-of-00002.safetensors", 31);
    put("models/notes.txt", 5);

    put("hub/models--acme--tiny/snapshots/" COMMIT "/config.json", 2);
    put("hub/models--acme--tiny/snapshots/" COMMIT "/model.safetensors", 40);
    put("hub/models--acme--tiny/snapshots/old/config.json", 2);
    put("hub/models--acme--tiny/snapshots/old/model.safetensors", 41);
    put_text("hub/models--acme--tiny/refs/main", COMMIT);
    put("hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/Tiny.Q4_K_M.gguf", 7);
    put("hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/Tiny.UD-Q4_K_M.gguf", 8);
    put("hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/Tiny.Q4_K_S.gguf", 9);
    put("hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/mmproj-F16.gguf", 9);
    put("hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/BF16/Tiny-BF16-00001-of-00002.gguf", 11);
    put("hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/BF16/Tiny-BF16-00002-of-00002.gguf", 12);
    put("hub/datasets--acme--texts/snapshots/x/config.json", 2);

    put_text("ollama/manifests/registry.ollama.ai/library/llama3/latest",
             "{\"schemaVersion\": 2, \"layers\": [{\"mediaType\": \"application/vnd.ollama.image.template\", \"digest\": "
             "\"sha256:00\"}, {\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:" DIGEST "\"}]}");
    put_text("ollama/manifests/registry.ollama.ai/someone/thing/7b-q4",
             "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:" DIGEST "\"}]}");
    put_text("ollama/manifests/hf.co/acme/other/Q8_0",
             "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:" DIGEST "\"}]}");
    put_text("ollama/manifests/registry.ollama.ai/library/broken/latest", "{\"layers\": [}");
    put_text("ollama/manifests/registry.ollama.ai/library/climber/latest",
             "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:/../../../x\"}]}");
    put("ollama/blobs/sha256-" DIGEST, 60);

    put("llama/acme_cached_Cached-Q8_0.gguf", 13);
    put("llama/acme_cached_Cached-Q4_0.gguf", 14);
    return 0;
}

static void finds(const char *name, const char *path, rg_place place, uint64_t bytes)
{
    rg_error err = { 0 };
    rg_library_model f;
    char want[1000];

    if (!rg_library_find(&places, name, &f, &err))
        fail_msg("%s: %s", name, err.text);
    snprintf(want, sizeof want, "%s/%s", root, path);
    assert_string_equal(f.path, want);
    assert_int_equal(f.place, place);
    assert_int_equal(f.bytes, bytes);
    assert_string_equal(f.name, name);
}

static void refuses(const char *name, const char *about)
{
    rg_error err = { 0 };
    rg_library_model f;

    if (rg_library_find(&places, name, &f, &err))
        fail_msg("%s was found: %s", name, f.path);
    if (!strstr(err.text, about))
        fail_msg("%s: %s", name, err.text);
}

static void names_are_found(void **state)
{
    (void)state;
    finds("plain", "models/plain", RG_PLACE_MODELS, 100);
    finds("one", "models/one/the-file-Q8_0.gguf", RG_PLACE_MODELS, 50);
    finds("one:q8_0", "models/one/the-file-Q8_0.gguf", RG_PLACE_MODELS, 50);
    finds("two:Q4_0", "models/two/a-Q4_0.gguf", RG_PLACE_MODELS, 10);
    finds("two:a-Q8_0.gguf", "models/two/a-Q8_0.gguf", RG_PLACE_MODELS, 20);
    finds("file.gguf", "models/file.gguf", RG_PLACE_MODELS, 5);
    finds("team/inner", "models/team/inner", RG_PLACE_MODELS, 61);
    finds("acme/tiny", "hub/models--acme--tiny/snapshots/" COMMIT, RG_PLACE_HUB, 40);
    finds("acme/tiny@old", "hub/models--acme--tiny/snapshots/old", RG_PLACE_HUB, 41);
    finds("acme/tiny@" COMMIT, "hub/models--acme--tiny/snapshots/" COMMIT, RG_PLACE_HUB, 40);
    finds("acme/tiny-GGUF", "hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/Tiny.Q4_K_M.gguf", RG_PLACE_HUB, 7);
    finds("acme/tiny-GGUF:q4_k_s", "hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/Tiny.Q4_K_S.gguf", RG_PLACE_HUB, 9);
    finds("acme/tiny-GGUF:UD-Q4_K_M", "hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/Tiny.UD-Q4_K_M.gguf", RG_PLACE_HUB, 8);
    finds("acme/tiny-GGUF:bf16", "hub/models--acme--tiny-GGUF/snapshots/" COMMIT "/BF16/Tiny-BF16-00001-of-00002.gguf",
          RG_PLACE_HUB, 23);
    finds("llama3", "ollama/blobs/sha256-" DIGEST, RG_PLACE_OLLAMA, 60);
    finds("llama3:latest", "ollama/blobs/sha256-" DIGEST, RG_PLACE_OLLAMA, 60);
    finds("someone/thing:7b-q4", "ollama/blobs/sha256-" DIGEST, RG_PLACE_OLLAMA, 60);
    finds("hf.co/acme/other:Q8_0", "ollama/blobs/sha256-" DIGEST, RG_PLACE_OLLAMA, 60);
    finds("acme/cached:q8_0", "llama/acme_cached_Cached-Q8_0.gguf", RG_PLACE_LLAMA_CACHE, 13);
    finds("acme_cached_Cached-Q4_0.gguf", "llama/acme_cached_Cached-Q4_0.gguf", RG_PLACE_LLAMA_CACHE, 14);
}

static void a_path_comes_first(void **state)
{
    char path[1000], name[1100];
    rg_error err = { 0 };
    rg_library_model f;

    (void)state;
    snprintf(path, sizeof path, "%s/models/two", root);
    assert_true(rg_library_find(&(rg_places){ 0 }, path, &f, &err));
    assert_string_equal(f.path, path); /* which of its files, its reader says */
    snprintf(name, sizeof name, "%s:Q8_0", path);
    assert_true(rg_library_find(&(rg_places){ 0 }, name, &f, &err));
    assert_non_null(strstr(f.path, "/two/a-Q8_0.gguf"));
    assert_int_equal(f.place, RG_PLACE_PATH);
}

static void what_is_not_there_is_told(void **state)
{
    (void)state;
    refuses("nothing", "nothing: no such file or folder");
    refuses("acme/nothing", "`ridge pull`");
    refuses("two", "2 models as GGUF (Q4_0, Q8_0): say which, as in two:TYPE");
    refuses("two:Q5_0", "no GGUF file of type Q5_0; there are Q4_0, Q8_0");
    refuses("acme/tiny-GGUF:q2_k", "no GGUF file of type q2_k");
    refuses("acme/tiny:q8_0", "no GGUF file of type q8_0; there are none");
    refuses("acme/tiny@nope", "no such file");
    refuses("broken", "manifest");
    refuses("climber", "manifest");
    refuses("../plain", "no such file");
    refuses("acme/../plain", "no such file");
    refuses("", "no such file");
    refuses(":", "no such file");
    refuses("acme/cached", "2 models as GGUF");
}

typedef struct listing {
    char text[8000];
    int n, most;
} listing;

static bool list(void *arg, const rg_library_model *f)
{
    listing *l = arg;
    rg_error err = { 0 };
    rg_library_model again;

    snprintf(l->text + strlen(l->text), sizeof l->text - strlen(l->text), "%s %d %llu\n", f->name, (int)f->place,
             (unsigned long long)f->bytes);
    if (strncmp(f->name, "inner", 5) != 0) { /* whose folder is not among the places */
        assert_true(rg_library_find(&places, f->name, &again, &err));
        assert_string_equal(again.path, f->path);
    }
    return ++l->n < l->most;
}

/* In order, and each by a name that finds it again. */
static void all_are_listed(void **state)
{
    listing l = { .most = 100 }, few = { .most = 3 }, team = { .most = 100 };
    char path[500];

    (void)state;
    rg_library_each(&places, list, &l);
    assert_string_equal(l.text,
                        "file.gguf 1 5\none/the-file-Q8_0.gguf 1 50\nplain 1 100\nteam/inner 1 61\ntwo/a-Q4_0.gguf 1 10\n"
                        "two/a-Q8_0.gguf 1 20\nacme/tiny 2 40\nacme/tiny-GGUF:Q4_K_M 2 7\nacme/tiny-GGUF:Q4_K_S 2 9\n"
                        "acme/tiny-GGUF:UD-Q4_K_M 2 8\nacme/tiny-GGUF:BF16 2 23\nhf.co/acme/other:Q8_0 3 60\n"
                        "llama3:latest 3 60\nsomeone/thing:7b-q4 3 60\nacme_cached_Cached-Q4_0.gguf 4 14\n"
                        "acme_cached_Cached-Q8_0.gguf 4 13\n");
    rg_library_each(&places, list, &few);
    assert_int_equal(few.n, 3);
    snprintf(path, sizeof path, "%s/models/team", root);
    rg_library_each_in(path, list, &team);
    assert_string_equal(team.text, "inner 1 61\n");
    rg_library_each_in("/nonexistent", list, &team);
    rg_library_each(&(rg_places){ "/nonexistent", "/nonexistent", "/nonexistent", "/nonexistent" }, list, &team);
    assert_int_equal(team.n, 1);
}

static void types_stand_in_names(void **state)
{
    static const char *const cases[][2] = {
        { "Qwen3-0.6B-Q8_0.gguf", "Q8_0" }, { "a/b/llama-2-7b.Q4_K_M.gguf", "Q4_K_M" }, { "x-IQ2_XXS.gguf", "IQ2_XXS" },
        { "m-bf16-00001-of-00003.gguf", "bf16" }, { "gpt-oss-20b-mxfp4.gguf", "mxfp4" }, { "x-UD-Q4_K_XL.gguf", "UD-Q4_K_XL" },
        { "Qwen3.gguf", "" }, { "model-F16.gguf", "F16" }, { "SQ8_0x.gguf", "" }, { "ggml-model-q4_0.gguf", "q4_0" },
        { "x-TQ1_0.gguf", "TQ1_0" }, { ".gguf", "" }, { "Q.gguf", "" },
    };
    char quant[32];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_gguf_quant(cases[i][0], quant);
        assert_string_equal(quant, cases[i][1]);
    }
    assert_true(rg_gguf_is_of("x-Q4_K_M.gguf", "q4_k_m"));
    assert_false(rg_gguf_is_of("x-Q4_K_M.gguf", "q4_k"));
    assert_false(rg_gguf_is_of("x-IQ4_NL.gguf", "q4_nl"));
    assert_true(rg_gguf_is_of("x-F16-00001-of-00002.gguf", "f16"));
    assert_false(rg_gguf_is_of("x-BF16.gguf", "f16"));
    assert_true(rg_gguf_is_of("d/file.gguf", "file.gguf"));
    assert_false(rg_gguf_is_model("mmproj-x-f16.gguf"));
    assert_false(rg_gguf_is_model("x-00002-of-00003.gguf"));
    assert_true(rg_gguf_is_model("x-00001-of-00003.gguf"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(a_path_comes_first),
        cmocka_unit_test(what_is_not_there_is_told),
        cmocka_unit_test(all_are_listed),
        cmocka_unit_test(types_stand_in_names),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("library", tests, set_up, NULL);
}
