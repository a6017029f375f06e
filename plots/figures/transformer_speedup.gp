# SPDX-License-Identifier: MIT
# Time of a step in one precision / its time in another, against the context length. One colour per size.
W = 900; H = 440; tics_fit = 14
slow = "fp32"; fast = "bf16"
load folder."/style.gp"
is(size, seq, precision) = strcol("size") eq size && column("seq") == seq && strcol("precision") eq precision
found = NaN; run = ""
time_of = "found = NaN; run = ''; stats data using (is(name, seq, precision) ? (found = column('step_ms'), \
           run = strcol('run_of'), 0) : 0) nooutput"
most = 1; pairs = 0
set print $ratios
do for [i = 1:words(sizes)] {
    name = word(sizes, i)
    do for [k = 1:words(seqs)] {
        seq = word(seqs, k) + 0
        precision = slow
        @time_of
        before = found; run_before = run
        precision = fast
        @time_of
        ratio = run eq run_before ? before / found : NaN # within one run on one GPU
        if (ratio == ratio) { pairs = pairs + 1; print sprintf("%d,%g", seq, ratio); most = ratio > most ? ratio : most }
    }
    print "nan,nan"
    print ""
    print ""
}
unset print
if (pairs == 0) { exit status 3 }
set yrange [0 : 1.1 * most]
set xlabel "context length S (tokens)"
set ylabel "time of ".slow." / time of ".fast
do for [i = 1:words(sizes)] { text = word(sizes, i); style = i; @add_key }
@draw_key
set lmargin at screen 0.085
set rmargin at screen 0.985
set tmargin at screen from_top(92)
set bmargin at screen 0.13
plot 1 with lines linestyle 43, \
     for [i = 1:words(sizes)] $ratios index i - 1 using 1:2 with linespoints linestyle i
