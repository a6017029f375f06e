/* SPDX-License-Identifier: MIT */
/* What the benches of the whole model share: their options, how a case becomes the options of a trainer, and what
 * the formulas say about it. */
#pragma once

#include "common/formulas/model.h"
#include "common/options/options.h"
#include "common/train/trainer.h"

/* A dimension of a case, which its row has in place of "not set"; 0 where the dimensions make no model. */
int64_t model_dimension(const bench_case *c, const char *option);

/* Entries of an option table; every one is swept and is a CSV column. A 0 of d-model ... vocab means: as the size
 * has it. With another d-model, heads and d-ff that are 0 grow with it: head_dim and the ratio d_ff / d_model stay. */
/* clang-format off */
#define MODEL_SHAPE_OPTIONS(sizes, sizes_cpu, seqs, seqs_cpu, precisions, modes)                                       \
    {"size", OPTION_CHOICE, OPTION_LIST, sizes, .help = "dimensions of the model", .def_cpu = sizes_cpu,               \
     .choices = MODEL_SIZE_CHOICES},                                                                                   \
    {"batch", OPTION_INT, OPTION_LIST, "4", .help = "batch size", .def_cpu = "2", .min = 1, .max = 65536,              \
     .unit = "sequences"},                                                                                             \
    {"seq", OPTION_INT, OPTION_LIST, seqs, .help = "context length", .def_cpu = seqs_cpu, .min = 1,                    \
     .max = 1048576, .unit = "tokens"},                                                                                \
    {"precision", OPTION_CHOICE, OPTION_LIST, precisions,                                                              \
     .help = "precision policy (docs/transformer.md says what each means)", .choices = PRECISION_CHOICES},             \
    {"mode", OPTION_CHOICE, OPTION_LIST, modes, .help = "what a step does", .choices = STEP_MODE_CHOICES},             \
    {"attention", OPTION_CHOICE, OPTION_LIST, "flash", .help = "attention kernels",                                    \
     .choices = "unfused|fused|flash|flash_portable"}
#define MODEL_RECOMPUTE_OPTIONS                                                                                        \
    {"recompute", OPTION_CHOICE, OPTION_LIST, "none",                                                                  \
     .help = "what the backward recomputes instead of keeping; nested: block by block, from log2 L kept inputs", .choices = RECOMPUTE_CHOICES}, \
    {"recompute-every", OPTION_INT, OPTION_LIST, "1",                                                                  \
     .help = "with --recompute block: keep only the input of every k-th block", .min = 1, .max = 4096,                 \
     .unit = "blocks"},                                                                                                \
    {"offload", OPTION_CHOICE, OPTION_LIST, "none",                                                                    \
     .help = "what each block except the last moves to the host's memory and back: its input and "                     \
      "residual stream, what its attention (attn) or feed-forward half (mlp) keeps, or all of it",                     \
     .choices = "none|" OFFLOAD_CHOICES},                                                                              \
    {"offload-every", OPTION_INT, OPTION_LIST, "1",                                                                    \
     .help = "with --offload: offload only every k-th block, whose copies then have the time of k blocks", .min = 1,  \
     .max = 1024, .unit = "blocks"}
#define MODEL_DETAIL_OPTIONS                                                                                           \
    {"fp32-products", OPTION_CHOICE, OPTION_LIST, "fma",                                                               \
     .help = "how fp32 products are computed: by fused multiply-adds; from three products of fp16 parts on "           \
      "tensor cores, equally exact; the same with longer sums", .choices = "fma|fp16x3|fp16x3-fast"},                  \
    {"grad-dtype", OPTION_CHOICE, OPTION_LIST, "policy", .help = "dtype of gradients in memory",                       \
     .choices = "policy|fp32"},                                                                                        \
    {"moments", OPTION_CHOICE, OPTION_LIST, "policy",                                                                  \
     .help = "dtype of AdamW's moments: as the precision says, fp32, or bf16, the second rounded stochastically",      \
     .choices = MOMENTS_CHOICES},                                                                                      \
    {"loss-chunk", OPTION_INT, OPTION_LIST, "0",                                                                       \
     .help = "tokens whose logits exist at the same time, in the backward", .max = 1048576, .unit = "tokens",          \
     .unset = "0: all, from the forward on"},                                                                          \
    {"d-model", OPTION_INT, OPTION_LIST, "0", .help = "width; heads and d-ff follow it unless they are given",         \
     .max = 65536, .unset = "0: that of the size", .settled = model_dimension},                                        \
    {"d-ff", OPTION_INT, OPTION_LIST, "0", .help = "feed-forward width", .max = 262144,                                \
     .unset = "0: that of the size", .settled = model_dimension},                                                      \
    {"layers", OPTION_INT, OPTION_LIST, "0", .help = "blocks",                                                         \
     .max = 1024, .unset = "0: that of the size", .settled = model_dimension},                                         \
    {"heads", OPTION_INT, OPTION_LIST, "0", .help = "attention heads", .max = 1024,                                    \
     .unset = "0: that of the size", .settled = model_dimension},                                                      \
    {"heads-kv", OPTION_INT, OPTION_LIST, "0", .help = "key and value heads", .max = 1024,                             \
     .unset = "0: that of the size, or its ratio to other --heads", .settled = model_dimension},                       \
    {"vocab", OPTION_INT, OPTION_LIST, "0", .help = "vocabulary", .max = 1048576,                                      \
     .unset = "0: that of the size", .settled = model_dimension},                                                      \
    {"deterministic", OPTION_FLAG, OPTION_LIST, "0",                                                                   \
     .help = "the attention backward gives the same bits on every run"},                                               \
    {"overlap", OPTION_CHOICE, OPTION_LIST, "auto",                                                                    \
     .help = "what runs on other streams during the backward: weight gradients and AdamW (all), weight "               \
      "gradients, nothing, or the fastest of these (auto)", .choices = OVERLAP_CHOICES}
