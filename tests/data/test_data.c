/* SPDX-License-Identifier: MIT */
/* What a run trains on: made tokens and their entropies, token files that lie, the order of samples, the loader thread. */
#include "tests/support/test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/data/loader.h"
#include "common/data/order.h"
#include "common/data/tokens.h"

/* ---- made tokens ---- */

/* The chances are those of the source, each pair has four successors, and a window does not depend on others. */
TEST(made_tokens_have_their_entropy)
{
    enum { K = 16, TOKENS = 65, WINDOWS = 3000 };
    made *m = made_create(K, 7), *again = made_create(K, 7), *other = made_create(K, 8);
    int32_t window[TOKENS], same[TOKENS];
    static int seen[K][K][K];
    double surprise = 0;
    for (int w = WINDOWS - 1; w >= 0; w--) {
        made_window(m, w, TOKENS, window);
        made_window(again, w, TOKENS, same);
        assert_memory_equal(window, same, sizeof window);
        surprise += made_surprise(m, window, TOKENS) / WINDOWS;
        for (int i = 0; i < TOKENS; i++)
            assert_in_range(window[i], 0, K - 1);
        for (int i = 2; i < TOKENS; i++)
            seen[window[i - 2]][window[i - 1]][window[i]]++;
    }
    made_window(other, 0, TOKENS, same);
    assert_memory_not_equal(window, same, sizeof window);
    /* 0.5, 0.25, 0.15 and 0.1 by the definition of entropy. */
    assert_true(fabs(made_entropy(m, 2) - 1.2079741) < 1e-6);
    assert_true(fabs(made_window_entropy(m, TOKENS) - (log(K) + 63 * made_entropy(m, 2)) / 64) < 1e-12);
    assert_true(fabs(surprise - made_window_entropy(m, TOKENS)) < 0.01);
    double ordered[4] = {0}, pairs = 0;
    for (int a = 0; a < K; a++)
        for (int b = 0; b < K; b++) {
            int n = 0, most = 0, sum = 0;
            for (int c = 0; c < K; c++) {
                n += seen[a][b][c] > 0;
                sum += seen[a][b][c];
                most = seen[a][b][c] > most ? seen[a][b][c] : most;
            }
            assert_true(n <= 4);
            ordered[0] += most, pairs += sum;
        }
    assert_true(fabs(ordered[0] / pairs - 0.5) < 0.02);
    made_free(m);
    made_free(again);
    made_free(other);
}

/* What is known of the tokens before is held against counts of a long text. */
TEST(entropies_are_those_of_counts)
{
    enum { K = 8, TOKENS = 4000, WINDOWS = 100 };
    made *m = made_create(K, 3);
    static int32_t w[TOKENS];
    static double one[K], two[K][K];
    double n = 0, h1 = 0, h2 = 0;
    for (int i = 0; i < WINDOWS; i++) {
        made_window(m, i, TOKENS, w);
        for (int t = 50; t < TOKENS; t++, n++)
            one[w[t - 1]]++, two[w[t - 1]][w[t]]++;
    }
    for (int a = 0; a < K; a++) {
        h1 -= one[a] / n * log(one[a] / n);
        for (int b = 0; b < K; b++)
            h2 -= two[a][b] > 0 ? two[a][b] / n * log(two[a][b] / n) : 0;
    }
    assert_true(fabs(made_entropy(m, 0) - h1) < 0.005);
    assert_true(fabs(made_entropy(m, 1) - (h2 - h1)) < 0.005);
    assert_true(made_entropy(m, 2) < made_entropy(m, 1) && made_entropy(m, 1) < made_entropy(m, 0));
    made_free(m);
}

/* ---- order ---- */

static uint64_t with_a_repeat(uint64_t i, uint64_t n, uint64_t key)
{
    return order_of(i == 3 ? 4 : i, n, key);
}

