/* SPDX-License-Identifier: MIT */
/* The file for PyTorch's memory viewer: its bytes, and what python3's own pickle reads from it. */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "common/arena/snapshot.h"

/* Reads the file as the viewer does, checks what it takes for granted, prints what it would draw. */
static const char reader[] =
    "import pickle, pickletools, sys\n"
    "data = open(sys.argv[1], 'rb').read()\n"
    "known = {'PROTO', 'EMPTY_DICT', 'EMPTY_LIST', 'MARK', 'SETITEMS', 'APPENDS', 'BINUNICODE', 'BININT', 'LONG1',\n"
    "         'TUPLE2', 'NEWFALSE', 'STOP'}\n"
    "used = {op.name for op, _, _ in pickletools.genops(data)}\n"
    "assert used <= known, used - known\n"
    "s = pickle.loads(data)\n"
    "assert len(s['device_traces']) == 1\n"
    "trace, held, peak, now = s['device_traces'][0], {}, 0, 0\n"
    "for i, e in enumerate(trace):\n"
    "    assert e['stream'] == 0 and e['size'] > 0 and e['time_us'] >= 0\n"
    "    [frame] = e['frames']\n"
    "    assert set(frame) == {'filename', 'line', 'name'}\n"
    "    if e['action'] == 'alloc':\n"
    "        assert all(e['addr'] + e['size'] <= a or a + n <= e['addr'] for a, n in held.items()), e\n"
    "        held[e['addr']] = e['size']\n"
    "        now += e['size']\n"
    "        peak = max(peak, now)\n"
    "    elif e['action'] == 'free_requested':\n"
    "        done = trace[i + 1]\n"
    "        assert done['action'] == 'free_completed' and done['addr'] == e['addr'] and held[e['addr']] == e['size']\n"
    "    else:\n"
    "        assert e['action'] == 'free_completed'\n"
    "        now -= held.pop(e['addr'])\n"
    "for g in s['segments']:\n"
    "    at = g['address']\n"
    "    assert g['device'] == 0 and g['segment_pool_id'] == (0, 0) and g['is_expandable'] is False\n"
    "    for b in g['blocks']:\n"
    "        assert b['address'] == at\n"
    "        assert (b['state'] == 'active_allocated') == (at in held)\n"
    "        if at in held:\n"
    "            assert held.pop(at) == b['size'] == b['requested_size']\n"
    "        at += b['size']\n"
    "    assert at == g['address'] + g['total_size']\n"
    "assert not held\n"
    "categories = sorted({e['category'] for e in trace if 'category' in e})\n"
    "print(len(trace), len(s['segments']), peak, now, ' '.join(categories))\n"
    "print(trace[-1]['frames'][0]['filename'], trace[-1]['frames'][0]['line'], trace[-1]['frames'][0]['name'])\n";

/* What python3 makes of the snapshot; skips the test where there is no python3. */
static char *read_back(const char *folder, const char *path)
{
    char *script = folder_path(folder, "read.py"), printed[4096];
    if (system("python3 -c 0 >/dev/null 2>&1") != 0) {
        free(script);
        skip();
    }
    file_write(script, reader);
    OWNED char *command = xasprintf("python3 '%s' '%s' 2>&1", script, path);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    printed[fread(printed, 1, sizeof printed - 1, out)] = '\0';
    int state = pclose(out);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        fail_msg("python3: %s", printed);
    free(script);
    return xstrdup(printed);
}

static const arena_event sample[] = {
    {PHASE_INIT, 0, 100, MEMORY_PARAM, -1, "parameters", 3 << 20, -1},
    {PHASE_INIT, 0, 101, MEMORY_OTHER, -1, "tokens", 512, -1},
    {PHASE_FORWARD, 0, 0, MEMORY_ACTIVATION, 0, "qkv", 1024, 256},
    {PHASE_FORWARD, 1, 1, MEMORY_TEMPORARY, 0, "scores", 256, 0},
    {PHASE_FORWARD, 2, 1, MEMORY_TEMPORARY, 0, "scores", -256, 0},
    {PHASE_FORWARD, 2, 2, MEMORY_ACTIVATION, 1, "nothing", 0, 0},
    {PHASE_BACKWARD, 3, 3, MEMORY_GRAD, -1, "head", (int64_t)5 << 30, 2048},
    {PHASE_BACKWARD, 4, 0, MEMORY_ACTIVATION, 0, "qkv", -1024, 256},
    {PHASE_BACKWARD, 5, 4, MEMORY_GRAD, 0, "w2", 512, 256},
};
enum { SAMPLE = sizeof sample / sizeof *sample };
static const int64_t sample_arena = ((int64_t)5 << 30) + 4096;

TEST_IN_FOLDER(a_step_reads_back)
{
    OWNED char *path = folder_path(*state, "snapshot.pickle");
    assert_true(snapshot_write(path, sample, SAMPLE, sample_arena));
    OWNED char *said = read_back(*state, path);
    int64_t outside = (3 << 20) + 512, peak = outside + 1024 + ((int64_t)5 << 30), end = peak - 1024 + 512;
    OWNED char *wanted =
        xasprintf("10 3 %lld %lld activation grad param temporary unknown\nbackward 5 w2 of block 0 (grad)\n",
                  (long long)peak, (long long)end);
    assert_string_equal(said, wanted);
}

/* Categories without an "unknown" one stop the viewer's page, so there are none. */
TEST_IN_FOLDER(no_category_without_the_unknown_one)
{
    OWNED char *path = folder_path(*state, "snapshot.pickle");
    assert_true(snapshot_write(path, sample + 2, 2, sample_arena));
    OWNED char *said = read_back(*state, path);
    assert_string_equal(said, "2 1 1280 1280 \nforward 1 scores of block 0 (temporary)\n");
}

TEST_IN_FOLDER(a_long_trace_is_whole)
{
    enum { TENSORS = 2600 };
    OWNED arena_event *events = xcalloc(2 * TENSORS, sizeof *events);
    for (int i = 0; i < TENSORS; i++) {
        events[i] = (arena_event){PHASE_FORWARD, i, i, MEMORY_OTHER, i, "x", 256, 256 * (int64_t)i};
        events[2 * TENSORS - 1 - i] = (arena_event){PHASE_BACKWARD, i, i, MEMORY_OTHER, i, "x", -256, 256 * (int64_t)i};
    }
    OWNED char *path = folder_path(*state, "snapshot.pickle");
    assert_true(snapshot_write(path, events, 2 * TENSORS - 1, 256 * TENSORS)); /* the last release is left out */
    OWNED char *said = read_back(*state, path);
    OWNED char *wanted = xasprintf("%d 1 %d 256 unknown\n", 3 * TENSORS - 2, 256 * TENSORS);
    assert_ptr_equal(strstr(said, wanted), said);
}

TEST_IN_FOLDER(bytes_are_those_of_protocol_2)
{
    OWNED char *path = folder_path(*state, "snapshot.pickle");
    assert_true(snapshot_write(path, sample, 0, 0));
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    unsigned char got[128];
    size_t bytes = fread(got, 1, sizeof got, in);
    fclose(in);
    static const char wanted[] = "\x80\x02}(X\x08\0\0\0segments](eX\x0d\0\0\0device_traces](](eeu.";
    assert_int_equal(bytes, sizeof wanted - 1);
    assert_memory_equal(got, wanted, bytes);
    OWNED char *missing = folder_path(*state, "none/snapshot.pickle");
    assert_false(snapshot_write(missing, sample, SAMPLE, sample_arena));
}
