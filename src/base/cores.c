/* cores.c -- what this process may use of the machine: hwloc's physical cores that we may run on, and the memory that
 * is free, both within the cgroup's limits.
 *
 * Declared in pool.h and mem.h.  Knows cgroup v2 (cpu.max, memory.max) and v1 (cpu.cfs_quota_us,
 * memory.limit_in_bytes); a limit set on any ancestor counts. */
#include "base/pool.h"

#include <hwloc.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum { SMALL_FILE = 1 << 16, PATH_ROOM = 4096 };

/* Loaded once and kept; NULL: it cannot be. */
static hwloc_topology_t topology;

static void load_topology(void)
{
    if (hwloc_topology_init(&topology)) {
        topology = NULL;
        return;
    }
    /* Load only cores, and NUMA nodes, which always are: looking for devices and caches takes time. */
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        topology = NULL;
    }
}

/* Processing units that this process may run on when it asks first; the caller frees it.  NULL: unknown. */
static hwloc_bitmap_t allowed_units(void)
{
    hwloc_bitmap_t mine = topology ? hwloc_bitmap_alloc() : NULL;

    if (!mine)
        return NULL;
    if (hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) || hwloc_bitmap_iszero(mine))
        hwloc_bitmap_fill(mine);
    hwloc_bitmap_and(mine, mine, hwloc_topology_get_allowed_cpuset(topology));
    return mine;
}

/* Kept, since threads that are bound to a core narrow what the process seems to be allowed. */
static hwloc_bitmap_t units;

/* The k-th core with a unit of ours, from 0; NULL: there are k or fewer, and *n is how many. */
static hwloc_obj_t find_core(int k, int *n)
{
    hwloc_obj_t core = NULL;

    *n = 0;
    while (units && (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL)
        if (hwloc_bitmap_intersects(core->cpuset, units) && (*n)++ == k)
            return core;
    return NULL;
}

static int hwloc_cores(void)
{
    int n;

    load_topology();
    units = allowed_units();
    find_core(INT_MAX, &n);
    return n || !units ? n : hwloc_bitmap_weight(units); /* the machine may not list cores: count processing units */
}

/* The file's text, or NULL: a file that is not there is no limit. */
static char *small_file(const char *dir, const char *name)
{
    char path[PATH_ROOM];
    size_t n;

    return rg_path_join(path, sizeof path, dir, name) ? rg_file_slurp(path, SMALL_FILE, &n, NULL) : NULL;
}

/* Whole processors that this group may use; 0: no limit. */
static long long quota_v2(const char *dir)
{
    char *text = small_file(dir, "cpu.max");
    long long quota = 0, period = 0, n = 0;

    if (text && sscanf(text, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
        n = quota < period ? 1 : quota / period;
    rg_free(text);
    return n;
}

static long long quota_v1(const char *dir)
{
    char *quota_text = small_file(dir, "cpu.cfs_quota_us"), *period_text = small_file(dir, "cpu.cfs_period_us");
    long long quota = quota_text ? atoll(quota_text) : 0, period = period_text ? atoll(period_text) : 0, n = 0;

    if (quota > 0 && period > 0)
        n = quota < period ? 1 : quota / period;
    rg_free(quota_text);
    rg_free(period_text);
    return n;
}

/* The number after a word at the start of a line; -1: it is not there. */
static long long number_after(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, word, n) && (line[n] == ' ' || line[n] == ':'))
            return atoll(line + n + 1);
    return -1;
}

/* Memory that a group may still take: its limit less its use, not counting pages of files, which the kernel frees when
 * needed; at least one byte.  0: no limit. */
static long long room_of(const char *dir, const char *limit_name, const char *used_name, const char *prefix)
{
    char *limit = small_file(dir, limit_name), *used = small_file(dir, used_name);
    char *stat = small_file(dir, "memory.stat");
    char word[2][32];
    long long room = limit ? atoll(limit) : 0, files = 0;

    for (int i = 0; i < 2; i++) {
        snprintf(word[i], sizeof word[i], "%s%sactive_file", prefix, i ? "in" : "");
        long long n = stat ? number_after(stat, word[i]) : 0;
        files += n > 0 ? n : 0;
    }
    if (room > 0 && used) {
        long long taken = atoll(used) - files;
        room = taken < 0 ? room : taken < room ? room - taken : 1;
    }
    rg_free(limit);
    rg_free(used);
    rg_free(stat);
    return room > 0 ? room : 0; /* "max" is no number */
}

static long long room_v2(const char *dir)
{
    return room_of(dir, "memory.max", "memory.current", "");
}

static long long room_v1(const char *dir)
{
    return room_of(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_");
}

/* The smallest limit among the group and its ancestors, up to root. */
static long long least_up(const char *root, const char *group, long long (*limit)(const char *dir), long long best)
{
    char path[PATH_ROOM];
    size_t n_root = strlen(root);
    int n = snprintf(path, sizeof path, "%s%s", root, group);

    if (n < 0 || (size_t)n >= sizeof path)
        return best;
    for (;;) {
        long long q = limit(path);
        char *slash = strrchr(path, '/');

        if (q > 0 && q < best)
            best = q;
        if (!slash || (size_t)(slash - path) < n_root)
            return best;
        *slash = '\0';
    }
}

/* True if the comma-separated list names the controller. */
static bool names(const char *list, const char *controller)
{
    size_t n = strlen(controller);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, controller, n) && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

/* How a controller limits its groups, in both versions. */
typedef struct controller {
    const char *name, *v1_root;
    long long (*v1)(const char *dir), (*v2)(const char *dir);
} controller;

/* Lines of /proc/self/cgroup are "id:controllers:path"; controllers are empty for v2. */
static long long within(const controller *c, long long most)
{
    char *text = small_file("/proc/self", "cgroup"), *save = NULL;

    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        if (!*controllers) {
            most = least_up("/sys/fs/cgroup", group, c->v2, most);
            most = least_up("/sys/fs/cgroup/unified", group, c->v2, most);
        } else if (names(controllers, c->name)) {
            most = least_up(c->v1_root, group, c->v1, most);
        }
    }
    rg_free(text);
    /* Inside a container the path may be the host's; then the mounted root is our own group. */
    most = least_up("/sys/fs/cgroup", "", c->v2, most);
    return least_up(c->v1_root, "", c->v1, most);
}

uint64_t rg_memory_free(void)
{
    static const controller memory = { "memory", "/sys/fs/cgroup/memory", room_v1, room_v2 };
    char *text = small_file("/proc", "meminfo");
    long long kib = text ? number_after(text, "MemAvailable") : -1;
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    long long most = kib > 0 ? kib << 10 : pages > 0 && page > 0 ? (long long)pages * page : 0;

    rg_free(text);
    return most > 0 ? (uint64_t)within(&memory, most) : 0;
}

static int n_cores;

static void count_cores(void)
{
    static const controller cpu = { "cpu", "/sys/fs/cgroup/cpu", quota_v1, quota_v2 };
    int n = hwloc_cores();

    n_cores = (int)within(&cpu, n > 0 ? n : 1);
}

int rg_cores(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, count_cores);
    return n_cores;
}

