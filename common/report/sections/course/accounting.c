/* SPDX-License-Identifier: MIT */
/* Problems on paper: bench_accounting's rows of the handouts' numbers. Formulas are those of docs/formulas.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"
#include "common/report/sections/course/course.h"

#define GB 1e9
#define MB 1e6

/* The rows of a variant with the handouts' model; rows of other models may lie beside them. */
static table *rows_of(const char *dir, const char *variant)
{
    table *all = open_result(dir, "bench_accounting.csv");
    if (!all)
        return NULL;
    size_t kept = 0; /* taken out of the table itself: a selection would need it to stay */
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(table_text(all, i, "variant"), variant) == 0 && strcmp(table_text(all, i, "status"), "ok") == 0 &&
            strcmp(table_text(all, i, "d_model"), "16384") == 0 && strcmp(table_text(all, i, "d_ff"), "53248") == 0)
            all->rows[kept++] = all->rows[i];
    all->n = kept;
    return all;
}

/* ---- communication_accounting ---- */

static size_t on_devices(const table *t, const char *memory, const char *tokens)
{
    return table_find(t, "blocks", "126", "matrices", "2", "device_memory", memory, "tokens", tokens, NULL);
}

static void training_state(document *doc, const char *dir)
{
    table *t = rows_of(dir, "memory");
    const size_t r = t ? on_devices(t, "80000000000", "0") : NO_ROW;
    if (r != NO_ROW) {
        const double state = table_real(t, r, "state_bytes");
        doc_paragraph(
            doc,
            "Master weights, gradients and AdamW's two moments of P = %.0f parameters in fp32 are 16 P = %.2f GB "
            "(%.1f GiB), or %.2f devices of 80 GB, so %s.",
            table_real(t, r, "parameters"), state / GB, state / GIB, table_real(t, r, "devices_exact"),
            table_text(t, r, "devices"));
        doc_more(
            doc,
            " For the backward a token leaves %.2f MB (%.2f MiB) in bf16; one more device holds those of %s tokens.",
            table_real(t, r, "saved_per_token_bytes") / MB, table_real(t, r, "saved_per_token_bytes") / MIB,
            table_text(t, r, "tokens_of_a_device"));
    }
    table_free(t);
}

static void add_devices(document *doc, const table *t, size_t r)
{
    const double devices = table_real(t, r, "devices");
    if (isfinite(devices))
        doc_more(doc, "N = %.0f (%.2f GB on each)", devices, table_real(t, r, "per_device_bytes") / GB);
    else
        doc_more(doc, "no N is enough");
}

static void fsdp_memory(document *doc, const char *dir)
{
    static const char *const batches[] = {"1024", "4096", "8192", "16384"};
    table *t = rows_of(dir, "fsdp");
    const size_t r = t ? on_devices(t, "95000000000", "0") : NO_ROW;
    if (r != NO_ROW) {
        doc_paragraph(doc,
                      "A device holds 16 P / N + A/2 (1 + 1/N), with A the activations of the batch. Less than 95 GB "
                      "take, without activations, ");
        add_devices(doc, t, r);
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            const size_t with = on_devices(t, "95000000000", batches[b]);
            if (with == NO_ROW)
                continue;
            doc_more(doc, "; with those of %s tokens ", batches[b]);
            add_devices(doc, t, with);
        }
        doc_more(doc, ". No N holds more than %.0f tokens.", table_real(t, r, "tokens_most"));
    }
    table_free(t);
}

/* The handout's mesh. */
static size_t on_mesh(const table *t, const char *column, const char *value)
{
    return table_find(t, column, value, "matrices", "2", "x", "16", "y", "4", "mesh_x", "2", "mesh_y", "1",
                      "weight_bits", "16", "flops", "4.6e+14", "bandwidth", "1.8e+11", "measured", "0", NULL);
}

static void compute_bound(document *doc, const char *dir)
{
    table *t = rows_of(dir, "compute_bound");
    const size_t r = t ? on_mesh(t, "batch", "0") : NO_ROW;
    if (r != NO_ROW && isfinite(table_real(t, r, "tokens_least"))) {
        doc_paragraph(
            doc,
            "A step is bound by compute where 4 B d F / (N C) > 4 d F / (Y W M_X) + 4 B d / (X W M_Y): with X = "
            "16, Y = 4, M_X = 2, M_Y = 1, C = %s TFLOP/s and W = %s GB/s from a batch of %.1f tokens on, %s.",
            number(table_real(t, r, "used_flops") / 1e12), number(table_real(t, r, "used_bandwidth") / GB),
            table_real(t, r, "tokens_least"), strong("%.1f per device", table_real(t, r, "tokens_per_device")));
        doc_more(doc,
                 " The products of a block then take %s us, gathering its weights %s us and the collectives of tensor "
                 "parallelism %s us.",
                 number(table_real(t, r, "math_us")), number(table_real(t, r, "fsdp_us")),
                 number(table_real(t, r, "tp_us")));
    }
    table_free(t);
}

static void smaller_batch(document *doc, const char *dir)
{
    table *t = rows_of(dir, "batch");
    const size_t given = t ? on_mesh(t, "way", "as-given") : NO_ROW;
    values ways = t ? table_values(t, "way") : (values){0, NULL};
    bool begun = false;
    for (size_t w = 0; w < ways.n && given != NO_ROW; w++) {
        const size_t r = on_mesh(t, "way", ways.v[w]);
        const double of = table_real(t, r, "of_given");
        if (!(of < 1))
            continue;
        if (!begun) {
            doc_paragraph(doc, "What lowers the %.1f tokens per device:", table_real(t, given, "tokens_per_device"));
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "way", NULL);
            doc_columns(doc, DOC_NUMBER, "tokens per device", "of as given", NULL);
            doc_columns(doc, DOC_TEXT, "what it is", NULL);
            begun = true;
        }
        doc_row(doc, ways.v[w], NULL);
        doc_cell(doc, "%.1f", table_real(t, r, "tokens_per_device"));
        doc_cells(doc, number(of), table_text(t, r, "what"), NULL);
    }
    values_free(&ways);
    table_free(t);
}

