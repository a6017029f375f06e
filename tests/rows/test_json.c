/* SPDX-License-Identifier: MIT */
/* A row as a line of JSON: kinds of columns, what is missing, and what must be escaped. */
#include "tests/support/test.h"

typedef struct taken { /* what a writer of rows gave */
    const options *o;
    char *text;
    size_t bytes;
    FILE *out;
} taken;

static void take(void *user, const char *header, const char *line)
{
    taken *t = user;
    json_write_row(t->out, t->o, header, line);
}

static void expect(const char *text, const char *part)
{
    text_has(text, part);
}

TEST(a_row_is_an_object_on_a_line)
{
    OWNED_OPTIONS options *o = sample_options_of("--seq 128 --dtype bf16 --decay 0.25 --variant fast,plain --csv none");
    taken t = {.o = o};
    t.out = open_memstream(&t.text, &t.bytes);
    rows_info info = {.machine = "test-x1",
                      .device_name = "A, \"quoted\" GPU\\1",
                      .device = "cpu",
                      .quiet = true,
                      .silent = true,
                      .written = take,
                      .user = &t};
    row_writer *r = rows_open(o, &info, false);
    sample_row(r, o, 0, ROW_OK);
    sample_row(r, o, 1, ROW_FAIL);
    rows_close(r);
    fclose(t.out);
    char *second = strchr(t.text, '\n') + 1;
    assert_true(*second && strcmp(strchr(second, '\n'), "\n") == 0); /* two lines */
    second[-1] = '\0';
    assert_true(strncmp(t.text, "{\"schema\":", 10) == 0 && t.text[strlen(t.text) - 1] == '}');
    expect(t.text,
           "\"variant\":\"fast\",\"status\":\"ok\",\"reason\":\"\",\"seq\":128,\"head_dim\":16,\"dtype\":\"bf16\","
           "\"decay\":0.25,\"causal\":1,\"scale\":1,\"fwd_ms\":0.333333333,\"peak_bytes\":68719476736,"
           "\"timer\":\"host\",\"err_fwd\":0.25,\"run_id\":\"");
    expect(t.text, "\"gpu\":\"A, \\\"quoted\\\" GPU\\\\1\"");
    expect(t.text, "\"sm_mhz\":null");
    expect(second, "\"status\":\"fail\",\"reason\":\"why, \\\"so\\\" indeed\"");
    expect(second, "\"fwd_ms\":null,\"peak_bytes\":null,\"timer\":\"\",\"err_fwd\":0.25");
    free(t.text);
}
