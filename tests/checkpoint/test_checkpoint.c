/* SPDX-License-Identifier: MIT */
/* Files of a checkpoint: the same bytes from any number of ranks, legal safetensors, loaded by any other number; whatever
 * is wrong with them is one sentence, and the last complete one stays. */
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "common/checkpoint/hash.h"
#include "common/checkpoint/hasher.h"
#include "common/checkpoint/json.h"
#include "common/core/rng.h"
#include "tests/checkpoint/saved_state.h"

static char why[512];

static checkpoint_save_options plain(const char *folder)
{
    return (checkpoint_save_options){
        .folder = folder, .way = CHECKPOINT_ASYNC, .writers = 2, .keep = 2, .timeout_s = 5};
}

static checkpoint_saved save(const char *folder, int ranks, int64_t step)
{
    const checkpoint_save_options o = plain(folder);
    return saved_by(&saved_model, &o, ranks, step);
}

static void open_folder(const char *folder)
{
    const int lock = checkpoint_folder_open(folder, why, sizeof why);
    assert_true(lock >= 0);
    checkpoint_folder_close(lock);
}

TEST(hashes_are_those_of_xxhash)
{
    assert_int_equal(checkpoint_hash("", 0), 0xef46db3751d8e999u);
    assert_int_equal(checkpoint_hash("a", 1), 0xd24ec4f1a98c6e5bu);
    assert_int_equal(checkpoint_hash("abc", 3), 0x44bc2cf5ad770999u);
    assert_int_equal(checkpoint_hash("Nobody inspects the spammish repetition", 39), 0xfbcea83c8a378bf1u);
    checkpoint_hash_state s = {.bytes = 0};
    checkpoint_hash_more(&s, "Nobody inspects the spammish rep", 32);
    assert_int_equal(checkpoint_hash_more(&s, "etition", 7), 0xfbcea83c8a378bf1u);
    char copy[40] = "";
    s = (checkpoint_hash_state){.bytes = 0};
    assert_int_equal(checkpoint_hash_copy(&s, copy, "Nobody inspects the spammish repetition", 39),
                     0xfbcea83c8a378bf1u);
    assert_string_equal(copy, "Nobody inspects the spammish repetition");
}

/* ---- files ---- */

static size_t file_bytes(const char *folder, int64_t step, const char *name, char **out)
{
    OWNED char *path = checkpoint_path(folder, step);
    size_t bytes;
    *out = checkpoint_read_text(path, name, &bytes, why, sizeof why);
    if (!*out)
        fail_msg("%s", why);
    return bytes;
}

TEST_IN_FOLDER(ranks_do_not_show)
{
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    open_folder(*state);
    for (int ranks = 1; ranks <= 4; ranks++) {
        checkpoint_save_options o = plain(*state);
        o.keep = 9;
        o.way = ranks == 2 ? CHECKPOINT_LAZY : ranks == 3 ? CHECKPOINT_DEVICE : CHECKPOINT_ASYNC;
        o.direct = ranks % 2;
        OWNED char *folder = folder_path(*state, ranks == 1 ? "one" : "many");
        o.folder = folder;
        open_folder(folder);
        assert_true(saved_by(&saved_model, &o, ranks, 7).ok);
        for (int f = 0; f < l->files && ranks > 1; f++) {
            char *one, *many, *first = folder_path(*state, "one");
            const size_t n = file_bytes(first, 7, l->file[f].name, &one),
                         m = file_bytes(folder, 7, l->file[f].name, &many);
            assert_int_equal(n, l->file[f].bytes);
            assert_int_equal(n, m);
            assert_memory_equal(one, many, n);
            free(one), free(many), free(first);
        }
    }
    checkpoint_layout_free(l);
}

static int64_t dtype_bytes(const char *name)
{
    return strcmp(name, "F32") == 0 ? 4 : strcmp(name, "U8") == 0 ? 1 : 2;
}

/* The rules of safetensors: a header of JSON, tensors without holes, nothing behind the last. */
TEST_IN_FOLDER(files_are_safetensors)
{
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    open_folder(*state);
    assert_true(save(*state, 2, 3).ok);
    for (int f = 0; f < l->files; f++) {
        char *bytes;
        const size_t n = file_bytes(*state, 3, l->file[f].name, &bytes);
        uint64_t header;
        memcpy(&header, bytes, sizeof header);
        assert_true(header % 4096 == 4088 && header < n);
        json *j = json_parse(bytes + 8, header, why, sizeof why);
        assert_non_null(j);
        int64_t at = 0;
        for (const json *t = j->first->next; t; t = t->next) { /* behind __metadata__ */
            const json *span = json_find(t, "data_offsets", JSON_ARRAY), *shape = json_find(t, "shape", JSON_ARRAY);
            int64_t size = dtype_bytes(json_find(t, "dtype", JSON_STRING)->text);
            for (const json *d = shape->first; d; d = d->next)
                size *= d->value;
            assert_int_equal(span->first->value, at);
            assert_int_equal(span->first->next->value, at + size);
            if (strstr(t->name, ".exp_avg") && t->first && strstr(t->name, "lm_head"))
                assert_int_equal(at % 4096, 0);
            at += size;
        }
        assert_int_equal(at + (int64_t)header + 8, n);
        json_free(j);
        free(bytes);
    }
    checkpoint_layout_free(l);
}

