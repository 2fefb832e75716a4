/* machines.c -- see machines.h. */
#include "plan/machines.h"

#include <stdio.h>
#include <string.h>

typedef struct known {
    const char *name, *title;
    bool accelerator;
    double bf16, int8, f32, read, memory, link;
} known;

static const known all[] = {
#define MACHINE(name, title, accelerator, bf16, int8, f32, read, memory, link)                                         \
    { name, title, accelerator, bf16, int8, f32, read, memory, link },
#include "plan/machines.def"
#undef MACHINE
};

const char *rg_plan_machine_nth(int i)
{
    return i >= 0 && i < (int)RG_LEN(all) ? all[i].name : NULL;
}

static void list_names(char *out, size_t room)
{
    size_t n = 0;

    out[0] = 0;
    for (size_t i = 0; i < RG_LEN(all) && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, ", %s", all[i].name);
}

bool rg_plan_machine_find(rg_plan_machine *out, const char *name, rg_error *err)
{
    char names[256];

    for (size_t i = 0; i < RG_LEN(all); i++) {
        const known *k = &all[i];
        if (strcmp(k->name, name) != 0)
            continue;
        *out = (rg_plan_machine){ .name = k->name, .title = k->title, .accelerator = k->accelerator,
                                  .memory_bytes = k->memory, .link_bytes_s = k->link, .chips = 1,
                                  .m.roofs = { .read_bytes_s = k->read, .bf16_ops_s = k->bf16 } };
        /* An accelerator has bf16 for all weights. */
        out->m.roofs.f32_ops_s = k->accelerator ? k->bf16 : k->f32;
        out->m.roofs.int8_ops_s = k->accelerator ? 0 : k->int8;
        return true;
    }
    list_names(names, sizeof names);
    return rg_fail(err, RG_E_USAGE, "machine '%.40s' is not one of here%s", name, names);
}

void rg_plan_machine_chips(rg_plan_machine *p, int n)
{
    double by = (double)n / p->chips;

    p->m.roofs.read_bytes_s *= by;
    p->m.roofs.f32_ops_s *= by;
    p->m.roofs.bf16_ops_s *= by;
    p->m.roofs.int8_ops_s *= by;
    p->memory_bytes *= by;
    if (n != p->chips)
        p->m.rates = NULL;
    p->chips = n;
}
