# SPDX-License-Identifier: MIT
# What each feature makes of the step and of the peak of memory: a bar for each line of the report's table. Filled: the
# lines that build on each other; pale: those that stand beside the last of them.
W = 1000; H = 150 + 34 * 13
load folder."/style.gp"
GIB = 1073741824.0
MIB = 1048576.0
row(v, a, b, c) = strcol("variant") eq v && strcol("precision") eq a && strcol(other) eq b && strcol("recompute") eq c
text_of(k) = word_of(texts, k)
word_of(list, k) = k > 1 ? word_of(list[strstrt(list, "|") + 1:], k - 1) \
                         : (strstrt(list, "|") ? list[1:strstrt(list, "|") - 1] : list)
alone = "fp32, eager ops, unfused attention|+ bf16|+ flash attention|+ fused kernels|+ one CUDA graph|\
with norms and SwiGLU recomputed|with attention recomputed|with feed-forward recomputed|with blocks recomputed|\
with blocks offloaded|with moments in bf16|with bf16 alone"
ranks = "fp32, all on every rank|+ bf16|+ ZeRO-1|+ ZeRO-2|+ FSDP|with gradients in bf16|with gradients sent in bf16|\
with blocks recomputed|with parameters kept|with gains replicated|with gathers by copy engines|\
with updates beside the backward|with everything in fp32"
is(name, value) = name eq "variant" || strcol(name) eq value || strcol(name) eq ""
line_alone(x) = strcol(moments) eq "bf16" ? (row(last, "bf16", "flash", "none") && is(offload, "none") ? 11 : NaN) \
              : !is(offload, "none") ? (row(last, "bf16", "flash", "none") && strcol(offload) eq "block" ? 10 : NaN) \
              : row("none", "fp32", "unfused", "none") ? 1 : row("none", "bf16", "unfused", "none") ? 2 \
              : row("none", "bf16", "flash", "none") ? 3 : row("kernels", "bf16", "flash", "none") ? 4 \
              : row("graph", "bf16", "flash", "none") ? 5 : row(last, "bf16", "flash", "selective") ? 6 \
              : row(last, "bf16", "flash", "attn") ? 7 : row(last, "bf16", "flash", "mlp") ? 8 \
              : row(last, "bf16", "flash", "block") ? 9 : row(last, "bf16-pure", "flash", "none") ? 12 : NaN
odd(x) = (is(small, "sharded") ? 0 : 1) + (is(reduce, "grad") ? 0 : 1) + (is(gather, "nccl") ? 0 : 1) \
         + (is(update, "buckets") ? 0 : 1)
line_odd(x) = !row("fsdp", "bf16", "fp32", "none") ? NaN : strcol(reduce) eq "bf16" ? 7 \
              : strcol(small) eq "replicated" ? 10 : strcol(gather) eq "copy" ? 11 : strcol(update) eq "backward" ? 12 : NaN
line_ranks(x) = odd(0) > 1 ? NaN : odd(0) == 1 ? line_odd(0) \
              : row("ddp", "fp32", "policy", "none") ? 1 : row("ddp", "bf16", "fp32", "none") ? 2 \
              : row("zero1", "bf16", "fp32", "none") ? 3 : row("zero2", "bf16", "fp32", "none") ? 4 \
              : row("fsdp", "bf16", "fp32", "none") ? 5 : row("fsdp", "bf16", "policy", "none") ? 6 \
              : row("fsdp", "bf16", "fp32", "block") ? 8 : row("fsdp-keep", "bf16", "fp32", "none") ? 9 \
              : row("fsdp", "fp32", "policy", "none") ? 13 : NaN
several = other eq "grad_dtype"
lines = several ? 13 : 12
texts = several ? ranks : alone
usual_cell(i) = strcol(word(columns, i)) eq "" || strcol(word(columns, i)) eq word(wanted, i)
usual(x) = (sum [i = 1:words(columns)] (usual_cell(i) ? 0 : 1)) == 0
line(x) = !usual(0) ? NaN : several ? line_ranks(x) : line_alone(x)
stats data using "peak_bytes" name "peak" nooutput
unit = peak_max > 0.5 * GIB ? GIB : MIB
set xrange [0 : *]
set offsets graph 0, graph 0.12, 0, 0
set multiplot
set tmargin at screen from_top(90)
set bmargin at screen 0.12
shown(k) = k == 1 ? column("step_ms") : column("peak_bytes") / unit
# Lines that nothing was measured for take no place.
array place[lines]
do for [i = 1:lines] { place[i] = 0 }
stats data using (found = line(0), found == found ? (place[int(found)] = 1) : 0) nooutput
drawn = 0
do for [i = 1:lines] { if (place[i]) { drawn = drawn + 1; place[i] = drawn } }
set yrange [drawn + 0.6 : 0.4]
at(x) = (found = line(0), found == found ? place[int(found)] : NaN)
among(filled) = (found = line(0), found == found && (found <= 5) == filled ? at(0) : NaN)
do for [k = 1:2] {
    set ytics ()
    do for [i = 1:lines] { if (place[i]) { set ytics add ((k == 1 ? text_of(i) : "") place[i]) } }
    set xlabel k == 1 ? "ms a step" : (unit == GIB ? "peak, GiB" : "peak, MiB")
    set lmargin at screen (k == 1 ? 0.26 : 0.66)
    set rmargin at screen (k == 1 ? 0.61 : 0.985)
    set style fill solid 0.85 noborder
    plot data using (0.5 * shown(k)):(among(1)):(0.5 * shown(k)):(0.33) with boxxyerror linestyle k, \
         data using (0.5 * shown(k)):(among(0)):(0.5 * shown(k)):(0.33) with boxxyerror linestyle k \
             fillstyle solid 0.35, \
         data using (shown(k)):(at(0)):(sprintf("%.3g", shown(k))) with labels left offset 0.5,0 font font_of(11)
    @first_panel_done
}
unset multiplot
