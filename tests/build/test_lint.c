/* SPDX-License-Identifier: MIT */
/* What guards the tree, on small trees with one planted breach each: the rules of rooms (common/build/rooms.sh). Run from
 * the project's root. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/stat.h>

/* Three rooms, each on the one before; a source and its header in each. */
static const char table[] = "common/core:\n"
                            "common/device:  common/core\n"
                            "common/train:   common/core common/device\n";

static void plant(const char *folder, const char *file, const char *text)
{
    OWNED char *path = folder_path(folder, file);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
    file_write(path, text);
}

static int tree_create(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    plant(*state, "common/build/rooms.txt", table);
    plant(*state, "common/core/error.h", "void die(void);\n");
    plant(*state, "common/core/error.c", "#include \"common/core/error.h\"\nvoid die(void)\n{\n}\n");
    plant(*state, "common/device/device.h", "#include \"common/core/error.h\"\nint device_open(void);\n");
    plant(*state, "common/device/device.c", "#include \"common/device/device.h\"\n");
    plant(*state, "common/train/trainer.c", "#include \"common/device/device.h\"\n");
    return 0;
}

/* What the rule prints of the tree; caller frees. */
static char *breaches(const char *folder, const char *rule)
{
    char *out = folder_path(folder, "out");
    OWNED char *root = shell_path("."), *command = xasprintf("cd '%s' && bash '%s/common/build/rooms.sh' %s >'%s' 2>&1",
                                                             folder, root, rule, out);
    assert_int_equal(system(command), 0);
    char *text = file_text(out);
    free(out);
    return text;
}

/* The rule says nothing (NULL), or something with `part` in it. */
static void expect(const char *folder, const char *rule, const char *part)
{
    OWNED char *said = breaches(folder, rule);
    if (part ? !strstr(said, part) : *said != '\0')
        fail_msg("%s: expected %s, got: %s", rule, part ? part : "nothing", said);
}

static const char *const rules[] = {"table", "includes", "files", "folders", "size", "functions", "mirror"};

TEST_WITH(a_good_tree_passes, tree_create, folder_remove)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        expect(*state, rules[i], NULL);
}

/* A file is planted, of which the rule says this. */
#define BREACH(name, file, text, rule, said)                                                                           \
    TEST_WITH(name, tree_create, folder_remove)                                                                        \
    {                                                                                                                  \
        plant(*state, file, text);                                                                                     \
        expect(*state, rule, said);                                                                                    \
    }

BREACH(an_upward_include_is_found, "common/core/stats.c", "int n;\n#include \"common/device/device.h\"\n", "includes",
       "common/core/stats.c:2: \"common/device/device.h\" points upward")
BREACH(an_include_that_the_table_lacks_is_found, "common/build/rooms.txt",
       "common/core:\ncommon/device: common/core\ncommon/train: common/core\n", "includes",
       "common/train/trainer.c:1: \"common/device/device.h\" is not allowed")
BREACH(a_table_that_looks_up_is_found, "common/build/rooms.txt",
       "common/core: common/train\ncommon/device: common/core\ncommon/train:\n", "table",
       "common/core allows common/train, which is no room above this line")
BREACH(a_folder_without_a_room_is_found, "common/spare/spare.c", "int spare;\n", "table",
       "common/spare: this folder has no line")

TEST_WITH(circles_are_found, tree_create, folder_remove)
{
    plant(*state, "common/core/a.h", "#include \"common/core/b.h\"\n");
    plant(*state, "common/core/b.h", "#include \"common/core/c.h\"\n");
    plant(*state, "common/core/c.h", "#include \"common/core/a.h\"\n");
    expect(*state, "files", "circle: common/core/a.h");
    expect(*state, "folders", NULL);
    plant(*state, "common/core/stats.c", "#include \"common/device/device.h\"\n");
    expect(*state, "folders", "circle: common/core -> common/device");
}

/* Each source of a room by the compiler, to build/<source>.o, as make does. */
static void compile(const char *folder, const char *room)
{
    char command[3 * 4096];
    snprintf(
        command, sizeof command,
        "cd '%s' && mkdir -p build/%s && for source in %s/*.c; do cc -I. -c $source -o build/$source.o || exit; done",
        folder, room, room);
    assert_int_equal(system(command), 0);
}