/* This is process number `part` of the n_parts that share the machine. */
static int part, n_parts = 1;

void rg_cores_share(int which, int n)
{
    part = which;
    n_parts = n;
    hwloc_obj_t node = rg_nodes() > 1 ? hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                                              (unsigned)((int64_t)which * rg_nodes() / n))
                                      : NULL;
    if (node)
        (void)hwloc_set_cpubind(topology, node->cpuset, HWLOC_CPUBIND_PROCESS);
}

void rg_core_bind(int thread, int n_threads)
{
    int n;

    rg_cores();
    find_core(INT_MAX, &n);
    const int64_t all = (int64_t)n_threads * n_parts, one = (int64_t)n_threads * part + thread;
    hwloc_obj_t core = n ? find_core((int)(one * n / all) % n, &n) : NULL;
    if (core)
        (void)hwloc_set_cpubind(topology, core->cpuset, HWLOC_CPUBIND_THREAD);
}

int rg_nodes(void)
{
    rg_cores();
    int n = topology ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) : 1;

    return n > 1 ? n : 1;
}

int rg_node_cores(void)
{
    const int n_nodes = rg_nodes();
    int least, n;

    if (n_nodes == 1)
        return rg_cores();
    find_core(INT_MAX, &least);
    for (int i = 0; i < n_nodes; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)i), core = NULL;
        int here = 0;

        for (int k = 0; (core = find_core(k, &n)) != NULL; k++)
            here += hwloc_bitmap_intersects(core->cpuset, node->cpuset);
        least = here < least ? here : least;
    }
    return least;
}

void rg_region_to_node(void *p, size_t bytes, int node)
{
    hwloc_obj_t at = rg_nodes() > 1 ? hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)node) : NULL;

    if (at && bytes)
        (void)hwloc_set_area_membind(topology, p, bytes, at->nodeset, HWLOC_MEMBIND_BIND,
                                     HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_MIGRATE);
}
