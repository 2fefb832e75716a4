/* test_mistaken.c -- what people give in place of a model is refused with what it is and what to do; a folder with one
 * GGUF file is that model. */
#include "support/test.h"

#include "ckpt/files.h"

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/checkpoint.h"

#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 12345\n"

static void refuses(const char *path, const char *about)
{
    rg_error err = { 0 };
    size_t n_live = rg_mem_count().n_live;

    assert_null(rg_checkpoint_open(path, 0, &err));
    if (!strstr(err.text, about) || strncmp(err.text, scratch, strlen(scratch)))
        fail_msg("%s: \"%s\" does not say \"%s\"", path, err.text, about);
    assert_int_equal(rg_mem_count().n_live, n_live);
}

static void folder(const char *name)
{
    rg_error err = { 0 };

    assert_ok(rg_dir_make(in_scratch(name), &err), err);
}

static void copy(const char *from, const char *to)
{
    rg_error err = { 0 };
    size_t n;
    char *bytes = rg_file_slurp(test_data(from), 1 << 22, &n, &err);

    assert_ok(bytes, err);
    put_file(to, bytes, n);
    rg_free(bytes);
}

static void files_that_are_something_else(void **state)
{
    static const struct {
        const char *name, *bytes, *about;
    } cases[] = {
        { "a.gguf", LFS, "git lfs pull" },           { "b.safetensors", LFS, "git lfs pull" },
        { "c.gguf", "<!DOCTYPE html><html>", "web page" }, { "d.safetensors", "<html><body>Not found", "web page" },
        { "e.gguf", "\x1f\x8b\x08", "gzip" },        { "f.gguf", "PK\x03\x04", "zip" },
        { "g.gguf", "tjgg\x03", "before GGUF" },     { "h.safetensors", "GGUF\x03", ".gguf" },
        { "i.gguf", "", "empty" },                   { "j.gguf", "GGUF\x03", "GGUF header" }, /* cut short: its own reader's word */
        { "k.gguf", "what is this?", "few" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        put_text(cases[i].name, cases[i].bytes);
        refuses(in_scratch(cases[i].name), cases[i].about);
    }
}

static void folders_whose_files_are_pointers(void **state)
{
    (void)state;
    folder("pointers");
    put_text("pointers/config.json", LFS);
    refuses(in_scratch("pointers"), "git lfs pull");
    copy("llama/config.json", "pointers/config.json");
    put_text("pointers/model.safetensors", LFS);
    refuses(in_scratch("pointers"), "model.safetensors: a pointer that Git LFS left");
    assert_true(rg_path_remove(in_scratch("pointers/model.safetensors")));
    put_text("pointers/model.safetensors.index.json", LFS);
    refuses(in_scratch("pointers"), "git lfs pull");
    assert_true(rg_path_remove(in_scratch("pointers/model.safetensors.index.json")));
    put_text("pointers/pytorch_model.bin", LFS);
    refuses(in_scratch("pointers"), "git lfs pull");
}

static void folders_that_are_no_model(void **state)
{
    (void)state;
    folder("empty");
    refuses(in_scratch("empty"), "no config.json");
    folder("cache");
    folder("cache/snapshots");
    refuses(in_scratch("cache"), "snapshots/");
    folder("weights");
    put_text("weights/model.safetensors", "");
    refuses(in_scratch("weights"), "config.json");
    folder("onnx");
    put_text("onnx/model.onnx", "");
    refuses(in_scratch("onnx"), "ONNX");
}

static void a_folder_with_one_gguf_is_that_model(void **state)
{
    rg_error err = { 0 };
    rg_checkpoint *c;

    (void)state;
    folder("one");
    copy("llama/model.gguf", "one/llama.gguf");
    put_text("one/mmproj-llama.gguf", "");
    put_text("one/README.md", "");
    c = rg_checkpoint_open(in_scratch("one"), 0, &err);
    assert_ok(c, err);
    assert_int_equal(rg_checkpoint_kind(c), RG_CKPT_GGUF);
    assert_string_equal(rg_checkpoint_path(c), in_scratch("one/llama.gguf"));
    rg_checkpoint_close(c);
    copy("llama/model.gguf", "one/another.gguf");
    refuses(in_scratch("one"), "2 models as GGUF");
    refuses(in_scratch("one"), "another.gguf");
    folder("parts");
    copy("llama/model.gguf", "parts/m-00001-of-00002.gguf"); /* opens as a split file, and is none */
    copy("llama/model.gguf", "parts/m-00002-of-00002.gguf");
    refuses(in_scratch("parts"), "m-00001-of-00002.gguf");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_something_else),
        cmocka_unit_test(folders_whose_files_are_pointers),
        cmocka_unit_test(folders_that_are_no_model),
        cmocka_unit_test(a_folder_with_one_gguf_is_that_model),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
