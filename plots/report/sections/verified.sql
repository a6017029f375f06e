-- SPDX-License-Identifier: MIT
-- @use verified TABLE VARIANT,...: what the check found in rows of these variants.

{sum(status = 'ok')} of {count(*)} cases agree with one rank that computes everything: gradients are off by at most
{max(err_grad)}, parameters after three steps by {max(err_param)}[[; first to fail:
{max(iif(status = 'fail', reason, NULL))}]].
@from $1 WHERE instr(',$2,', ',' || variant || ',') AND "check" IS NOT 0
    AND (status = 'fail' OR (status = 'ok' AND err_grad IS NOT NULL)) HAVING count(*)
