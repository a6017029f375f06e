/* SPDX-License-Identifier: MIT */
/* bench_checkpoint: what does saving a run's state cost, and can it be trusted?
 *
 * Weights, AdamW's moments and what a policy keeps of fp32 weights go to safetensors files that all ranks write at once, at
 * places that only the model fixes (docs/runs.md). One row is one model, strategy, number of ranks and way of saving. Before
 * anything is timed, a save is loaded back, bit for bit, and the steps after it are those that followed the save.
 *
 * Expect: stall_ms near law_ms, which follows from the ceilings of the same run. Limits: one host; lazy waits for the
 * whole copy before the first update. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/checkpoint/checkpoint.h"
#include "bench/model/context.h"
#include "bench/model/mesh.h"
#include "common/core/error.h"
#include "common/core/text.h"

/* clang-format off */
static option_spec option_table[] = {
    LAUNCH_RANKS("1,2", "2"),
    {"strategy", OPTION_CHOICE, OPTION_LIST, "ddp,fsdp", .help = "who holds and updates what (docs/fsdp.md)", .def_cpu = "ddp,zero1,fsdp",
     .choices = "ddp|zero1|zero1-broadcast|fused|zero2|fsdp|fsdp-keep|hsdp"},
    MODEL_OPTIONS("xl", "tiny", "512", "32", "bf16", "train-step"),
    {"folder", OPTION_TEXT, 0, "/dev/shm", .help = "where checkpoints are written; they are removed at the end"},
    {"io", OPTION_CHOICE, OPTION_LIST, "buffered", .help = "write through the page cache, or past it where the file system allows that",
     .choices = "buffered|direct"},
    {"writers", OPTION_INT, OPTION_LIST, "8", .help = "threads of a rank that write plain files; a save has up to twice as many, a load always twice as "
"many", .def_cpu = "2", .min = 1, .max = 64,
     .unit = "threads"},
    {"saves", OPTION_INT, 0, "4", .help = "measured saves, after one that is not measured", .def_cpu = "3", .min = 1, .max = 1000, .unit = "saves"},
    {"loads", OPTION_INT, 0, "5", .help = "measured loads of the last save", .def_cpu = "3", .min = 1, .max = 1000, .unit = "loads"},
    {"load-into", OPTION_CHOICE, OPTION_LIST, "none", .help = "load the last save into this strategy, too",
     .choices = "none|ddp|zero1|zero2|fsdp|fsdp-keep|hsdp"},
    {"load-ranks", OPTION_INT, OPTION_LIST, "0", .help = "with --load-into: on this many of the job's ranks", .max = 65536, .unit = "ranks", .unset = "0: on as many as saved"},
    {"mtbf", OPTION_REAL, OPTION_SETTING, "3.1", .help = "mean time between failures, for best_interval_s", .min = 1e-3, .max = 1e6, .unit = "h"},
    {"small", OPTION_CHOICE, OPTION_LIST, "sharded", .help = "gains of norms: in slices with their units, or whole on every rank",
     .choices = "sharded|replicated"},
    {"replicas", OPTION_INT, OPTION_LIST, "2", .help = "hsdp: groups of ranks, each of which holds the whole model in slices", .min = 2,
     .max = 65536, .unit = "replicas"},
    {"bucket-mb", OPTION_REAL, OPTION_LIST, "25", .help = "size of a bucket, for strategies that have buckets", .def_cpu = "0.1", .min = 1e-4,
     .max = 1e6, .unit = "MB of 2^20 bytes"},
    {"update", OPTION_CHOICE, OPTION_LIST, "buckets", .help = "when AdamW runs", .choices = UPDATE_CHOICES},
    {"update-blocks", OPTION_INT, OPTION_LIST, "0",
     .help = "limit on the thread blocks of AdamW with --update backward", .max = 4096, .unit = "thread blocks",
     .unset = "0: no limit (fused: 128)"},
    {"max-ctas", OPTION_INT, OPTION_LIST, "0", .help = "limit on the thread blocks of an NCCL collective", .max = 64, .unit = "thread blocks",
     .unset = "0: NCCL decides"},
    {"fusion", OPTION_CHOICE, OPTION_LIST, "kernels", .help = "fused kernels launched by the host, or the whole step as one CUDA graph, where lazy is async",
     .choices = "kernels|graph"},
    MODEL_UPDATE_OPTIONS(", with --update after"),
    {"warmup", OPTION_INT, 0, "3", .help = "warm-up steps", .min = 1, .max = 1000000, .unit = "steps"},
    {"iters", OPTION_INT, 0, "10", .help = "measured steps without a save; 0: only the check", .max = 1000000, .unit = "steps"},
    {"plant-error", OPTION_CHOICE, OPTION_SETTING, "none",
     .help = "test the check: flip a bit after its hash; leave out a block; swap two halves of one; do not let updates wait for "
      "the copy; leave out low halves of weights; slow (CPU): start copies late, which must harm nothing; forget the optimizer's step",
     .choices = "none|" CHECKPOINT_PLANTS "|step"},
    {0}};

