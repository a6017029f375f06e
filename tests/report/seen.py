# SPDX-License-Identifier: MIT
"""usage: seen.py FILE.svg ... Says of each figure whether librsvg (rsvg-convert) shows nothing of it: GNOME, Wikimedia and pandoc
draw with it, and take less than a browser does. Exit code 1 where one is blank or gives an error."""
import struct
import subprocess
import sys
import zlib


def paeth(a, b, c):
    return min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]


def colours(png):
    """The distinct pixels of a PNG of 8 bits a channel, not interlaced, as rsvg-convert writes it."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, _, depth, form = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            data += body
        at += 12 + size
    n = {2: 3, 6: 4}[form]
    assert depth == 8
    lines, before, found = zlib.decompress(data), [0] * (width * n), set()
    for at in range(0, len(lines), width * n + 1):
        how, line = lines[at], list(lines[at + 1 : at + 1 + width * n])
        for i in range(width * n if how else 0):
            a, b, c = (line[i - n] if i >= n else 0), before[i], (before[i - n] if i >= n else 0)
            line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth(a, b, c))[how]) & 255
        found.update(zip(*[iter(line)] * n))
        before = line
    return len(found)


bad = 0
for path in sys.argv[1:]:
    done = subprocess.run(["rsvg-convert", "-w", "200", "-f", "png", path], capture_output=True)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode or said:
        print(f"{path}: rsvg-convert: {said or done.returncode}")
    elif colours(done.stdout) < 16:  # with its smoothed text, a figure has hundreds
        print(f"{path}: blank")
    else:
        continue
    bad = 1
sys.exit(bad)
