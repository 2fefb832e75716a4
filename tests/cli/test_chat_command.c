/* test_chat_command.c -- `ridge chat` through pipes and on a terminal: history, commands, Ctrl-C, what is cut, a
 * checkpoint without a template. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "support/command.h"
#include "support/model.h"

enum { WAIT_MS = 20000 };

typedef struct chat {
    pid_t pid;
    int in, out; /* its standard input; its standard output and error together */
    char text[1 << 16];
    size_t n;
} chat;

static void chat_start(chat *c, const char *const *argv)
{
    int in[2], out[2];

    *c = (chat){ 0 };
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (!c->pid) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(out[1], 2);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execv(RG_BUILD_DIR "/ridge", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    c->in = in[1];
    c->out = out[0];
}

static void say(const chat *c, const char *line)
{
    assert_int_equal(write(c->in, line, strlen(line)), (int)strlen(line));
}

/* Read until the text since `from` holds `what` (NULL: until its end). */
static void hear(chat *c, size_t from, const char *what)
{
    struct pollfd p = { .fd = c->out, .events = POLLIN };

    while (!what || !strstr(c->text + from, what)) {
        ssize_t n;

        if (poll(&p, 1, WAIT_MS) != 1)
            fail_msg("'%s' does not come after: %s", what ? what : "the end", c->text + from);
        assert_true(c->n + 1 < sizeof c->text);
        n = read(c->out, c->text + c->n, sizeof c->text - 1 - c->n);
        n = n < 0 && errno == EIO ? 0 : n; /* how a terminal ends */
        assert_true(n >= 0);
        if (!n) {
            assert_null(what);
            return;
        }
        c->n += (size_t)n;
        c->text[c->n] = 0;
    }
}

static int chat_end(chat *c)
{
    int status;

    close(c->in);
    hear(c, 0, NULL);
    close(c->out);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The conversation as /save writes it, with as many messages. */
static json_t *saved(const chat *c, size_t n)
{
    char path[256], line[300];
    json_t *j = NULL;

    snprintf(path, sizeof path, "%s/test_chat.%d.json", RG_BUILD_DIR, (int)getpid());
    snprintf(line, sizeof line, "/save %s\n", path);
    say(c, line);
    for (uint64_t start = rg_now_ns(); !j && rg_seconds(start, rg_now_ns()) < 20; usleep(20000))
        j = json_load_file(path, 0, NULL);
    assert_non_null(j);
    assert_int_equal(json_array_size(j), n);
    unlink(path);
    return j;
}

static const char *part(const json_t *j, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(j, i), key));
}

static void history_is_kept(void **state)
{
    static const char *const argv[] = { "ridge", "chat", "tales-1m", "--temperature", "0", "-n", "24",
                                        "--system", "Be brief.", NULL };
    chat c;
    json_t *j;

    (void)state;
    chat_start(&c, argv);
    say(&c, "Tell me a story about a dog and a ball.\nAnd \\\nthen?\n");
    j = saved(&c, 5);
    assert_string_equal(part(j, 0, "content"), "Be brief.");
    assert_string_equal(part(j, 1, "role"), "user");
    assert_string_equal(part(j, 3, "content"), "And \nthen?");
    assert_true(strlen(part(j, 2, "content")) > 20 && strlen(part(j, 4, "content")) > 20);
    json_decref(j);
    say(&c, "/system Other.\n");
    j = saved(&c, 1);
    json_decref(j);
    say(&c, "/reset\n");
    j = saved(&c, 1);
    assert_string_equal(part(j, 0, "content"), "Be brief.");
    json_decref(j);
    say(&c, "/help\n");
    hear(&c, 0, "/save FILE");
    say(&c, "/save /no/such/folder/x.json\n");
    hear(&c, 0, "/no/such/folder");
    say(&c, "\xff\xfe\n");
    hear(&c, 0, "not UTF-8");
    assert_int_equal(chat_end(&c), 0);
}

/* Ctrl-C while an answer is written ends it there; the program goes on and knows what was said. */
static void an_interrupt_stops_the_answer(void **state)
{
    static const char *const argv[] = { "ridge", "chat", "tales-7m", "--temperature", "0", "--logit-bias", "2=-inf",
                                        "--min-tokens", "1500", NULL };
    chat c;
    json_t *j;

    (void)state;
    chat_start(&c, argv);
    say(&c, "Tell me a long story.\n");
    hear(&c, 0, " ");
    kill(c.pid, SIGINT);
    say(&c, "/help\n");
    hear(&c, 0, "/save FILE");
    assert_non_null(strstr(c.text, "\nType a message")); /* on a line of its own */
    j = saved(&c, 2);
    assert_true(strlen(part(j, 1, "content")) > 0 && strlen(part(j, 1, "content")) < 4000);
    json_decref(j);
    assert_int_equal(chat_end(&c), 0);
}

