/* test_pull.c -- fetching models, from a server on this machine that cuts connections, lies, forgets ranges, wants
 * tokens and redirects: what is kept is whole and right, and where other programs look for it. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sha1.h"
#include "base/sha256.h"
#include "library/fetch.h"
#include "library/pull.h"
#include "support/model.h"
#include "support/test.h"

#define COMMIT "89abcdef0123456789abcdef0123456789abcdef"

enum { LARGE = 300000 };

typedef struct file {
    const char *name;
    char *data;
    size_t n;
    bool lfs;
    char hash[72];
} file;

static file files[] = {
    { .name = "config.json", .data = "{}", .n = 2 },
    { .name = "model.safetensors", .n = LARGE, .lfs = true },
    { .name = "tokenizer.json", .data = "{\"a\": 1}", .n = 8 },
    { .name = "empty.json", .data = "", .n = 0 },
    { .name = "1_Pooling/config.json", .data = "{ }", .n = 3 },
    { .name = "onnx/model.safetensors", .data = "no", .n = 2 },
    { .name = "pytorch_model.bin", .data = "no", .n = 2, .lfs = true },
    { .name = "x-Q4_K_M.gguf", .n = 1000, .lfs = true },
    { .name = "big/x-Q8_0-00001-of-00002.gguf", .n = 2000, .lfs = true },
    { .name = "big/x-Q8_0-00002-of-00002.gguf", .n = 3000, .lfs = true },
};

/* How the server behaves, and what it saw. */
static struct {
    int fd, port;
    pthread_t thread;
    int cuts;               /* so many answers with LARGE bytes end after a third of what they should have */
    bool ignores_ranges, corrupts, corrupts_once, redirects, too_long;
    int fails;              /* so many answers are 503 */
    const char *token;      /* wanted by the first host */
    const char *listing;    /* in place of the usual */
    int status;             /* of the listing, unless 0 */
    int n_files, n_ranges;  /* requests */
    bool token_went_on;     /* to the host that was redirected to */
} server;

static void set_hash(file *f)
{
    char head[64];
    uint8_t out[32];
    int n = f->lfs ? 32 : 20;

    if (f->lfs) {
        rg_sha256(f->data, f->n, out);
    } else {
        rg_sha1_state s;
        rg_sha1_init(&s);
        rg_sha1_add(&s, head, (size_t)snprintf(head, sizeof head, "blob %zu", f->n) + 1);
        rg_sha1_add(&s, f->data, f->n);
        rg_sha1_end(&s, out);
    }
    for (int i = 0; i < n; i++)
        snprintf(f->hash + 2 * i, 3, "%02x", out[i]);
}

static void listing(char *to, size_t room, bool with_folder)
{
    size_t n = (size_t)snprintf(to, room, "{\"sha\": \"" COMMIT "\", \"siblings\": [{\"rfilename\": \"../../evil\", \"size\": 2, "
                                "\"blobId\": \"0123456789012345678901234567890123456789\"}");

    for (size_t i = with_folder ? 0 : 7; i < RG_LEN(files); i++) {
        const file *f = &files[i];

        n += (size_t)snprintf(to + n, room - n, ", {\"rfilename\": \"%s\", \"size\": %zu, \"blobId\": \"%040d\"", f->name, f->n, 0);
        if (f->lfs)
            n += (size_t)snprintf(to + n, room - n, ", \"lfs\": {\"sha256\": \"%s\", \"size\": %zu}}", f->hash, f->n);
        else
            n = (size_t)(strstr(to + n - 44, "\"0000") - to), /* git's hash in its place */
            n += (size_t)snprintf(to + n, room - n, "\"%s\"}", f->hash);
    }
    snprintf(to + n, room - n, "]}");
}

static void answer(int fd, int status, const char *more, const char *body, size_t n, size_t claimed)
{
    char head[600];
    int k = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n", status, claimed,
                     more);

    (void)!write(fd, head, (size_t)k);
    for (size_t done = 0; done < n;) {
        ssize_t w = write(fd, body + done, n - done);
        if (w <= 0)
            return;
        done += (size_t)w;
    }
}

