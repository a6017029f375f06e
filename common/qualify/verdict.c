/* SPDX-License-Identifier: MIT */
/* The rules of verdict.h. */
#include "common/qualify/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/core/units.h"

enum { PEERS_MIN = 4, PAST_MIN = 3 };
static const double z_max = 3.5, mad_to_sigma = 1.4826, sigma_min = 0.005, behind_min = 0.03;
static const double busy_pct = 5, busy_bytes = GIB;
static const double crc_per_s = 100, pcie_replays_per_s = 8.0 / 60; /* where NVIDIA's DCGM warns, too */

const char *verdict_word(verdict v)
{
    static const char *const words[] = {[VERDICT_OK] = "ok",
                                        [VERDICT_NOT_CHECKED] = "not checked",
                                        [VERDICT_SLOW] = "slow",
                                        [VERDICT_BUSY] = "busy",
                                        [VERDICT_BROKEN] = "broken"};
    return words[v];
}

bool verdict_missed(verdict v)
{
    return v >= VERDICT_SLOW;
}

verdict verdict_join(verdict a, verdict b)
{
    const verdict worse = a > b ? a : b;
    return verdict_missed(worse) || a == b ? worse : VERDICT_OK;
}

static const qualify_metric qualify_metrics[] = {
    {"gemm_bf16_tflops", 0.08, false}, {"gemm_fp16_tflops", 0.08, false},
    {"gemm_tf32_tflops", 0.08, false}, {"gemm_fp32_tflops", 0.08, false},
    {"copy_gb_s", 0.04, false},        {"h2d_gb_s", 0.08, false},
    {"d2h_gb_s", 0.08, false},         {"launch_us", 0.30, true},
    {"flash_tflops", 0.08, false},     {"p2p_gb_s", 0.05, false},
    {"all_reduce_gb_s", 0.05, false},  {"gemm_together_tflops", 0.08, false},
    {"step_ms", 0.07, true},           {0}};

const qualify_metric *qualify_metric_find(const char *name)
{
    for (const qualify_metric *m = qualify_metrics; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

double qualify_bound(const qualify_metric *m, const qualify_reference *r)
{
    if (!r)
        return NAN;
    return isfinite(r->floor) ? r->floor : r->value * (m->lower_is_better ? 1 + m->tolerance : 1 - m->tolerance);
}

/* ---- against a reference, against peers ---- */

static double median(const double *x, size_t n)
{
    return stats_of(&(samples){(double *)x, n, n}).median;
}

/* How much worse x is than y, as a share of y. */
static double behind(const qualify_metric *m, double x, double y)
{
    return m->lower_is_better ? x / y - 1 : 1 - x / y;
}

static bool beyond(const qualify_metric *m, double x, double bound)
{
    return m->lower_is_better ? x > bound : x < bound;
}

/* The median of those measured, and how far from it a peer may be; false with too few of them. */
static bool peers_bound(const qualify_metric *m, const double *values, size_t n, double *middle, double *bound)
{
    OWNED double *x = xcalloc(n + 1, sizeof *x);
    size_t there = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i]))
            x[there++] = values[i];
    const bool enough = there >= PEERS_MIN;
    if (enough) {
        *middle = median(x, there);
        for (size_t i = 0; i < there; i++)
            x[i] = fabs(x[i] - *middle);
        const double sigma = fmax(mad_to_sigma * median(x, there), sigma_min * *middle);
        const double far = fmax(z_max * sigma, behind_min * *middle);
        *bound = m->lower_is_better ? *middle + far : *middle - far;
    }
    return enough;
}

judgement qualify_judge(const qualify_metric *m, const qualify_reference *r, const double *values, size_t n, size_t i)
{
    const double bound = qualify_bound(m, r);
    double middle, far;
    judgement j = {VERDICT_NOT_CHECKED, "", NAN, NAN, NAN};
    if (!isfinite(values[i]))
        return j;
    if (isfinite(bound)) {
        const double expected = isfinite(r->value) ? r->value : r->floor;
        j = (judgement){beyond(m, values[i], bound) ? VERDICT_SLOW : VERDICT_OK, "reference", expected, bound,
                        100 * behind(m, values[i], expected)};
    }
    if (j.word != VERDICT_SLOW && peers_bound(m, values, n, &middle, &far)) {
        const bool slow = beyond(m, values[i], far);
        if (slow || j.word == VERDICT_NOT_CHECKED)
            j = (judgement){slow ? VERDICT_SLOW : VERDICT_OK, "peers", middle, far, 100 * behind(m, values[i], middle)};
    }
    return j;
}

judgement qualify_judge_past(const qualify_metric *m, judgement j, double value, const double *past, size_t n)
{
    if (n < PAST_MIN || j.word == VERDICT_SLOW || !isfinite(value))
        return j;
    const qualify_reference own = {median(past, n), NAN};
    const double bound = qualify_bound(m, &own);
    const bool slow = beyond(m, value, bound);
    if (slow || j.word == VERDICT_NOT_CHECKED)
        j = (judgement){slow ? VERDICT_SLOW : VERDICT_OK, "past", own.value, bound, 100 * behind(m, value, own.value)};
    return j;
}

/* ---- bits ---- */

