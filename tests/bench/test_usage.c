/* SPDX-License-Identifier: MIT */
/* Bad options of real benches: exit code 2 and one sentence that names what is wrong. */
#include "tests/support/test.h"

#include <sys/wait.h>

/* What `<bench> --device cpu <arguments>` prints on stderr; its exit code in *code. Caller frees. */
static char *complaint_of(const char *folder, const char *bench, const char *arguments, int *code)
{
    const char *programs = getenv("STEPBENCH_BIN") ? getenv("STEPBENCH_BIN") : ".";
    OWNED char *err = folder_path(folder, "err");
    OWNED char *command =
        xasprintf("'%s/%s' --device cpu --csv none %s >'%s/out' 2>'%s'", programs, bench, arguments, folder, err);
    const int status = system(command);
    char *text = file_text(err);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return text;
}

typedef struct refusal {
    const char *bench, *arguments, *words;
} refusal;

static void expect_refusals(const char *folder, const refusal *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int code;
        OWNED char *said = complaint_of(folder, table[i].bench, table[i].arguments, &code);
        const char *end = strchr(said, '\n');
        if (code != EXIT_CODE_USAGE || !strstr(said, table[i].words) || !end || end[1])
            fail_msg("%s %s: exit code %d, said: %s", table[i].bench, table[i].arguments, code, said);
    }
}

TEST(refused_with_its_reason)
{
    static const refusal table[] = {
        {"bench_transformer", "--size tiny --vocab 1", "--vocab 1 leaves nothing to predict; it must be at least 2"},
        {"bench_memory", "--size tiny --vocab 0,1", "it must be at least 2"},
        {"bench_transformer", "--size tiny --d-model 96 --heads 24",
         "head_dim 4 (d_model 96 / heads 24) is not a multiple of 8 from 16 to 256"},
        {"bench_transformer", "--size tiny --d-model 1024 --heads 2", "head_dim 512"},
        {"bench_flash", "--window-right 0,7", "--window-right 7 needs --causal 0"},
        {"bench_flash", "--window -2", "--window"},
        {"bench_flash", "--head-dim-v 128,-8", "--head-dim-v"},
        {"bench_flash", "--head-dim-v 2048", "--head-dim-v"},
        {"bench_flash", "--lengths equal,random", "--lengths random needs --documents"},
        {"bench_flash", "--documents 2 --batch 2048 --seq 1048576", "at most 2^30 tokens, --batch times --seq"},
        {"bench_ddp_flat", "--size tiny --d-model 40 --heads 2", "head_dim 20"},
        {"bench_memory", "--size tiny --batch 1,65536 --seq 8,8192", "--batch 65536 x --seq 8192: the batch of a rank"},
        {"bench_pp", "--size tiny --batch 65536 --seq 8192", "fewer than 2^29 tokens"},
        {"bench_fsdp", "--dry-run --cp 1,2 --batch 65536 --seq 16384", "--batch 65536 x --seq 16384"},
        {"bench_fsdp", "--ranks 3 --replicas 2 --variant hsdp", "--replicas 2 does not divide --ranks 3"},
        {"bench_fsdp", "--ranks 2,4 --replicas 4 --variant hsdp", "--replicas 4 does not divide --ranks 2"},
        {"bench_checkpoint", "--ranks 2 --strategy hsdp", "--ranks 2 is --replicas: nothing is sharded"},
        {"bench_run", "--ranks 3 --strategy hsdp", "--replicas 2 does not divide --ranks 3"},
        {"bench_run", "--size tiny --dump d", "--dump writes one run"},
        {"bench_run", "--size tiny --variant log --draw 0,1 --dump d", "--dump writes one run"},
    };
    expect_refusals(*state, table, sizeof table / sizeof *table);
}

/* Found out when a rank runs, but before anything is measured. */
TEST(folders_that_cannot_be_made_are_refused)
{
    static const refusal table[] = {
        {"bench_checkpoint", "--ranks 1 --size tiny --strategy ddp --iters 0 --variant sync --folder /proc/none",
         "--folder: can't make the folder of checkpoints /proc/none"},
        {"bench_run", "--ranks 1 --size tiny --seq 32 --steps 12 --warmup 2 --variant log --dump /proc/none",
         "--dump: /proc/none/start.safetensors can't be written"},
        {"bench_run", "--ranks 1 --size tiny --seq 32 --steps 12 --warmup 2 --variant save --resume-run no/run",
         "--resume-run: no/run: No such file or directory"},
    };
    expect_refusals(*state, table, sizeof table / sizeof *table);
}

/* A name that is cut is another folder's, whose checkpoints would be removed at the end. */
TEST(folders_whose_names_would_be_cut_are_refused)
{
    static const char *const calls[][2] = {{"bench_checkpoint", "--dry-run --folder"},
                                           {"bench_run", "--dry-run --variant save --folder"},
                                           {"bench_run", "--dry-run --variant save --resume-run"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int length = 480; length <= 481; length++) {
            int code;
            OWNED char *arguments = xasprintf("%s %0*d", calls[i][1], length, 0),
                       *said = complaint_of(*state, calls[i][0], arguments, &code);
            if (length == 480 ? code != 0 : code != EXIT_CODE_USAGE || !strstr(said, "at most 480 characters"))
                fail_msg("%s %s of %d characters: exit code %d: %s", calls[i][0], calls[i][1], length, code, said);
        }
}

/* Ranks that share a sequence have its parts: with the same --batch and --seq, one of them has fewer tokens. */
TEST(shared_sequences_are_not_refused)
{
    int code;
    OWNED char *said = complaint_of(*state, "bench_fsdp", "--dry-run --cp 2 --batch 65536 --seq 8192", &code);
    if (code)
        fail_msg("exit code %d, said: %s", code, said);
}

TESTS_WITH(folder_create, folder_remove)