static void answer_file(int fd, const char *request, const file *f)
{
    const char *range = strcasestr(request, "\r\nRange: bytes=");
    size_t from = range && !server.ignores_ranges ? strtoul(range + 15, NULL, 10) : 0, n;
    char more[100] = "", *copy = malloc(f->n + 100);

    assert_non_null(copy);
    memcpy(copy, f->data, f->n);
    memset(copy + f->n, 'z', 100);
    server.n_files++;
    server.n_ranges += range != NULL;
    if (from > f->n || (range && !server.ignores_ranges && from == f->n)) {
        answer(fd, 416, "", "", 0, 0);
        free(copy);
        return;
    }
    if ((server.corrupts || server.corrupts_once) && f->n > 10)
        copy[f->n - 1] ^= 1;
    server.corrupts_once = false;
    if (from)
        snprintf(more, sizeof more, "Content-Range: bytes %zu-%zu/%zu\r\n", from, f->n - 1, f->n);
    n = f->n - from + (server.too_long ? 100 : 0);
    if (server.cuts > 0 && f->n == LARGE) {
        server.cuts--;
        answer(fd, from ? 206 : 200, more, copy + from, n / 3, n);
    } else {
        answer(fd, from ? 206 : 200, more, copy + from, n, n);
    }
    free(copy);
}

static void serve_one(int fd)
{
    static char text[20000];
    char request[8192], want[700], more[800];
    size_t n = 0;
    ssize_t k;

    while (n < sizeof request - 1 && (k = read(fd, request + n, sizeof request - 1 - n)) > 0) {
        n += (size_t)k;
        request[n] = 0;
        if (strstr(request, "\r\n\r\n"))
            break;
    }
    const char *host = strcasestr(request, "\r\nHost: "), *key = strcasestr(request, "\r\nAuthorization: Bearer ");
    bool is_second = host && !strncmp(host + 8, "localhost", 9);
    if (is_second && key)
        server.token_went_on = true;
    if (server.token && !is_second && (!key || strncmp(key + 24, server.token, strlen(server.token)) != 0)) {
        answer(fd, 401, "", "no", 2, 2);
        return;
    }
    if (server.fails > 0) {
        server.fails--;
        answer(fd, 503, "", "later", 5, 5);
        return;
    }
    if (!strncmp(request, "GET /api/models/acme/", 21)) {
        listing(text, sizeof text, strncmp(request + 21, "gguf", 4) != 0);
        const char *body = server.listing ? server.listing : text;
        answer(fd, server.status ? server.status : 200, "", body, strlen(body), strlen(body));
        return;
    }
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(want, sizeof want, "/resolve/" COMMIT "/%s HTTP", files[i].name);
        if (strstr(request, want) && server.redirects && !is_second) {
            snprintf(more, sizeof more, "Location: http://localhost:%d/x/resolve/" COMMIT "/%s\r\n", server.port, files[i].name);
            answer(fd, 302, more, "", 0, 0);
            return;
        }
        if (strstr(request, want)) {
            answer_file(fd, request, &files[i]);
            return;
        }
    }
    answer(fd, 404, "", "none", 4, 4);
}

static void *serve(void *arg)
{
    (void)arg;
    for (int fd; (fd = accept(server.fd, NULL, NULL)) >= 0; close(fd))
        serve_one(fd);
    return NULL;
}

static int set_up(void **state)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
    socklen_t n = sizeof at;

    (void)state;
    for (size_t i = 0; i < RG_LEN(files); i++) {
        if (!files[i].data) {
            files[i].data = malloc(files[i].n);
            for (size_t k = 0; k < files[i].n; k++)
                files[i].data[k] = (char)((k * 2654435761u) >> 13 ^ i);
        }
        set_hash(&files[i]);
    }
    server.fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server.fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(server.fd, 16), 0);
    assert_int_equal(getsockname(server.fd, (struct sockaddr *)&at, &n), 0);
    server.port = ntohs(at.sin_port);
    return pthread_create(&server.thread, NULL, serve, NULL);
}

static char hub[600];

/* A new, empty cache, and a server that behaves. */
static void anew(void)
{
    static int n;
    int fd = server.fd, port = server.port;
    pthread_t thread = server.thread;
    char name[32];

    memset(&server, 0, sizeof server);
    server.fd = fd;
    server.port = port;
    server.thread = thread;
    snprintf(name, sizeof name, "hub%d", n++);
    snprintf(hub, sizeof hub, "%s", test_scratch(name));
}