#define MODEL_OPTIONS(sizes, sizes_cpu, seqs, seqs_cpu, precisions, modes)                                             \
    MODEL_SHAPE_OPTIONS(sizes, sizes_cpu, seqs, seqs_cpu, precisions, modes), MODEL_RECOMPUTE_OPTIONS,                 \
        MODEL_DETAIL_OPTIONS
/* Options of the benches that take steps of several micro-batches and clip gradients. */
#define MODEL_UPDATE_OPTIONS(clip_with)                                                                                \
    {"micro-batches", OPTION_INT, OPTION_LIST, "1",                                                                    \
     .help = "micro-batches of a step, each of --batch sequences, before its update", .min = 1,                        \
     .max = 65536},                                                                                                    \
    {"clip", OPTION_REAL, OPTION_LIST, "0",                                                                            \
     .help = "clip gradients: scale them down to this global L2 norm" clip_with, .max = 1e9, .unset = "0: never"}
/* clang-format on */

/* The options of a case as those of a trainer. Fusion is the caller's (a variant, or graph). False with a sentence in
 * `why` when they contradict each other; the row is then `skip`. */
bool model_case_options(const bench_case *c, step_options *out, char *why, size_t why_bytes);
option_spec *model_option(option_spec *table, const char *name); /* the option of that name; the table must have it */
/* Defaults of benches whose ranks share a step: it is a whole one, and only weight gradients may run beside its backward.
 * --update says what AdamW does, and what is fastest may differ between ranks. */
void model_options_of_ranks(option_spec *table);
/* For bench_info.validate: contradictions that are certain before any case runs. */
bool model_options_validate(const options *o, char *msg, size_t msg_bytes);
/* The same for a bench of steps on several ranks, which has --plant-error and --peak-tflops. */
bool model_steps_validate(const options *o, char *msg, size_t msg_bytes);
/* Both for a bench without MODEL_RECOMPUTE_OPTIONS: nothing is recomputed. */
bool model_case_shape(const bench_case *c, step_options *out, char *why, size_t why_bytes);
bool model_shape_validate(const options *o, char *msg, size_t msg_bytes);
/* For session_hooks.estimate_bytes: the closed-form peak of a case. --dry-run opens no device: workspaces are those of the
 * CPU's ops, which are small beside the rest on any. */
double model_case_estimate(const options *o, const bench_case *c);
/* A rank has a part of what is in slices, and units that are whole while they are used; `kept` is the share of the parameters
 * that stays whole until the backward. 1 slice: all of it is here. */
typedef struct model_slices {
    int state, grads, params, grad_units, param_units;
    double kept;
} model_slices;
double model_estimate(const step_options *o, const model_slices *s);

/* The part of a model that ranks are compared with one rank on: at most two blocks and two sequences; with an eps that keeps small
 * gradients from being magnified. */
step_options model_slice(const step_options *o);
/* --loss-chunk for the check of a slice: so small that it makes two chunks at least. */
int model_slice_chunk(const step_options *slice);
/* What the formulas want to know: the shape of a whole step, all its micro-batches. Of forward alone nothing is repeated. */
transformer_shape model_shape(const step_options *o);
transformer_repeats model_repeats(const step_options *o);
/* The dtype of matrix products, of those that are not in float8: "bf16", "fp16", "tf32", "fp32", or "fp16x3": fp32 by parts. */
const char *model_product_dtype(const step_options *o);
/* The dtype of attention's products: flash makes those of fp32 by parts, three products for one on Hopper and six elsewhere ("bf16x6") as
 * flash_portable does; unfused and fused are cuBLAS's, without tensor cores. */
const char *model_attention_dtype(const step_options *o);
/* The share of the model's products (without attention) that a step makes in float8. */
double model_float8_share(const step_options *o);
/* The data sheet's peak for the step's products and attention, each at its own; NAN where it is not known. The second is as if
 * none were in float8. */
double model_peak_tflops(const step_options *o, const char *gpu);
double model_peak16_tflops(const step_options *o, const char *gpu);
