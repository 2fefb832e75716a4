/* test_sha256.c -- the examples of FIPS 180-4 for SHA-256 and SHA-1, lengths around the end of a block, and parts. */
#include <stdio.h>
#include <string.h>

#include "base/sha1.h"
#include "base/sha256.h"
#include "support/test.h"

static void check(const char *text, size_t n, const char *want)
{
    uint8_t hash[32];
    char hex[65];

    rg_sha256(text, n, hash);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(hex, want);
}

static void known_values(void **state)
{
    static char a[1000000];

    (void)state;
    check("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(a, 'a', sizeof a);
    check(a, sizeof a, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    check(a, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    check(a, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
    check(a, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

static void check_sha1(const char *text, size_t n, size_t part, const char *want)
{
    rg_sha1_state s;
    uint8_t hash[20];
    char hex[41];

    rg_sha1_init(&s);
    for (size_t i = 0; i < n; i += part)
        rg_sha1_add(&s, text + i, n - i < part ? n - i : part);
    rg_sha1_end(&s, hash);
    for (int i = 0; i < 20; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(hex, want);
}

static void known_values_of_sha1(void **state)
{
    static char a[1000000];

    (void)state;
    check_sha1("", 0, 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    check_sha1("abc", 3, 2, "a9993e364706816aba3e25717850c26c9cd0d89d");
    check_sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, 7,
               "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    memset(a, 'a', sizeof a);
    check_sha1(a, sizeof a, 977, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    check_sha1(a, sizeof a, sizeof a, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

/* However it is cut, a text has one hash. */
static void parts_make_the_whole(void **state)
{
    char text[300];
    uint8_t whole[32], parts[32];

    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    for (size_t n = 0; n < sizeof text; n++) {
        rg_sha256(text, n, whole);
        for (size_t part = 1; part < 130; part += 9) {
            rg_sha256_state s;

            rg_sha256_init(&s);
            for (size_t i = 0; i < n; i += part)
                rg_sha256_add(&s, text + i, n - i < part ? n - i : part);
            rg_sha256_end(&s, parts);
            assert_memory_equal(whole, parts, 32);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(known_values), cmocka_unit_test(known_values_of_sha1),
                                        cmocka_unit_test(parts_make_the_whole) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
