/* sandbox.c -- see sandbox.h.
 *
 * Landlock and capabilities belong to a thread, not to the process, and the server's threads are there already when it
 * is open: every thread is interrupted by a signal, and gives its rights up in the handler.  seccomp's filter reaches
 * all threads by itself. */
#define _GNU_SOURCE 1
#include "cli/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/syscalls.h"

/* ---- on every thread ---- */

enum { MOST_THREADS = 4096, WAIT_MS = 10000 };

static struct {
    long (*give_up)(long arg);
    long arg;
    atomic_int done, failed; /* threads; errno of one that could not */
} asked;

static void on_asked(int number)
{
    int saved = errno;

    (void)number;
    if (asked.give_up(asked.arg) < 0)
        atomic_store(&asked.failed, errno ? errno : EPERM);
    atomic_fetch_add(&asked.done, 1);
    errno = saved;
}

static void nap_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

typedef struct threads {
    pid_t id[MOST_THREADS];
    int n, n_new;
} threads;

/* Interrupt the threads that are not in the list yet, but for the caller. */
static bool ask_thread(void *arg, const char *name)
{
    threads *t = arg;
    pid_t id = (pid_t)strtol(name, NULL, 10);

    for (int i = 0; i < t->n; i++)
        if (t->id[i] == id)
            return true;
    if (t->n == MOST_THREADS)
        return false;
    t->id[t->n++] = id;
    if (id != (pid_t)syscall(SYS_gettid) && syscall(SYS_tgkill, getpid(), id, SIGUSR2) == 0)
        t->n_new++;
    return true;
}

/* give_up(arg) on every thread; a thread that starts meanwhile is found by looking again, or has what its maker had. */
static bool on_all_threads(long (*give_up)(long), long arg, rg_error *err)
{
    struct sigaction act = { .sa_handler = on_asked, .sa_flags = SA_RESTART }, before;
    static threads t;
    int waited = 0;

    t.n = 0;
    asked.give_up = give_up;
    asked.arg = arg;
    atomic_store(&asked.done, 0);
    atomic_store(&asked.failed, 0);
    sigaction(SIGUSR2, &act, &before);
    bool ok = true;
    int sent = 0;
    do {
        t.n_new = 0;
        ok = rg_dir_list("/proc/self/task", ask_thread, &t, err);
        sent += t.n_new;
        for (; ok && atomic_load(&asked.done) < sent && waited < WAIT_MS; waited++)
            nap_ms(1);
    } while (ok && t.n_new && t.n < MOST_THREADS);
    ok = ok &&
         (atomic_load(&asked.done) == sent || rg_fail(err, RG_E_IO, "serve: a thread does not give up its rights"));
    sigaction(SIGUSR2, &before, NULL);
    if (ok && (atomic_load(&asked.failed) || give_up(arg) < 0)) /* the caller itself last */
        ok = rg_fail(err, RG_E_IO, "serve: rights cannot be given up: %s",
                     strerror(atomic_load(&asked.failed) ? atomic_load(&asked.failed) : errno));
    return ok;
}

/* ---- files: Landlock ---- */

/* As the kernel has it by now; older ones read its beginning. */
typedef struct landlock_attr {
    uint64_t fs, net, scoped;
} landlock_attr;

enum {
    RIGHT_REFER = 13, RIGHT_TRUNCATE = 14, RIGHT_IOCTL_DEV = 15, /* bits that came with versions 2, 3 and 5 */
    NET_BIND_AND_CONNECT = 3, SCOPE_SIGNALS_AND_SOCKETS = 3,
};

static const uint64_t reading = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
                      in_folders = LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                   LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                   LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                   LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                   LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM | 1ull << RIGHT_REFER,
                      writing = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                LANDLOCK_ACCESS_FS_MAKE_REG | 1ull << RIGHT_REFER | 1ull << RIGHT_TRUNCATE;

void cli_leave_place(cli_places_left *p, const char *path, bool write)
{
    if (!path || !*path)
        return;
    if (p->n < CLI_MOST_PLACES) {
        p->at[p->n].path = path;
        p->at[p->n].write = write;
    }
    p->n++;
}

typedef struct rules {
    int set; /* the ruleset */
    uint64_t handled;
    const char *folder;
    rg_error *err;
    bool write;
} rules;

static bool allow(rules *r, const char *path)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return true; /* it is not there */
    struct landlock_path_beneath_attr rule = { .allowed_access = reading | (r->write ? writing : 0), .parent_fd = fd };
    rule.allowed_access &= r->handled;
    if (!fstat(fd, &st) && !S_ISDIR(st.st_mode))
        rule.allowed_access &= ~in_folders;
    long got = syscall(SYS_landlock_add_rule, r->set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    int why = errno;

    close(fd);
    return got == 0 || rg_fail(r->err, RG_E_IO, "serve: --sandbox: %s: %s", path, strerror(why));
}

