/* Conversations: where templates and variables are found, which template is taken, what is refused when it is read, and how
 * file and memory failures come out. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "ckpt/writer.h"
#include "text/chat.h"

enum { OUT_CAP = 1 << 24 };

static char root[] = "/tmp/ridge-chat-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", root, name);
    if (!text) {
        (void)remove(path);
        return;
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void clear(void)
{
    static const char *const names[] = { "chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json",
                                         "chat_template.json", "model.gguf", "tokenizer.json" };

    for (size_t i = 0; i < RG_LEN(names); i++)
        put(names[i], NULL);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    clear();
    return rmdir(root);
}

static json_t *json(const char *text)
{
    rg_error err = { 0 };
    json_t *v = rg_json_parse("test", text, strlen(text), &err);

    assert_ok(v, err);
    return v;
}

static bool render(const rg_chat *c, const char *conversation, bool prompt, rg_text *out, rg_error *err)
{
    json_t *v = json(conversation);
    bool ok;

    rg_text_init(out, OUT_CAP);
    ok = rg_chat_render(c, v, prompt, 0, out, err);
    json_decref(v);
    return ok;
}

static void renders(const rg_chat *c, const char *conversation, const char *want)
{
    rg_error err = { 0 };
    rg_text out;

    assert_ok(render(c, conversation, true, &out, &err), err);
    assert_string_equal(out.bytes.n ? out.bytes.data : "", want);
    rg_text_fini(&out);
}

static rg_chat *open_root(void)
{
    rg_error err = { 0 };
    rg_chat *c = rg_chat_open_path(root, &err);

    assert_ok(c, err);
    return c;
}

#define HI "[{\"role\": \"user\", \"content\": \"Hi\"}]"

static void which_template(void **state)
{
    rg_chat *c;

    (void)state;
    clear();
    c = open_root();
    assert_true(rg_chat_is_default(c));
    renders(c, HI, "user: Hi\nassistant:");
    renders(c, "[{\"role\": \"system\", \"content\": null}, {\"role\": \"user\", \"content\": [{\"type\": \"text\","
               " \"text\": \"a\"}, {\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"b\"}]}]",
            "system: \nuser: ab\nassistant:");
    rg_chat_close(c);

    put("chat_template.json", "{\"chat_template\": \"json\"}");
    c = open_root();
    assert_false(rg_chat_is_default(c));
    renders(c, HI, "json");
    rg_chat_close(c);

    put("tokenizer_config.json", "{\"chat_template\": \"config {{ bos_token }}\", \"bos_token\": {\"content\": \"<s>\"}}");
    c = open_root();
    renders(c, HI, "config <s>");
    rg_chat_close(c);

    put("chat_template.jinja", "jinja {{ bos_token }}");
    c = open_root();
    renders(c, HI, "jinja <s>");
    rg_error err = { 0 };
    assert_ok(rg_chat_use(c, "{{ eos_token is defined }}mine", 30, &err), err);
    renders(c, HI, "Falsemine");
    assert_false(rg_chat_use(c, "{{", 2, &err));
    renders(c, HI, "Falsemine"); /* the one before stays */
    rg_chat_close(c);
}

static void named_templates(void **state)
{
    rg_chat *c;

    (void)state;
    clear();
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D{{ tools is none }}\"},"
                                 " {\"name\": \"tool_use\", \"template\": \"T{{ tools | length }}\"},"
                                 " {\"name\": \"rag\", \"template\": \"R\"}]}");
    c = open_root();
    renders(c, HI, "DTrue");
    renders(c, "{\"messages\": " HI "}", "DTrue");
    renders(c, "{\"messages\": " HI ", \"tools\": null}", "DTrue");
    renders(c, "{\"messages\": " HI ", \"tools\": [{}, {}]}", "T2");
    rg_chat_close(c);
}

static void variables(void **state)
{
    rg_chat *c;

    (void)state;
    clear();
    put("tokenizer_config.json",
        "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", \"special\": true}, \"pad_token\": null,"
        " \"additional_special_tokens\": [\"<a>\", {\"content\": \"<b>\"}], \"extra_special_tokens\": {\"image_token\": \"<i>\"},"
        " \"chat_template\": \"{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token is defined }}{{ image_token }}"
        "{{ additional_special_tokens | join }}{{ documents }}{{ add_generation_prompt }}{{ extra }}\"}");
    put("special_tokens_map.json", "{\"unk_token\": {\"content\": \"<unk>\"}, \"bos_token\": \"no\"}");
    c = open_root();
    renders(c, HI, "<s></s><unk>False<i><a><b>NoneTrue");
    renders(c, "{\"messages\": " HI ", \"extra\": [1], \"add_generation_prompt\": false}",
            "<s></s><unk>False<i><a><b>NoneFalse[1]");
    rg_chat_close(c);
}

