/* SPDX-License-Identifier: MIT */
/* The named models, the index space of their parameters, initial values, and the precision policies. */
#include "tests/support/test.h"

#include "common/model/params.h"
#include "common/model/precision.h"

static const param_tensor *params_named(const params *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->tensors[i].name, name) == 0)
            return &p->tensors[i];
    return NULL;
}

static const struct {
    model_config config;
    int64_t parameters;
    int tensors;
} known[] = {
    {{"tiny", 256, 64, 192, 2, 4, 4, 10000, 1e-5f}, 139584, 21},
    {{"small", 10000, 768, 3072, 12, 12, 12, 10000, 1e-5f}, 128625408, 111},
    {{"medium", 10000, 1024, 4096, 24, 16, 16, 10000, 1e-5f}, 423183360, 219},
    {{"large", 10000, 1280, 5120, 36, 20, 20, 10000, 1e-5f}, 969411840, 327},
    {{"xl", 10000, 1600, 6400, 48, 25, 25, 10000, 1e-5f}, 1998235200, 435},
    {{"2.7b", 10000, 2560, 10240, 32, 32, 32, 10000, 1e-5f}, 3406809600, 291},
    {{"xl-2026", 10000, 2560, 10240, 32, 32, 32, 10000, 1e-5f}, 3406809600, 291},
    {{"10b", 10000, 4608, 12288, 50, 36, 36, 10000, 1e-5f}, 12832823808, 453},
    {{"8b", 151936, 4096, 11008, 34, 32, 32, 10000, 1e-5f}, 8125698048, 309},
    {{"llama3-8b", 128256, 4096, 14336, 32, 32, 8, 500000, 1e-5f}, 8030261248, 291},
    {{"mlp-1024", 10000, 1024, 4096, 3, 0, 0, 10000, 1e-5f}, 58232832, 15},
    {{"mlp-4096", 10000, 4096, 16384, 4, 0, 0, 10000, 1e-5f}, 887246848, 19},
};
enum { KNOWN = sizeof known / sizeof *known };

/* Nothing here is a multiple of the alignment, and heads are grouped. */
static const model_config odd = {"odd", 7, 36, 50, 3, 6, 2, 10000, 1e-5f};

TEST(sizes)
{
    char why[160], choices[256] = "";
    for (size_t i = 0; i < KNOWN; i++) {
        const model_config *c = model_size_find(known[i].config.name), *want = &known[i].config;
        assert_non_null(c);
        assert_ptr_equal(c, &model_sizes[i]);
        assert_string_equal(c->name, want->name);
        assert_int_equal(c->vocab, want->vocab);
        assert_int_equal(c->d_model, want->d_model);
        assert_int_equal(c->d_ff, want->d_ff);
        assert_int_equal(c->layers, want->layers);
        assert_int_equal(c->heads, want->heads);
        assert_int_equal(c->heads_kv, want->heads_kv);
        assert_true(c->rope_theta == want->rope_theta && c->norm_eps == want->norm_eps);
        assert_null(model_config_problem(c, why, sizeof why));
        assert_true(model_parameters(c) == known[i].parameters);
        assert_int_equal(model_kv_dim(c), c->heads ? c->d_model / c->heads * c->heads_kv : 0);
        snprintf(choices + strlen(choices), sizeof choices - strlen(choices), "%s%s", i ? "|" : "", c->name);
    }
    assert_null(model_sizes[KNOWN].name);
    assert_string_equal(choices, MODEL_SIZE_CHOICES);
    assert_null(model_size_find("gpt"));
    assert_int_equal(model_head_dim(&odd), 6);
    assert_int_equal(model_kv_dim(&odd), 12);
}

static bool same_dimensions(const model_config *a, const model_config *b)
{
    return a->vocab == b->vocab && a->d_model == b->d_model && a->d_ff == b->d_ff && a->layers == b->layers &&
           a->heads == b->heads && a->heads_kv == b->heads_kv;
}

