/* SPDX-License-Identifier: MIT */
/* Weights tensor by tensor from a checkpoint, hashes checked, to one safetensors file; see export.h. */
#include "common/checkpoint/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/checkpoint/folder.h"
#include "common/core/error.h"

static const char *const llama_names[PARAM_KINDS] = {
    [PARAM_LM_HEAD] = "lm_head",    [PARAM_LN_FINAL] = "model.norm", [PARAM_W2] = "mlp.down_proj",
    [PARAM_W1] = "mlp.gate_proj",   [PARAM_W3] = "mlp.up_proj",      [PARAM_LN2] = "post_attention_layernorm",
    [PARAM_O] = "self_attn.o_proj", [PARAM_Q] = "self_attn.q_proj",  [PARAM_K] = "self_attn.k_proj",
    [PARAM_V] = "self_attn.v_proj", [PARAM_LN1] = "input_layernorm", [PARAM_EMBEDDING] = "model.embed_tokens",
};

static void name_of(const param_tensor *t, bool llama, char *out, size_t bytes)
{
    if (!llama)
        snprintf(out, bytes, "%s", t->name);
    else if (t->layer < 0)
        snprintf(out, bytes, "%s.weight", llama_names[t->kind]);
    else
        snprintf(out, bytes, "model.layers.%d.%s.weight", t->layer, llama_names[t->kind]);
}

static const char *dtype_of(const checkpoint_model *m, bool llama)
{
    const bool bf16 = m->param == SB_BF16, fp16 = m->param == SB_FP16;
    return llama ? (bf16 ? "bfloat16" : fp16 ? "float16" : "float32") : (bf16 ? "BF16" : fp16 ? "F16" : "F32");
}

/* Caller frees: the length and the header, padded to 8 bytes. */
static char *header_of(const checkpoint_layout *l, bool llama, size_t *bytes)
{
    char *text;
    unsigned long n;
    FILE *out = text_stream(&text, &n);
    int64_t at = 0;
    fprintf(out, "        {\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < l->params->count; i++) {
        const param_tensor *t = &l->params->tensors[i];
        const int64_t end = at + t->count * checkpoint_element(&l->model, CHECKPOINT_WEIGHT);
        char name[96], rows[16] = "";
        name_of(t, llama, name, sizeof name);
        if (!param_is_gain(t->kind))
            snprintf(rows, sizeof rows, "%d,", t->rows);
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s%d],\"data_offsets\":[%lld,%lld]}", name,
                dtype_of(&l->model, false), rows, t->columns, (long long)at, (long long)end);
        at = end;
    }
    fprintf(out, "}");
    fflush(out);
    while (n % 8) {
        fputc(' ', out);
        fflush(out);
    }
    fclose(out);
    const uint64_t length = n - 8;
    memcpy(text, &length, sizeof length);
    *bytes = n;
    return text;
}

/* Rows of a head: the first of each pair, then the second of each. */
static void part_pairs(char *rows, int heads, int head_dim, size_t row_bytes)
{
    OWNED char *copy = xmalloc((size_t)head_dim * row_bytes);
    for (int h = 0; h < heads; h++) {
        char *head = rows + (size_t)h * (size_t)head_dim * row_bytes;
        memcpy(copy, head, (size_t)head_dim * row_bytes);
        for (int i = 0; i < head_dim; i++) {
            const int from = i < head_dim / 2 ? 2 * i : 2 * (i - head_dim / 2) + 1;
            memcpy(head + (size_t)i * row_bytes, copy + (size_t)from * row_bytes, row_bytes);
        }
    }
}

static int write_tensor(const checkpoint *c, int tensor, bool llama, FILE *out, char *why, size_t why_bytes)
{
    const checkpoint_layout *l = c->m.layout;
    const param_tensor *t = &l->params->tensors[tensor];
    const size_t element = (size_t)checkpoint_element(&l->model, CHECKPOINT_WEIGHT), bytes = (size_t)t->count * element;
    OWNED char *data = xmalloc(bytes);
    checkpoint_pieces piece = {0};
    checkpoint_loaded loaded;
    checkpoint_pieces_add(&piece, l, tensor, CHECKPOINT_WEIGHT, 0, t->count, data);
    const bool ok = checkpoint_load(c, NULL, &piece, 2, (checkpoint_room){0}, &loaded, why, why_bytes);
    int code = ok ? EXIT_CODE_OK : EXIT_CODE_VERIFY;
    const int head_dim = model_head_dim(&l->model.config);
    if (llama && (t->kind == PARAM_Q || t->kind == PARAM_K))
        part_pairs(data, t->rows / head_dim, head_dim, (size_t)t->columns * element);
    if (ok && fwrite(data, 1, bytes, out) != bytes) {
        snprintf(why, why_bytes, "can't write the exported weights: %s", strerror(errno));
        code = EXIT_CODE_FAILURE;
    }
    checkpoint_pieces_free(&piece);
    return code;
}

static char *config_of(const checkpoint_layout *l)
{
    const model_config *c = &l->model.config;
    return xasprintf("{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
                     "  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n  \"num_hidden_layers\": %d,\n"
                     "  \"num_attention_heads\": %d,\n  \"num_key_value_heads\": %d,\n  \"vocab_size\": %d,\n"
                     "  \"rope_theta\": %.9g,\n  \"rms_norm_eps\": %.9g,\n  \"hidden_act\": \"silu\",\n"
                     "  \"attention_bias\": false,\n  \"tie_word_embeddings\": false,\n  \"torch_dtype\": \"%s\"\n}\n",
                     c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, c->vocab, c->rope_theta, c->norm_eps,
                     dtype_of(&l->model, true));
}

int checkpoint_export(const checkpoint *c, const char *to, const char *folder, char *why, size_t why_bytes)
{
    const bool llama = strcmp(to, "llama") == 0;
    size_t bytes;
    if (llama && !c->m.layout->model.config.heads) {
        snprintf(why, why_bytes, "a model without attention is not a Llama");
        return EXIT_CODE_USAGE;
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        snprintf(why, why_bytes, "can't make %s: %s", folder, strerror(errno));
        return EXIT_CODE_FAILURE;
    }
    OWNED char *path = xasprintf("%s/model.safetensors", folder), *header = header_of(c->m.layout, llama, &bytes),
               *config_path = xasprintf("%s/config.json", folder), *config = config_of(c->m.layout);
    if (llama && access(config_path, F_OK) == 0) {
        snprintf(why, why_bytes, "can't make %s: %s", config_path, strerror(EEXIST));
        return EXIT_CODE_FAILURE;
    }
    FILE *out = fopen(path, "wxb");
    if (!out) {
        snprintf(why, why_bytes, "can't make %s: %s", path, strerror(errno));
        return EXIT_CODE_FAILURE;
    }
    int code = EXIT_CODE_OK;
    fwrite(header, 1, bytes, out); /* the flush tells */
    for (int i = 0; i < c->m.layout->params->count && code == EXIT_CODE_OK; i++)
        code = write_tensor(c, i, llama, out, why, why_bytes);
    if (code == EXIT_CODE_OK && (fflush(out) != 0 || ferror(out) || fsync(fileno(out)) != 0)) {
        snprintf(why, why_bytes, "can't write %s: %s", path, strerror(errno));
        code = EXIT_CODE_FAILURE;
    }
    fclose(out);
    if (code == EXIT_CODE_OK && llama && !checkpoint_write_text(folder, "config.json", config, why, why_bytes))
        code = EXIT_CODE_FAILURE;
    if (code != EXIT_CODE_OK)
        unlink(path);
    return code;
}