/* A link within a folder leads to where its file is: caches keep files so. */
static bool allow_link(void *arg, const char *name)
{
    rules *r = arg;
    char path[4096];
    struct stat st;

    if (!rg_path_join(path, sizeof path, r->folder, name) || lstat(path, &st) || !S_ISLNK(st.st_mode))
        return true;
    return allow(r, path);
}

static bool allow_place(rules *r, const char *path)
{
    r->folder = path;
    return allow(r, path) && (rg_path_look(path) != RG_PATH_DIR || rg_dir_list(path, allow_link, r, r->err));
}

static long restrict_self(long set)
{
    return syscall(SYS_landlock_restrict_self, (int)set, 0);
}

static bool close_files(const cli_places_left *p, rg_error *err)
{
    /* what the C library and the engine look at while they run */
    static const char *const always[] = { "/dev/null", "/dev/urandom", "/proc/self", "/proc/meminfo", "/proc/cpuinfo",
                                          "/proc/stat", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm",
                                          "/etc/localtime", "/usr/share/zoneinfo" };
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    if (version < 1)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "serve: --sandbox: this kernel has no Landlock (%s): it is there from Linux "
                       "5.13 on, if the boot parameter lsm= names it",
                       strerror(errno));
    landlock_attr attr = { .fs = (1ull << RIGHT_REFER) - 1 };
    attr.fs |= (version >= 2 ? 1ull << RIGHT_REFER : 0) | (version >= 3 ? 1ull << RIGHT_TRUNCATE : 0) |
               (version >= 5 ? 1ull << RIGHT_IOCTL_DEV : 0);
    attr.net = version >= 4 ? NET_BIND_AND_CONNECT : 0;
    attr.scoped = version >= 6 ? SCOPE_SIGNALS_AND_SOCKETS : 0;
    size_t size = version >= 6 ? sizeof attr : version >= 4 ? offsetof(landlock_attr, scoped) : sizeof attr.fs;
    rules r = { .set = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0), .handled = attr.fs, .err = err };
    if (r.set < 0)
        return rg_fail(err, RG_E_IO, "serve: --sandbox: Landlock: %s", strerror(errno));
    bool ok = true;
    for (size_t i = 0; ok && i < RG_LEN(always); i++)
        ok = allow(&r, always[i]);
    for (int i = 0; ok && i < p->n; i++) {
        r.write = p->at[i].write;
        ok = allow_place(&r, p->at[i].path);
    }
    ok = ok && on_all_threads(restrict_self, r.set, err);
    close(r.set);
    return ok;
}

static long no_new_rights(long arg)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, arg);
}

bool cli_sandbox_enter(const cli_places_left *p, rg_error *err)
{
    if (p->n > CLI_MOST_PLACES)
        return rg_fail(err, RG_E_LIMIT, "serve: --sandbox: more than %d files and folders are named", CLI_MOST_PLACES);
    return on_all_threads(no_new_rights, 0, err) && close_files(p, err) && cli_filter_syscalls(err);
}

/* ---- the user ---- */

static long drop_capabilities(long keep)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { { 0 }, { 0 } };

    data[0].effective = data[0].permitted = (uint32_t)keep;
    return syscall(SYS_capset, &head, data);
}

bool cli_user_become(const char *user, rg_error *err)
{
    char *end;
    long number = strtol(user, &end, 10);
    const struct passwd *p = *user && !*end && number > 0 ? getpwuid((uid_t)number) : getpwnam(user);
    const uid_t uid = p ? p->pw_uid : (uid_t)number;
    const gid_t gid = p ? p->pw_gid : (gid_t)number;

    if (!p && (!*user || *end || number <= 0))
        return rg_fail(err, RG_E_USAGE, "serve: --user: there is no user '%.60s'", user);
    if (getuid() == uid && geteuid() == uid && uid)
        return true;
    if (geteuid() != 0)
        return rg_fail(err, RG_E_USAGE, "serve: --user %.60s: only root can become another user", user);
    if (!uid)
        return rg_fail(err, RG_E_USAGE, "serve: --user %.60s is root itself: name a user with fewer rights", user);
    bool ok = (p ? initgroups(p->pw_name, gid) : setgroups(0, NULL)) == 0 && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 &&
              setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0 &&
              drop_capabilities(1 << CAP_NET_BIND_SERVICE) == 0 && prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) == 0;
    return ok || rg_fail(err, RG_E_IO, "serve: --user %.60s: %s", user, strerror(errno));
}

bool cli_user_settle(rg_error *err)
{
    return on_all_threads(drop_capabilities, 0, err);
}
