/* test_hardened.c -- the program as it was built: at any address, with tables that cannot be written once it runs, no
 * memory that is both written and executed, guarded stacks, checked copies, and marked targets of jumps. */
#define _GNU_SOURCE 1
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"

typedef struct program {
    unsigned char *data;
    size_t n;
    const Elf64_Ehdr *head;
    const Elf64_Phdr *part;
} program;

static void read_program(program *p)
{
    FILE *f = fopen(RG_BUILD_DIR "/ridge", "rb");

    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    p->n = (size_t)ftell(f);
    rewind(f);
    p->data = malloc(p->n);
    assert_non_null(p->data);
    assert_int_equal(fread(p->data, 1, p->n, f), p->n);
    fclose(f);
    p->head = (const Elf64_Ehdr *)(const void *)p->data;
    assert_memory_equal(p->head->e_ident, ELFMAG, SELFMAG);
    assert_int_equal(p->head->e_ident[EI_CLASS], ELFCLASS64);
    p->part = (const Elf64_Phdr *)(const void *)(p->data + p->head->e_phoff);
}

static const Elf64_Phdr *part_of(const program *p, uint32_t type)
{
    for (int i = 0; i < p->head->e_phnum; i++)
        if (p->part[i].p_type == type)
            return &p->part[i];
    return NULL;
}

/* The value of an entry of the dynamic section; 0: there is none. */
static uint64_t dynamic(const program *p, int64_t tag)
{
    const Elf64_Phdr *part = part_of(p, PT_DYNAMIC);
    const Elf64_Dyn *d = part ? (const Elf64_Dyn *)(const void *)(p->data + part->p_offset) : NULL;

    for (size_t i = 0; d && i < part->p_filesz / sizeof *d && d[i].d_tag != DT_NULL; i++)
        if (d[i].d_tag == tag)
            return d[i].d_un.d_val ? d[i].d_un.d_val : 1;
    return 0;
}

static bool has_text(const program *p, const char *text)
{
    return memmem(p->data, p->n, text, strlen(text) + 1) != NULL; /* with its end: a whole name */
}

static void a_release_is_hardened(void **state)
{
    program p;

    (void)state;
#ifndef RG_HARDENED
    skip(); /* this build is for something else */
#endif
    read_program(&p);
    /* at any address */
    assert_int_equal(p.head->e_type, ET_DYN);
    assert_non_null(part_of(&p, PT_INTERP));
    assert_true(dynamic(&p, DT_FLAGS_1) & DF_1_PIE);
    /* symbols are bound at the start, and their table is read-only from then on */
    assert_non_null(part_of(&p, PT_GNU_RELRO));
    assert_true((dynamic(&p, DT_FLAGS) & DF_BIND_NOW) || (dynamic(&p, DT_FLAGS_1) & DF_1_NOW));
    /* nothing is both written and executed, stacks are not executed, code is not changed, no folder is searched */
    assert_non_null(part_of(&p, PT_GNU_STACK));
    assert_false(part_of(&p, PT_GNU_STACK)->p_flags & PF_X);
    for (int i = 0; i < p.head->e_phnum; i++)
        assert_false(p.part[i].p_type == PT_LOAD && (p.part[i].p_flags & PF_W) && (p.part[i].p_flags & PF_X));
    assert_int_equal(dynamic(&p, DT_TEXTREL), 0);
    assert_int_equal(dynamic(&p, DT_RPATH), 0);
    assert_int_equal(dynamic(&p, DT_RUNPATH), 0);
    /* canaries, and copies whose size is checked */
    assert_true(has_text(&p, "__stack_chk_fail"));
    assert_true(has_text(&p, "__memcpy_chk"));
    assert_true(has_text(&p, "__snprintf_chk"));
#if defined(__x86_64__)
    size_t n = 0;
    for (size_t i = 0; i + 4 < p.n; i++)
        n += !memcmp(p.data + i, "\xf3\x0f\x1e\xfa", 4); /* endbr64 */
    assert_true(n > 1000);
#endif
    free(p.data);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_is_hardened),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("hardened", tests, NULL, NULL);
}
