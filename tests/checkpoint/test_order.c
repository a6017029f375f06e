/* SPDX-License-Identifier: MIT */
/* The order in which ranks begin files: on a host that writes to a file for one rank at a time, all lanes are busy to the end. */
#include "tests/support/test.h"

#include "common/checkpoint/order.h"

enum { MOST_FILES = 128, MOST_RANKS = 16, LANES = 16 };

/* Units of equal size, head and embedding, each as a file of five times the bytes of the other. */
static int files_of(int blocks, int64_t block, int64_t end, int64_t bytes[MOST_FILES])
{
    for (int i = 0; i < blocks + 2; i++) {
        bytes[2 * i] = i < blocks ? block : end;
        bytes[2 * i + 1] = 5 * bytes[2 * i];
    }
    return 2 * (blocks + 2);
}

/* When all ranks are done, over the time that their bytes take if no lane ever waits. */
static double longest(const int64_t *bytes, int files, int ranks, int lanes)
{
    int order[MOST_RANKS][MOST_FILES], begun[MOST_RANKS] = {0};
    double lane[MOST_RANKS * LANES] = {0}, busy[MOST_FILES] = {0}, last = 0, all = 0;
    for (int r = 0; r < ranks; r++)
        checkpoint_order(bytes, files, r, ranks, lanes, order[r]);
    for (int i = 0; i < files; i++)
        all += (double)bytes[i];
    for (int i = 0; i < files * ranks; i++) {
        int first = -1;
        for (int l = 0; l < ranks * lanes; l++)
            if (begun[l % ranks] < files && (first < 0 || lane[l] < lane[first]))
                first = l;
        const int f = order[first % ranks][begun[first % ranks]++];
        lane[first] = busy[f] = fmax(lane[first], busy[f]) + (double)bytes[f];
        last = fmax(last, busy[f]);
    }
    return last / (all / lanes);
}

TEST(no_rank_ends_late)
{
    static const struct {
        const char *name;
        int blocks;
        int64_t block, end;
    } models[] = {{"small", 12, 19, 15}, {"medium", 24, 34, 20}, {"xl", 48, 82, 32}, {"8b", 32, 470, 1048}};
    int64_t bytes[MOST_FILES];
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const int files = files_of(models[m].blocks, models[m].block, models[m].end, bytes);
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            const double late = longest(bytes, files, ranks, LANES / ranks);
            if (!(late < 1.07))
                fail_msg("%s on %d ranks takes %.3f times as long as its bytes", models[m].name, ranks, late);
        }
    }
}

TEST(every_file_comes_once)
{
    const int64_t bytes[] = {7, 0, 7, 3, 0};
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            int order[5], seen[5] = {0};
            checkpoint_order(bytes, 5, rank, ranks, 2, order);
            for (int i = 0; i < 5; i++)
                seen[order[i]]++;
            for (int i = 0; i < 5; i++)
                assert_int_equal(seen[i], 1);
        }
}
