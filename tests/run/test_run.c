/* SPDX-License-Identifier: MIT */
/* What stands around a run's steps: the schedule against PyTorch's, outliers, the log's files. Event files are read by a reader of
 * this test alone, which shares nothing with the writer. */
#include "tests/support/test.h"

#include "common/run/journal.h"
#include "common/run/outliers.h"
#include "common/run/schedule.h"

/* ---- the schedule ---- */

TEST(schedules_are_those_of_pytorch)
{
    OWNED_CSV csv *c = csv_read("tests/golden/schedule.csv");
    assert_non_null(c);
    assert_true(c->rows > 400);
    for (size_t row = 0; row < c->rows; row++) {
        const schedule s = {csv_cell(c, row, "name"), 3e-4, csv_real(c, row, "min_lr"),
                            (int64_t)csv_real(c, row, "warmup"), (int64_t)csv_real(c, row, "steps")};
        const double want = csv_real(c, row, "rate"), got = schedule_rate(&s, (int64_t)csv_real(c, row, "step"));
        if (!(fabs(got - want) <= 1e-9 * 3e-4))
            fail_msg("%s, step %s: %.12g, PyTorch has %.12g", s.name, csv_cell(c, row, "step"), got, want);
    }
    assert_true(schedule_rate(&(schedule){"cosine", 1, 0.1, 0, 10}, 10) == 0.1);
    assert_true(schedule_rate(&(schedule){"cosine", 1, 0.1, 5, 5}, 9) == 0.1);
    assert_true(schedule_rate(&(schedule){"constant", 1, 0.1, 0, 10}, 99) == 1);
}

/* ---- outliers ---- */

TEST(outliers_are_named_and_do_not_hide_the_next)
{
    outliers o = {.n = 0};
    double z;
    assert_false(outliers_add(&o, 1e9, &z)); /* too few to say */
    assert_true(isnan(z));
    o = (outliers){.n = 0};
    for (int i = 0; i < 200; i++)
        assert_false(outliers_add(&o, i % 2 ? 3 : 1, &z)); /* mean 2, deviation 1 */
    assert_true(fabs(fabs(z) - 1) < 1e-12);
    assert_false(outliers_add(&o, 6.9, &z));
    o = (outliers){.n = 0};
    for (int i = 0; i < 128; i++)
        outliers_add(&o, i % 2 ? 3 : 1, &z);
    for (int i = 0; i < 300; i++) {
        assert_true(outliers_add(&o, 7.1, &z)); /* however often it comes */
        assert_true(fabs(z - 5.1) < 1e-9);
    }
    assert_true(outliers_add(&o, NAN, &z));
    assert_true(outliers_add(&o, INFINITY, &z));
    assert_false(outliers_add(&o, 2, &z));
    assert_true(z == 0);
}

/* ---- a reader of event files ---- */

static uint32_t table[256];

static void table_make(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82f63b78u : table[i] >> 1;
    }
}

static uint32_t masked_crc(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++)
        crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
    crc ^= 0xffffffffu;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

typedef struct scalar {
    char tag[64], version[32];
    double wall_s, value;
    long long step;
} scalar;

static unsigned long long varint(const unsigned char **p)
{
    unsigned long long x = 0;
    for (int shift = 0;; shift += 7) {
        const unsigned char byte = *(*p)++;
        x |= (unsigned long long)(byte & 127) << shift;
        if (byte < 128)
            return x;
    }
}

static void parse(const unsigned char *p, const unsigned char *end, int depth, scalar *out)
{
    while (p < end) {
        const unsigned long long key = varint(&p), field = key >> 3;
        float single;
        double wide;
        switch (key & 7) {
        case 0: out->step = (long long)varint(&p); break;
        case 1:
            memcpy(&wide, p, 8);
            out->wall_s = wide, p += 8;
            break;
        case 5:
            memcpy(&single, p, 4);
            out->value = single, p += 4;
            break;
        case 2: {
            const size_t n = varint(&p);
            if (depth < 2 && (field == 5 || (depth == 1 && field == 1)))
                parse(p, p + n, depth + 1, out);
            else
                snprintf(field == 3 ? out->version : out->tag, 32, "%.*s", (int)n, (const char *)p);
            p += n;
            break;
        }
        default: fail_msg("wire type %llu", key & 7);
        }
    }
    assert_true(p == end);
}

