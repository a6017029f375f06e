/* SPDX-License-Identifier: MIT */
/* report.html: marks and figures as HTML, and a committed report in a headless Chromium, where one is installed: at the
 * width of a phone and of a desktop, light and dark, nothing overflows and nothing is said on the console. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include "plots/report/document.h"

/* ---- the writer ---- */

static char *written(document *doc, const char *folder)
{
    OWNED char *path = folder_path(folder, "page.html");
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    doc_write(doc, &html_writer, &(doc_output){.file = out, .folder = folder});
    fclose(out);
    doc_free(doc);
    return file_text(path);
}

static void expect_in(const char *page, const char *wanted)
{
    if (!strstr(page, wanted))
        fail_msg("no '%s' in the page", wanted);
}

static void expect_none(const char *page, const char *unwanted)
{
    if (strstr(page, unwanted))
        fail_msg("'%s' is in the page", unwanted);
}

TEST_IN_FOLDER(text_is_escaped_and_marked)
{
    document *doc = doc_create("a <b> & c");
    doc_contents(doc);
    doc_heading(doc, 2, "bench_x: </script>");
    doc_paragraph(doc, "\1a < b\2 and \3x \"y\"\4; \5file\6a&b.csv\7, \5bad\6javascript:alert(1)\7");
    doc_table(doc);
    doc_column(doc, DOC_NUMBER, "size");
    doc_column(doc, DOC_TEXT, "what");
    doc_row(doc);
    doc_cell(doc, "64 KiB");
    doc_cell(doc, "<i>");
    doc_row(doc);
    doc_cell(doc, "1.5");
    doc_fold(doc, "more");
    doc_paragraph(doc, "a\n  b");
    doc_fold_end(doc);
    OWNED char *page = written(doc, *state);
    expect_in(page, "<title>a &lt;b&gt; &amp; c</title>");
    expect_in(page, "<h2 id=\"bench_x-script\">bench_x: &lt;/script&gt;</h2>");
    expect_in(page, "<a href=\"#bench_x-script\">");
    expect_in(page,
              "<strong>a &lt; b</strong> and <code>x &quot;y&quot;</code>; <a href=\"a&amp;b.csv\">file</a>, bad");
    expect_in(page, "<td class=\"n\" data-v=\"65536\">64 KiB</td><td>&lt;i&gt;</td>");
    expect_in(page, "<td class=\"n\">1.5</td><td></td>");
    expect_in(page, "<details><summary>more</summary>\n<span id=\"more\"></span>\n<p>a\n  b</p>\n</details>");
    expect_none(page, "javascript:");
    expect_in(page, "default-src 'none'");
}

TEST_IN_FOLDER(figures_are_inside)
{
    OWNED char *path = folder_path(*state, "one.svg"), *bad = folder_path(*state, "bad.svg");
    file_write(path, "<?xml version=\"1.0\"?>\n<svg \n viewBox=\"0 0 9 4\"\n xmlns=\"x\">\n<title>Gnuplot</title>\n"
                     "<g id=\"gnuplot_canvas\"><rect x=\"0\" y=\"0\" width=\"9\" height=\"4\" fill=\"#ffffff\"/>\n"
                     "<defs><circle id='gpDot'/></defs>\n<g id=\"gnuplot_plot_1\" ><title>gnuplot_plot_1</title>\n"
                     "<use xlink:href='#gpDot'/></g></g></svg>\n");
    file_write(bad, "<svg viewBox=\"0 0 1 1\"><script>alert(1)</script></svg>");
    document *doc = doc_create("");
    doc_figure(doc, "one.svg", "points & more");
    doc_figure(doc, "one.svg", "again");
    doc_figure(doc, "bad.svg", "bad");
    doc_figure(doc, "missing.svg", "missing");
    OWNED char *page = written(doc, *state);
    expect_in(page, "<svg role=\"img\" aria-label=\"points &amp; more\" viewBox=\"0 0 9 4\">");
    expect_in(page, "<use xlink:href='#gpDot'/></g></g></svg>");
    expect_in(page, "missing: missing.svg");
    expect_none(page, "gnuplot_");
    expect_none(page, "alert(");
    expect_none(page, "<rect");
    const char *shape = strstr(page, "id='gpDot'");
    assert_non_null(shape);
    assert_null(strstr(shape + 1, "id='gpDot'")); /* once for all figures */
}

/* ---- in a browser ---- */