/* What departs from a size is what has to be asked for: nothing more, and it gives the same model. */
TEST(departures)
{
    static const model_config asked[] = {{.name = "itself"},
                                         {.d_model = 1024},
                                         {.d_ff = 100},
                                         {.layers = 4},
                                         {.heads = 6},
                                         {.heads_kv = 2},
                                         {.vocab = 50257},
                                         {.d_model = 1000, .heads = 25},
                                         {.d_model = 1024, .heads = 4, .layers = 1},
                                         {.d_ff = 8, .vocab = 3, .heads_kv = 1}};
    const model_config *size = model_size_find("small");
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const model_config c = model_config_resized(size, &asked[i]), d = model_config_departures(size, &c);
        assert_true(same_dimensions(&asked[i], &d));
        assert_string_equal(c.name, i ? "custom" : "small");
    }
    const model_config said = {.layers = 12, .heads_kv = 12, .vocab = 10000}, nothing = {0}; /* what it has anyway */
    const model_config c = model_config_resized(size, &said), d = model_config_departures(size, &c);
    assert_true(same_dimensions(&c, size) && same_dimensions(&d, &nothing));
    const model_config *mlp = model_size_find("mlp-1024"), wide = {.d_model = 1000}; /* no heads follow */
    const model_config w = model_config_resized(mlp, &wide), e = model_config_departures(mlp, &w);
    assert_true(w.heads == 0 && w.heads_kv == 0 && same_dimensions(&e, &wide));
}

/* Four heads of llama3-8b share one of its key and value heads, at other widths, too. */
TEST(shared_heads)
{
    static const struct {
        model_config asked;
        int heads, heads_kv;
    } cases[] = {{{0}, 32, 8},
                 {{.layers = 2}, 32, 8},
                 {{.d_model = 2048}, 16, 4},
                 {{.heads = 6}, 6, 6},
                 {{.heads_kv = 32}, 32, 32}};
    const model_config *size = model_size_find("llama3-8b");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const model_config c = model_config_resized(size, &cases[i].asked), d = model_config_departures(size, &c);
        assert_int_equal(c.heads, cases[i].heads);
        assert_int_equal(c.heads_kv, cases[i].heads_kv);
        assert_true(same_dimensions(&cases[i].asked, &d));
    }
}

static void problem_is(model_config c, const char *words)
{
    char why[160];
    const char *problem = model_config_problem(&c, why, sizeof why);
    if (!problem || !strstr(problem, words))
        fail_msg("want a problem with \"%s\", got \"%s\"", words, problem ? problem : "(none)");
}

TEST(problems)
{
    model_config c = odd;
    c.heads = 5;
    problem_is(c, "d_model 36 is not a multiple of heads 5");
    c = odd;
    c.heads = c.heads_kv = 4;
    problem_is(c, "head_dim 9");
    c = odd;
    c.heads_kv = 4;
    problem_is(c, "heads 6 is not a multiple of heads_kv 4");
    c = odd;
    c.heads = 0;
    problem_is(c, "heads is 0");
    c = odd;
    c.heads_kv = 0;
    problem_is(c, "heads_kv is 0");
    c = odd;
    c.layers = 0;
    problem_is(c, "layers is 0");
    c = odd;
    c.vocab = -1;
    problem_is(c, "vocab is -1");
    c = odd;
    c.rope_theta = NAN;
    problem_is(c, "rope_theta");
    c = odd;
    c.norm_eps = 0;
    problem_is(c, "norm_eps");
}

static bool follows(param_kind kind)
{
    return kind == PARAM_W3 || kind == PARAM_K || kind == PARAM_V;
}

