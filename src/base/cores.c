/* cores.c -- how many threads are worth starting: hwloc's physical cores that we may run on, within the cgroup's quota.
 *
 * Declared in pool.h.  Knows cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us); a limit set on any ancestor counts. */
#include "base/pool.h"

#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { SMALL_FILE = 1 << 16, PATH_ROOM = 4096 };

static int hwloc_cores(void)
{
    hwloc_topology_t topology;
    hwloc_bitmap_t mine;
    int n = 0;

    if (hwloc_topology_init(&topology))
        return 0;
    mine = hwloc_bitmap_alloc();
    /* Only cores are asked about: no time on devices and caches. */
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (mine && !hwloc_topology_load(topology)) {
        hwloc_obj_t core = NULL;

        if (hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) || hwloc_bitmap_iszero(mine))
            hwloc_bitmap_fill(mine);
        hwloc_bitmap_and(mine, mine, hwloc_topology_get_allowed_cpuset(topology));
        while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL)
            n += hwloc_bitmap_intersects(core->cpuset, mine);
        if (n == 0) /* a machine that tells of no cores: its processing units */
            n = hwloc_bitmap_weight(mine);
    }
    hwloc_bitmap_free(mine);
    hwloc_topology_destroy(topology);
    return n;
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

/* The least quota of group and of what encloses it, up to root. */
static int quota_up(const char *root, const char *group, long long (*quota)(const char *dir), int best)
{
    char path[PATH_ROOM];
    size_t n_root = strlen(root);
    int n = snprintf(path, sizeof path, "%s%s", root, group);

    if (n < 0 || (size_t)n >= sizeof path)
        return best;
    for (;;) {
        long long q = quota(path);
        char *slash = strrchr(path, '/');

        if (q > 0 && q < best)
            best = (int)q;
        if (!slash || (size_t)(slash - path) < n_root)
            return best;
        *slash = '\0';
    }
}

/* Does the comma-separated list name the cpu controller? */
static bool names_cpu(const char *list)
{
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, "cpu", 3) && (p[3] == ',' || p[3] == '\0'))
            return true;
    return false;
}

/* Lines of /proc/self/cgroup are "id:controllers:path"; controllers are empty for v2. */
static int within_quota(int n)
{
    char *text = small_file("/proc/self", "cgroup"), *save = NULL;

    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        if (!*controllers) {
            n = quota_up("/sys/fs/cgroup", group, quota_v2, n);
            n = quota_up("/sys/fs/cgroup/unified", group, quota_v2, n);
        } else if (names_cpu(controllers)) {
            n = quota_up("/sys/fs/cgroup/cpu", group, quota_v1, n);
        }
    }
    rg_free(text);
    /* Inside a container the path may be the host's: what is mounted at the root is then our own group. */
    n = quota_up("/sys/fs/cgroup", "", quota_v2, n);
    return quota_up("/sys/fs/cgroup/cpu", "", quota_v1, n);
}

static int n_cores;

static void count_cores(void)
{
    int n = hwloc_cores();

    n_cores = within_quota(n > 0 ? n : 1);
}

int rg_cores(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, count_cores);
    return n_cores;
}
