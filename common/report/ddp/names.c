/* SPDX-License-Identifier: MIT */
/* What rows of data parallelism are called, and their numbers as text; see ddp.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/ddp/ddp.h"

/* What AdamW does by default differs between the benches (bench/ddp/ddp.h). */
static const char *default_update(const char *variant)
{
    return strncmp(variant, "naive", 5) == 0 || strncmp(variant, "flat", 4) == 0 ? "after" : "buckets";
}

static void add_how(FILE *out, const ddp_entry *e, const char *column, const char *plain, const char *before,
                    const char *after)
{
    const char *value = ddp_text(e, column);
    if (*value && strcmp(value, plain) != 0)
        fprintf(out, " + %s%s%s", before, value, after);
}

void ddp_name(ddp_entry *e)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    add_how(out, e, "update", default_update(e->variant), "update ", "");
    add_how(out, e, "update_blocks", "0", "of ", " blocks");
    add_how(out, e, "max_ctas", "0", "", strcmp(ddp_text(e, "max_ctas"), "1") ? " CTAs" : " CTA");
    add_how(out, e, "overlap", "none", "beside backward: ", "");
    add_how(out, e, "fusion", "kernels", "", "");
    fclose(out);
    const double mb = ddp_real(e, "bucket_mb");
    e->how = xstrdup(bytes ? text + 3 : "");
    char *name = isfinite(mb) ? xasprintf("%s %.6g MB", e->variant, mb) : xstrdup(e->variant);
    e->label = bytes ? xasprintf("%s (%s)", name, e->how) : xstrdup(name);
    free(name);
    free(text);
}

char *ddp_group_title(const ddp_entry *e)
{
    static const char *const others[][2] = {
        {"attention", "flash"}, {"recompute", "none"}, {"recompute_every", "1"}, {"fp32_products", "fma"},
        {"d_model", "0"},       {"d_ff", "0"},         {"layers", "0"},          {"heads", "0"},
        {"heads_kv", "0"},      {"vocab", "0"},        {"deterministic", "0"}}; /* beside what goes without saying */
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "%s, batch %s per rank, S %s, %s, gradients %s, %s rank%s", ddp_text(e, "size"), ddp_text(e, "batch"),
            ddp_text(e, "seq"), ddp_text(e, "precision"), e->wire, ddp_text(e, "ranks"),
            ddp_real(e, "ranks") == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *value = ddp_text(e, others[i][0]);
        if (*value && strcmp(value, others[i][1]) != 0)
            fprintf(out, ", %s %s", others[i][0], value);
    }
    fprintf(out, "%s", strcmp(ddp_text(e, "device"), "cpu") == 0 ? ", on CPUs" : "");
    fclose(out);
    return text;
}

static char *next_buffer(void)
{
    enum { BUFFERS = 32, BYTES = 96 };
    static char buffers[BUFFERS][BYTES];
    static unsigned next;
    return buffers[next++ % BUFFERS];
}

const char *precise(double value)
{
    char *text = next_buffer();
    const double size = fabs(value);
    if (!isfinite(value))
        return "-";
    snprintf(text, 96, "%.*f", size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3, value);
    return text;
}

const char *with_interval(const ddp_entry *e)
{
    char *text = next_buffer();
    if (isfinite(e->low) && isfinite(e->high))
        snprintf(text, 96, "%s [%s, %s]", precise(e->exposed), precise(e->low), precise(e->high));
    else
        snprintf(text, 96, "%s", precise(e->exposed));
    return text;
}