bool qualify_odd(const uint64_t *results, size_t n, bool *odd)
{
    size_t most = 0, best = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        for (size_t k = 0; k < n; k++)
            same += results[k] == results[i];
        best = same > most ? i : best;
        most = same > most ? same : most;
    }
    for (size_t i = 0; i < n; i++)
        odd[i] = 2 * most <= n || results[i] != results[best];
    if (n > 0 && most == n)
        memset(odd, 0, n * sizeof *odd);
    return most < n;
}

/* ---- links ---- */

bool qualify_links_slow(const bool *slow, size_t n, size_t i)
{
    size_t here = 0;
    for (size_t k = 0; k < n; k++)
        here += k != i ? (size_t)slow[i * n + k] + (size_t)slow[k * n + i] : 0;
    return n > 2 && here > n - 1;
}

/* ---- health ---- */

typedef struct finding {
    verdict word;
    char *why;
    size_t bytes;
} finding;

static void find(finding *f, verdict word, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void find(finding *f, verdict word, const char *fmt, ...)
{
    const size_t used = strlen(f->why);
    va_list args;
    f->word = word > f->word ? word : f->word;
    if (used && used + 2 < f->bytes)
        snprintf(f->why + used, f->bytes - used, "; ");
    va_start(args, fmt);
    vsnprintf(f->why + strlen(f->why), f->bytes - strlen(f->why), fmt, args);
    va_end(args);
}

static void find_throttle(finding *f, const char *throttle)
{
    static const char *const hardware[] = {"hw_slowdown", "hw_thermal", "power_brake"};
    for (size_t i = 0; i < sizeof hardware / sizeof *hardware; i++)
        if (strstr(throttle, hardware[i]))
            find(f, VERDICT_BROKEN, "the hardware throttles itself (%s)", hardware[i]);
}

/* The most links that a GPU of this host has up: a GPU with fewer has lost some. */
static double most_links(const gpu_health *gpus, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, gpus[i].links_up);
    return most;
}

/* Errors of the program that ran, not of the GPU: a bad address, an illegal instruction, a fault or an end forced upon it. */
static bool xid_of_program(int number)
{
    static const int programs[] = {13, 31, 43, 45, 68, 69};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (programs[i] == number)
            return true;
    return false;
}

static void find_xids(finding *f, const char *xids)
{
    for (const char *at = xids; *at; at += strcspn(at, "+"), at += *at == '+')
        if (!xid_of_program(atoi(at)))
            find(f, VERDICT_BROKEN, "Xid %d: the driver reported an error of the hardware", atoi(at));
}

/* Errors that links corrected while we measured cost time. */
static void find_link_errors(finding *f, const gpu_health *h)
{
    if (h->nvlink_errors > 0)
        find(f, VERDICT_SLOW, "NVLinks sent again or recovered %.0f times while we measured", h->nvlink_errors);
    if (h->nvlink_crc > crc_per_s * h->seconds)
        find(f, VERDICT_SLOW, "NVLinks had %.0f wrong checksums in %.0f s", h->nvlink_crc, h->seconds);
    if (h->pcie_replays > fmax(1, pcie_replays_per_s * h->seconds))
        find(f, VERDICT_SLOW, "PCIe sent %.0f packets again in %.0f s", h->pcie_replays, h->seconds);
}

verdict qualify_health(const gpu_health *gpus, size_t n, size_t i, const char *throttle, char *why, size_t why_bytes)
{
    const gpu_health *h = &gpus[i];
    finding f = {VERDICT_OK, why, why_bytes};
    why[0] = 0;
    find_throttle(&f, throttle);
    if (!*h->uuid && f.word == VERDICT_OK) {
        find(&f, VERDICT_NOT_CHECKED,
             "NVML gives no answer: ECC errors, memory repairs, links and other programs are unknown");
        return f.word;
    }
    if (h->ecc_uncorrected > 0)
        find(&f, VERDICT_BROKEN, "%.0f uncorrected ECC errors", h->ecc_uncorrected);
    if (h->remap_failed > 0)
        find(&f, VERDICT_BROKEN, "a row of memory could not be replaced");
    if (h->remap_pending > 0)
        find(&f, VERDICT_BROKEN, "rows of memory are waiting to be replaced at the next reset");
    if (h->links_up < most_links(gpus, n))
        find(&f, VERDICT_BROKEN, "%.0f NVLinks are up, %.0f on another GPU", h->links_up, most_links(gpus, n));
    if (h->pcie_width < h->pcie_width_max)
        find(&f, VERDICT_SLOW, "PCIe runs on %.0f of %.0f lanes", h->pcie_width, h->pcie_width_max);
    find_link_errors(&f, h);
    find_xids(&f, h->xids);
    if (h->used_pct > busy_pct)
        find(&f, VERDICT_BUSY, "another program kept it %.0f %% busy before we began", h->used_pct);
    if (h->used_bytes > busy_bytes)
        find(&f, VERDICT_BUSY, "%.1f GiB of its memory were taken before we began", h->used_bytes / busy_bytes);
    if ((h->used_pct > busy_pct || h->used_bytes > busy_bytes) && *h->who)
        find(&f, VERDICT_BUSY, "there was %s", h->who);
    return f.word;
}