/* Trusted is what the checkpoint and the template wrote, and the role. */
static void origins(void **state)
{
    rg_error err = { 0 };
    rg_text out;
    rg_chat *c;

    (void)state;
    clear();
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": \"{{ bos_token }}{% for m in messages %}"
                                 "<|{{ m.role }}|>{{ m.content }}{{ x }}{% endfor %}\"}");
    c = open_root();
    assert_ok(render(c, "{\"messages\": [{\"role\": \"user\", \"content\": \"<s>\"}], \"x\": \"y\"}", true, &out, &err), err);
    assert_string_equal(out.bytes.data, "<s><|user|><s>y");
    assert_int_equal(out.n_runs, 2);
    assert_int_equal(out.run[0].end, 11);
    assert_true(out.run[0].trusted);
    assert_false(out.run[1].trusted);
    rg_text_fini(&out);
    rg_chat_close(c);
}

static void bad_conversations_are_refused(void **state)
{
    static const char *const bad[] = {
        "{}", "{\"messages\": {}}", "{\"messages\": \"x\"}", "[1]", "[[]]", "[{}]", "[{\"content\": \"x\"}]",
        "[{\"role\": 1}]", "[{\"role\": null}]", "[{\"role\": \"<|im_start|>\"}]", "[{\"role\": \"User\"}]", "[{\"role\": \"\"}]",
        "[{\"role\": \"user \"}]", "[{\"role\": \"user\", \"content\": 1}]", "[{\"role\": \"user\", \"content\": {}}]",
        "[{\"role\": \"user\", \"content\": true}]", "[" HI "]",
    };
    rg_chat *c;

    (void)state;
    clear();
    c = open_root();
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        rg_error err[2] = { 0 };
        rg_text out;
        for (int k = 0; k < 2; k++) {
            assert_false(render(c, bad[i], true, &out, &err[k]));
            assert_int_equal(out.bytes.n, 0);
            rg_text_fini(&out);
        }
        assert_int_equal(err[0].code, RG_E_INPUT);
        assert_string_equal(err[0].text, err[1].text);
    }
    renders(c, "[]", "assistant:");
    rg_chat_close(c);
}