static int read_by_others(const char *path)
{
    int code;
    OWNED char *command = xasprintf("python3 tests/checkpoint/public_readers.py '%s' 2>&1", path),
               *text = command_text(command, &code);
    print_message("%s", text);
    return code;
}

/* Where Python has safetensors, numpy and xxhash. */
TEST_IN_FOLDER(public_readers_load_them)
{
    open_folder(*state);
    assert_true(save(*state, 3, 5).ok);
    char *path = checkpoint_path(*state, 5);
    const int code = read_by_others(path);
    if (code == EXIT_CODE_UNSUPPORTED || code == 127) {
        free(path); /* skip() does not free what is OWNED */
        skip();
    }
    assert_int_equal(code, 0);
    OWNED char *file = folder_path(path, "optim-00002-of-00004.safetensors");
    const int fd = open(file, O_RDWR);
    assert_int_equal(pwrite(fd, "other", 5, 5000), 5);
    close(fd);
    assert_int_equal(read_by_others(path), 1);
    free(path);
}

static void expect_loaded_as(const checkpoint_model *m, const char *folder, int64_t step, int ranks)
{
    checkpoint c;
    if (!checkpoint_open_in(folder, -1, m, &c, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(c.m.state.step, step);
    for (int i = 0; i < ranks; i++) {
        saved_rank r = saved_rank_create(c.m.layout, i, ranks);
        checkpoint_loaded loaded;
        assert_true(checkpoint_load(&c, NULL, &r.pieces, 2, (checkpoint_room){0}, &loaded, why, sizeof why));
        saved_expect(&r, step);
        saved_rank_free(&r);
    }
    checkpoint_close(&c);
}

static void expect_loaded(const char *folder, int64_t step, int ranks)
{
    expect_loaded_as(&saved_model, folder, step, ranks);
}

TEST_IN_FOLDER(large_tensors_go_in_parts)
{
    checkpoint_model m = saved_model;
    checkpoint_save_options o = plain(*state);
    m.config.vocab = 24000; /* moments of 2.3 MB */
    o.way = CHECKPOINT_SYNC;
    open_folder(*state);
    assert_true(saved_by(&m, &o, 1, 6).ok);
    expect_loaded_as(&m, *state, 6, 2);
}

TEST_IN_FOLDER(any_ranks_load_it)
{
    checkpoint c;
    open_folder(*state);
    assert_true(save(*state, 3, 11).ok);
    for (int ranks = 1; ranks <= 4; ranks++)
        expect_loaded(*state, 11, ranks);
    assert_true(checkpoint_open_in(*state, 11, &saved_model, &c, why, sizeof why));
    const checkpoint_state want = saved_note(11, 3);
    assert_memory_equal(&c.m.state.optimizer, &want.optimizer, sizeof want.optimizer);
    assert_memory_equal(&c.m.state.data, &want.data, sizeof want.data);
    assert_memory_equal(&c.m.state.schedule, &want.schedule, sizeof want.schedule);
    assert_int_equal(c.m.state.seed, want.seed);
    assert_true(checkpoint_verify(&c, 2, why, sizeof why));
    checkpoint_close(&c);
}

TEST_IN_FOLDER(the_newest_are_kept)
{
    int64_t *steps;
    open_folder(*state);
    for (int step = 1; step <= 4; step++)
        assert_true(save(*state, 2, step).ok);
    assert_int_equal(checkpoint_folder_list(*state, &steps, why, sizeof why), 2);
    assert_true(steps[0] == 3 && steps[1] == 4);
    free(steps);
    assert_true(save(*state, 1, 4).ok); /* a step that is there already: they change places */
    expect_loaded(*state, 4, 2);
    assert_true(save(*state, 1, 2).ok); /* a run that found the later ones damaged: its own stays */
    assert_int_equal(checkpoint_folder_list(*state, &steps, why, sizeof why), 3);
    assert_int_equal(steps[0], 2);
    free(steps);
}

static char *kept_folder;
static int first_file = -1;
static ino_t inode[8];

/* The first file of a checkpoint as it is; `open_it` keeps it open. */
static ino_t inode_of(int64_t step, bool open_it, bool link_it)
{
    struct stat st;
    OWNED char *path = checkpoint_path(kept_folder, step),
               *file = folder_path(path, "model-00001-of-00004.safetensors"),
               *other = folder_path(kept_folder, "linked");
    assert_int_equal(stat(file, &st), 0);
    if (open_it)
        first_file = open(file, O_RDONLY);
    if (link_it)
        assert_int_equal(link(file, other), 0);
    return st.st_ino;
}

static void note_inode(int64_t step)
{
    inode[step] = inode_of(step, step == 3, step == 4);
}

/* Two checkpoints stay, so step 4 is written over the files of step 1. Whoever reads those of step 3, or has a link to one of
 * step 4, keeps what he had: they go as they did. */
TEST_IN_FOLDER(old_files_are_written_over)
{
    const int64_t steps[] = {1, 2, 3, 4, 5, 6, 7};
    checkpoint_save_options o = plain(*state);
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    kept_folder = *state;
    open_folder(*state);
    assert_true(saved_steps(&saved_model, &o, 3, steps, 7, note_inode).ok);
    assert_true(inode[4] == inode[1] && inode[5] == inode[2]);
    assert_true(inode[6] != inode[3] && inode[7] != inode[4]);
    OWNED char *was = xmalloc((size_t)l->file[0].bytes), *linked = folder_path(*state, "linked");
    const int other = open(linked, O_RDONLY);
    for (int turn = 0; turn < 2; turn++) {
        saved_rank r = saved_rank_create(l, 0, 1);
        assert_int_equal(pread(turn ? other : first_file, was, (size_t)l->file[0].bytes, 0), l->file[0].bytes);
        saved_fill(&r, 3 + turn);
        for (int i = 0; i < r.pieces.n; i++)
            if (r.pieces.p[i].file == 0)
                assert_memory_equal(was + r.pieces.p[i].offset, r.pieces.p[i].at, r.pieces.p[i].bytes);
        saved_rank_free(&r);
    }
    expect_loaded(*state, 7, 2);
    OWNED char *spare = folder_path(*state, ".spare-5");
    assert_int_not_equal(access(spare, F_OK), 0); /* none is left behind */
    close(first_file);
    close(other);
    unlink(linked);
    checkpoint_layout_free(l);
}

/* A folder may lead to a checkpoint of another run, and a checkpoint to a file elsewhere: when their turn comes, the links go. */
TEST_IN_FOLDER(what_links_lead_to_stays)
{
    const int64_t steps[] = {3, 4, 5, 6};
    const checkpoint_save_options o = plain(*state);
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    const size_t bytes = (size_t)l->file[0].bytes;
    OWNED char *first = checkpoint_path(*state, 1), *away = folder_path(*state, "away"), *was = xmalloc(bytes),
               *second = checkpoint_path(*state, 2), *file = folder_path(second, l->file[0].name),
               *elsewhere = folder_path(*state, "elsewhere"), *now = xmalloc(bytes);
    open_folder(*state);
    assert_true(save(*state, 1, 1).ok && save(*state, 1, 2).ok);
    assert_true(rename(first, away) == 0 && symlink(away, first) == 0);
    assert_true(rename(file, elsewhere) == 0 && symlink(elsewhere, file) == 0);
    int fd = open(elsewhere, O_RDONLY);
    assert_int_equal(pread(fd, was, bytes, 0), bytes);
    close(fd); /* a file that somebody reads is not written over anyway */
    assert_true(saved_steps(&saved_model, &o, 1, steps, 4, NULL).ok);
    fd = open(elsewhere, O_RDONLY);
    assert_int_equal(pread(fd, now, bytes, 0), bytes);
    assert_memory_equal(now, was, bytes);
    checkpoint c;
    if (!checkpoint_open(away, &c, why, sizeof why) || !checkpoint_verify(&c, 2, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(c.m.state.step, 1);
    assert_int_not_equal(access(first, F_OK), 0);
    checkpoint_close(&c);
    close(fd);
    checkpoint_layout_free(l);
}

/* Memory that is lent is all that a load takes, as many readers as fit; if that is too little, it takes its own. */
TEST_IN_FOLDER(loads_use_what_is_lent)
{
    enum { ROOM = 32 << 20, SOME = 12 << 20, LITTLE = 1000000, READERS = 4 };
    static const checkpoint_room lent[] = {
        {.bytes = LITTLE, .ranks = 1}, {.bytes = SOME, .ranks = 2}, {.bytes = ROOM, .ranks = 1}};
    char *memory = xcalloc(ROOM + 1, 1);
    checkpoint c;
    checkpoint_loaded loaded;
    open_folder(*state);
    assert_true(save(*state, 2, 1).ok);
    assert_true(checkpoint_open_in(*state, 1, NULL, &c, why, sizeof why));
    for (int turn = 0; turn < 3; turn++) {
        saved_rank r = saved_rank_create(c.m.layout, 0, 1);
        checkpoint_room room = lent[turn];
        room.at = memory;
        memset(memory, 0x5a, ROOM + 1);
        assert_true(checkpoint_load(&c, NULL, &r.pieces, READERS, room, &loaded, why, sizeof why));
        saved_expect(&r, 1);
        saved_rank_free(&r);
        bool used = false;
        for (int i = 0; i < ROOM; i++)
            used = used || memory[i] != 0x5a;
        assert_int_equal(used, turn > 0);
        assert_int_equal(memory[room.bytes], 0x5a);
    }
    checkpoint_close(&c);
    free(memory);
}

/* ---- what is wrong ---- */

static void is_refused(const char *folder, int64_t step, const checkpoint_model *m, const char *sentence)
{
    checkpoint c;
    const bool ok =
        checkpoint_open_in(folder, step, m, &c, why, sizeof why) && checkpoint_verify(&c, 2, why, sizeof why);
    checkpoint_close(&c);
    if (ok || !strstr(why, sentence))
        fail_msg("'%s' instead of '%s'", ok ? "all right" : why, sentence);
}

static void name_planted(const char *folder)
{
    static const struct {
        const char *plant, *sentence;
    } faults[] = {{"bit", "model-00001-of-00004.safetensors is damaged"},
                  {"hole", "lm_head.weight"},
                  {"swap", "model-00001-of-00004.safetensors is damaged"}};
    open_folder(folder);
    assert_true(save(folder, 2, 1).ok);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        checkpoint_save_options o = plain(folder);
        o.plant = faults[i].plant;
        assert_true(saved_by(&saved_model, &o, 1, 2).ok);
        is_refused(folder, 2, NULL, faults[i].sentence);
    }
}

TEST_IN_FOLDER(planted_errors_are_named)
{
    name_planted(*state);
}

/* Files in memory are mapped, not read. */
TEST(files_in_memory)
{
    char folder[] = "/dev/shm/stepbench-test-XXXXXX";
    if (!mkdtemp(folder))
        skip();
    name_planted(folder);
    assert_true(save(folder, 3, 3).ok);
    for (int ranks = 1; ranks <= 3; ranks++)
        expect_loaded(folder, 3, ranks);
    checkpoint_folder_remove(folder);
}

/* A saver has pages for as many checkpoints as there will be, and the first save takes them. */
TEST(first_saves_have_files_in_memory)
{
    char folder[] = "/dev/shm/stepbench-test-XXXXXX";
    if (!mkdtemp(folder))
        skip();
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    device *d = device_open(DEVICE_CPU, 0);
    checkpoint_save_options o = plain(folder);
    o.ranks = 1;
    saved_rank r = saved_rank_create(l, 0, 1);
    open_folder(folder);
    checkpoint_saver *s = checkpoint_saver_create(&o, d, l, &r.pieces, why, sizeof why);
    ino_t made[3];
    struct stat st;
    for (int i = 0; i <= o.keep; i++) {
        OWNED char *file = xasprintf("%s/.spare-new-%d/%s", folder, i, l->file[1].name);
        assert_int_equal(stat(file, &st), 0);
        assert_true(st.st_size == l->file[1].bytes && st.st_blocks * 512 >= l->file[1].bytes);
        made[i] = st.st_ino;
    }
    const checkpoint_state note = saved_note(1, 1);
    saved_fill(&r, 1);
    checkpoint_save(s, &note);
    assert_true(checkpoint_save_wait(s).ok);
    OWNED char *path = checkpoint_path(folder, 1), *file = folder_path(path, l->file[1].name);
    assert_int_equal(stat(file, &st), 0);
    assert_true(st.st_ino == made[0] || st.st_ino == made[1] || st.st_ino == made[2]);
    checkpoint_saver_free(s);
    expect_loaded(folder, 1, 1);
    saved_rank_free(&r);
    device_close(d);
    checkpoint_layout_free(l);
    checkpoint_folder_remove(folder);
}

/* One bit in each array of a tensor. */
TEST_IN_FOLDER(damage_is_named_by_tensor)
{
    static const char *const names[] = {"lm_head.weight", "lm_head.weight.exp_avg", "lm_head.weight.exp_avg_sq",
                                        "lm_head.weight.master_low"};
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    open_folder(*state);
    assert_true(save(*state, 2, 1).ok);
    char *path = checkpoint_path(*state, 1);
    for (int a = 0; a < CHECKPOINT_ARENAS; a++) {
        OWNED char *file = folder_path(path, a == CHECKPOINT_WEIGHT ? l->file[0].name : l->file[1].name),
                   *sentence = xasprintf("(%s", names[a]);
        const int fd = open(file, O_RDWR);
        char byte;
        for (int turn = 0; turn < 2; turn++) { /* damaged, then whole again */
            assert_int_equal(pread(fd, &byte, 1, l->place[a][0]), 1);
            byte ^= 4;
            assert_int_equal(pwrite(fd, &byte, 1, l->place[a][0]), 1);
            if (turn == 0)
                is_refused(*state, 1, NULL, sentence);
        }
        close(fd);
    }
    expect_loaded(*state, 1, 2);
    free(path);
    checkpoint_layout_free(l);
}

/* What ranks have written must be the model's data, all of it and once: run k is left out, or there so many times. */
TEST_IN_FOLDER(ranges_are_written_once)
{
    static const char *const sentences[] = {"was not written", NULL, "was written twice"};
    checkpoint c;
    open_folder(*state);
    assert_true(save(*state, 3, 1).ok);
    assert_true(checkpoint_open_in(*state, 1, NULL, &c, why, sizeof why));
    for (int k = 0; k < c.m.runs.n - 1; k++) /* behind the last one of the model there is no place to name */
        for (int times = 0; times < 3; times++) {
            checkpoint_runs runs = {0};
            for (int i = 0; i < c.m.runs.n; i++)
                for (int n = 0; n < (i == k ? times : 1); n++)
                    checkpoint_runs_add(&runs, c.m.runs.r[i].file, c.m.runs.r[i].offset, c.m.runs.r[i].bytes);
            assert_int_equal(checkpoint_runs_cover(&runs, c.m.layout, why, sizeof why), times == 1);
            if (times != 1 && !strstr(why, sentences[times]))
                fail_msg("run %d, %d times: %s", k, times, why);
            checkpoint_runs_free(&runs);
        }
    checkpoint_close(&c);
}

static void cut(const char *folder, int64_t step, const char *name, off_t by)
{
    char *path = checkpoint_path(folder, step), *file = folder_path(path, name);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(truncate(file, by ? st.st_size - by : st.st_size / 2), 0);
    free(path), free(file);
}

TEST_IN_FOLDER(damage_leaves_the_one_before)
{
    open_folder(*state);
    static const struct {
        const char *file;
        off_t by; /* 0: half of it */
        const char *sentence;
    } cuts[] = {{"optim-00002-of-00004.safetensors", 1, "is 1 byte too short"},
                {"optim-00002-of-00004.safetensors", 4096, "is 4096 bytes too short"},
                {"model-00003-of-00004.safetensors", 0, "too short"},
                {"manifest.json", 1, "it is damaged or cut"},
                {"manifest.json", 0, "it is damaged or cut"}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_true(save(*state, 2, 1).ok);
        assert_true(save(*state, 2, 2).ok);
        cut(*state, 2, cuts[i].file, cuts[i].by);
        is_refused(*state, 2, NULL, cuts[i].sentence);
        expect_loaded(*state, 1, 3);
    }
}

/* Nobody writes to it: a wait would be one for ever. */
TEST_IN_FOLDER(a_fifo_is_refused)
{
    static const char *const files[][2] = {{"optim-00002-of-00004.safetensors", "too short"},
                                           {"manifest.json", "is not a file of at most 100 MiB"}};
    open_folder(*state);
    assert_true(save(*state, 1, 2).ok);
    OWNED char *path = checkpoint_path(*state, 2);
    for (int i = 0; i < 2; i++) {
        OWNED char *file = folder_path(path, files[i][0]);
        assert_true(unlink(file) == 0 && mkfifo(file, 0666) == 0);
        alarm(20);
        is_refused(*state, 2, NULL, files[i][1]);
        alarm(0);
    }
}

TEST_IN_FOLDER(another_model_is_said)
{
    checkpoint_model other = saved_model;
    open_folder(*state);
    assert_true(save(*state, 1, 1).ok);
    other.config.d_model = 48;
    is_refused(*state, 1, &other, "of another model (d_model 24, here 48)");
    other = saved_model;
    other.moments = SB_BF16;
    is_refused(*state, 1, &other, "other moments (F32, here BF16)");
    other = saved_model;
    other.master = SB_MASTER_NONE;
    is_refused(*state, 1, &other, "other master weights (I16, here none)");
    is_refused(*state, 5, NULL, "step-00000005/manifest.json: No such file");
}

TEST_IN_FOLDER(folders_that_cannot_be_used)
{
    char *folder = folder_path(*state, "new/folder"), *file = folder_path(*state, "file");
    const int lock = checkpoint_folder_open(folder, why, sizeof why);
    assert_true(lock >= 0);
    assert_int_equal(checkpoint_folder_open(folder, why, sizeof why), -1);
    assert_non_null(strstr(why, "another run writes checkpoints to"));
    is_refused(folder, -1, NULL, "no complete checkpoint is in");
    checkpoint_folder_close(lock);
    file_write(file, "");
    assert_int_equal(checkpoint_folder_open(file, why, sizeof why), -1);
    assert_int_equal(checkpoint_folder_open("/proc/stepbench", why, sizeof why), -1);
    assert_non_null(strstr(why, "can't make the folder of checkpoints /proc/stepbench"));
    assert_true(checkpoint_folder_room(*state, 1, 1, why, sizeof why));
    assert_false(checkpoint_folder_room(*state, 2, (int64_t)1e18, why, sizeof why));
    assert_non_null(strstr(why, "and 2 checkpoints need 2e+09"));
    free(folder), free(file);
}

static char *of_dead_process(const char *folder)
{
    const pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    return xasprintf("%s/run-%d", folder, (int)pid);
}

/* What was killed could remove nothing. Whatever is in use, has no marker or is a link stays. */
TEST_IN_FOLDER(what_killed_runs_left_goes)
{
    OWNED char *gone = of_dead_process(*state), *ladder = folder_path(gone, "ladder"), *held = of_dead_process(*state),
               *plain_folder = of_dead_process(*state), *link = of_dead_process(*state),
               *alive = xasprintf("%s/run-%d", (char *)*state, (int)getpid()), *kept = folder_path(*state, "kept");
    const char *const ours[] = {gone, ladder, held, alive, kept}, *const stay[] = {held, alive, kept, plain_folder,
                                                                                   link};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        open_folder(ours[i]);
        assert_true(save(ours[i], 1, 1).ok);
    }
    folder_write(gone, ".trash-ceiling-0-0", "");
    folder_write(gone, "losses.bin", "");
    const int lock = checkpoint_folder_open(held, why, sizeof why);
    assert_true(mkdir(plain_folder, 0777) == 0 && symlink(kept, link) == 0);
    checkpoint_folder_sweep(*state, "run-");
    assert_int_not_equal(access(gone, F_OK), 0);
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        if (access(stay[i], F_OK) != 0)
            fail_msg("%zu is gone", i);
    OWNED char *one = checkpoint_path(kept, 1);
    assert_int_equal(access(one, F_OK), 0);
    checkpoint_folder_close(lock);
}

/* A limit of file sizes stands for a full disk; the rank that meets it says so, and the room is free again. */
TEST_IN_FOLDER(a_full_disk_loses_nothing)
{
    struct rlimit all, little = {.rlim_cur = 20000};
    open_folder(*state);
    assert_true(save(*state, 2, 1).ok);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all);
    little.rlim_max = all.rlim_max;
    setrlimit(RLIMIT_FSIZE, &little);
    const checkpoint_saved saved = save(*state, 2, 2);
    setrlimit(RLIMIT_FSIZE, &all);
    assert_false(saved.ok);
    assert_non_null(strstr(saved.why, "can't write"));
    assert_non_null(strstr(saved.why, "File too large"));
    assert_int_equal(checkpoint_folder_partial(*state), 0);
    expect_loaded(*state, 1, 2);
    assert_true(save(*state, 2, 3).ok);
    expect_loaded(*state, 3, 2);
}

static bool full; /* the disk, behind the headers of files */

/* As most disks are: they give a file its size, and then have no room for its blocks. */
TEST_IN_FOLDER(a_disk_that_fills_up_loses_nothing)
{
    open_folder(*state);
    assert_true(save(*state, 2, 1).ok);
    full = true;
    const checkpoint_saved saved = save(*state, 2, 2);
    full = false;
    assert_false(saved.ok);
    assert_non_null(strstr(saved.why, "can't write"));
    assert_non_null(strstr(saved.why, "No space left on device"));
    assert_int_equal(checkpoint_folder_partial(*state), 0);
    expect_loaded(*state, 1, 2);
}

/* A rank that never comes: the others' save ends with a sentence. */
TEST_IN_FOLDER(a_missing_rank_is_named)
{
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    device *d = device_open(DEVICE_CPU, 0);
    checkpoint_save_options o = plain(*state);
    o.ranks = 2;
    o.timeout_s = 0.1;
    saved_rank r = saved_rank_create(l, 0, 2);
    open_folder(*state);
    checkpoint_saver *s = checkpoint_saver_create(&o, d, l, &r.pieces, why, sizeof why);
    const checkpoint_state note = saved_note(4, 2);
    checkpoint_save(s, &note);
    const checkpoint_saved saved = checkpoint_save_wait(s);
    assert_false(saved.ok);
    assert_non_null(strstr(saved.why, "wait longer for rank 1"));
    assert_int_equal(checkpoint_folder_partial(*state), 0);
    checkpoint_saver_free(s);
    saved_rank_free(&r);
    device_close(d);
    checkpoint_layout_free(l);
}

/* ---- a device that is behind ---- */

static const saved_rank *behind; /* its last update has not run yet */

static void catch_up(void)
{
    if (behind)
        saved_fill(behind, 2);
    behind = NULL;
}

void __real_device_stream_follow(device *d, void *to, void *from);
void __wrap_device_stream_follow(device *d, void *to, void *from);
void __real_device_sync(device *d);
void __wrap_device_sync(device *d);

void __wrap_device_stream_follow(device *d, void *to, void *from)
{
    if (from == device_stream(d))
        catch_up();
    __real_device_stream_follow(d, to, from);
}

void __wrap_device_sync(device *d)
{
    catch_up();
    __real_device_sync(d);
}

/* What a CPU is asked to do is done at once. This one updates its state only when something waits for its own stream. */
TEST_IN_FOLDER(copies_begin_behind_the_last_update)
{
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    device *d = device_open(DEVICE_CPU, 0);
    open_folder(*state);
    for (int way = CHECKPOINT_SYNC; way <= CHECKPOINT_DEVICE; way++) {
        checkpoint_save_options o = plain(*state);
        o.way = (checkpoint_way)way;
        o.ranks = 1;
        saved_rank r = saved_rank_create(l, 0, 1);
        checkpoint_saver *s = checkpoint_saver_create(&o, d, l, &r.pieces, why, sizeof why);
        const checkpoint_state note = saved_note(2, 1);
        saved_fill(&r, 1);
        behind = &r;
        checkpoint_save(s, &note);
        assert_true(checkpoint_save_wait(s).ok);
        expect_loaded(*state, 2, 1);
        behind = NULL;
        checkpoint_saver_free(s);
        saved_rank_free(&r);
    }
    device_close(d);
    checkpoint_layout_free(l);
}

/* ---- who writes what when ---- */

enum { FILES = 64, BIG = 64 << 10 };
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static bool counted;                             /* writes are */
static int at_once[FILES], most_of_file, writes; /* under `counting` */
static int beside_first;                         /* files that were written at once, before the first write ended */

ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t offset);

