-- SPDX-License-Identifier: MIT
@section -10 First

hello {(SELECT count(*) FROM bench_flash)} rows
