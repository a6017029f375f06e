/* SPDX-License-Identifier: MIT */
/* Meshes: their text, places of ranks, and groups, over all factorisations of worlds up to 64. */
#include "tests/support/test.h"

#include "common/mesh/mesh.h"

enum { WORLDS = 64 };

static int of_axis(mesh m, unsigned axis)
{
    return axis == MESH_PP             ? m.pp
           : axis == MESH_DP_REPLICATE ? m.dp_replicate
           : axis == MESH_DP_SHARD     ? m.dp_shard
           : axis == MESH_CP           ? m.cp
                                       : m.tp;
}

static void every_mesh(void (*check)(mesh m, int world))
{
    for (int n = 1; n <= WORLDS; n++)
        for (int pp = 1; pp <= n; pp++)
            for (int dr = 1; n % pp == 0 && dr <= n / pp; dr++)
                for (int ds = 1; n / pp % dr == 0 && ds <= n / pp / dr; ds++)
                    for (int cp = 1; n / pp / dr % ds == 0 && cp <= n / pp / dr / ds; cp++)
                        if (n / pp / dr / ds % cp == 0)
                            check((mesh){pp, dr, ds, cp, n / pp / dr / ds / cp}, n);
}

static bool same(mesh a, mesh b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static int meshes;

static void check_places(mesh m, int world)
{
    char text[80], why[200];
    mesh back;
    meshes++;
    assert_int_equal(mesh_world(m), world);
    assert_true(mesh_parse(mesh_text(m, text, sizeof text), world, &back, why, sizeof why));
    assert_true(same(m, back));
    assert_null(strchr(text, ',')); /* at which lists of --mesh are cut */
    for (int r = 0; r < world; r++) {
        const mesh at = mesh_coords(m, r);
        assert_int_equal(mesh_rank(m, at), r);
        assert_int_equal(
            r, (((at.pp * m.dp_replicate + at.dp_replicate) * m.dp_shard + at.dp_shard) * m.cp + at.cp) * m.tp + at.tp);
    }
}

TEST(ranks_have_places)
{
    meshes = 0;
    every_mesh(check_places);
    assert_true(meshes > 3000);
}

/* Groups are classes of an equivalence: each rank is in its own, members agree about it, and they differ on no other axis. */
static void check_groups(mesh m, int world)
{
    for (unsigned axes = 0; axes <= MESH_ALL; axes++) {
        int product = 1, members = 0, firsts = 0;
        for (unsigned axis = MESH_PP; axis <= MESH_TP; axis *= 2)
            product *= axes & axis ? of_axis(m, axis) : 1;
        assert_int_equal(mesh_group_size(m, axes), product);
        for (int r = 0; r < world; r++) {
            mesh_group g = mesh_group_of(m, r, axes);
            const mesh own = mesh_coords(m, r);
            assert_int_equal(g.count, product);
            assert_int_equal(g.ranks[g.mine], r);
            firsts += g.mine == 0;
            members += g.mine == 0 ? g.count : 0;
            for (int i = 0; i < g.count; i++) {
                const mesh at = mesh_coords(m, g.ranks[i]);
                assert_true(i == 0 || g.ranks[i] > g.ranks[i - 1]);
                for (unsigned axis = MESH_PP; axis <= MESH_TP; axis *= 2)
                    if (!(axes & axis))
                        assert_int_equal(of_axis(at, axis), of_axis(own, axis));
            }
            if (g.mine == 0 && g.count <= 4)
                for (int i = 1; i < g.count; i++) {
                    mesh_group other = mesh_group_of(m, g.ranks[i], axes);
                    assert_memory_equal(other.ranks, g.ranks, (size_t)g.count * sizeof *g.ranks);
                    mesh_group_free(&other);
                }
            if (axes == MESH_TP) /* neighbours */
                assert_int_equal(g.ranks[g.count - 1] - g.ranks[0], g.count - 1);
            if (axes == (MESH_ALL & ~MESH_PP)) /* so are the ranks of a stage */
                assert_int_equal(g.ranks[g.count - 1] - g.ranks[0], g.count - 1);
            mesh_group_free(&g);
        }
        assert_int_equal(members, world);
        assert_int_equal(firsts * product, world);
    }
}

TEST(groups_partition_the_world)
{
    every_mesh(check_groups);
}

TEST(named_sets)
{
    const mesh m = {2, 2, 2, 2, 2};
    mesh_group data = mesh_group_of(m, 21, MESH_DATA), model = mesh_group_of(m, 21, MESH_MODEL);
    static const int same_stage_and_tp[] = {17, 19, 21, 23, 25, 27, 29, 31};
    static const int same_replica[] = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
    assert_int_equal(data.count, 8);
    assert_memory_equal(data.ranks, same_stage_and_tp, sizeof same_stage_and_tp);
    assert_int_equal(model.count, 16);
    assert_memory_equal(model.ranks, same_replica, sizeof same_replica);
    assert_int_equal(mesh_group_size(m, MESH_FSDP), 4);
    mesh_group_free(&data);
    mesh_group_free(&model);
    assert_int_equal(mesh_metrics_rank(m, MESH_LOOP), 16);
    assert_int_equal(mesh_metrics_rank(m, MESH_V), 0);
    assert_int_equal(mesh_metrics_rank((mesh){1, 1, 4, 1, 2}, MESH_LOOP), 0);
}

TEST(texts)
{
    static const struct {
        const char *text;
        int world;
        mesh m;
        const char *why;
    } cases[] = {
        {"pp2,tp2", 8, {2, 1, 2, 1, 2}, NULL},
        {NULL, 6, {1, 1, 6, 1, 1}, NULL},
        {"", 1, {1, 1, 1, 1, 1}, NULL},
        {"tp1,dp_replicate2", 4, {1, 2, 2, 1, 1}, NULL},
        {"dp_shard1,cp4", 4, {1, 1, 1, 4, 1}, NULL},
        {"tp3", 4, {0}, "4 ranks are not a multiple of the 3 of the mesh tp3"},
        {"dp_shard2", 4, {0}, "the mesh dp_shard2 has 2 ranks, and there are 4"},
        {"tp8", 4, {0}, "the mesh tp8 needs more than 4 ranks"},
        {"pp4294967296,tp4294967296", 4, {0}, "needs more than 4 ranks"},
        {"tp99999999999999999999", 4, {0}, "needs more than 4 ranks"},
        {"tp2,tp2", 4, {0}, "the mesh tp2,tp2 names tp twice"},
        {"tp0", 4, {0}, "'tp0' is not an axis"},
        {"tp-2", 4, {0}, "'tp-2' is not an axis"},
        {"tp", 4, {1, 1, 1, 1, 4}, NULL},
        {"dp_shard2+tp", 6, {1, 1, 2, 1, 3}, NULL},
        {"tp,pp", 4, {0}, "the mesh tp,pp names who takes the rest twice"},
        {"tp2,tp", 4, {0}, "the mesh tp2,tp names tp twice"},
        {"2", 4, {0}, "'2' is not an axis"},
        {"ep2,tp2", 4, {0}, "'ep2' is not an axis"},
        {"tp2x", 4, {0}, "'tp2x' is not an axis"},
        {"tp2,", 4, {0}, "'' is not an axis"},
        {"tp2,,pp2", 4, {0}, "'' is not an axis"},
        {"a_name_that_is_longer_than_any_axis_could_be2", 4, {0}, "is not an axis"},
    };
    char why[200];
    mesh m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool read = mesh_parse(cases[i].text, cases[i].world, &m, why, sizeof why);
        if (read == !!cases[i].why)
            fail_msg("%s: %s", cases[i].text, read ? "is taken" : why);
        if (read)
            assert_true(same(m, cases[i].m));
        else if (!strstr(why, cases[i].why))
            fail_msg("%s: %s", cases[i].text, why);
    }
}