/* The scalars of a file; every CRC must be right. */
static int read_events(const char *path, scalar *out, int room)
{
    FILE *f = fopen(path, "rb");
    unsigned char data[4096];
    uint64_t length;
    uint32_t crc;
    int n = 0;
    assert_non_null(f);
    table_make();
    assert_int_equal(masked_crc((const unsigned char *)"123456789", 9),
                     ((0xe3069283u >> 15) | (0xe3069283u << 17)) + 0xa282ead8u); /* RFC 3720's polynomial */
    while (fread(&length, 8, 1, f) == 1) {
        assert_true(length < sizeof data && n < room);
        assert_int_equal(fread(&crc, 4, 1, f), 1);
        assert_int_equal(crc, masked_crc((unsigned char *)&length, 8));
        assert_int_equal(fread(data, 1, length, f), length);
        assert_int_equal(fread(&crc, 4, 1, f), 1);
        assert_int_equal(crc, masked_crc(data, length));
        out[n] = (scalar){.value = NAN};
        parse(data, data + length, 0, &out[n++]);
    }
    fclose(f);
    return n;
}

TEST(events_are_what_tensorboard_reads)
{
    scalar got[4];
    char *path = folder_path(*state, "events"), *cut = folder_path(*state, "cut"), why[400] = "";
    events *e = events_open(path, 1.5);
    events_scalar(e, 2.5, 300, "loss/mean", 0.25);
    events_scalar(e, 3.5, 1000000, "speed", -1e30);
    assert_true(events_close(e));
    assert_int_equal(read_events(path, got, 4), 3);
    assert_string_equal(got[0].version, "brain.Event:2");
    assert_true(got[0].wall_s == 1.5 && got[1].wall_s == 2.5 && got[2].wall_s == 3.5);
    assert_string_equal(got[1].tag, "loss/mean");
    assert_true(got[1].step == 300 && got[1].value == 0.25);
    assert_true(got[2].step == 1000000 && got[2].value == (float)-1e30);
    assert_true(events_check(path, why, sizeof why));
    /* Its fields have the numbers of event.proto and summary.proto, which the reader above takes for granted. */
    static const char second[] =
        "\x09\0\0\0\0\0\0\x04\x40\x10\xac\x02\x2a\x12\x0a\x10\x0a\x09loss/mean\x15\0\0\x80\x3e";
    unsigned char all[200] = "";
    FILE *f = fopen(path, "rb");
    const size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    assert_non_null(memmem(all, n, second, sizeof second - 1));

    OWNED char *command = xasprintf("head -c -1 '%s' >'%s'", path, cut);
    assert_int_equal(system(command), 0);
    assert_false(events_check(cut, why, sizeof why));
    assert_non_null(strstr(why, "record 2 is cut"));
    e = events_open(path, 0);
    events_plant(e);
    events_scalar(e, 1, 1, "loss", 1);
    events_close(e);
    assert_false(events_check(path, why, sizeof why));
    assert_non_null(strstr(why, "record 1 has a wrong CRC"));
    assert_null(events_open("/no/such/folder/x", 0));
    free(path);
    free(cut);
}

/* ---- the three files of a log ---- */

TEST(a_log_is_three_files_that_agree)
{
    static const journal_record records[] = {
        {10, 5120, 3.25, 3.5, 1.2, 0.5, 1e-3, 1000, 41.5, 2.5, 9.75, 0.125, 1e9, 2e9, 650, 1980, 0},
        {20, 10240, 2.25, 2.5, NAN, NAN, 2e-3, 2000, NAN, 3.5, 4.5, 0, NAN, NAN, NAN, NAN, 2}};
    char why[300] = "", *folder = folder_path(*state, "run"), *csv_path = folder_path(*state, "run/small.csv");
    OWNED char *old = folder_path(*state, "run/small/events.out.tfevents.1.old");
    scalar got[32];
    int64_t last;
    for (int again = 0; again < 2; again++) { /* the second log of a name replaces the first */
        journal *j = journal_open(folder, "small", "a run", 0, &last, why, sizeof why);
        assert_non_null(j);
        for (int i = 0; i < 2; i++)
            journal_write(j, &records[i]);
        if (!journal_close(j, why, sizeof why))
            fail_msg("%s", why);
        if (!again)
            file_write(old, "an earlier run's");
    }
    OWNED_CSV csv *c = csv_read(csv_path);
    assert_int_equal(c->rows, 2);
    assert_true(csv_real(c, 0, "step") == 10 && csv_real(c, 1, "tokens") == 10240);
    assert_true(csv_real(c, 0, "loss_max") == 3.5 && csv_real(c, 1, "rate") == 2e-3);
    assert_true(isnan(csv_real(c, 1, "entropy")) && csv_real(c, 1, "outliers") == 2);
    assert_true(csv_real(c, 0, "peak_bytes") == 2e9 && csv_real(c, 0, "power_w") == 650 &&
                csv_is(c, 1, "sm_mhz", "nan"));
    OWNED char *json_path = folder_path(*state, "run/small.jsonl"), *json = file_text(json_path);
    assert_non_null(strstr(json, "{\"step\":10,\"tokens\":5120,\"loss\":3.25,\"loss_max\":3.5,\"entropy\":1.2,"));
    assert_non_null(strstr(json, "\"mfu_pct\":null") && strstr(json, "\"sm_mhz\":null,\"outliers\":2}"));
    int code;
    OWNED char *command = xasprintf("ls '%s'/run/small/events.out.tfevents.*", (char *)*state);
    OWNED char *events_path = command_text(command, &code);
    events_path[strcspn(events_path, "\n")] = 0;
    assert_int_equal(read_events(events_path, got, 32), 1 + 14 + 7);
    assert_string_equal(got[1].tag, "loss/mean");
    assert_true(got[1].step == 10 && got[1].value == 3.25);
    assert_string_equal(got[13].tag, "device/power_w");
    assert_true(got[13].step == 10 && got[13].value == 650);
    free(csv_path);
    free(folder);
    assert_null(journal_open("/no/such/folder", "x", "", 0, &last, why, sizeof why));
    assert_non_null(strstr(why, "can't be written: No such file"));
}

