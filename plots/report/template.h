/* SPDX-License-Identifier: MIT */
/* Text with SQL in it as one expression of SQL, and numbers as the report shows them. */
#pragma once

/* {x} is the value of an expression, "-" for NULL; what stands in [[ ]] is left out where a value in it is NULL. **x** is strong, `x` code,
 * a line break a blank. NULL: something is not closed. Free with sqlite3_free. */
char *template_sql(const char *text);

char *number_text(double x); /* three digits; caller frees */