TEST(order_is_a_permutation)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 17, 1000, 4096, 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t key = 0; key < 3; key++)
            assert_true(order_is_whole(order_of, sizes[i], key));
    assert_false(order_is_whole(with_a_repeat, 1000, 1));
    int moved = 0, differ = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        moved += order_of(i, 1000, 1) != i;
        differ += order_of(i, 1000, 1) != order_of(i, 1000, 2);
    }
    assert_true(moved > 950 && differ > 950);
}

/* ---- files ---- */

static void write_bytes(const char *path, const void *head, size_t head_bytes, const void *rest, size_t rest_bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(head, 1, head_bytes, f), head_bytes);
    assert_int_equal(fwrite(rest, 1, rest_bytes, f), rest_bytes);
    assert_int_equal(fclose(f), 0);
}

static void npy(const char *path, const char *dict, const void *rest, size_t bytes)
{
    char head[128] = "\x93NUMPY\x01";
    const size_t length = strlen(dict);
    head[8] = (char)length;
    memcpy(head + 10, dict, length); /* NOLINT: a header is no string */
    write_bytes(path, head, 10 + length, rest, bytes);
}

static void expect_tokens(const char *path, const char *format, const int32_t *want, int n)
{
    char why[300] = "";
    int32_t got[8];
    token_file *f = tokens_open(path, why, sizeof why);
    if (!f)
        fail_msg("%s", why);
    assert_string_equal(tokens_format(f), format);
    assert_int_equal(tokens_count(f), n);
    assert_true(tokens_read(f, 0, n, got));
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    assert_true(tokens_read(f, n - 1, 1, got));
    assert_int_equal(got[0], want[n - 1]);
    tokens_close(f);
}

static void expect_refused(const char *path, const char *words)
{
    char why[300] = "";
    token_file *f = tokens_open(path, why, sizeof why);
    assert_null(f);
    if (!strstr(why, words))
        fail_msg("'%s' lacks '%s'", why, words);
}