static void without_a_template(void **state)
{
    static const char *const argv[] = { "ridge", "chat", RG_TEST_DATA "/stories260K.gguf", "-n", "8", NULL };
    chat c;

    (void)state;
    chat_start(&c, argv);
    hear(&c, 0, "no chat template");
    hear(&c, 0, "role: content");
    say(&c, "hello\n/exit\n");
    assert_int_equal(chat_end(&c), 0);
}

/* A template that does not parse ends chat and render, names its line, and leaves all else; another one helps. */
static void a_template_that_does_not_parse(void **state)
{
    static const char *const files[] = { "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json" };
    char args[2000], path[700], from[700];
    const char *folder = RG_BUILD_DIR "/unparsed_model";

    (void)state;
    mkdir(folder, 0777);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        snprintf(from, sizeof from, RG_SOURCE_DIR "/models/tales-1m/%s", files[i]);
        unlink(path);
        assert_int_equal(symlink(from, path), 0);
    }
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    test_write_text(path, "a\n{% frobnicate %}");
    snprintf(path, sizeof path, "%s/other.jinja", folder);
    test_write_text(path, "{{ messages[0].content }}!");
    snprintf(path, sizeof path, "%s/messages.json", folder);
    test_write_text(path, "[{\"role\": \"user\", \"content\": \"Hi\"}]");
    snprintf(args, sizeof args, "run %s -p Once -n 2", folder);
    assert_int_equal(command_run(args), 0);
    snprintf(args, sizeof args, "embed %s -p Once", folder);
    assert_int_equal(command_run(args), 0);
    snprintf(args, sizeof args, "chat %s --quiet </dev/null", folder);
    command_refuses(args, 1, "chat_template.jinja: chat template, line 2");
    snprintf(args, sizeof args, "render %s <%s", folder, path);
    command_refuses(args, 1, "chat_template.jinja: chat template, line 2");
    static const char *const flags[] = { "--chat-template", "--template" };
    for (size_t i = 0; i < RG_LEN(flags); i++) {
        snprintf(args, sizeof args, "render %s %s %s/other.jinja <%s", folder, flags[i], folder, path);
        assert_int_equal(command_run(args), 0);
        assert_string_equal(command_out, "Hi!");
    }
    snprintf(args, sizeof args, "chat %s --quiet --chat-template %s/other.jinja </dev/null", folder, folder);
    assert_int_equal(command_run(args), 0);
    snprintf(args, sizeof args, "render %s --chat-template nothing <%s", folder, path);
    command_refuses(args, 2, "'nothing'");
}

/* A conversation that outgrows the context loses its oldest messages, and says so; an answer that is cut says why. */
static void what_is_cut_is_told(void **state)
{
    static const char *const argv[] = { "ridge", "chat", "tales-1m", "--temperature", "0", "-n", "20", "--ctx", "110",
                                        "--logit-bias", "2=-inf", "--system", "Be brief.", NULL };
    chat c;
    json_t *j;

    (void)state;
    chat_start(&c, argv);
    say(&c, "Tell me a story about a dog.\n");
    hear(&c, 0, "[the answer is cut after 20 tokens, as -n says]");
    assert_null(strstr(c.text, "left out"));
    for (int i = 0; i < 6; i++)
        say(&c, "And what did the dog do then, with the ball?\n");
    hear(&c, 0, "[the oldest 2 messages are left out from here on: the conversation has ");
    hear(&c, 0, "[the oldest 4 messages are left out");
    say(&c, "/reset\nHello.\n");
    j = saved(&c, 3);
    json_decref(j);
    say(&c, "/bye\nnobody hears this\n");
    hear(&c, 0, NULL);
    assert_null(strstr(c.text, "refused"));
    assert_int_equal(chat_end(&c), 0);

    static const char *const full[] = { "ridge", "chat", "tales-1m", "--temperature", "0", "--ctx", "60",
                                        "--logit-bias", "2=-inf", NULL };
    chat_start(&c, full);
    say(&c, "Hello.\n");
    hear(&c, 0, "[the answer is cut: the context of 60 tokens is full");
    assert_int_equal(chat_end(&c), 0);
}