static const variant_spec variant_table[] = {
    {"sync", "the step waits until the checkpoint is durable"},
    {"async", "the step waits for the copy to pinned memory; threads write it during the next steps"},
    {"lazy", "only the next update waits for that copy, which runs during the forward and backward before it"},
    {"device", "a copy within the device, which goes to the host during the next steps"},
    {0}};

static const column_spec column_table[] = {
    {"way", COLUMN_TEXT, false, "as it was saved: lazy is async where updates can't be told to wait"},
    {"step_ms", COLUMN_REAL, true, "a step that the host waits for, without a save, of the slowest rank; median"},
    {"fwd_bwd_ms", COLUMN_REAL, false, "its forward and backward, of the slowest rank; median"},
    {"state_bytes", COLUMN_INT, true, "bytes of all files of a checkpoint except the manifest and index"},
    {"rank_bytes", COLUMN_INT, false, "bytes of the state that a rank writes; largest of all ranks"},
    {"stall_ms", COLUMN_REAL, true, "what a save adds to the step after it, of the slowest rank; median of n_saves"},
    {"stall_min_ms", COLUMN_REAL, false, "the least of all measured saves"},
    {"stall_max_ms", COLUMN_REAL, false, "the same, largest"},
    {"stall_first_ms", COLUMN_REAL, false, "the same for the first save, which is not in the median"},
    {"stall_steps", COLUMN_REAL, true, "stall_ms / step_ms"},
    {"call_ms", COLUMN_REAL, false, "the part of it until the call that begins a save returns; slowest rank, median"},
    {"law_ms", COLUMN_REAL, true, "the stall by this run's ceilings: sync the larger of rank_bytes / down_gb_s and state_bytes / "
     "write_gb_s; async rank_bytes / down_gb_s; lazy the part of that above fwd_bwd_ms; device rank_bytes / within_gb_s"},
    {"excess_ms", COLUMN_REAL, false, "stall_ms - law_ms"},
    {"beside_ms", COLUMN_REAL, false, "a step while writers are at work, median"},
    {"beside_pct", COLUMN_REAL, true, "how much longer than step_ms"},
    {"n_beside", COLUMN_INT, false, "such steps"},
    {"n_saves", COLUMN_INT, false, "measured saves"},
    {"best_interval_s", COLUMN_REAL, false, "between saves, for --mtbf: sqrt(2 stall_ms mtbf) (Young, Daly)"},
    {"best_cost_pct", COLUMN_REAL, false, "what saves cost then; as much again is lost by repeated work"},
    {"copied_ms", COLUMN_REAL, false, "from the start of a save until the state may change; median"},
    {"written_ms", COLUMN_REAL, false, "until all bytes are written, not yet durable; median"},
    {"synced_ms", COLUMN_REAL, false, "until a rank's files are synced; median"},
    {"durable_ms", COLUMN_REAL, true, "until the checkpoint is complete and would survive a power cut, where fs does; median"},
    {"durable_first_ms", COLUMN_REAL, false, "the same for the first save"},
    {"copied_gb_s", COLUMN_REAL, false, "rank_bytes / copied_ms"},
    {"durable_gb_s", COLUMN_REAL, true, "state_bytes / durable_ms"},
    {"durable_pct", COLUMN_REAL, true, "durable_gb_s as a share of write_gb_s"},
    {"down_gb_s", COLUMN_REAL, false, "ceiling: a copy of the state to pinned memory, all ranks at once, the slowest"},
    {"up_gb_s", COLUMN_REAL, false, "ceiling: and back"},
    {"within_gb_s", COLUMN_REAL, false, "ceiling: bytes copied within the device (read and written once)"},
    {"write_gb_s", COLUMN_REAL, false, "ceiling: plain files from pinned memory with fsync, all ranks together, best of 3"},
    {"read_gb_s", COLUMN_REAL, false, "ceiling: plain files into a cache, by as many threads as load; of a rank, all at once, best of 3"},
    {"hash_gb_s", COLUMN_REAL, false, "ceiling: XXH64 by one thread"},
    {"load_ms", COLUMN_REAL, false, "all ranks load the last save; slowest rank, median"},
    {"n_loads", COLUMN_INT, false, "number of measured loads"},
    {"cache", COLUMN_TEXT, false, "page cache of the files that are loaded: cold where the file system drops them, else warm"},
    {"load_gb_s", COLUMN_REAL, true, "bytes that rank 0 reads for it / load_ms"},
    {"verify_gb_s", COLUMN_REAL, false, "reading and hashing all blocks as a load does, without a device; of a rank, all at once"},
    {"into_ms", COLUMN_REAL, false, "all ranks load the last save into --load-into; slowest rank, median"},
    {"into_gb_s", COLUMN_REAL, false, "bytes that rank 0 reads for it / into_ms"},
    {"into_ratio", COLUMN_REAL, false, "load_gb_s / into_gb_s: how much longer a byte takes than into the ranks that saved it"},
    {"load_pct", COLUMN_REAL, true, "load_gb_s as a share of the lower of read_gb_s and up_gb_s"},
    {"pin_s", COLUMN_REAL, false, "taking and touching what the way needs, most of all ranks"},
    {"pin_gb_s", COLUMN_REAL, true, "host_bytes / pin_s"},
    {"host_bytes", COLUMN_INT, false, "pinned, most of all ranks"},
    {"device_bytes", COLUMN_INT, false, "bytes on the device, largest of all ranks"},
    {"fs", COLUMN_TEXT, false, "file system of --folder; tmpfs and overlay survive no reboot"},
    {"io_used", COLUMN_TEXT, false, "how it was written: --io direct falls back where the file system refuses it"},
    {"resume", COLUMN_TEXT, false, "check: two steps after a load against the two that followed the save"},
    {0}};