TEST(what_cannot_be_split_is_said)
{
    static const struct {
        mesh m;
        mesh_model of;
        const char *why;
    } cases[] = {
        {{1, 1, 1, 1, 2}, {.layers = 48, .heads = 25}, "heads 25 are not a multiple of tp 2"},
        {{1, 1, 1, 1, 2}, {.layers = 32, .heads = 32, .heads_kv = 32, .d_ff = 10240, .seq = 2048, .batch = 4}, NULL},
        {{1, 1, 1, 1, 4}, {.heads = 8, .heads_kv = 2}, NULL}, /* two ranks share a head */
        {{1, 1, 1, 1, 2}, {.heads = 6, .heads_kv = 3}, "heads-kv 3 and tp 2: neither is a multiple of the other"},
        {{1, 1, 1, 1, 3}, {.heads = 6, .d_ff = 64}, "d-ff 64 is not a multiple of tp 3"},
        {{4, 1, 1, 1, 1}, {.layers = 7, .chunks = 2}, "the 8 chunks of pp 4 need more layers than 7"},
        {{4, 1, 1, 1, 1}, {.layers = 7}, NULL},
        {{1, 1, 1, 2, 1}, {.seq = 18}, "seq 18 is not a multiple of 4: each rank of cp 2 takes two chunks"},
        {{1, 1, 1, 2, 1}, {.seq = 20}, NULL},
        {{1, 1, 1, 2, 4}, {.seq = 20, .batch = 1}, "10 tokens of a micro-batch are not a multiple of tp 4"},
        {{1, 1, 1, 2, 4}, {.seq = 20, .batch = 2}, NULL},
    };
    char out[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = mesh_problem(cases[i].m, &cases[i].of, out, sizeof out);
        if (!why != !cases[i].why || (why && !strstr(why, cases[i].why)))
            fail_msg("case %zu: %s", i, why ? why : "nothing");
    }
}
