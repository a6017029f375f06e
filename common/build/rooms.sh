#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: rooms.sh table|includes|files|folders|links BUILD|fronts BUILD|size|functions|mirror
# Checks the tree in the current folder against its common/build/rooms.txt; prints each breach on a line.
#   table     each room stands once, allows nothing that is not above it, and has sources; each folder has a room
#   includes  an include stays inside its room, or goes to what the table allows that room
#   files, folders           no circle of files by their includes, of folders
#   links     no circle of sources by the symbols that their objects in the folder BUILD define and need
#   fronts    a header declares functions of at most four sources, by the same symbols
#   size      no folder holds more than 30 sources
#   functions no function of host code is longer than 120 lines
#   mirror    a folder tests/x tests common/x or plots/x, or is one of bench, docs, gpu, kernels, golden, mutants, peers, preload, support
set -u
export LC_ALL=C
rooms=common/build/rooms.txt
tops=(bench common kernels plots tests)

sources() {
    for top in "${tops[@]}"; do
        [ ! -d "$top" ] || find "$top" -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \)
    done | sort
}
arrows() { # "file line included-file" for every include of a file of the project
    sources | xargs -r grep -nE '^[[:blank:]]*#[[:blank:]]*include[[:blank:]]*"[^"]+"' /dev/null |
        sed -E 's/^([^:]+):([0-9]+):[^"]*"([^"]+)".*/\1 \2 \3/'
}
symbols() { # BUILD: "U symbol source" where an object needs it, "D symbol source" where it defines it; no test's
    sources | grep -E '^(bench|common|kernels|plots)/.*\.(c|cc|cu)$' | while read -r source; do
        [ ! "$1/$source.o" -nt "$source" ] || echo "$source.o"
    done | (cd "$1" && xargs -r nm -A -g --format=posix 2>/dev/null) |
        awk '$2 != "main" && $3 ~ /^[UTDBRGSC]$/ { sub(/\.o:$/, "", $1); print ($3 == "U" ? "U" : "D"), $2, $1 }'
}
circles() { # pairs on stdin; prints each circle that tsort finds on a line
    tsort 2>&1 >/dev/null | awk '/contains a loop/ { if (line) print line; line = ""; next }
        { sub(/^tsort: /, ""); line = line (line ? " -> " : "circle: ") $0 }
        END { if (line) print line }'
}

# What awk programs below share: the table, as order[room] and words[room].
# shellcheck disable=SC2016 # $ is awk's
table='
    function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
    function fits(room, word) {
        return word == room || (word ~ /\/\*$/ && index(room, substr(word, 1, length(word) - 1)) == 1)
    }
    function room_of(folder,   room) {
        if (folder in order) return folder
        for (room in order) if (room ~ /\*$/ && fits(folder, room)) return room
        return ""
    }
    function read_table(file,   line, room) {
        while ((getline line < file) > 0) {
            number++
            if (line ~ /^#/ || line ~ /^ *$/) continue
            room = line
            sub(/:.*/, "", room)
            sub(/^[^:]*:/, "", line)
            if (room in order) print file ":" number ": " room " stands twice"
            order[room] = number
            words[room] = line
        }
        close(file)
    }'

case ${1:-} in
table)
    sources | awk -v file=$rooms "$table"'
        BEGIN { read_table(file) }
        { folder = folder_of($0); used[room_of(folder)] = 1; if (room_of(folder) == "") missing[folder] = 1 }
        END {
            for (folder in missing) print folder ": this folder has no line in " file
            for (room in order) {
                if (!(room in used)) print file ":" order[room] ": " room " has no sources"
                n = split(words[room], word, " ")
                for (i = 1; i <= n; i++) {
                    below = 0
                    target = word[i] ~ /\.h$/ ? folder_of(word[i]) : word[i]
                    for (other in order) if (fits(other, target) && order[other] < order[room]) below = 1
                    if (!below) print file ":" order[room] ": " room " allows " word[i] ", which is no room above this line"
                }
            }
        }' | sort
    ;;