static const bench_run run_table[] = {
    /* torch.distributed.checkpoint saves small and xl, too (tests/peers/checkpoint.py). */
    {RUN_QUICK | RUN_DEFAULT, 1, 12, "--ranks 1 --size small --strategy ddp --variant async,lazy,device"},
    {RUN_FULL, 1, 38, "--ranks 1 --size medium --strategy ddp"},
    {RUN_FULL, 1, 70, "--ranks 1 --size xl --strategy ddp --saves 3"},
    {RUN_FULL, 1, 50, "--ranks 1 --size small,xl --strategy ddp --variant async,device --fusion graph --saves 3"},
    {RUN_FULL, 1, 45, "--ranks 1 --size small --strategy ddp --variant sync --io buffered,direct --folder results"},
    {RUN_DEFAULT, 2, 17, "--ranks {gpus} --size small --batch 2 --strategy fsdp --variant async,lazy,device"},
    {RUN_FULL, 2, 18, "--ranks {gpus} --size small --batch 2 --strategy ddp,zero1 --variant lazy --saves 3 --iters 5"},
    /* Files of other ranks and strategies. */
    {RUN_FULL, 2, 30, "--ranks {gpus} --size small --batch 2 --strategy ddp,fsdp --variant async --saves 1 --iters 3 --load-into ddp,zero1,fsdp"},
    {RUN_FULL, 2, 20, "--ranks {gpus} --size small --batch 2 --strategy fsdp --variant async --saves 1 --iters 3 --load-into ddp --load-ranks 1"},
    {RUN_FULL, 2, 60, "--ranks {gpus} --size xl --batch 2 --strategy fsdp --variant device --saves 1 --iters 3 --load-into ddp,fsdp"},
    {RUN_FULL, 2, 95, "--ranks {gpus} --size xl --batch 2 --strategy fsdp --saves 3"},
    {RUN_FULL, 2, 50, "--ranks {gpus} --size small,xl --batch 2 --strategy fsdp --variant async,device --fusion graph --saves 3"},
    /* Its forward and backward are longer than the copy. */
    {RUN_FULL, 2, 40, "--ranks {gpus} --size xl --seq 4096 --batch 4 --recompute block --strategy fsdp --variant lazy --saves 2 --iters 5"},
    /* A step of seconds hides its copy. 98 GB are pinned and two checkpoints lie in memory: 293 GB, skipped where /dev/shm has less. */
    {RUN_FULL, 2, 180, "--ranks 2 --size 8b --seq 32768 --batch 1 --recompute block --loss-chunk 4096 --strategy fsdp --variant lazy --saves 2 --iters 3 --warmup 1"},
    {RUN_CPU, 0, 20, ""},
    {0}};