/* Order, alignment, adjacency and sums of one index space. */
static void check_space(const model_config *c)
{
    const int of_block = c->heads ? 9 : 4;
    params *p = params_create(c);
    assert_int_equal(p->count, of_block * c->layers + 3);
    assert_true(p->parameters == model_parameters(c));
    int64_t end = 0, sum = 0;
    for (int i = 0; i < p->count; i++) {
        const param_tensor *t = &p->tensors[i];
        assert_true(t->count == (int64_t)t->rows * t->columns);
        if (follows(t->kind)) {
            assert_true(t->first == end);
        } else {
            assert_true(t->first % PARAMS_ALIGNMENT == 0);
            assert_true(t->first >= end && t->first - end < PARAMS_ALIGNMENT);
        }
        end = t->first + t->count;
        sum += t->count;
        assert_ptr_equal(params_find(p, t->kind, t->layer), t);
        assert_ptr_equal(params_named(p, t->name), t);
        if (i > 0 && i < p->count - 1) /* head, final norm, blocks from the last to the first, embedding */
            assert_int_equal(t->layer, i == 1 ? -1 : c->layers - 1 - (i - 2) / of_block);
        assert_int_equal(t->kind, i < 2 ? i : i == p->count - 1 ? PARAM_EMBEDDING : 2 + (i - 2) % of_block);
    }
    assert_true(sum == p->parameters);
    assert_true(p->elements % PARAMS_ALIGNMENT == 0 && p->elements >= end && p->elements - end < PARAMS_ALIGNMENT);
    params_free(p);
}

TEST(index_space)
{
    for (size_t i = 0; i < KNOWN; i++) {
        params *p = params_create(&known[i].config);
        assert_int_equal(p->count, known[i].tensors);
        params_free(p);
        check_space(&known[i].config);
    }
    check_space(&odd);
    params_free(NULL);
}

/* How many ranks hold each element of a tensor of the whole model. */
static void count_holders(const param_tensor *t, unsigned char *held)
{
    assert_true(t->column_first >= 0 && t->column_first + t->columns <= t->whole_columns);
    for (int row = t->row_first; row < t->row_first + t->rows && row < t->whole_rows; row++)
        for (int column = t->column_first; column < t->column_first + t->columns; column++)
            held[(int64_t)row * t->whole_columns + column]++;
}

/* Every weight is on one rank, gains on all, and a key or value head on as many as read it. */
static void check_split(const model_config *c, int ranks, int sharers)
{
    params *whole = params_create(c), *of[8];
    int64_t held_n = 0, weights = 0;
    for (int r = 0; r < ranks; r++) {
        of[r] = params_create_split(c, true, (model_split){ranks, r});
        const layer_shape s = layer_shape_of(c, (model_split){ranks, r});
        assert_int_equal(of[r]->count, whole->count);
        assert_true(of[r]->elements == of[0]->elements);
        assert_int_equal(s.sharers_kv, sharers);
        assert_int_equal(s.vocab % 64, 0);
        for (int head = s.first_head; head < s.first_head + s.heads; head++) { /* reads a head that is here */
            const int reads = head / (c->heads / c->heads_kv);
            assert_true(reads >= s.first_head_kv && reads < s.first_head_kv + s.heads_kv);
        }
        held_n += of[r]->parameters;
    }
    for (int i = 0; i < whole->count; i++) {
        const param_tensor *t = &whole->tensors[i];
        const bool gain = param_is_gain(t->kind), shared = t->kind == PARAM_K || t->kind == PARAM_V;
        const int want = gain ? ranks : shared ? sharers : 1;
        OWNED unsigned char *held = calloc((size_t)t->count, 1);
        for (int r = 0; r < ranks; r++) {
            const param_tensor *part = params_named(of[r], t->name), *first = params_named(of[0], t->name);
            assert_true(part->whole_rows == t->rows && part->whole_columns == t->columns);
            assert_true(part->first == first->first && part->rows == first->rows && part->columns == first->columns);
            assert_true(params_initial_std(part) == params_initial_std(t));
            count_holders(part, held);
        }
        for (int64_t e = 0; e < t->count; e++)
            assert_int_equal(held[e], want);
        weights += want * t->count;
    }
    assert_true(held_n == weights);
    for (int r = 0; r < ranks; r++)
        params_free(of[r]);
    params_free(whole);
}