static const char *browser(void)
{
    static const char *const names[] = {"chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        OWNED char *command = xasprintf("command -v %s >/dev/null 2>&1", names[i]);
        const bool found = system(command) == 0;
        if (found)
            return names[i];
    }
    return NULL;
}

/* A page with the report in frames of two widths, and what their documents say of themselves. */
static const char frames[] =
    "<!DOCTYPE html><title>frames</title>"
    "<iframe src=\"report.html\" width=\"390\" height=\"800\"></iframe>"
    "<iframe src=\"report.html\" width=\"1280\" height=\"800\"></iframe><p id=\"said\"></p>\n"
    "<script>onload=()=>{document.getElementById('said').textContent=[...document.querySelectorAll('iframe')].map(f=>{"
    "\n"
    "const d=f.contentDocument,e=d.documentElement,w=f.contentWindow;\n"
    "d.querySelectorAll('details').forEach(x=>x.open=true);\n"
    "const b=[...d.querySelectorAll('main table:first-of-type th button')];b[0]?.click();\n"
    "return w.innerWidth+' '+(e.scrollWidth<=w.innerWidth)+' '+(d.querySelectorAll('svg[role=img]').length>0)+' '+"
    "(b.length>0&&b[0].parentNode.ariaSort=='ascending')+' '+w.getComputedStyle(d.body).backgroundColor}).join('; ')}"
    "</script>\n";

static char *shown(const char *folder, int scheme)
{
    OWNED char *command =
        xasprintf("timeout 120 %s --headless --no-sandbox --disable-gpu --allow-file-access-from-files "
                  "--user-data-dir='%s/profile' --virtual-time-budget=5000 --enable-logging=stderr "
                  "--window-size=1800,900 --blink-settings=preferredColorScheme=%d "
                  "--dump-dom 'file://%s/frames.html' 2>'%s/stderr'",
                  browser(), folder, scheme, folder, folder);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    char text[8192];
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    assert_int_equal(pclose(out), 0);
    return xstrdup(text);
}

TEST_IN_FOLDER(a_browser_shows_it_without_a_word)
{
    if (!browser())
        skip();
    OWNED char *self = build_folder();
    const char *folder = *state;
    OWNED char *copy = xasprintf("mkdir -p '%s/results' && cp -r results/h200-x2 results/published '%s/results' && "
                                 "cp -r plots '%s' && '%s/report' '%s/results/h200-x2' >/dev/null && "
                                 "mv '%s/results/h200-x2/report.html' '%s'",
                                 folder, folder, folder, self, folder, folder, folder);
    assert_int_equal(system(copy), 0);
    OWNED char *page = folder_path(folder, "frames.html"), *log = folder_path(folder, "stderr");
    file_write(page, frames);
    static const char *const backgrounds[] = {"rgb(20, 23, 26)", "rgb(255, 255, 255)"}; /* 0 is dark */
    for (int scheme = 0; scheme < 2; scheme++) {
        OWNED char *dom = shown(folder, scheme), *said = file_text(log);
        OWNED char *wanted =
            xasprintf("390 true true true %s; 1280 true true true %s", backgrounds[scheme], backgrounds[scheme]);
        if (!strstr(dom, wanted))
            fail_msg("no '%s' in: %s", wanted, strstr(dom, "<p id") ? strstr(dom, "<p id") : dom);
        if (strstr(said, "CONSOLE"))
            fail_msg("on the console: %s", strstr(said, "CONSOLE"));
    }
}

/* On a phone, the table over many machines keeps what its lines are of in sight, in whole words. */
TEST_IN_FOLDER(many_machines_on_a_phone)
{
    if (!browser())
        skip();
    OWNED char *self = build_folder(), *page = folder_path(*state, "frames.html"),
               *all = xasprintf("'%s/report' --all '%s' results/h*-x* >/dev/null", self, (char *)*state);
    assert_int_equal(system(all), 0);
    file_write(page, "<!DOCTYPE html><iframe src=\"report-all.html\" width=\"390\" height=\"800\"></iframe><p></p>\n"
                     "<script>onload=()=>{const f=document.querySelector('iframe').contentDocument,\n"
                     "w=f.querySelector('.wide'),c=w.querySelector('td');w.scrollLeft=500;\n"
                     "document.querySelector('p').textContent=(w.scrollLeft>400)+' '+(c.offsetWidth>=80)+' '+\n"
                     "(c.getBoundingClientRect().left==w.getBoundingClientRect().left)}</script>\n");
    OWNED char *dom = shown(*state, 1);
    text_has(dom, "<p>true true true</p>");
}
