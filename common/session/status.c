/* SPDX-License-Identifier: MIT */
#include "common/session/status.h"

bool status_ok(row *w, sb_status status, const char *what)
{
    if (status == SB_OK)
        return true;
    const char *why = *sb_last_message() ? sb_last_message() : sb_status_name(status);
    const row_status kind = status == SB_UNSUPPORTED ? ROW_SKIP : status == SB_NO_MEMORY ? ROW_OOM : ROW_FAIL;
    row_status_set(w, kind, "%s%s%s", what ? what : "", what ? ": " : "", why);
    return false;
}