TEST(splits)
{
    check_split(&odd, 2, 1);
    model_config c = odd;
    c.heads = 12, c.d_model = 48, c.d_ff = 60, c.vocab = 150;
    check_split(&c, 4, 2); /* a key head of two ranks; the vocabulary ends within the third */
    check_split(&c, 6, 3);
    c.heads_kv = 6;
    check_split(&c, 3, 1);
    params *p = params_create_split(&c, false, (model_split){3, 1});
    const param_tensor *w2 = params_find(p, PARAM_W2, 0), *v = params_find(p, PARAM_V, 0),
                       *k = params_find(p, PARAM_K, 0);
    assert_true(w2->rows == 48 && w2->columns == 20 && w2->row_first == 0 && w2->column_first == 20);
    assert_true(v->rows == 8 && v->row_first == 8 && v->first == k->first + k->count);
    params_free(p);
}

TEST(names_and_shapes)
{
    static const struct {
        const char *name;
        param_kind kind;
        int layer, rows, columns;
    } table[] = {
        {"lm_head.weight", PARAM_LM_HEAD, -1, 7, 36},
        {"ln_final.weight", PARAM_LN_FINAL, -1, 1, 36},
        {"layers.2.ffn.w2.weight", PARAM_W2, 2, 36, 50},
        {"layers.2.ffn.w1.weight", PARAM_W1, 2, 50, 36},
        {"layers.2.ffn.w3.weight", PARAM_W3, 2, 50, 36},
        {"layers.2.ln2.weight", PARAM_LN2, 2, 1, 36},
        {"layers.2.attn.output_proj.weight", PARAM_O, 2, 36, 36},
        {"layers.2.attn.q_proj.weight", PARAM_Q, 2, 36, 36},
        {"layers.2.attn.k_proj.weight", PARAM_K, 2, 12, 36},
        {"layers.2.attn.v_proj.weight", PARAM_V, 2, 12, 36},
        {"layers.2.ln1.weight", PARAM_LN1, 2, 1, 36},
        {"layers.1.ffn.w2.weight", PARAM_W2, 1, 36, 50},
        {"layers.0.ln1.weight", PARAM_LN1, 0, 1, 36},
        {"token_embeddings.weight", PARAM_EMBEDDING, -1, 7, 36},
    };
    params *p = params_create(&odd);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const param_tensor *t = params_named(p, table[i].name);
        assert_non_null(t);
        assert_ptr_equal(t, params_find(p, table[i].kind, table[i].layer));
        assert_int_equal(t->rows, table[i].rows);
        assert_int_equal(t->columns, table[i].columns);
        if (i < 12)
            assert_ptr_equal(t, &p->tensors[i]);
    }
    assert_null(params_named(p, "layers.3.ln1.weight"));
    assert_null(params_named(p, "layers.0.attn.q_proj"));
    assert_null(params_find(p, PARAM_Q, 3));
    assert_null(params_find(p, PARAM_Q, -1));
    params_free(p);
}

/* The ranges follow each other without gaps from 0 to the end, and hold the tensors of their block. */
static void check_ranges(const model_config *c)
{
    params *p = params_create(c);
    int64_t next = 0;
    for (int part = -1; part <= c->layers; part++) {
        const int layer = part < 0 ? -1 : part < c->layers ? c->layers - 1 - part : c->layers;
        int64_t first, count;
        params_range(p, layer, &first, &count);
        assert_true(first == next && count > 0);
        assert_true(first % PARAMS_ALIGNMENT == 0 && count % PARAMS_ALIGNMENT == 0);
        next = first + count;
        int inside = 0;
        for (int i = 0; i < p->count; i++) {
            const param_tensor *t = &p->tensors[i];
            const int of = t->kind == PARAM_EMBEDDING ? c->layers : t->layer;
            const bool in = t->first >= first && t->first + t->count <= next;
            assert_int_equal(in, of == layer);
            inside += in;
        }
        assert_int_equal(inside, layer < 0 ? 2 : layer == c->layers ? 1 : c->heads ? 9 : 4);
    }
    assert_true(next == p->elements);
    params_free(p);
}

