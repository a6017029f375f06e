# SPDX-License-Identifier: MIT
# Curves, panel by panel. A row of the data is a point x, y of a curve of a panel; `style` is its line style (20 + i: dashed, in the
# colour of i; above 40: without points). A figure says
#   panels, units    lists: the panels' titles (-: none), from the left and from above, and what their y axes count; one unit is that of all
#   names, marks     lists: the texts of the key and their line styles; without marks 1, 2 ...
#   seqs or x_axis   the lengths on the x axis (style.gp), or a macro that sets the axis; x_label, its text
#   scale            of the y axes, one of all or a list: log, or zero, from 0 to the largest y, or `least_top`, likewise,
#                    where that is more
#   y_format         '%g' unless it is set, with its quotes
#   shared           1: the panels of a row have one y axis. grid_rows: rows of panels, 1 unless it is set
#   before           a macro: what is drawn below the curves, with a comma behind it
if (!exists("W")) { W = 900; H = 460 }
if (!exists("tics_fit")) { tics_fit = 11 }
load folder."/style.gp"
if (!exists("marks")) { marks = "1 2 3 4 5 6 7 8 9 10 11 12" }
if (!exists("y_format")) { y_format = "'%g'" }
if (!exists("before")) { before = "" }
if (!exists("x_axis")) { x_axis = "" }
if (!exists("least_top")) { least_top = "0" }
if (!exists("grid_rows")) { grid_rows = 1 }
do for [i = 1:words(names)] { text = word(names, i); style = int(word(marks, i)); @add_key }
@draw_key
@x_axis
n = words(panels) / grid_rows
gap = shared ? 0.025 : 0.1
left = 0.095
step = (0.985 - left + gap) / n
stats data using "style" name "line" nooutput
set multiplot
do for [r = 1:grid_rows] {
    set tmargin at screen (r == 1 ? (panels ne "-" ? top_of_panels : from_top(92)) : 0.415)
    set bmargin at screen (grid_rows == 1 ? 0.13 : r == 1 ? 0.475 : 0.105)
    set xlabel (r == grid_rows ? x_label : "")
    do for [k = 1:n] {
        p = (r - 1) * n + k
        on_axis(panel) = shared ? int(panel - 1) / n == r - 1 : panel == p
        stats [*:*] [*:*] data using (on_axis(column("panel")) ? column("y") : NaN) name "y" nooutput
        if (word(scale, words(scale) == 1 ? 1 : p) eq "log") { lo = 0.7 * y_min; hi = 1.4 * y_max; @log_y } else {
            least = word(least_top, words(least_top) == 1 ? 1 : p) + 0
            unset logscale y
            set ytics autofreq
            set yrange [y_min < 0 ? 1.1 * y_min : 0 : 1.1 * (y_max > least ? y_max : least)]
        }
        panel = r == 1 && panels ne "-" ? word(panels, p) : ""
        @panel_title
        set ylabel k > 1 && shared ? "" : word(units, words(units) == 1 ? 1 : words(units) == grid_rows ? r : p)
        if (k > 1 && shared) { set format y "" } else { set format y @y_format }
        set lmargin at screen left + step * (k - 1)
        set rmargin at screen left + step * k - gap
        x_of(i) = column("panel") == p && column("style") == i ? column("x") : NaN
        plot @before for [i = 1:int(line_max < 40 ? line_max : 40)] data using (x_of(i)):"y" with linespoints linestyle i, \
             for [i = 41:int(line_max)] data using (x_of(i)):"y" with lines linestyle i
        @first_panel_done
    }
}
