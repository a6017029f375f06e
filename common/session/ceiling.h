/* SPDX-License-Identifier: MIT */
/* What bench_roofline measured on this machine, so that other benches can report their share of it. */
#ifndef STEPBENCH_SESSION_CEILING_H
#define STEPBENCH_SESSION_CEILING_H

/* The best `ok` row of <results_dir>/bench_roofline.csv; NAN when it was never measured. `dtype` is the precision of
 * the products: what runs fp32 as split bf16 on tensor cores has a third of the bf16 ceiling, not the fp32 one. */
double ceiling_tflops(const char *results_dir, const char *dtype);
/* Of the largest copies measured: small ones stay in the L2 cache. */
double ceiling_copy_gb_s(const char *results_dir);

#endif