/* clang-format on */

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    const char *wrong = NULL;
    if (option_given(o, "timer"))
        wrong = "--timer has no effect here: a save is timed by the host's clock";
    else if (text_is(option_text(o, "l2"), "cold"))
        wrong = "--l2 cold says nothing about a whole step; only warm is allowed";
    else if (!option_flag(o, "check") && !text_is(option_text(o, "plant-error"), "none"))
        wrong = "--plant-error is for the check, which --check 0 leaves out";
    else if (option_int_most(o, "load-ranks") && !option_given(o, "load-into"))
        wrong = "--load-ranks is for --load-into, which is not given";
    else if (option_int_most(o, "load-ranks") > option_int_most(o, "ranks"))
        wrong = "--load-ranks asks for more ranks than --ranks has";
    else if (!*option_text(o, "folder"))
        wrong = "--folder needs a name";
    else
        wrong = checkpoint_folder_problem(option_text(o, "folder"));
    if (wrong)
        snprintf(msg, msg_bytes, "%s", wrong);
    return !wrong && model_options_validate(o, msg, msg_bytes) && model_mesh_validate(o, msg, msg_bytes);
}

static void measure_case(ddp_case *k, replica *r)
{
    saving s;
    saving_ceilings top;
    if (r->member)
        replica_set_tokens(r->t, k->o.seed, launch_rank(k->l));
    bool ok = saving_create(&s, k, r);
    if (ok && option_flag(k->s->opt, "check")) {
        phase_set("check of %s", case_name(k->c));
        ok = saving_check(&s);
    }
    if (ok && k->s->timing.iters > 0) {
        phase_set("ceilings of %s", case_name(k->c));
        if (saving_measure_ceilings(&s, &top))
            saving_measure(&s, &top);
    }
    saving_free(&s);
}

static void run(session *s, const bench_case *c, row *w)
{
    ddp_case k;
    if (!ddp_case_of(s, c, w, &k))
        return;
    phase_set("setup of %s", case_name(c));
    replica *r = ddp_replica(&k, &k.o, &k.p);
    if (!r)
        return;
    measure_case(&k, r);
    replica_free(r);
}

static const bench_info info = {
    .name = "bench_checkpoint",
    .summary = "What does saving a run's state cost, and can it be trusted?",
    .notes = "One row is one model, strategy and way of saving. ./stepckpt lists, verifies and exports such saves.\n"
             "The check comes first: a save is loaded over memory that was overwritten, every byte is compared, and "
             "two steps\n"
             "after it must have the losses and parameters of those that followed the save. A wrong byte makes the row "
             "fail.\n"
             "The last timed save is read back and verified, too.",
    .examples =
        "./bench_checkpoint --ranks 1 --size xl --strategy ddp\n"
        "./bench_checkpoint --ranks 2 --size xl --batch 2 --strategy fsdp --variant lazy,device --folder /mnt/disk\n"
        "./bench_checkpoint --device cpu --ranks 1,2",
    BENCH_TABLES,
    .validate = validate,
    .order = 140,
    .small = "--ranks 2 --seq 16 --iters 3 --warmup 1 --saves 2 --strategy fsdp",
    .section = "checkpoint",
    .figures = (const char *const[]){"checkpoint_stall", "checkpoint_timeline", NULL},
};

int main(int argc, char **argv)
{
    const session_hooks hooks = {model_start_gated, run, model_finish, ddp_case_estimate};
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* two communicators of a rank at once, as in bench_zero1 */
    model_options_of_ranks(option_table);
    model_option(option_table, "deterministic")->def = "1";
    launch_default_ranks(option_table, "1,2");
    return launch_main(&info, &hooks, argc, argv);
}