TEST(files_are_read_and_not_trusted)
{
    static const uint16_t small[] = {1, 2, 65535, 4};
    static const int32_t same[] = {1, 2, 65535, 4}, wide[] = {7, 70000, -5, 2};
    static const uint32_t huge[] = {7, 70000, 4294967291u, 2};
    int32_t header[256] = {20240520, 1, 4};
    OWNED char *path = folder_path(*state, "tokens");
    write_bytes(path, small, 0, small, sizeof small);
    expect_tokens(path, "uint16", same, 4);
    write_bytes(path, header, sizeof header, small, sizeof small);
    expect_tokens(path, "llm.c", same, 4);
    npy(path, "{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }\n", small, sizeof small);
    expect_tokens(path, "npy", same, 4);
    npy(path, "{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }\n", huge, sizeof huge);
    expect_tokens(path, "npy", (const int32_t[]){7, 70000, -1, 2}, 4);

    expect_refused("/no/such/file", "No such file");
    expect_refused(*state, "not a file");
    OWNED char *fifo = folder_path(*state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    expect_refused(fifo, "not a file"); /* at once: it has no writer */
    write_bytes(path, small, 0, small, 0);
    expect_refused(path, "empty");
    write_bytes(path, small, 0, small, 3);
    expect_refused(path, "even");
    write_bytes(path, header, sizeof header, small, 6); /* cut by one token */
    expect_refused(path, "4 tokens, and 6 bytes");
    header[2] = -4;
    write_bytes(path, header, sizeof header, small, sizeof small);
    expect_refused(path, "-4 tokens");
    header[1] = 2, header[2] = 4;
    write_bytes(path, header, sizeof header, small, sizeof small);
    expect_refused(path, "version 2");
    npy(path, "{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775807,), }\n", small, sizeof small);
    expect_refused(path, "and 8 bytes");
    npy(path, "{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,), }\n", small, sizeof small);
    expect_refused(path, "one axis");
    npy(path, "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 2), }\n", small, sizeof small);
    expect_refused(path, "one axis");
    npy(path, "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n", wide, sizeof wide);
    expect_refused(path, "these are not");
    npy(path, "", small, 0);
    expect_refused(path, "these are not");
    write_bytes(path, "\x93NUMPY\x01\0\xff\xff", 10, small, sizeof small);
    expect_refused(path, "longer than the file");
    write_bytes(path, "\x93NUMPY\x02", 7, small, 1);
    expect_refused(path, "within its header");
}

/* A file that is cut while it is in use ends nothing by a signal: pages that it no longer has are not touched. */
TEST(files_may_be_cut)
{
    enum { TOKENS = 40000, SHORTER = 16000 };
    static uint16_t tokens[TOKENS];
    static int32_t got[TOKENS];
    int32_t ids[2][4];
    double surprise;
    char *path = folder_path(*state, "cut"), why[300] = "";
    write_bytes(path, tokens, 0, tokens, sizeof tokens);
    token_file *f = tokens_open(path, why, sizeof why);
    data *d = data_open(path, 0, 4, 1, why, sizeof why);
    assert_non_null(d);
    const loader_options o = {.from = d, .seq = 4, .vocab = 8, .batch = 1, .global_batch = 1};
    assert_int_equal(truncate(path, SHORTER * sizeof *tokens), 0);
    assert_true(tokens_read(f, 0, SHORTER, got));
    assert_false(tokens_read(f, 0, SHORTER + 1, got));
    assert_false(tokens_read(f, TOKENS - 1, 1, got));
    assert_int_equal(truncate(path, 0), 0);
    assert_false(data_sample(d, 0, got));
    assert_int_equal(loader_fill(&o, 0, ids[0], ids[1], &surprise, why, sizeof why), EXIT_CODE_FAILURE);
    assert_non_null(strstr(why, "become shorter"));
    tokens_close(f);
    data_close(d);
    free(path);
}

TEST(short_files_are_refused)
{
    static const uint16_t small[] = {1, 2, 3, 4};
    char *path = folder_path(*state, "short"), why[300] = "";
    write_bytes(path, small, 0, small, sizeof small);
    data *d = data_open(path, 0, 3, 1, why, sizeof why);
    assert_non_null(d);
    int32_t first[4], second[4];
    assert_true(data_sample(d, 0, first) && data_sample(d, 1, second));
    assert_memory_equal(first, second, sizeof first); /* there is one window */
    data_close(d);
    assert_null(data_open(path, 0, 4, 1, why, sizeof why));
    assert_non_null(strstr(why, "fewer than a window of 4"));
    free(path);
}

static uint64_t print_of(const char *name, int symbols, uint64_t seed)
{
    char why[300] = "";
    data *d = data_open(name, symbols, 3, seed, why, sizeof why);
    assert_non_null(d);
    const uint64_t print = data_print(d);
    data_close(d);
    return print;
}

TEST(other_tokens_have_another_print)
{
    uint16_t tokens[40] = {1, 2, 3, 4};
    OWNED char *path = folder_path(*state, "print");
    write_bytes(path, tokens, 0, tokens, sizeof tokens);
    const uint64_t print = print_of(path, 0, 1);
    assert_int_equal(print_of(path, 0, 1), print);
    assert_int_not_equal(print_of(path, 0, 2), print);
    tokens[20] = 1;
    write_bytes(path, tokens, 0, tokens, sizeof tokens);
    assert_int_not_equal(print_of(path, 0, 1), print);
    assert_int_not_equal(print_of("made", 8, 1), print_of("made", 16, 1));
}

/* ---- samples and ranks ---- */

enum { SEQ = 8, G = 6 };

/* Any number of ranks sees the same samples in the same step, also where a run begins at a later one. */
TEST(ranks_share_the_samples_of_a_step)
{
    enum { N = 500 };
    uint16_t tokens[N];
    char *path = folder_path(*state, "counted"), why[300] = "";
    for (int i = 0; i < N; i++)
        tokens[i] = (uint16_t)i;
    write_bytes(path, tokens, 0, tokens, sizeof tokens);
    data *d = data_open(path, 0, SEQ, 1, why, sizeof why);
    const int windows = (N - 1) / SEQ;
    int seen[N] = {0};
    for (int64_t step = 0; step < 12; step++) {
        int32_t alone[2][G * SEQ], parts[2][G * SEQ];
        double surprise;
        const loader_options whole = {.from = d, .seq = SEQ, .vocab = N, .batch = G, .global_batch = G};
        assert_int_equal(loader_fill(&whole, step, alone[0], alone[1], &surprise, why, sizeof why), EXIT_CODE_OK);
        for (int ranks = 2; ranks <= 3; ranks++) {
            for (int rank = 0; rank < ranks; rank++) {
                const int64_t batch = G / ranks;
                loader_options o = {.from = d, .seq = SEQ, .vocab = N, .batch = batch, .global_batch = G};
                o.rank_first = rank * batch;
                assert_int_equal(loader_fill(&o, step, parts[0] + rank * batch * SEQ, parts[1] + rank * batch * SEQ,
                                             &surprise, why, sizeof why),
                                 EXIT_CODE_OK);
            }
            assert_memory_equal(alone, parts, sizeof alone);
        }
        for (int i = 0; i < G * SEQ; i++)
            assert_int_equal(alone[1][i], alone[0][i] + 1); /* the target follows its token */
        for (int i = 0; i < G && step * G + i < windows; i++)
            seen[alone[0][i * SEQ] / SEQ]++;
    }
    for (int w = 0; w < windows; w++)
        assert_int_equal(seen[w], 1); /* an epoch has each window once */
    assert_true(data_order_is_whole(d));
    data_plant_repeat(d);
    assert_false(data_order_is_whole(d));
    data_close(d);
    free(path);
}

/* ---- the thread ---- */

TEST(loader_runs_ahead_and_resumes)
{
    enum { BATCH = 3, K = 8 };
    char why[300];
    data *d = data_open("made", K, SEQ, 5, why, sizeof why);
    int32_t ring[2][LOADER_RING][2 * BATCH * SEQ], want[2][BATCH * SEQ];
    loader_options o = {.from = d, .seq = SEQ, .vocab = K, .batch = BATCH, .global_batch = BATCH};
    for (int i = 0; i < LOADER_RING; i++)
        o.ring[i] = ring[0][i];
    loader_options later = o;
    later.step = 9;
    for (int i = 0; i < LOADER_RING; i++)
        later.ring[i] = ring[1][i];
    loader *l = loader_start(&o), *resumed = loader_start(&later);
    double waited = 0, surprise;
    for (int64_t step = 0; step < 20; step++) {
        const loader_batch *b = loader_take(l, &waited);
        assert_int_equal(b->step, step);
        assert_int_equal(b->code, EXIT_CODE_OK);
        assert_int_equal(loader_fill(&o, step, want[0], want[1], &surprise, why, sizeof why), EXIT_CODE_OK);
        assert_memory_equal(b->ids, want[0], sizeof want[0]);
        assert_memory_equal(b->targets, want[1], sizeof want[1]);
        assert_true(b->surprise == surprise);
        if (step >= 9) {
            const loader_batch *r = loader_take(resumed, &waited);
            assert_memory_equal(r->ids, b->ids, sizeof want[0]);
            loader_give(resumed);
        }
        loader_give(l);
    }
    loader_stop(resumed);
    loader_stop(l);

    o.same = true, o.delay_s = 0.02;
    l = loader_start(&o);
    loader_take(l, &waited);
    waited = 0;
    assert_int_equal(loader_fill(&o, 0, want[0], want[1], &surprise, why, sizeof why), EXIT_CODE_OK);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(loader_take(l, &waited)->ids, want[0], sizeof want[0]);
    assert_true(waited > 0.03); /* a slow loader is waited for, and that is measured */
    loader_stop(l);

    o.vocab = 4, o.delay_s = 0;
    l = loader_start(&o);
    const loader_batch *refused = loader_take(l, &waited);
    assert_int_equal(refused->code, EXIT_CODE_USAGE);
    assert_non_null(strstr(refused->problem, "the vocabulary has 4"));
    loader_stop(l);
    data_close(d);
}

TESTS_WITH(folder_create, folder_remove)