/* Returns how many files are being written. */
static int count_write(int file, int by, bool *first)
{
    int files = 0;
    pthread_mutex_lock(&counting);
    *first = by > 0 && writes == 0;
    at_once[file] += by;
    writes += by > 0;
    most_of_file = at_once[file] > most_of_file ? at_once[file] : most_of_file;
    for (int i = 0; i < FILES; i++)
        files += at_once[i] > 0;
    pthread_mutex_unlock(&counting);
    return files;
}

/* The first write waits, not forever, for one to another file. */
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    bool first, ignored;
    if (full && offset > 0) {
        errno = ENOSPC;
        return -1;
    }
    if (!counted || bytes < BIG)
        return __real_pwrite(fd, from, bytes, offset);
    assert_true(fd < FILES);
    int files = count_write(fd, 1, &first);
    for (int i = 0; first && files < 2 && i < 300; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        files = count_write(fd, 0, &ignored);
    }
    if (first)
        beside_first = files;
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    const ssize_t n = __real_pwrite(fd, from, bytes, offset);
    count_write(fd, -1, &ignored);
    return n;
}

/* A file system would let a second thread wait: so no two write to one file, and several are written at once from the
 * first block on. */
TEST_IN_FOLDER(files_have_one_writer_each)
{
    checkpoint_model large = saved_model;
    large.config.vocab = 8192;
    large.config.d_model = 128;
    checkpoint_layout *l = checkpoint_layout_create(&large);
    device *d = device_open(DEVICE_CPU, 0);
    checkpoint_save_options o = plain(*state);
    o.ranks = 1;
    saved_rank r = saved_rank_create(l, 0, 1);
    open_folder(*state);
    checkpoint_saver *s = checkpoint_saver_create(&o, d, l, &r.pieces, why, sizeof why);
    const checkpoint_state note = saved_note(4, 1);
    counted = true;
    checkpoint_save(s, &note);
    assert_true(checkpoint_save_wait(s).ok);
    counted = false;
    assert_true(writes >= 8);
    assert_int_equal(most_of_file, 1);
    assert_true(beside_first >= o.writers); /* a thread that has time helps on another file */
    checkpoint_saver_free(s);
    saved_rank_free(&r);
    device_close(d);
    checkpoint_layout_free(l);
}

