/* syscalls.c -- see syscalls.h: a filter in the kernel's own small language (BPF), made from a table. */
#define _GNU_SOURCE 1
#include "cli/syscalls.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* Allowed whatever their arguments are.  Some are there on one architecture only. */
static const int allowed[] = {
    /* opening files, and using open ones */
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_close,
    SYS_openat,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_getdents64,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getcwd,
    SYS_fcntl,
    SYS_flock,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync_file_range,
    SYS_renameat2,
    SYS_unlinkat,
    SYS_mkdirat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fadvise64,
    SYS_readahead,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_umask,
    SYS_utimensat,
    SYS_fchown,
    SYS_copy_file_range,
    SYS_sendfile,
    /* connections that come in */
    SYS_accept4,
    SYS_accept,
    SYS_recvfrom,
    SYS_sendto,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_shutdown,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_ppoll,
    SYS_pselect6,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    /* memory and threads */
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_msync,
    SYS_mincore,
    SYS_mlock,
    SYS_munlock,
    SYS_membarrier,
    SYS_mbind,
    SYS_get_mempolicy,
    SYS_set_mempolicy,
    SYS_move_pages,
    SYS_futex,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_getpriority,
    SYS_exit,
    SYS_exit_group,
    SYS_gettid,
    SYS_getpid,
    SYS_getppid,
    SYS_tgkill,
    SYS_getcpu,
    /* signals, time, and who one is */
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrusage,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrandom,
    SYS_uname,
    SYS_sysinfo,
    SYS_prlimit64,
#if defined(__x86_64__)
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_rename,
    SYS_unlink,
    SYS_mkdir,
    SYS_rmdir,
    SYS_chmod,
    SYS_poll,
    SYS_select,
    SYS_epoll_wait,
    SYS_time,
    SYS_dup2,
    SYS_getrlimit,
    SYS_utimes,
#endif
#if defined(__aarch64__)
    SYS_renameat,
#endif
};

/* Allowed if an argument is one of these values, or has none of these bits, or all of them. */
typedef enum check { IS_ONE_OF, HAS_NONE_OF, HAS_ALL_OF } check;

typedef struct limited {
    int call, argument;
    check check;
    uint32_t value[6];
} limited;

static const limited limits[] = {
    { SYS_mmap, 2, HAS_NONE_OF, { PROT_EXEC } },
    { SYS_mprotect, 2, HAS_NONE_OF, { PROT_EXEC } },
    { SYS_clone, 0, HAS_ALL_OF, { CLONE_THREAD | CLONE_VM } }, /* threads, and no processes */
    { SYS_ioctl, 1, IS_ONE_OF, { FIONBIO, FIONREAD, TCGETS, TIOCGWINSZ } },
    { SYS_prctl, 0, IS_ONE_OF, { PR_SET_NAME, PR_GET_NAME, 0x53564d41 /* PR_SET_VMA, of malloc */ } },
};

enum { MOST = 400 };

typedef struct program {
    struct sock_filter code[MOST];
    unsigned short n;
} program;

static void add(program *p, struct sock_filter one)
{
    RG_ASSERT(p->n < MOST);
    p->code[p->n++] = one;
}

static void load(program *p, size_t offset)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void give(program *p, uint32_t verdict)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict));
}

static const uint32_t refused = SECCOMP_RET_ERRNO | EPERM;

/* The calls with a limit: jump over what follows unless it is this one. */
static void add_limited(program *p, const limited *l)
{
    int n = 0;
    unsigned short at = p->n;

    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)l->call, 0, 0));
    load(p, offsetof(struct seccomp_data, args) + 8 * (size_t)l->argument); /* the lower half: little endian */
    switch (l->check) {
    case HAS_NONE_OF:
        add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, l->value[0], 0, 1));
        give(p, refused);
        give(p, SECCOMP_RET_ALLOW);
        break;
    case HAS_ALL_OF:
        add(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, l->value[0]));
        add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, l->value[0], 0, 1));
        give(p, SECCOMP_RET_ALLOW);
        give(p, refused);
        break;
    case IS_ONE_OF:
        for (; n < (int)RG_LEN(l->value) && l->value[n]; n++) {
            add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, l->value[n], 0, 1));
            give(p, SECCOMP_RET_ALLOW);
        }
        give(p, refused);
        break;
    }
    p->code[at].jf = (uint8_t)(p->n - at - 1);
}

static void write_program(program *p)
{
    p->n = 0;
#ifdef ARCHITECTURE
    load(p, offsetof(struct seccomp_data, arch));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    give(p, SECCOMP_RET_KILL_PROCESS);
#endif
    load(p, offsetof(struct seccomp_data, nr));
    /* clone3 hides its flags from a filter: without it the C library takes clone */
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
    give(p, SECCOMP_RET_ERRNO | ENOSYS);
    for (size_t i = 0; i < RG_LEN(allowed); i++) {
        add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1));
        give(p, SECCOMP_RET_ALLOW);
    }
    for (size_t i = 0; i < RG_LEN(limits); i++)
        add_limited(p, &limits[i]);
    give(p, refused);
}

bool cli_filter_syscalls(rg_error *err)
{
    static program p;
    struct sock_fprog filter = { .filter = p.code };

    write_program(&p);
    filter.len = p.n;
    long got = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
    return got == 0 ||
           rg_fail(err, RG_E_UNSUPPORTED, "serve: --sandbox: this kernel takes no filter of system calls: %s",
                   got < 0 ? strerror(errno) : "a thread has one of its own");
}
