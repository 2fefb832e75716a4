/* mpi.c -- ranks of several hosts, started by mpirun.
 *
 * Ranks of one host share a segment as in link.c.  The first rank of each host carries slots between hosts: MPI copies
 * bytes and never adds numbers, so every rank sums the same slots in the same order as on one host. */
#define _GNU_SOURCE
#include "ops/ranks/link.h"

#ifdef RIDGE_MPI

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"
#include "ops/ranks/inner.h"

typedef struct hosts {
    MPI_Comm here, leaders; /* ranks of this host; the first rank of every host, or MPI_COMM_NULL */
    int n_hosts, n_here;
    int count[RG_MAX_RANKS], first[RG_MAX_RANKS]; /* ranks of each host */
} hosts;

/* `bytes` of each slot, slots being RG_LINK_SLOT apart. */
static MPI_Datatype slot_type(size_t bytes)
{
    MPI_Datatype inside, type;

    MPI_Type_contiguous((int)bytes, MPI_BYTE, &inside);
    MPI_Type_create_resized(inside, 0, RG_LINK_SLOT, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&inside);
    return type;
}

static void carry_slots(const rg_host_link *l, const hosts *h, rg_link_way way, size_t bytes)
{
    uint8_t *slots = l->slots + (size_t)(l->n_done % 2) * (size_t)l->base.n * RG_LINK_SLOT;
    MPI_Datatype type = slot_type(bytes);
    int host;

    MPI_Comm_rank(h->leaders, &host);
    uint8_t *own = slots + (size_t)h->first[host] * RG_LINK_SLOT;
    if (way == RG_LINK_FROM_ZERO)
        MPI_Bcast(slots, 1, type, 0, h->leaders);
    else if (way == RG_LINK_ALL)
        MPI_Allgatherv(MPI_IN_PLACE, 0, type, slots, h->count, h->first, type, h->leaders);
    else if (host)
        MPI_Gatherv(own, h->n_here, type, NULL, NULL, NULL, type, 0, h->leaders);
    else
        MPI_Gatherv(MPI_IN_PLACE, 0, type, slots, h->count, h->first, type, 0, h->leaders);
    MPI_Type_free(&type);
}

/* Slots of this exchange may be overwritten once all ranks here have come to it. */
static void carry(rg_host_link *l, rg_link_way way, size_t bytes)
{
    const hosts *h = l->remote;
    const uint32_t wanted = l->n_done + 1;

    if (h->leaders == MPI_COMM_NULL) {
        if (way != RG_LINK_TO_ZERO)
            rg_counter_wait(l, &l->segment->carried, wanted);
        return;
    }
    for (int r = 0; r < l->base.n; r++)
        if (l->is_here[r])
            rg_counter_wait(l, &l->segment->arrived[r], wanted);
    carry_slots(l, h, way, bytes);
    rg_counter_raise(&l->segment->carried);
}

/* Hosts in the order of their first ranks, and ranks of a host side by side. */
static void find_hosts(rg_host_link *l, hosts *h, int host_ranks)
{
    int world, at, host = 0, first = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &l->base.n);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    if (host_ranks)
        MPI_Comm_split(MPI_COMM_WORLD, world / host_ranks, world, &h->here);
    else
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world, MPI_INFO_NULL, &h->here);
    MPI_Comm_rank(h->here, &at);
    MPI_Comm_size(h->here, &h->n_here);
    MPI_Comm_split(MPI_COMM_WORLD, at ? MPI_UNDEFINED : 0, world, &h->leaders);
    if (!at) {
        MPI_Comm_size(h->leaders, &h->n_hosts);
        MPI_Comm_rank(h->leaders, &host);
        MPI_Allgather(&h->n_here, 1, MPI_INT, h->count, 1, MPI_INT, h->leaders);
        for (int i = 0; i < h->n_hosts; i++, first += h->count[i - 1])
            h->first[i] = first;
        first = h->first[host];
    }
    MPI_Bcast(&h->n_hosts, 1, MPI_INT, 0, h->here);
    MPI_Bcast(&first, 1, MPI_INT, 0, h->here);
    l->base.rank = first + at;
    l->base.n_here = h->n_here;
    for (int i = 0; i < h->n_here; i++)
        l->is_here[first + i] = true;
    rg_cores_share(at, h->n_here);
}

/* The segment of this host, made by its first rank under a name that goes at once. */
static bool map_segment(rg_host_link *l, const hosts *h, rg_error *err)
{
    const size_t bytes = sizeof(rg_link_segment) + 2 * (size_t)l->base.n * RG_LINK_SLOT;
    char name[64];
    int at, fd = -1, ok = 1;

    MPI_Comm_rank(h->here, &at);
    snprintf(name, sizeof name, "/ridge-ranks-%d", (int)getpid());
    if (!at)
        ok = (fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0 && !ftruncate(fd, (off_t)bytes);
    MPI_Bcast(name, sizeof name, MPI_BYTE, 0, h->here);
    if (at)
        ok = (fd = shm_open(name, O_RDWR, 0)) >= 0;
    void *p = ok ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0) : MAP_FAILED;
    ok = p != MAP_FAILED;
    MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!at)
        shm_unlink(name);
    if (fd >= 0)
        close(fd);
    if (!ok)
        return rg_fail(err, RG_E_IO, "the memory that ranks of a host share, %zu bytes, cannot be made", bytes);
    l->segment = p;
    l->slots = (uint8_t *)p + sizeof(rg_link_segment);
    return true;
}

rg_link *rg_link_mpi(int host_ranks, rg_error *err)
{
    int level = MPI_THREAD_SINGLE;
    rg_host_link *l = rg_zalloc(sizeof *l);
    hosts *h = rg_zalloc(sizeof *h);

    if (!l || !h || MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) || level < MPI_THREAD_SERIALIZED) {
        rg_free(l);
        rg_free(h);
        return rg_fail(err, RG_E_IO, "MPI cannot be started so that any one thread may talk"), NULL;
    }
    MPI_Comm_size(MPI_COMM_WORLD, &l->base.n);
    if (l->base.n > RG_MAX_RANKS) {
        rg_fail(err, RG_E_USAGE, "%d ranks: want at most %d", l->base.n, RG_MAX_RANKS);
        rg_free(l);
        rg_free(h);
        return NULL;
    }
    find_hosts(l, h, host_ranks);
    if (!map_segment(l, h, err)) {
        rg_free(l);
        rg_free(h);
        return NULL;
    }
    l->remote = h;
    l->carry = h->n_hosts > 1 ? carry : NULL;
    return &l->base;
}

void rg_link_mpi_close(rg_link *link)
{
    rg_host_link *l = (rg_host_link *)link;

    MPI_Finalize();
    munmap(l->segment, sizeof(rg_link_segment) + 2 * (size_t)link->n * RG_LINK_SLOT);
    rg_free(l->remote);
    rg_free(l);
}

#else

rg_link *rg_link_mpi(int host_ranks, rg_error *err)
{
    (void)host_ranks;
    return rg_fail(err, RG_E_UNSUPPORTED,
                   "this ridge was built without MPI: build it with -DRIDGE_MPI=ON where Open MPI "
                   "is installed, or use --ranks for ranks of one host"),
           NULL;
}

void rg_link_mpi_close(rg_link *link)
{
    (void)link;
}

#endif