/* By any number of threads: a change anywhere shows in its own block alone, which is named. */
TEST(looks_see_every_block)
{
    enum { LARGE = 2 * CHECKPOINT_BLOCK + 5, SMALL = 100 };
    checkpoint_layout *l = checkpoint_layout_create(&saved_model);
    device *d = device_open(DEVICE_CPU, 0);
    char *bytes = xcalloc(LARGE + SMALL, 1), what[96];
    checkpoint_piece two[] = {{bytes, 0, 4096, LARGE}, {bytes + LARGE, 1, 4096, SMALL}};
    const checkpoint_pieces p = {.p = two, .n = 2};
    const int64_t places[] = {1, CHECKPOINT_BLOCK, LARGE - 1, LARGE + SMALL - 1};
    assert_int_equal(checkpoint_pieces_blocks(&p), 4);
    for (int threads = 1; threads <= 3; threads++) {
        uint64_t before[4], after[4];
        checkpoint_hasher *h = checkpoint_hasher_create(d, threads);
        checkpoint_hasher_run(h, &p, before, NULL);
        for (int i = 0; i < 4; i++) {
            bytes[places[i]] ^= 1;
            checkpoint_hasher_run(h, &p, after, NULL);
            bytes[places[i]] ^= 1;
            for (int b = 0; b < 4; b++)
                assert_int_equal(before[b] != after[b], b == i);
        }
        checkpoint_hasher_free(h);
    }
    assert_string_equal(checkpoint_pieces_at(&p, l, 0, what, sizeof what), "lm_head.weight");
    assert_non_null(strstr(checkpoint_pieces_at(&p, l, 3, what, sizeof what), ".exp_avg"));
    free(bytes);
    device_close(d);
    checkpoint_layout_free(l);
}