static bool pull(const char *name, const char *token, rg_pulled *out, rg_error *err)
{
    char endpoint[100];

    *err = (rg_error){ 0 };
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    return rg_pull(name, &(rg_pull_options){ .endpoint = endpoint, .token = token, .hub = hub, .pause_s = 0.001 }, out, err);
}

static bool there_is(const char *name)
{
    char path[1200];

    snprintf(path, sizeof path, "%s/%s", hub, name);
    return rg_path_look(path) != RG_PATH_NONE;
}

/* The file of the model that was pulled holds what the server has. */
static void is_whole(const rg_pulled *p, int i)
{
    char path[6000];
    size_t n;

    snprintf(path, sizeof path, "%s/models--acme--tiny/snapshots/" COMMIT "/%s", hub, files[i].name);
    (void)p;
    char *got = rg_file_slurp(path, 1 << 20, &n, NULL);
    assert_non_null(got);
    assert_int_equal(n, files[i].n);
    assert_memory_equal(got, files[i].data, n);
    rg_free(got);
}

static void is_complete(const rg_pulled *p)
{
    for (int i = 0; i < 5; i++)
        is_whole(p, i);
    assert_int_equal(p->n_files, 5);
    assert_true(there_is("models--acme--tiny/refs/main"));
    assert_false(there_is("models--acme--tiny/snapshots/" COMMIT "/pytorch_model.bin"));
    assert_false(there_is("models--acme--tiny/snapshots/" COMMIT "/onnx"));
    assert_false(there_is("models--acme--evil"));
}

static void refuses(const char *name, const char *token, const char *about)
{
    rg_error err;
    rg_pulled p;

    assert_false(pull(name, token, &p, &err));
    if (!strstr(err.text, about))
        fail_msg("%s: %s", name, err.text);
    assert_false(there_is("models--acme--tiny/refs/main"));
    assert_false(there_is("models--acme--tiny/snapshots"));
}