static char *tensorboard_says(const char *folder, int *code)
{
    OWNED char *command = xasprintf("python3 tests/run/tensorboard_reader.py '%s/small'", folder);
    return command_text(command, code);
}

/* Where Python has TensorBoard, which stops at the first record that is damaged. */
TEST(tensorboard_reads_a_log)
{
    char why[300] = "", *folder = folder_path(*state, "board");
    int64_t last;
    int code;
    for (int wrong = 0; wrong < 2; wrong++) {
        journal *j = journal_open(folder, "small", "a run", 0, &last, why, sizeof why);
        journal_write(j, &(journal_record){.step = 300, .loss = 0.1, .mfu_pct = NAN});
        if (wrong)
            events_plant(journal_events(j));
        journal_write(j, &(journal_record){.step = 1000000, .loss = 3.25, .power_w = 650});
        journal_close(j, NULL, 0);
        char *text = tensorboard_says(folder, &code);
        if (code == EXIT_CODE_UNSUPPORTED || code == 127) {
            free(text), free(folder);
            skip();
        }
        assert_int_equal(code, 0);
        const bool later = strstr(text, "loss/mean 1000000 3.25\n") && strstr(text, "device/power_w 1000000 650\n");
        if (!strstr(text, "loss/mean 300 0.100000001\n") || strstr(text, "mfu_pct 300 ") || later == (bool)wrong)
            fail_msg("%s", text);
        free(text);
    }
    free(folder);
}

/* Records of step 5 and before stay as they are; later ones, and a line that a kill has cut, are gone from all three. */
TEST(a_log_goes_on_behind_a_step)
{
    char why[300] = "", *folder = folder_path(*state, "on");
    int64_t last;
    scalar got[64];
    journal *j = journal_open(folder, "small", "a run", 0, &last, why, sizeof why);
    assert_int_equal(last, 0);
    for (int64_t step = 2; step <= 8; step += 2)
        journal_write(j, &(journal_record){.step = step, .loss = 1, .mfu_pct = NAN});
    journal_close(j, NULL, 0);
    OWNED char *csv_path = folder_path(*state, "on/small.csv"), *json_path = folder_path(*state, "on/small.jsonl");
    FILE *f = fopen(csv_path, "a");
    fputs("5,3", f);
    fclose(f);
    j = journal_open(folder, "small", "a run", 5, &last, why, sizeof why);
    assert_int_equal(last, 4);
    journal_write(j, &(journal_record){.step = 6, .loss = 2, .mfu_pct = NAN});
    if (!journal_close(j, why, sizeof why))
        fail_msg("%s", why);
    OWNED_CSV csv *c = csv_read(csv_path);
    assert_int_equal(c->rows, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(csv_real(c, i, "step") == 2.0 * (double)(i + 1) && csv_real(c, i, "loss") == (i == 2 ? 2 : 1));
    int code;
    OWNED char *json = file_text(json_path), *command = xasprintf("ls '%s'/small/events.out.tfevents.*", folder);
    assert_null(strstr(json, "\"step\":8"));
    assert_non_null(strstr(json, "{\"step\":6,\"tokens\":0,\"loss\":2,"));
    OWNED char *events_path = command_text(command, &code);
    events_path[strcspn(events_path, "\n")] = 0;
    assert_int_equal(read_events(events_path, got, 64), 1 + 3 * 13);
    assert_true(got[13].step == 2 && got[14].step == 4 && got[27].step == 6 && got[27].value == 2);
    free(folder);
}

TESTS_WITH(folder_create, folder_remove)