/* Units that can be cut into slices: each begins at a multiple, and within it nothing has moved. */
TEST(padded_units)
{
    const int64_t granularity = 64 * 3;
    params *p = params_create(&odd), *tight = params_create(&odd);
    int64_t first, count, tight_first, tight_count, next = 0;
    params_pad_units(p, granularity);
    assert_int_equal(params_units(p), odd.layers + 2);
    for (int unit = 0; unit < params_units(p); unit++) {
        params_unit_range(p, unit, &first, &count);
        params_unit_range(tight, unit, &tight_first, &tight_count);
        assert_true(first == next && count % granularity == 0);
        assert_true(count >= tight_count && count < tight_count + granularity);
        next = first + count;
        for (int i = 0; i < p->count; i++) {
            const param_tensor *t = &p->tensors[i];
            if (params_unit(p, t->kind == PARAM_EMBEDDING ? odd.layers : t->layer) == unit)
                assert_true(t->first - first == tight->tensors[i].first - tight_first);
        }
    }
    assert_true(next == p->elements);
    assert_int_equal(params_unit(p, -1), 0);
    assert_int_equal(params_unit(p, odd.layers - 1), 1);
    assert_int_equal(params_unit(p, odd.layers), odd.layers + 1);
    params_free(p);
    params_free(tight);
}

/* Stages of a pipeline, and a rank with both ends: each tensor is held once, found by its layer of the whole model, keeps its
 * name and shape, and lies in the order of the whole. */
TEST(parts_of_a_model)
{
    const model_part parts[] = {{0, 2, true, false}, {2, 3, false, false}, {3, 5, false, true}};
    const model_part ends[] = {parts[0], parts[2]};
    const int units[] = {3, 1, 3, 6};
    model_config c = odd;
    c.layers = 5;
    for (int apart = 0; apart < 2; apart++) {
        params *whole = params_create_split(&c, apart, (model_split){1, 0});
        int64_t parameters = 0;
        for (int k = 0; k < 4; k++) {
            params *p = params_create_parts(&c, apart, (model_split){1, 0}, k < 3 ? &parts[k] : ends, k < 3 ? 1 : 2);
            int64_t end = 0, first, count;
            parameters += k < 3 ? p->parameters : 0;
            assert_true(params_units(p) == units[k] + apart);
            params_pad_units(p, 64);
            for (int unit = 0; unit < params_units(p); unit++, end += count) {
                params_unit_range(p, unit, &first, &count);
                assert_true(first == end && count > 0);
            }
            assert_int_equal(end, p->elements);
            for (int i = 0, of = -1; i < p->count; i++) {
                const param_tensor *t = &p->tensors[i], *same = params_find(whole, t->kind, t->layer);
                assert_true(params_find(p, t->kind, t->layer) == t && same - whole->tensors > of);
                assert_true(strcmp(t->name, same->name) == 0 && t->rows == same->rows && t->columns == same->columns);
                of = (int)(same - whole->tensors);
            }
            assert_true(!params_find(p, PARAM_W2, 2) == (k != 1) &&
                        !params_find(p, PARAM_EMBEDDING, -1) == (k % 3 != 0));
            assert_true(params_unit(p, 2) == (k == 1 ? 0 : -1) &&
                        params_gains(p) == (apart ? params_units(p) - 1 : -1));
            params_free(p);
        }
        assert_int_equal(parameters, whole->parameters);
        params_free(whole);
    }
}