/* ---- whatever the bytes are ---- */

/* Puts the hash that fits at the end, so that the reader behind it sees the damage. */
static void seal(char *text, size_t bytes)
{
    const size_t tail = strlen(",\n\"hash\":\"") + 16 + 3;
    char digits[17];
    if (bytes < tail)
        return;
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)checkpoint_hash(text, bytes - tail));
    memcpy(text + bytes - tail, ",\n\"hash\":\"", 10); /* NOLINT: within a text */
    memcpy(text + bytes - 19, digits, 16);
    memcpy(text + bytes - 3, "\"}\n", 3); /* NOLINT: within a text */
}

TEST_IN_FOLDER(damaged_manifests_never_crash)
{
    char *text;
    open_folder(*state);
    assert_true(save(*state, 3, 2).ok);
    const size_t bytes = file_bytes(*state, 2, "manifest.json", &text);
    OWNED char *copy = xmalloc(bytes + 1);
    int read = 0;
    for (size_t at = 0; at < bytes; at++) {
        checkpoint_manifest m;
        text[at] ^= (char)(1 << at % 5);
        assert_false(checkpoint_manifest_read(text, bytes, &m, why, sizeof why));
        checkpoint_manifest_free(&m);
        text[at] ^= (char)(1 << at % 5);
    }
    for (uint64_t i = 0; i < 3000; i++) {
        checkpoint_manifest m;
        memcpy(copy, text, bytes + 1);
        size_t n = bytes;
        for (int k = 0; k < 1 + (int)(i % 3); k++)
            copy[(size_t)(rng_uniform(i, 1, (uint64_t)k) * (double)(i % 2 ? bytes : 900))] =
                i % 5 ? "0123456789-{}[]\",:ae\\\n"[(int)(rng_uniform(i, 2, (uint64_t)k) * 22)] : (char)(i * 37);
        if (i % 7 == 0)
            n = (size_t)(rng_uniform(i, 3, 0) * (double)bytes);
        if (i % 10)
            seal(copy, n);
        read += checkpoint_manifest_read(copy, n, &m, why, sizeof why);
        checkpoint_manifest_free(&m);
    }
    assert_true(read < 1500); /* some change a number that may be any */
    free(text);
}

