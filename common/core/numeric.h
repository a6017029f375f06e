/* 16-bit floats on the host, round to nearest even, NaN kept; and tf32 rounding. */
#ifndef STEPBENCH_CORE_NUMERIC_H
#define STEPBENCH_CORE_NUMERIC_H

#include <stddef.h>
#include <stdint.h>

uint16_t bf16_from_float(float x);
float bf16_to_float(uint16_t x);
uint16_t fp16_from_float(float x);
float fp16_to_float(uint16_t x);
float tf32_round(float x); /* 10 explicit mantissa bits, nearest, ties away (cvt.rna) */

#endif