TEST_WITH(a_circle_behind_a_shared_header_is_found, tree_create, folder_remove)
{
    plant(*state, "common/core/shared.h", "int a_of(int x);\nint b_of(int x);\nint c_of(int x);\n");
    plant(*state, "common/core/a.c", "#include \"common/core/shared.h\"\nint a_of(int x) { return b_of(x); }\n");
    plant(*state, "common/core/b.c", "#include \"common/core/shared.h\"\nint b_of(int x) { return c_of(x); }\n");
    plant(*state, "common/core/c.c", "#include \"common/core/shared.h\"\nint c_of(int x) { return x; }\n");
    compile(*state, "common/core");
    expect(*state, "links build", NULL); /* c.c knows of a_of, but does not call it */
    plant(*state, "common/core/c.c", "#include \"common/core/shared.h\"\nint c_of(int x) { return a_of(x); }\n");
    expect(*state, "files", NULL);
    compile(*state, "common/core");
    expect(*state, "links build", "circle: common/core/a.c -> common/core/b.c -> common/core/c.c");
}

TEST_WITH(a_header_that_fronts_too_much_is_found, tree_create, folder_remove)
{
    char name[64], text[64], header[512] = "";
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "common/train/part_%d.c", i);
        snprintf(text, sizeof text, "int part_%d(void) { return %d; }\n", i, i);
        plant(*state, name, text);
        snprintf(text, sizeof text, "int part_%d(void);\n", i);
        if (i < 4)
            strcat(header, text);
    }
    plant(*state, "common/train/parts.h", header);
    compile(*state, "common/train");
    expect(*state, "fronts build", NULL);
    plant(*state, "common/train/parts.h", strcat(header, text));
    expect(*state, "fronts build", "common/train/parts.h: fronts 5 sources");
}

TEST_WITH(a_long_function_is_found, tree_create, folder_remove)
{
    char text[512] = "int long_one(void)\n{\n";
    for (int i = 0; i < 120; i++)
        strcat(text, ";\n");
    plant(*state, "common/core/long.c", strcat(text, "}\n"));
    expect(*state, "functions", "common/core/long.c:2: a function of 121 lines");
}

TEST_WITH(links_without_objects_are_no_proof, tree_create, folder_remove)
{
    expect(*state, "links build", "build has no object of a source");
}

TEST_WITH(a_crowded_folder_is_found, tree_create, folder_remove)
{
    for (int i = 0; i < 31; i++) {
        char name[64];
        snprintf(name, sizeof name, "common/train/part_%d.c", i);
        plant(*state, name, "int x;\n");
    }
    expect(*state, "size", "common/train: 32 sources");
}

TEST_WITH(a_test_folder_without_a_room_is_found, tree_create, folder_remove)
{
    plant(*state, "tests/device/test_device.c", "int x;\n");
    expect(*state, "mirror", NULL);
    plant(*state, "tests/spare/test_spare.c", "int x;\n");
    expect(*state, "mirror", "tests/spare: there is no common/spare");
}

/* What lint.sh says of the headers of the tree, with this in its environment; caller frees. */
static char *lint_of_headers(const char *folder, const char *environment)
{
    int code;
    OWNED char *root = shell_path("."),
               *command = xasprintf("cd '%s' && mkdir -p common/build && cp -r '%s'/common/build/. common/build && "
                                    "OBJECTS=. %s bash common/build/lint.sh 2>&1 | sed -n '/every header/,/^lint: /p'",
                                    folder, root, environment);
    return command_text(command, &code);
}

TEST_WITH(headers_of_libraries_are_where_the_probe_found_them, tree_create, folder_remove)
{
    plant(*state, "elsewhere/include/sqlite3_elsewhere.h", "int sqlite3_elsewhere;\n");
    plant(*state, "plots/report/db.h", "#include <sqlite3_elsewhere.h>\n");
    OWNED char *here = lint_of_headers(*state, "HAVE_SQLITE=1 LIBRARY_CFLAGS='-isystem elsewhere/include'"),
               *lost = lint_of_headers(*state, "HAVE_SQLITE=1 LIBRARY_CFLAGS="),
               *absent = lint_of_headers(*state, "HAVE_SQLITE= LIBRARY_CFLAGS=");
    assert_string_equal(here, "");
    text_has(lost, "plots/report/db.h:1:10: fatal error: sqlite3_elsewhere.h");
    assert_string_equal(absent, "");
}