static void a_model_is_fetched_once(void **state)
{
    char text[100];
    rg_error err;
    rg_pulled p;

    (void)state;
    anew();
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
    assert_int_equal(p.n_fetched, 5);
    assert_int_equal(p.found.bytes, LARGE);
    assert_int_equal(p.found.place, RG_PLACE_HUB);
    /* As the Hugging Face libraries have it: a link to the blob of that hash. */
    char path[1500];
    snprintf(path, sizeof path, "%s/models--acme--tiny/snapshots/" COMMIT "/1_Pooling/config.json", hub);
    ssize_t n = readlink(path, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_string_equal(strrchr(text, '/') + 1, files[4].hash);
    assert_true(!strncmp(text, "../../../blobs/", 15));
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    assert_int_equal(p.n_fetched, 0);
    assert_int_equal(server.n_files, 4); /* the empty one needs no request */
}

static void a_type_is_one_file_with_its_parts(void **state)
{
    rg_error err;
    rg_pulled p;

    (void)state;
    anew();
    assert_ok(pull("acme/tiny:Q8_0", NULL, &p, &err), err);
    assert_int_equal(p.n_files, 2);
    assert_int_equal(p.found.bytes, 5000);
    assert_non_null(strstr(p.found.path, "big/x-Q8_0-00001-of-00002.gguf"));
    assert_ok(pull("acme/gguf", NULL, &p, &err), err); /* there are only GGUF files: that of Q4_K_M */
    assert_non_null(strstr(p.found.path, "x-Q4_K_M.gguf"));
    assert_false(pull("acme/tiny:Q2_K", NULL, &p, &err));
    assert_non_null(strstr(err.text, "no GGUF file of type Q2_K; there are Q4_K_M, Q8_0"));
}

static void a_cut_is_gone_on_with(void **state)
{
    rg_error err;
    rg_pulled p;

    (void)state;
    anew();
    server.cuts = 2; /* within one call */
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
    assert_int_equal(server.n_ranges, 2);
    /* From one call to the next. */
    anew();
    server.cuts = 1000;
    refuses("acme/tiny", NULL, "model.safetensors");
    char part[200];
    snprintf(part, sizeof part, "models--acme--tiny/blobs/%s.incomplete", files[1].hash);
    assert_true(there_is(part));
    server.cuts = 0;
    server.n_ranges = server.n_files = 0;
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
    assert_int_equal(server.n_ranges, 1);
    assert_false(there_is(part));
    /* A server without ranges gives all of it again. */
    anew();
    server.cuts = 1;
    server.ignores_ranges = true;
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
}

static void what_is_wrong_is_not_kept(void **state)
{
    rg_error err;
    rg_pulled p;

    (void)state;
    anew();
    server.corrupts = true;
    refuses("acme/tiny", NULL, "model.safetensors: what came has not the hash");
    char part[200];
    snprintf(part, sizeof part, "models--acme--tiny/blobs/%s.incomplete", files[1].hash);
    assert_false(there_is(part));
    server.corrupts = false;
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
    /* A beginning that belongs to something else is thrown away, and all of it comes again. */
    anew();
    server.cuts = 1000;
    refuses("acme/tiny", NULL, "model.safetensors");
    server.cuts = 0;
    server.corrupts_once = true;
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
    anew();
    server.too_long = true;
    refuses("acme/tiny", NULL, "more comes than there should be");
}

static void tokens_stay_with_their_host(void **state)
{
    rg_error err;
    rg_pulled p;

    (void)state;
    anew();
    server.token = "secret";
    server.redirects = true;
    refuses("acme/tiny", NULL, "answers 401: there is no such model, or it needs a token (HF_TOKEN)");
    refuses("acme/tiny", "wrong", "401");
    assert_ok(pull("acme/tiny", "secret", &p, &err), err);
    is_complete(&p);
    assert_false(server.token_went_on);
}

static void trouble_passes_or_is_told(void **state)
{
    static const char *const bad[] = { "", "[]", "{", "{\"sha\": \"../x\", \"siblings\": []}", "{\"sha\": \"ab\"}",
                                       "{\"sha\": \"ab\", \"siblings\": [1, null, {\"rfilename\": 5}]}" };
    rg_error err;
    rg_pulled p;

    (void)state;
    anew();
    server.fails = 3;
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
    anew();
    server.fails = 1000;
    refuses("acme/tiny", NULL, "503");
    server.fails = 0;
    server.status = 404;
    refuses("acme/tiny", NULL, "answers 404");
    server.status = 0;
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        server.listing = bad[i];
        refuses("acme/tiny", NULL, "");
    }
    server.listing = NULL;
    refuses("tiny", NULL, "is not ORG/NAME");
    refuses("../tiny", NULL, "is not ORG/NAME");
    refuses("acme/..", NULL, "is not ORG/NAME");
    refuses("acme/tiny@../x", NULL, "is not ORG/NAME");
    refuses("acme/ti ny", NULL, "is not ORG/NAME");
    rg_pull_options o = { .endpoint = "http://127.0.0.1:1", .hub = hub };
    assert_false(rg_pull("acme/tiny", &o, &p, &err));
    o.endpoint = "file:///etc";
    assert_false(rg_pull("acme/tiny", &o, &p, &err));
}

static void two_at_once_do_not_mix(void **state)
{
    char path[1500];
    rg_error err;
    rg_pulled p;

    (void)state;
    anew();
    server.cuts = 1000;
    refuses("acme/tiny", NULL, "model.safetensors");
    server.cuts = 0;
    snprintf(path, sizeof path, "%s/models--acme--tiny/blobs/%s.incomplete", hub, files[1].hash);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    refuses("acme/tiny", NULL, "another process fetches it");
    close(fd);
    assert_ok(pull("acme/tiny", NULL, &p, &err), err);
    is_complete(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_fetched_once),
        cmocka_unit_test(a_type_is_one_file_with_its_parts),
        cmocka_unit_test(a_cut_is_gone_on_with),
        cmocka_unit_test(what_is_wrong_is_not_kept),
        cmocka_unit_test(tokens_stay_with_their_host),
        cmocka_unit_test(trouble_passes_or_is_told),
        cmocka_unit_test(two_at_once_do_not_mix),
    };

    test_init(argc, argv);
    if (!rg_fetch_is_there()) {
        puts("skipped: libcurl is not installed");
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("pull", tests, set_up, NULL);
}
