/* SPDX-License-Identifier: MIT */
/* bench_allreduce's check of graphs, without a GPU: the linker puts graphs of this file in place of the device's. A
 * capture notes the calls and a launch makes them, right or, as FAULT says, wrong: the row must then be `fail`, though
 * calls that are made one by one are right; and the other way round. Run as bench_allreduce, this program is the bench. */
#include "tests/support/test.h"

#include "common/comm/comm.h"
#include "common/device/device.h"
#include "tests/support/ranks.h"

int bench_main_allreduce(int argc, char **argv); /* of bench_allreduce.c */

/* ---- graphs that note calls ---- */

typedef struct call {
    enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST } op;
    comm *c;
    const void *send;
    void *recv;
    size_t count;
    comm_dtype t;
    void *stream;
} call;

enum { CALLS = 1000 };
struct device_graph {
    call calls[CALLS];
    int n;
};
static device_graph *capturing;

void __real_comm_all_reduce(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r,
                            void *stream);
void __real_comm_all_gather(comm *c, const void *send, void *recv, size_t count, comm_dtype t, void *stream);
void __real_comm_reduce_scatter(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r,
                                void *stream);
void __real_comm_broadcast(comm *c, const void *send, void *recv, size_t count, comm_dtype t, int root, void *stream);

static bool fault_is(const char *name)
{
    const char *fault = getenv("FAULT");
    return fault && strcmp(fault, name) == 0;
}

/* With one element less, where its fault is asked for. */
static void make(const call *k, const char *fault)
{
    const size_t count = k->count - fault_is(fault);
    switch (k->op) {
    case ALL_REDUCE: __real_comm_all_reduce(k->c, k->send, k->recv, count, k->t, COMM_SUM, k->stream); break;
    case ALL_GATHER: __real_comm_all_gather(k->c, k->send, k->recv, count, k->t, k->stream); break;
    case REDUCE_SCATTER: __real_comm_reduce_scatter(k->c, k->send, k->recv, count, k->t, COMM_SUM, k->stream); break;
    case BROADCAST: __real_comm_broadcast(k->c, k->send, k->recv, count, k->t, 0, k->stream); break;
    }
}

static void note_or_make(call k)
{
    if (!capturing) {
        make(&k, "calls");
        return;
    }
    assert_true(capturing->n < CALLS);
    capturing->calls[capturing->n++] = k;
}

void __wrap_comm_all_reduce(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r,
                            void *stream)
{
    (void)r;
    note_or_make((call){ALL_REDUCE, c, send, recv, count, t, stream});
}

void __wrap_comm_all_gather(comm *c, const void *send, void *recv, size_t count, comm_dtype t, void *stream)
{
    note_or_make((call){ALL_GATHER, c, send, recv, count, t, stream});
}

void __wrap_comm_reduce_scatter(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r,
                                void *stream)
{
    (void)r;
    note_or_make((call){REDUCE_SCATTER, c, send, recv, count, t, stream});
}

void __wrap_comm_broadcast(comm *c, const void *send, void *recv, size_t count, comm_dtype t, int root, void *stream)
{
    (void)root;
    note_or_make((call){BROADCAST, c, send, recv, count, t, stream});
}

bool __wrap_device_has_graphs(const device *d)
{
    (void)d;
    return true;
}

bool __wrap_device_graph_begin(device *d)
{
    (void)d;
    capturing = xcalloc(1, sizeof *capturing);
    return true;
}

device_graph *__wrap_device_graph_end(device *d)
{
    device_graph *g = capturing;
    (void)d;
    capturing = NULL;
    return g;
}

void __wrap_device_graph_launch(device *d, device_graph *g)
{
    (void)d;
    for (int i = 0; i < g->n && !fault_is("nothing"); i++)
        make(&g->calls[i], "graph");
}

void __wrap_device_graph_destroy(device *d, device_graph *g)
{
    (void)d;
    free(g);
}

/* ---- the bench with them ---- */

static void rows_are(const char *fault, const char *in_place, const char *mode, const char *status, const char *reason)
{
    needs_gloo();
    remove("rows.csv");
    OWNED char *arguments =
        xasprintf("FAULT=%s --device cpu --machine test-x1 --quiet --csv rows.csv --ranks 2 --bytes 4000 "
                  "--dtype fp32 --in-place %s --mode %s --calls 3 --iters 2 --warmup 1 --variant "
                  "all-reduce,reduce-scatter,broadcast%s",
                  fault, in_place, mode, strcmp(in_place, "0") == 0 ? ",all-gather" : "");
    const bool ok = strcmp(status, "ok") == 0;
    assert_int_equal(ranks_run("bench_allreduce", arguments), ok ? EXIT_CODE_OK : EXIT_CODE_VERIFY);
    OWNED_CSV csv *c = csv_read("rows.csv");
    assert_non_null(c);
    assert_int_equal(c->rows, strcmp(in_place, "0") == 0 ? 4 : 3);
    for (size_t r = 0; r < c->rows; r++) {
        if (!csv_is(c, r, "status", status))
            fail_msg("%s: %s is %s: %s", arguments, csv_cell(c, r, "variant"), csv_cell(c, r, "status"),
                     csv_cell(c, r, "reason"));
        assert_non_null(strstr(csv_cell(c, r, "reason"), reason));
        assert_true(isnan(csv_real(c, r, "median_ms")) == !ok);
        assert_true((csv_real(c, r, "err_elements") == 0) == ok);
    }
}

TEST_IN_RANKS_FOLDER(right_graphs_pass)
{
    rows_are("none", "0", "graph", "ok", "");
    rows_are("none", "1", "graph", "ok", "");
}

TEST_IN_RANKS_FOLDER(wrong_graphs_fail)
{
    rows_are("graph", "0", "graph", "fail", "after timing");
    rows_are("nothing", "0", "graph", "fail", "after timing");
    rows_are("nothing", "1", "graph", "fail", "after timing");
}

TEST_IN_RANKS_FOLDER(wrong_calls_fail)
{
    rows_are("calls", "0", "eager", "fail", "before timing");
}

PROGRAM("bench_allreduce", bench_main_allreduce)
