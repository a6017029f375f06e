# SPDX-License-Identifier: MIT
# What all figures share. Reads W and H (pixels), output, title, caption, and of figures over
# the sequence length seqs (the lengths, ascending) and tics_fit (how many of them have room on the axis).
set encoding utf8
font_of(pixels) = sprintf("sans-serif,%g", pixels) # the reader's font
set terminal svg size W,H dynamic enhanced font font_of(13) background "white"
set output output
set datafile separator ","
set datafile commentschars "#"
set datafile missing NaN

# Okabe and Ito's colours, told apart with any colour vision; the order is the order of use.
array colour[6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
array point[6] = [7, 5, 9, 11, 13, 15]
colour_of(i) = colour[(i - 1) % 6 + 1]
point_of(i) = point[(i - 1) % 6 + 1]
grey = "#555555"
do for [i = 1:12] { # series i, solid; 20 + i, dashed
    set style line i linecolor rgb colour_of(i) pointtype point_of(i) pointsize 0.6 linewidth 1.8
    set style line 20 + i linecolor rgb colour_of(i) pointtype point_of(i) pointsize 0.6 linewidth 1.8 dashtype (5,3)
}
set style line 41 linecolor rgb grey linewidth 1.8 dashtype (5,3) # "unfused" in keys
set style line 42 linecolor rgb grey linewidth 1.8                # "flash" in keys
set style line 43 linecolor rgb "black" linewidth 1.5 dashtype (10,3,2,3) # a ceiling

set border 3 linecolor rgb grey
set tics nomirror textcolor rgb "#333333"
set grid xtics ytics linetype 1 linecolor rgb "#E4E4E4" linewidth 1
grid_of_x = "unset grid; set grid xtics linetype 1 linecolor rgb '#E4E4E4' linewidth 1"
grid_of_y = "unset grid; set grid ytics linetype 1 linecolor rgb '#E4E4E4' linewidth 1"
set format y "%g"
# A logarithmic y axis from lo to hi; where it spans little, 2 and 5 have tics too, and where less than a decade, more have.
log_y = "set logscale y 10; set yrange [lo : hi]; set ytics autofreq; if (hi / lo < 300) { set ytics (); \
         do for [e = floor(log10(lo)):ceil(log10(hi))] { set ytics add (10.0**e, 2 * 10.0**e, 5 * 10.0**e); \
             if (hi / lo < 6) { set ytics add (1.5 * 10.0**e, 3 * 10.0**e, 4 * 10.0**e, 6 * 10.0**e, 7 * 10.0**e, 8 * 10.0**e) } } }"

# From the top: title, what it was measured on, key, panels; in pixels, so that figures of any height look alike.
from_top(pixels) = 1 - pixels / (H + 0.0)
from_left(pixels) = pixels / (W + 0.0)
set label 1 title at screen 0.5,from_top(20) center font font_of(16) noenhanced
set label 2 caption at screen 0.5,from_top(43) center font font_of(12) textcolor rgb grey noenhanced
top_of_panels = from_top(118)
panel_title = "set label 3 panel at graph 0.5,graph 1 center offset 0,0.7 font font_of(14)"

# The key is a row of its own above the panels, so that it never covers data. A figure fills keys (count), key_text and
# key_style (a line style each) and calls @draw_key; @first_panel_done takes key and title away again.
array key_text[20]
array key_style[20]
keys = 0
key_middle = W / 2.0 # pixels from the left
add_key = "keys = keys + 1; key_text[keys] = text; key_style[keys] = style"
key_width(i) = 26 + 6 + 8 * strlen(key_text[i]) + 16
key_x(i) = key_middle - 0.5 * (sum [k = 1:keys] key_width(k)) + (i > 1 ? sum [k = 1:(i - 1)] key_width(k) : 0) + 8
key_place = "set arrow 100 + i from screen from_left(key_x(i)),from_top(71) \
             to screen from_left(key_x(i) + 26),from_top(71) nohead linestyle key_style[i]; \
             set label 100 + i key_text[i] at screen from_left(key_x(i) + 32),from_top(71) left noenhanced"
key_point = "set label 140 + i '' at screen from_left(key_x(i) + 13),from_top(71) point pointsize 0.6 \
             pointtype point_of(key_style[i] % 20) linecolor rgb colour_of(key_style[i] % 20)"
draw_key = "do for [i = 1:keys] { @key_place; if (key_style[i] < 40) { @key_point } }"
first_panel_done = "unset label; unset arrow"
# Panels side by side, as high as the key and a row of labels leave room.
bottom = 0.13
begin_panels = "set multiplot; set tmargin at screen top_of_panels; set bmargin at screen bottom"
# Ticks at the places 1, 2, ... with the words of `list`, or at their values.
ticks_of_words = "set xtics (); do for [i = 1:words(list)] { set xtics add (word(list, i) i) }"
ticks_of_values = "set xtics (); do for [i = 1:words(list)] { set xtics add (word(list, i) word(list, i) + 0) }"
GIB = 1073741824.0
MIB = 1048576.0
unset key

length_text(s) = (s < 1024 || s % 1024) ? sprintf("%d", s) : sprintf("%dk", s / 1024)
index_of(list, value) = sum [k = 1:words(list)] (word(list, k) + 0 == value ? k : 0)
if (exists("seqs")) {
    set logscale x 2
    set xtics ()
    every_nth = (words(seqs) + tics_fit - 1) / tics_fit # all lengths when they fit, else every second, third, ...
    do for [i = 1:words(seqs):every_nth] {
        set xtics add (length_text(int(word(seqs, i))) int(word(seqs, i)))
    }
    set xrange [0.85 * word(seqs, 1) : 1.18 * word(seqs, words(seqs))]
}
