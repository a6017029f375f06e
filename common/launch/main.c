/* SPDX-License-Identifier: MIT */
/* main of a bench of several ranks: starts them, or is one of them; see launch.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/launch/internal.h"

static bool on_cpu(const options *o)
{
    return strcmp(option_text(o, "device"), "cpu") == 0;
}

/* The numbers of `wanted` ("2,4,8") that are at most `most`; the first one when none is. Caller frees. */
static char *that_fit(const char *wanted, int most)
{
    char *fits = xstrdup(""), *copy = xstrdup(wanted), *rest = copy;
    for (char *word; (word = strsep(&rest, ","));)
        if (atoi(word) <= most) {
            char *longer = xasprintf("%s%s%s", fits, *fits ? "," : "", word);
            free(fits);
            fits = longer;
        }
    free(copy);
    if (*fits)
        return fits;
    free(fits);
    return xasprintf("%.*s", (int)strcspn(wanted, ","), wanted);
}

void launch_default_ranks(option_spec *table, const char *wanted)
{
    static char def[256]; /* the table keeps it */
    launch_place place;
    char ignored[512];
    const bool theirs = launch_place_find(&place, ignored, sizeof ignored) && place.by && place.control_fd < 0;
    OWNED char *text = theirs ? xasprintf("%d", place.size) : that_fit(wanted, device_visible_gpus());
    snprintf(def, sizeof def, "%s", text);
    for (option_spec *s = table; s->name; s++)
        if (strcmp(s->name, "ranks") == 0) {
            s->def = def;
            s->def_cpu = theirs ? def : s->def_cpu;
        }
}

static void check_options(const options *o, const launch_place *place)
{
    const int ranks = (int)option_int_most(o, "ranks");
    session_check(o);
    if (option_given(o, "gpu"))
        die(EXIT_CODE_USAGE, "--gpu is for one process; ranks take the visible GPUs in order, and CUDA_VISIBLE_DEVICES "
                             "says which are visible");
    if (place->by && ranks > place->size)
        die(EXIT_CODE_USAGE, "--ranks %d needs more ranks than the %d that %s started", ranks, place->size, place->by);
    const int gpus = on_cpu(o) || place->by ? 0 : device_visible_gpus();
    if (gpus > 0 && ranks > gpus)
        die(EXIT_CODE_USAGE, "--ranks %d needs as many GPUs; %d %s visible here", ranks, gpus,
            gpus == 1 ? "is" : "are");
}

/* The GPU of this rank: the only visible one where the launcher of the job gave each rank its own, else by its number on
 * this host. */
static int choose_gpu(launch *l, const options *o)
{
    const int gpus = on_cpu(o) ? 1 : device_visible_gpus();
    if (gpus <= 1)
        return 0;
    if (l->local_rank >= gpus)
        launch_fail(l, EXIT_CODE_USAGE, "it is number %d on its host, from 0, which has only %d visible GPUs",
                    l->local_rank, gpus);
    return l->local_rank;
}

/* Two ranks on one GPU would wait for each other forever. */
static void check_gpus(void *user, device *d)
{
    launch *l = user;
    const device_info *info = device_get_info(d);
    const size_t bytes = sizeof info->uuid;
    OWNED char *all = launch_gathered(l, "GPUs", info->uuid, bytes);
    for (int r = 0; r < l->size; r++)
        for (int k = 0; k < r; k++)
            if (device_kind_of(d) == DEVICE_CUDA && all[(size_t)r * bytes] &&
                strncmp(all + (size_t)r * bytes, all + (size_t)k * bytes, bytes) == 0) {
                if (l->rank == k)
                    launch_fail(
                        l, EXIT_CODE_USAGE,
                        "it shares a GPU (%s) with rank %d; each rank needs its own: start as many as there are "
                        "GPUs, and let each see all of them or its own",
                        info->uuid, r);
                launch_barrier(l, "shared GPU"); /* until rank k has ended the job */
            }
}

static void share(void *user, void *data, size_t bytes)
{
    launch_share(user, "rank 0's word", data, bytes, 0);
}

static void gather(void *user, const void *mine, size_t bytes, void *all)
{
    launch_gather(user, "what every rank has", mine, bytes, all);
}

static clock_reading read_clock(void *user)
{
    return launch_clock(user);
}

/* What CUDA and NCCL read when they start; the user's own settings stay. */
static void set_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* fewer hardware queues make streams wait for one another */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);      /* loading a kernel late can wait for a collective in flight */
}

static int run_rank(const launch_place *place, const options *o, const bench_info *info, const session_hooks *hooks,
                    int argc, char **argv)
{
    OWNED char *name = xasprintf("%s[rank %d]", info->name, place->rank);
    argv[0] = place->rank > 0 ? name : argv[0]; /* in front of its messages */
    program_name_set(argv[0]);
    set_environment();
    launch *l = launch_join(place, o);
    const session_peers peers = {.rank = l->rank,
                                 .size = l->size,
                                 .gpu = choose_gpu(l, o),
                                 .user = l,
                                 .opened = check_gpus,
                                 .share = share,
                                 .gather = gather,
                                 .clock = read_clock};
    int code = session_main_as(&peers, info, hooks, argc, argv);
    launch_leave(l);
    return code;
}

int launch_main(const bench_info *info, const session_hooks *hooks, int argc, char **argv)
{
    launch_place place;
    char why[1024];
    options *o = session_options(info, argc, argv);
    if (!launch_place_find(&place, why, sizeof why))
        die(EXIT_CODE_USAGE, "%s", why);
    check_options(o, &place);
    const bool asks = option_flag(o, "dry-run") || option_flag(o, "where");
    const bool asked_alone = asks && place.rank <= 0;
    int code = asked_alone ? session_main(info, hooks, argc, argv)
               : asks      ? EXIT_CODE_OK
               : place.by  ? run_rank(&place, o, info, hooks, argc, argv)
                           : launch_spawn(o, (int)option_int_most(o, "ranks"), argv);
    options_free(o);
    return code;
}

launch *launch_of(const session *s)
{
    return s->peers->user;
}