/* Until the program reads keys and not lines: the prompt comes a little before. */
static void wait_for_keys(int terminal)
{
    struct termios t = { .c_lflag = ICANON };

    for (uint64_t from = rg_now_ns(); t.c_lflag & ICANON; usleep(1000)) {
        assert_int_equal(tcgetattr(terminal, &t), 0);
        assert_true(rg_seconds(from, rg_now_ns()) < 20);
    }
}

/* On a terminal lines are edited, and remembered for the next time. */
static void lines_are_edited_on_a_terminal(void **state)
{
    static const char *const argv[] = { "ridge", "chat", "tales-1m", "--temperature", "0", "-n", "4", "--quiet", NULL };
    char path[600];
    chat c = { 0 };
    int in = 0, n = 0;
    size_t at;

    (void)state;
    setenv("XDG_STATE_HOME", test_scratch("state"), 1);
    setenv("TERM", "xterm", 1);
    snprintf(path, sizeof path, "%s/ridge/history", test_scratch("state"));
    unlink(path);
    for (int time = 0; time < 2; time++) {
        c = (chat){ 0 };
        fflush(NULL);
        c.pid = forkpty(&in, NULL, NULL, NULL);
        assert_true(c.pid >= 0);
        if (!c.pid) {
            execv(RG_BUILD_DIR "/ridge", (char *const *)(uintptr_t)argv);
            _exit(127);
        }
        c.in = dup(in);
        c.out = in;
        hear(&c, 0, "> ");
        wait_for_keys(in);
        if (!time) {
            say(&c, "/saev x\033[D\033[D\033[D\033[D\033[DX\177\177a\033[C\033[C\n"); /* arrows, and backspace */
            hear(&c, 0, "too)\r\n> ");
            say(&c, "\003"); /* Ctrl-C once is enough, even before keys are read */
            hear(&c, 0, "(Ctrl-D or /bye leaves)\r\n> ");
            wait_for_keys(in);
            at = c.n;
            say(&c, "caf\xc3\xa9s\177\177\n");
            hear(&c, at, "\n> ");
        } else {
            say(&c, "\033[A\033[A\033[A\n"); /* three lines up: the first one of last time */
            hear(&c, 0, "too)\r\n> ");
        }
        say(&c, "/bye\n");
        assert_int_equal(chat_end(&c), 0);
    }
    char *kept = test_read_text(path);
    if (!strstr(kept, "/aaev\\040x\n"))
        fail_msg("the history is: %s; the second time: %s", kept, c.text);
    assert_non_null(strstr(kept, "\ncaf\n")); /* the accent went as one character, and the s */
    for (const char *s = kept; (s = strstr(s, "/bye")); s++)
        n++;
    assert_int_equal(n, 2); /* of both times */
    free(kept);
}

/* Without -n a model of diffusion fills in as much as there is room for, and chat says what cut it. */
static void models_of_diffusion_talk(void **state)
{
    static const char *const models[] = { "diffusion-gemma", "llada", "dream", "sdar-b4" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        char args[1400], config[700], input[700];
        const char *dir = test_with_letters(models[i], models[i]);

        snprintf(config, sizeof config, "%s/tokenizer_config.json", dir);
        snprintf(input, sizeof input, "%s/lines", dir);
        test_write_text(config, "{\"chat_template\":\"{% for m in messages %}{{ m.content }} {% endfor %}\"}");
        test_write_text(input, "a b c\n/bye\n");
        snprintf(args, sizeof args, "chat %s --ctx 90 --seed 1 --threads 1 < %s", dir, input);
        if (command_run(args) || !command_out[0] || command_out[0] == '\n')
            fail_msg("%s: '%s' %s", models[i], command_out, command_err);
        assert_null(strstr(command_err, "as -n says"));
        snprintf(args, sizeof args, "chat %s --ctx 90 --seed 1 --threads 1 -n 10 < %s", dir, input);
        assert_int_equal(command_run(args), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_of_diffusion_talk),
        cmocka_unit_test(history_is_kept),
        cmocka_unit_test(an_interrupt_stops_the_answer),
        cmocka_unit_test(without_a_template),
        cmocka_unit_test(a_template_that_does_not_parse),
        cmocka_unit_test(what_is_cut_is_told),
        cmocka_unit_test(lines_are_edited_on_a_terminal),
    };

    test_init(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("chat command", tests, NULL, NULL);
}