/* ---- the forms of 2026 ---- */

/* A form at a batch; the handout asks for symbols, and the row is an example of them. */
static size_t form_at(const table *t, const char *form, const char *batch)
{
    return table_find(t, "form", form, "batch", batch, "x", "16", "y", "4", "flops", "4.6e+14", "bandwidth", "1.8e+11",
                      "measured", "0", NULL);
}

static void alternate_ring(document *doc, const char *dir)
{
    table *t = rows_of(dir, "closed_forms");
    const size_t r = t ? form_at(t, "all-reduce", "0") : NO_ROW;
    if (r != NO_ROW) {
        const double ring = table_real(t, r, "comm_us"), alternate = table_real(t, r, "alternate_us");
        doc_paragraph(
            doc,
            "Each of N - 1 steps passes all S bytes on: (N - 1) S / W, against 2 (N - 1)/N S / W of a "
            "reduce-scatter with an all-gather, which is N/2 times less. For the gradients of a block of d = %s, "
            "F = %s on N = %.0f devices that is %s ms against %s ms.",
            table_text(t, r, "d_model"), table_text(t, r, "d_ff"), 2 * alternate / ring, number(alternate / 1e3),
            number(ring / 1e3));
    }
    table_free(t);
}

typedef struct form {
    const char *name, *times, *bound;
} form;

static void add_form(document *doc, const table *t, const form *f)
{
    static const char *const batches[] = {"4096", "16384", "65536"};
    doc_row(doc, f->name, f->times, f->bound, NULL);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        doc_cells(doc, number(table_real(t, form_at(t, f->name, batches[b]), "devices_most")), NULL);
}

/* Ends with a form without a name. */
static void forms_table(document *doc, const char *dir, const form *forms)
{
    table *t = rows_of(dir, "closed_forms");
    const size_t any = t ? form_at(t, forms->name, "16384") : NO_ROW;
    if (any != NO_ROW) {
        doc_paragraph(doc,
                      "With rho = W / C and SwiGLU's three matrices; the numbers are those of d = %s, F = %s, C = %s "
                      "TFLOP/s and W = %s GB/s:",
                      table_text(t, any, "d_model"), table_text(t, any, "d_ff"),
                      number(table_real(t, any, "used_flops") / 1e12),
                      number(table_real(t, any, "used_bandwidth") / GB));
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "form", "products against collectives", "bound by compute", NULL);
        doc_columns(doc, DOC_NUMBER, "N at B 4096", "N at B 16384", "N at B 65536", NULL);
        for (const form *f = forms; f->name; f++)
            add_form(doc, t, f);
    }
    table_free(t);
}

static void data_parallel(document *doc, const char *dir)
{
    static const form forms[] = {{"data", "12 B d F / (N C) against 12 d F (N - 1) / (N W)", "N <= 1 + B rho"},
                                 {.name = NULL}};
    forms_table(doc, dir, forms);
}

static void fsdp_calcs(document *doc, const char *dir)
{
    static const form forms[] = {{"fsdp-forward", "6 B d F / (N C) against 6 d F (N - 1) / (N W)", "N <= 1 + B rho"},
                                 {"fsdp-backward", "12 B d F / (N C) against 12 d F (N - 1) / (N W)", "N <= 1 + B rho"},
                                 {.name = NULL}};
    forms_table(doc, dir, forms);
}

static void tensor_calcs(document *doc, const char *dir)
{
    static const form forms[] = {
        {"tensor-forward", "6 B d F / (N C) against 4 B d (N - 1) / (N W)", "N <= 1 + 1.5 F rho"},
        {"tensor-backward", "12 B d F / (N C) against 4 B d (N - 1) / (N W)", "N <= 1 + 3 F rho"},
        {.name = NULL}};
    forms_table(doc, dir, forms);
}

static void both_calcs(document *doc, const char *dir)
{
    static const form forms[] = {
        {"2d-at-once", "6 B d F / (X Y C) against the longer of 6 d F (X - 1) / (X Y W) and 4 B d (Y - 1) / (X Y W)",
         "N <= (1 + B rho) (1 + 1.5 F rho)"},
        {"2d-in-turn", "6 B d F / (X Y C) against 6 d F (X - 1) / (X Y W) + 4 B d (Y - 1) / (X Y W)",
         "N <= 3 F / (2 B) (B rho / 2 + 1/2 + B / (3 F))^2"},
        {.name = NULL}};
    forms_table(doc, dir, forms);
}

static const char devices[] = "(a), (b): devices that hold the training state",
                  of_2026[] = "The forms of 2026: the most devices that stay bound by compute";

const course_problem course_accounting[] = {
    {"communication_accounting (a)", "2025", devices, training_state},
    {"communication_accounting (b)", "2025", devices, fsdp_memory},
    {"communication_accounting (c)", "2025", "bench_accounting: memory and communication on paper", compute_bound},
    {"communication_accounting (d)", "2025", "(d): ways to a smaller batch", smaller_batch},
    {"alternate_ring_all_reduce", "2026", of_2026, alternate_ring},
    {"data_parallel_calcs", "2026", of_2026, data_parallel},
    {"fsdp_calcs", "2026", of_2026, fsdp_calcs},
    {"tp_calcs", "2026", of_2026, tensor_calcs},
    {"fsdp_tp_calcs", "2026", of_2026, both_calcs},
    {.name = NULL}};