includes)
    arrows | awk -v file=$rooms "$table"'
        BEGIN { read_table(file) }
        {
            from = folder_of($1); to = folder_of($3); room = room_of(from)
            if (from == to || room == "") next
            n = split(words[room], word, " ")
            for (i = 1; i <= n; i++)
                if (word[i] == $3 || (fits(to, word[i]) && room_of(to) != "" && order[room_of(to)] < order[room])) next
            target = room_of(to)
            why = target != "" && order[target] > order[room] ? "points upward, to " to : "is not allowed for " from
            print $1 ":" $2 ": \"" $3 "\" " why
        }'
    ;;
files) arrows | awk '{ print $1, $3 }' | circles ;;
folders)
    arrows | awk "$table"'{ from = folder_of($1); to = folder_of($3); if (from != to) print from, to }' | sort -u | circles
    ;;
links) # The linker's view, which a shared header cannot hide. Objects that are older than their source say nothing.
    found=$(symbols "$2")
    [ -n "$found" ] || echo "$2 has no object of a source that is up to date"
    awk '
        /^U / { need[$3 " " $2]; next }
        { by[$2] = by[$2] " " $3 }
        END {
            for (pair in need) {
                split(pair, part, " ")
                n = split(by[part[2]], source, " ")
                for (i = 1; i <= n; i++) if (source[i] != part[1]) print part[1], source[i]
            }
        }' <<<"$found" | sort -u | circles
    ;;
fronts)
    # A table of ops names what it is filled with. The others are to be cut; none may come.
    excepted='kernels/cpu/cpu.h common/launch/internal.h
        common/compare/compare.h common/compare/internal.h
        bench/mixed/mixed.h bench/qualify/qualify.h bench/roofline/roofline.h'
    # shellcheck disable=SC2046,SC2086 # one word per file
    symbols "$2" | awk -v excepted="$(printf ' %s ' $excepted)" '
        symbols { if ($1 == "D") by[$2] = by[$2] " " $3; next }
        /^ *\*/ || /^\/\*/ { next }
        {
            sub(/\/\*.*/, "")
            while (match($0, /[a-zA-Z_][a-zA-Z0-9_]*\(/)) {
                n = split(by[substr($0, RSTART, RLENGTH - 1)], source, " ")
                for (i = 1; i <= n; i++) if (!seen[FILENAME, source[i]]++) count[FILENAME]++
                $0 = substr($0, RSTART + RLENGTH)
            }
        }
        END {
            for (header in count)
                if (count[header] > 4 && !index(excepted, " " header " "))
                    print header ": fronts " count[header] " sources; cut it into headers of at most four"
        }' symbols=1 - symbols=0 $(sources | grep '\.h$') | sort
    ;;
functions)
    sources | grep -E '\.(c|cc)$' | xargs -r awk '
        /^\{/ { first = FNR }
        /^\}/ && first {
            if (FNR - first > 120) print FILENAME ":" first ": a function of " FNR - first " lines"
            first = 0
        }'
    ;;
size)
    sources | sed 's|/[^/]*$||' | uniq -c | sort -rn | awk '$1 > 30 { print $2 ": " $1 " sources; cut it into rooms of at most 30" }'
    ;;
mirror)
    for folder in tests/*/; do
        [ -d "$folder" ] || continue
        name=$(basename "$folder")
        case $name in
        bench | docs | gpu | kernels | golden | mutants | peers | preload | support) ;;
        *) [ -d "common/$name" ] || [ -d "plots/$name" ] || echo "tests/$name: there is no common/$name" ;;
        esac
    done
    ;;
*)
    echo "usage: rooms.sh table|includes|files|folders|links BUILD|fronts BUILD|size|functions|mirror" >&2
    exit 2
    ;;
esac
