/* SPDX-License-Identifier: MIT */
/* The check of a model before it is timed. */
#pragma once

#include "common/session/session.h"
#include "common/train/trainer.h"

/* Verifies a case on a slice of it: a model of the same width, context, policy, attention, recompute and fusion
 * with at most two blocks (four where recomputation is nested) and about 2048 tokens. Its loss and every gradient
 * (of a forward: its logits) are compared with those of the same model in fp32 with multiply-adds and unfused
 * attention, without recompute, and with an eager framework's ops where the case has fused kernels. The slice takes
 * three steps, so that what is compared comes from a replayed graph where there is one. The learning rate is 0 but
 * for the last step of a train step: there it is so large that weights which AdamW overwrites too early spoil the
 * gradients, and parameters are compared with an AdamW of the check's own on these gradients. Results are remembered for the next case of the same kind. Fills
 * the columns below; with --check 0 they stay nan. False after making the row `fail` or `skip`, or when there is no memory. Call it before anything else is
 * allocated from s->mem: it gives all of that back. */
bool model_verify(session *s, const step_options *o, row *w);
/* clang-format off */
#define MODEL_ERROR_COLUMNS                                                                                            \
    {"err_loss", COLUMN_REAL, false, "loss of the checked slice: relative difference to fp32"},                        \
    {"err_logits", COLUMN_REAL, false, "mode forward: logits of the checked slice, relative L2 error to fp32"},        \
    {"err_grad", COLUMN_REAL, true, "worst gradient of the checked slice: relative L2 error to fp32"},                \
    {"err_param", COLUMN_REAL, false,                                                                                  \
     "mode train-step: worst parameter of the checked slice after an update, relative to how far it should move"}
/* clang-format on */