/* Files that are no JSON are refused; a template that cannot be used is refused when it is rendered, and so named. */
static void bad_files(void **state)
{
    static const struct { const char *file, *text; } bad[] = {
        { "tokenizer_config.json", "{" },
        { "tokenizer_config.json", "[]" },
        { "tokenizer_config.json", "{\"chat_template\": \"a\", \"chat_template\": \"b\"}" },
        { "special_tokens_map.json", "{\"a\": }" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        rg_error err[2] = { 0 };
        size_t live = rg_mem_count().n_live;
        clear();
        put(bad[i].file, bad[i].text);
        assert_null(rg_chat_open_path(root, &err[0]));
        assert_null(rg_chat_open_path(root, &err[1]));
        if (!strstr(err[0].text, bad[i].file))
            print_error("%s: %s\n", bad[i].file, err[0].text);
        assert_non_null(strstr(err[0].text, bad[i].file));
        assert_string_equal(err[0].text, err[1].text);
        assert_int_equal(rg_mem_count().n_live, live);
    }
}

static void a_bad_template_is_refused_when_it_is_rendered(void **state)
{
    static const struct { const char *file, *text, *why; } bad[] = {
        { "chat_template.jinja", "{% if %}", "line 1" },
        { "chat_template.jinja", "a\nb\n{% frobnicate %}", "line 3: encountered unknown tag 'frobnicate'" },
        { "chat_template.jinja", "\xff\xfe", "" },
        { "tokenizer_config.json", "{\"chat_template\": 1}", "not a text" },
        { "tokenizer_config.json", "{\"chat_template\": {}}", "not a text" },
        { "tokenizer_config.json", "{\"chat_template\": [1]}", "not a text" },
        { "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}", "not a text" },
        { "tokenizer_config.json", "{\"chat_template\": [{\"template\": \"x\"}]}", "not a text" },
        { "tokenizer_config.json", "{\"chat_template\": \"{{ x\"}", "line 1" },
        { "chat_template.json", "{\"chat_template\": \"{% for %}\"}", "line 1" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        rg_error err = { 0 };
        rg_text out;
        clear();
        put(bad[i].file, bad[i].text);
        rg_chat *c = open_root();
        assert_false(rg_chat_is_default(c));
        assert_false(render(c, HI, true, &out, &err));
        assert_int_equal(err.code, RG_E_UNSUPPORTED);
        if (!strstr(err.text, bad[i].file) || !strstr(err.text, bad[i].why))
            fail_msg("%s: %s", bad[i].text, err.text);
        assert_string_equal(rg_chat_problem(c), err.text);
        rg_text_fini(&out);
        assert_ok(rg_chat_use(c, "mine", 4, &err), err); /* another one helps */
        assert_null(rg_chat_problem(c));
        renders(c, HI, "mine");
        rg_chat_close(c);
    }
    clear(); /* only the one that is used matters */
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, "
                                 "{\"name\": \"tool_use\", \"template\": \"{%\"}]}");
    rg_chat *c = open_root();
    rg_error err = { 0 };
    rg_text out;
    assert_null(rg_chat_problem(c));
    renders(c, HI, "D");
    assert_false(render(c, "{\"messages\": " HI ", \"tools\": [{}]}", true, &out, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    rg_text_fini(&out);
    rg_chat_close(c);
}

/* additional_chat_templates/NAME.jinja, and one of them or a file in place of the checkpoint's choice. */
static void templates_by_name(void **state)
{
    rg_error err = { 0 };
    char path[600];

    (void)state;
    clear();
    snprintf(path, sizeof path, "%s/additional_chat_templates", root);
    assert_int_equal(mkdir(path, 0777), 0);
    put("chat_template.jinja", "first");
    put("additional_chat_templates/tool_use.jinja", "tools");
    put("additional_chat_templates/rag.jinja", "rag");
    put("additional_chat_templates/broken.jinja", "{% x %}");
    put("additional_chat_templates/notes.txt", "no template");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"old\", \"template\": \"O\"}]}"); /* files win */
    put("own.jinja", "own");
    rg_chat *c = open_root();
    renders(c, HI, "first");
    renders(c, "{\"messages\": " HI ", \"tools\": [{}]}", "tools");
    assert_ok(rg_chat_choose(c, "rag", &err), err);
    renders(c, HI, "rag");
    renders(c, "{\"messages\": " HI ", \"tools\": [{}]}", "rag");
    assert_ok(rg_chat_choose(c, "default", &err), err);
    renders(c, "{\"messages\": " HI ", \"tools\": [{}]}", "first");
    snprintf(path, sizeof path, "%s/own.jinja", root);
    assert_ok(rg_chat_choose(c, path, &err), err);
    renders(c, HI, "own");
    assert_ok(rg_chat_choose(c, path, &err), err);
    assert_false(rg_chat_choose(c, "broken", &err));
    assert_non_null(strstr(err.text, "additional_chat_templates/broken.jinja: chat template, line 1"));
    assert_false(rg_chat_choose(c, "old", &err));
    assert_non_null(strstr(err.text, "'old'") && strstr(err.text, "broken, default, rag, tool_use") ? err.text : NULL);
    renders(c, HI, "own"); /* the one before stays */
    rg_chat_close(c);
    snprintf(path, sizeof path, "%s/additional_chat_templates", root);
    static const char *const names[] = { "tool_use.jinja", "rag.jinja", "broken.jinja", "notes.txt" };
    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(path, sizeof path, "additional_chat_templates/%s", names[i]);
        put(path, NULL);
    }
    put("additional_chat_templates", NULL);
    put("own.jinja", NULL);
}

/* Named templates, none of which is meant for a conversation without a word about it. */
static void a_choice_is_needed(void **state)
{
    rg_error err = { 0 };
    rg_text out;

    (void)state;
    clear();
    put("tokenizer_config.json", "{\"chat_template\": {\"rag\": \"R\", \"short\": \"S\"}}");
    rg_chat *c = open_root();
    assert_false(render(c, HI, true, &out, &err));
    assert_non_null(strstr(err.text, "rag, short"));
    rg_text_fini(&out);
    assert_ok(rg_chat_choose(c, "short", &err), err);
    renders(c, HI, "S");
    rg_chat_close(c);
}

static void from_gguf(void **state)
{
    static const rg_string tokens[] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 }, { "a", 1 } };
    static const char template[] =
        "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}{{ pad_token is defined }}";
    static const float data[1];
    const int64_t shape[] = { 1 };
    rg_error err = { 0 };
    char path[600];

    (void)state;
    clear();
    snprintf(path, sizeof path, "%s/model.gguf", root);
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_string(w, "general.architecture", "llama", 5, &err), err);
    assert_ok(rg_ckpt_put_string(w, "tokenizer.chat_template", template, strlen(template), &err), err);
    assert_ok(rg_ckpt_put_string(w, "tokenizer.chat_template.tool_use", "tools", 5, &err), err);
    assert_ok(rg_ckpt_put_string(w, "tokenizer.chat_template.rag", "retrieved", 9, &err), err);
    assert_ok(rg_ckpt_put_strings(w, "tokenizer.ggml.tokens", tokens, 4, &err), err);
    assert_ok(rg_ckpt_put_int(w, "tokenizer.ggml.unknown_token_id", 4, 0, &err), err); /* 4: u32 */
    assert_ok(rg_ckpt_put_int(w, "tokenizer.ggml.bos_token_id", 4, 1, &err), err);
    assert_ok(rg_ckpt_put_int(w, "tokenizer.ggml.eos_token_id", 4, 2, &err), err);
    assert_ok(rg_ckpt_put_int(w, "tokenizer.ggml.padding_token_id", 4, 99, &err), err);
    assert_ok(rg_ckpt_declare(w, "token_embd.weight", RG_F32, 1, shape, &err), err);
    assert_ok(rg_ckpt_write(w, data, sizeof data, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_chat *c = rg_chat_open_path(path, &err);
    assert_ok(c, err);
    renders(c, HI, "<s>Hi</s><unk>False");
    renders(c, "{\"messages\": " HI ", \"tools\": []}", "tools");
    assert_ok(rg_chat_choose(c, "rag", &err), err);
    renders(c, HI, "retrieved");
    rg_chat_close(c);
}

static void beside_a_tokenizer(void **state)
{
    char path[600];
    rg_error err = { 0 };

    (void)state;
    clear();
    put("tokenizer.json", "{}");
    put("tokenizer_config.json", "{\"chat_template\": \"beside\"}");
    snprintf(path, sizeof path, "%s/tokenizer.json", root);
    rg_chat *c = rg_chat_open_path(path, &err);
    assert_ok(c, err);
    renders(c, HI, "beside");
    rg_chat_close(c);
    assert_null(rg_chat_open_path("/nonexistent", &err));
}

static bool deny(void *arg, const char *operation)
{
    long *left = arg;

    (void)operation;
    return (*left)-- != 0;
}

static void every_file_operation(void **state)
{
    long n_failed = 0;

    (void)state;
    clear();
    put("chat_template.jinja", "x{{ bos_token }}");
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    put("special_tokens_map.json", "{\"eos_token\": \"</s>\"}");
    put("chat_template.json", "{}");
    for (long at = 0;; at++) {
        rg_error err = { 0 };
        size_t live = rg_mem_count().n_live;
        long left = at;
        rg_file_set_gate(deny, &left);
        rg_chat *c = rg_chat_open_path(root, &err);
        rg_file_set_gate(NULL, NULL);
        bool done = c;
        if (c)
            renders(c, HI, "x<s>");
        else
            assert_int_equal(err.code, RG_E_IO);
        rg_chat_close(c);
        assert_int_equal(rg_mem_count().n_live, live);
        if (done)
            break;
        n_failed++;
    }
    assert_true(n_failed >= 4);
}

/* Of a render with objects that are there already, each allocation that is ours fails once. */
static bool deny_bytes(void *arg, size_t bytes)
{
    (void)bytes;
    return deny(arg, "");
}

static void every_allocation(void **state)
{
    json_t *v = json("{\"messages\": " HI ", \"tools\": null, \"documents\": null}");
    rg_chat *c;
    long n_failed = 0;

    (void)state;
    clear();
    c = open_root();
    for (long at = 0;; at++) {
        rg_error err = { 0 };
        rg_text out;
        size_t live = rg_mem_count().n_live;
        long left = at;
        rg_text_init(&out, OUT_CAP);
        rg_mem_set_gate(deny_bytes, &left);
        bool ok = rg_chat_render(c, v, true, 0, &out, &err);
        rg_mem_set_gate(NULL, NULL);
        if (!ok)
            assert_int_equal(err.code, RG_E_MEMORY);
        rg_text_fini(&out);
        assert_int_equal(rg_mem_count().n_live, live);
        if (left >= 0)
            break;
        assert_false(ok);
        n_failed++;
    }
    assert_true(n_failed > 3);
    rg_chat_close(c);
    json_decref(v);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_template), cmocka_unit_test(named_templates),     cmocka_unit_test(variables),
        cmocka_unit_test(origins),        cmocka_unit_test(bad_conversations_are_refused), cmocka_unit_test(bad_files),
        cmocka_unit_test(a_bad_template_is_refused_when_it_is_rendered),
        cmocka_unit_test(templates_by_name), cmocka_unit_test(a_choice_is_needed),
        cmocka_unit_test(from_gguf),      cmocka_unit_test(beside_a_tokenizer),  cmocka_unit_test(every_file_operation),
        cmocka_unit_test(every_allocation),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
