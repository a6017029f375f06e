/* SPDX-License-Identifier: MIT */
/* Cells of an entry; see ddp.h. */
#include "common/report/ddp/ddp.h"

#include <string.h>

const char *ddp_text(const ddp_entry *e, const char *column)
{
    return table_text(e->t, e->row, column);
}

double ddp_real(const ddp_entry *e, const char *column)
{
    return table_real(e->t, e->row, column);
}

bool ddp_is(const ddp_entry *e, const char *variant)
{
    return strcmp(e->variant, variant) == 0;
}

bool ddp_same(const ddp_entry *a, const ddp_entry *b, const char *column)
{
    return strcmp(ddp_text(a, column), ddp_text(b, column)) == 0;
}