/* Each name is compared with those before it: without a limit, 100 MiB of names take hours. */
TEST(objects_of_very_many_members_are_refused)
{
    for (int members = 4096; members <= 4097; members++) {
        char *text;
        size_t bytes;
        FILE *out = text_stream(&text, &bytes);
        for (int i = 0; i < members; i++)
            fprintf(out, "%c\"%d\":%d", i ? ',' : '{', i, i);
        fputc('}', out);
        fclose(out);
        json *j = json_parse(text, bytes, why, sizeof why);
        assert_int_equal(j ? j->count : 0, members == 4096 ? members : 0);
        json_free(j);
        free(text);
    }
    text_has(why, "it has an object of more than 4096 members at byte ");
}

TEST_IN_FOLDER(damaged_headers_are_refused)
{
    char *path, *file;
    open_folder(*state);
    assert_true(save(*state, 1, 2).ok);
    path = checkpoint_path(*state, 2);
    file = folder_path(path, "model-00002-of-00004.safetensors");
    for (int i = 0; i < 200; i++) {
        const int fd = open(file, O_RDWR);
        const off_t at = (off_t)(rng_uniform(9, 1, (uint64_t)i) * 4096);
        char kept, other;
        assert_int_equal(pread(fd, &kept, 1, at), 1);
        other = (char)(kept ^ (1 << i % 8));
        assert_int_equal(pwrite(fd, &other, 1, at), 1);
        is_refused(*state, 2, NULL, "header is not that of the model");
        assert_int_equal(pwrite(fd, &kept, 1, at), 1);
        close(fd);
    }
    expect_loaded(*state, 2, 1);
    free(path), free(file);
}
