/* SPDX-License-Identifier: MIT */
/* Every column has a reader: a report, a figure, a script, a document, a comparison, or a user in common/build/columns.txt. */
#include "tests/support/test.h"

TEST(every_column_is_read)
{
    const char *bin = getenv("STEPBENCH_BIN");
    OWNED char *command = xasprintf("bash common/build/unread.sh '%s' 2>&1", bin ? bin : ".");
    int code;
    OWNED char *said = command_text(command, &code);
    if (code != 0 || *said)
        fail_msg("%s", said);
}