/* Gains behind all else: every tensor is found, each kind of unit holds its own, and a gain is never in a block's. */
TEST(gains_apart)
{
    const int64_t granularity = 64 * 3;
    params *p = params_create_split(&odd, true, (model_split){1, 0}), *with = params_create(&odd);
    int64_t first, count, end = 0;
    assert_int_equal(params_gains(with), -1);
    params_pad_units(p, granularity);
    assert_true(p->count == with->count && p->parameters == with->parameters);
    assert_true(params_units(p) == odd.layers + 3 && params_gains(p) == odd.layers + 2);
    for (int i = 0; i < p->count; i++) {
        const param_tensor *t = &p->tensors[i], *same = params_named(with, t->name);
        const int unit = params_unit_of(p, t);
        assert_ptr_equal(params_find(p, t->kind, t->layer), t);
        assert_true(same && same->kind == t->kind && same->layer == t->layer && same->count == t->count);
        assert_true(t->first >= end && t->first - end < granularity);
        end = t->first + t->count;
        params_unit_range(p, unit, &first, &count);
        assert_true(first % granularity == 0 && count % granularity == 0);
        assert_true(t->first >= first && end <= first + count);
        assert_int_equal(unit == params_gains(p), t->rows == 1);
        assert_int_equal(param_is_gain(t->kind), t->rows == 1);
        if (t->rows > 1)
            assert_int_equal(unit, params_unit_of(with, same));
    }
    assert_int_equal(first + count, p->elements);
    assert_null(params_find(p, PARAM_LN1, 3));
    assert_null(params_find(p, PARAM_Q, -1));
    params_free(p);
    params_free(with);
}

TEST(ranges)
{
    for (size_t i = 0; i < KNOWN; i++)
        check_ranges(&known[i].config);
    check_ranges(&odd);
}

TEST(initial_values)
{
    params *p = params_create(model_size_find("tiny"));
    static const struct {
        const char *name;
        double std;
    } table[] = {{"layers.0.ffn.w1.weight", 0.08838834764831845}, /* sqrt(2 / (64 + 192)) */
                 {"layers.1.attn.q_proj.weight", 0.125},
                 {"lm_head.weight", 0.07905694150420949},
                 {"token_embeddings.weight", 1},
                 {"layers.1.ln2.weight", 0}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_true(fabs(params_initial_std(params_named(p, table[i].name)) - table[i].std) < 1e-7);
    params_free(p);
}

TEST(policies)
{
    static const struct {
        precision want;
        int master_bytes;
    } table[] = {
        {{"fp32", "", SB_FP32, SB_FP32, SB_FP32, SB_FP32, SB_FP32, SB_MASTER_NONE, false, false}, 0},
        {{"tf32", "", SB_TF32, SB_FP32, SB_FP32, SB_FP32, SB_FP32, SB_MASTER_NONE, false, false}, 0},
        {{"bf16", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, false}, 2},
        {{"bf16-pure", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_MASTER_NONE, false, false}, 0},
        {{"fp16", "", SB_FP16, SB_FP16, SB_FP16, SB_FP16, SB_FP32, SB_MASTER_FP32, true, false}, 4},
        {{"fp8-tensorwise", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true}, 2},
        {{"fp8-rowwise", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true}, 2},
        {{"fp8-rowwise-dw16", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true}, 2},
        {{"fp8-block", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true}, 2},
        {{"fp8-block-dw2d", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true}, 2},
        {{"fp8-mx", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true}, 2},
        {{"fp8-delayed", "", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true}, 2},
    };
    char choices[128] = "";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const precision *p = precision_find(table[i].want.name), *want = &table[i].want;
        assert_non_null(p);
        assert_true(p->compute == want->compute && p->activations == want->activations && p->param == want->param);
        assert_true(p->grad == want->grad && p->moments == want->moments && p->master == want->master);
        assert_int_equal(p->loss_scaling, want->loss_scaling);
        assert_int_equal(p->float8, want->float8);
        assert_int_equal(precision_master_bytes(p), table[i].master_bytes);
        assert_true(strlen(p->summary) > 10);
        snprintf(choices + strlen(choices), sizeof choices - strlen(choices), "%s%s", i ? "|" : "", p->name);
    }
    assert_string_equal(choices, PRECISION_CHOICES);
    for (const precision *p = precisions; p->name; p++) {
        assert_true(moments_dtype(p, moments_parse("policy")) == p->moments);
        assert_true(moments_dtype(p, moments_parse("fp32")) == SB_FP32);
        assert_true(moments_dtype(p, moments_parse("bf16")) == SB_BF16);
    }
    assert_null(precision_find("fp8"));
}
