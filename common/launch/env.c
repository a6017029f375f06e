/* SPDX-License-Identifier: MIT */
/* Rank discovery; see env.h. */
#include "common/launch/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/rng.h"
#include "common/launch/secret.h"

typedef struct source {
    const char *by, *rank, *size, *local_rank, *local_size;
    const char *needs;  /* must be set, too: an salloc shell has SLURM_PROCID without being a rank */
    const char *ids[2]; /* what names the job, for its run id */
} source;

static const source sources[] = {
    {"stepbench", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "STEPBENCH_CONTROL_FD", {NULL, NULL}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     "RANK",
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_RANK", {"PMI_JOBID", "PMI_ID"}},
    {"mpirun_rsh",
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE",
     "MV2_COMM_WORLD_RANK",
     {NULL, NULL}},
    {"srun",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     NULL, /* it says "4(x2)"; the coordinator counts */
     "SLURM_STEP_ID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

static const char *text_of(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value ? value : "";
}

/* False when the variable is set to something else than a whole number in [0, max]. */
static bool number_of(const char *name, int max, int *out, char *msg, size_t msg_bytes)
{
    const char *text = text_of(name);
    char *end;
    *out = -1;
    if (!*text)
        return true;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (*end || errno || value < 0 || value > max) {
        snprintf(msg, msg_bytes, "the environment has %s=%s; it must be a whole number from 0 to %d", name, text, max);
        return false;
    }
    *out = (int)value;
    return true;
}

bool launch_first_host(const char *list, char *out, size_t out_bytes)
{
    static const char number[] = "0123456789", stop[] = "[],";
    size_t used = 0;
    while (*list && *list != ',') {
        const bool range = *list == '[';
        list += range;
        const size_t n = range ? strspn(list, number) : strcspn(list, stop);
        if (n == 0 || used + n >= out_bytes || (range && !strchr("-,]", list[n])))
            return false;
        memcpy(out + used, list, n);
        used += n;
        list += n;
        if (range) {
            list += strspn(list, "0123456789-,");
            if (*list++ != ']')
                return false;
        }
    }
    out[used] = 0;
    return used > 0;
}

static uint64_t run_id(const source *s)
{
    uint64_t id = rng_hash(1, s->by);
    if (getenv("STEPBENCH_RUN_ID"))
        return rng_hash(2, getenv("STEPBENCH_RUN_ID"));
    for (int i = 0; i < 2; i++)
        id = rng_hash(id, text_of(s->ids[i]));
    return id;
}

static bool find_port(launch_place *p, char *msg, size_t msg_bytes)
{
    enum { FIRST = 20000, COUNT = 10000, MAX = 65535 }; /* below the ports that systems give to connections */
    int ours, master;
    if (!number_of("STEPBENCH_PORT", MAX, &ours, msg, msg_bytes) ||
        !number_of("MASTER_PORT", MAX, &master, msg, msg_bytes))
        return false;
    p->port = ours > 0     ? ours
              : master > 0 ? (master < MAX ? master + 1 : master - 1) /* torchrun's own store has MASTER_PORT */
                           : FIRST + (int)(p->run_id % COUNT);
    return true;
}

/* "[::1]", as in a URL, is ::1. */
static void copy_address(const char *text, char *out, size_t out_bytes)
{
    const size_t length = strlen(text);
    const bool brackets = length > 2 && text[0] == '[' && text[length - 1] == ']';
    snprintf(out, out_bytes, "%.*s", (int)(brackets ? length - 2 : length), brackets ? text + 1 : text);
}

static bool is_loopback(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_aton(host, &four))
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
    return strcmp(host, "localhost") == 0;
}

static bool find_master(launch_place *p, const source *s, char *msg, size_t msg_bytes)
{
    const bool slurm = strcmp(s->by, "srun") == 0;
    const char *nodes = text_of("SLURM_STEP_NODELIST");
    const bool one_host = p->local_size == p->size || (slurm && strcmp(text_of("SLURM_STEP_NUM_NODES"), "1") == 0);
    if (one_host)
        snprintf(p->master, sizeof p->master, "127.0.0.1");
    else if (*text_of("MASTER_ADDR"))
        copy_address(text_of("MASTER_ADDR"), p->master, sizeof p->master);
    else if (slurm && *nodes && !launch_first_host(nodes, p->master, sizeof p->master)) {
        snprintf(
            msg, msg_bytes,
            "the environment has SLURM_STEP_NODELIST=%s, which is no list of hosts; set MASTER_ADDR to the host of "
            "rank 0",
            nodes);
        return false;
    }
    if (*p->master)
        return true;
    snprintf(
        msg, msg_bytes,
        "%s started rank %d of %d, maybe on several hosts, but MASTER_ADDR, the address of the host of rank 0, is not "
        "set%s",
        s->by, p->rank, p->size, strcmp(s->by, "mpirun") == 0 ? "; mpirun -x MASTER_ADDR=<host> does it" : "");
    return false;
}

/* Beyond one host anybody who reaches the port could end the job or take a rank's place. */
static bool find_secret(launch_place *p, char *msg, size_t msg_bytes)
{
    p->local = is_loopback(p->master);
    if (!secret_find(&p->secret, msg, msg_bytes))
        return false;
    if (p->local || *p->secret)
        return true;
    snprintf(
        msg, msg_bytes,
        "rank %d of %d is to meet the others at %s, which takes a secret: set STEPBENCH_SECRET to the same %d or more "
        "random characters for all ranks, such as the output of 'openssl rand -hex 16'%s",
        p->rank, p->size, p->master, SECRET_BYTES_MIN,
        strcmp(p->by, "mpirun") == 0 ? " (mpirun -x STEPBENCH_SECRET)" : "");
    return false;
}

bool launch_place_find(launch_place *p, char *msg, size_t msg_bytes)
{
    enum { RANKS_MAX = 1 << 16 };
    const launch_place nobody = {
        .rank = 0, .size = 1, .local_rank = -1, .local_size = -1, .control_fd = -1, .board_fd = -1, .secret = ""};
    const source *s = NULL;
    *p = nobody;
    for (size_t i = 0; i < sizeof sources / sizeof *sources && !s; i++)
        if (*text_of(sources[i].needs) && *text_of(sources[i].rank) && *text_of(sources[i].size))
            s = &sources[i];
    if (!s)
        return true;
    p->by = s->by;
    if (!number_of(s->rank, RANKS_MAX, &p->rank, msg, msg_bytes) ||
        !number_of(s->size, RANKS_MAX, &p->size, msg, msg_bytes) ||
        !number_of(s->local_rank, RANKS_MAX, &p->local_rank, msg, msg_bytes) ||
        !number_of(s->local_size, RANKS_MAX, &p->local_size, msg, msg_bytes) ||
        !number_of("STEPBENCH_CONTROL_FD", RANKS_MAX, &p->control_fd, msg, msg_bytes) ||
        !number_of("STEPBENCH_BOARD_FD", RANKS_MAX, &p->board_fd, msg, msg_bytes))
        return false;
    if (p->size < 1 || p->rank >= p->size) {
        snprintf(msg, msg_bytes, "the environment says rank %d of %d (%s and %s, by %s)", p->rank, p->size, s->rank,
                 s->size, s->by);
        return false;
    }
    if (p->control_fd >= 0)
        return true;
    if (p->size == 1) { /* a launcher as the way to a node, a container's settings: ranks are started there */
        *p = nobody;
        return true;
    }
    p->run_id = run_id(s);
    return find_port(p, msg, msg_bytes) && find_master(p, s, msg, msg_bytes) && find_secret(p, msg, msg_bytes);
}
