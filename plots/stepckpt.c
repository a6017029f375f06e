/* SPDX-License-Identifier: MIT */
/* stepckpt: what checkpoints are there, are they whole, and their weights for other programs. Needs no GPU. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/checkpoint/export.h"
#include "common/checkpoint/folder.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/core/version.h"

static const char usage[] =
    "stepckpt: Which checkpoints are there, and are they whole?\n"
    "\n"
    "usage: stepckpt list FOLDER\n"
    "       stepckpt verify CHECKPOINT\n"
    "       stepckpt export [--to cs336|llama] CHECKPOINT OUT\n"
    "\n"
    "CHECKPOINT is a folder step-N, or a folder that holds several, of which the newest is taken.\n"
    "\n"
    "list    a line for each complete checkpoint\n"
    "verify  reads all of it: every byte against its hash, sizes, headers, padding, names\n"
    "export  OUT/model.safetensors with the weights, under the names of the course's "
    "state_dict (cs336, the default) or\n"
    "        of transformers' LlamaForCausalLM (llama, with config.json)\n"
    "  --version, --help\n"
    "\n"
    "Exit codes: 0, 1 failure, 2 bad input, 3 a checkpoint is damaged.\n";

enum { READERS = 4 };

static bool is_one(const char *path)
{
    OWNED char *manifest = xasprintf("%s/manifest.json", path);
    struct stat st;
    return stat(manifest, &st) == 0;
}

/* Dies where there is none; of a single one `damaged` is the sentence instead. */
static bool open_either(const char *path, checkpoint *c, char *why, size_t why_bytes)
{
    if (is_one(path))
        return checkpoint_open(path, c, why, why_bytes);
    int64_t *steps;
    const int n = checkpoint_folder_list(path, &steps, why, why_bytes);
    if (n < 0)
        die(EXIT_CODE_USAGE, "%s", why);
    if (n == 0)
        die(EXIT_CODE_USAGE, "%s is neither a checkpoint nor a folder of complete ones", path);
    const int64_t newest = steps[n - 1];
    free(steps);
    return checkpoint_open_in(path, newest, NULL, c, why, why_bytes);
}

static void say_one(const checkpoint *c)
{
    const checkpoint_state *s = &c->m.state;
    const checkpoint_model *m = &c->m.layout->model;
    say("%10lld  %-8s %11lld  %-7s %-7s  %-16s %5d  %9.3f  %12lld\n", (long long)s->step, m->config.name,
        (long long)c->m.layout->params->parameters, sb_dtype_name(m->param), sb_dtype_name(m->moments), s->strategy,
        s->ranks, (double)c->m.layout->bytes / 1e9, (long long)s->data.samples);
}

static int list(const char *folder)
{
    int64_t *steps;
    char why[512];
    int code = EXIT_CODE_OK;
    const int n = checkpoint_folder_list(folder, &steps, why, sizeof why);
    if (n < 0)
        die(EXIT_CODE_USAGE, "%s", why);
    say("%10s  %-8s %11s  %-7s %-7s  %-16s %5s  %9s  %12s\n", "step", "model", "parameters", "weights", "moments",
        "strategy", "ranks", "GB", "samples");
    for (int i = 0; i < n; i++) {
        checkpoint c;
        const bool ok = checkpoint_open_in(folder, steps[i], NULL, &c, why, sizeof why);
        if (ok)
            say_one(&c);
        else
            say("%10lld  damaged: %s\n", (long long)steps[i], why);
        code = ok ? code : EXIT_CODE_VERIFY;
        checkpoint_close(&c);
    }
    const int partial = checkpoint_folder_partial(folder);
    if (partial)
        say("%d incomplete; the next run that writes here removes %s\n", partial, partial == 1 ? "it" : "them");
    free(steps);
    return code;
}

static int verify(const char *path)
{
    checkpoint c;
    char why[512];
    const bool ok = open_either(path, &c, why, sizeof why) && checkpoint_verify(&c, READERS, why, sizeof why);
    if (ok)
        say("%s is whole: step %lld, %d files, %.3f GB\n", c.path, (long long)c.m.state.step, c.m.layout->files,
            (double)c.m.layout->bytes / 1e9);
    else
        warn("%s", why);
    checkpoint_close(&c);
    return ok ? EXIT_CODE_OK : EXIT_CODE_VERIFY;
}

static int export_weights(const char *path, const char *to, const char *out)
{
    checkpoint c;
    char why[512];
    if (!open_either(path, &c, why, sizeof why))
        die(EXIT_CODE_VERIFY, "%s", why);
    const int code = checkpoint_export(&c, to, out, why, sizeof why);
    if (code != EXIT_CODE_OK)
        die(code, "%s", why);
    say("%s/model.safetensors has the weights of step %lld\n", out, (long long)c.m.state.step);
    checkpoint_close(&c);
    return EXIT_CODE_OK;
}

int main(int argc, char **argv)
{
    program_name_set(argv[0]);
    const char *words[4] = {NULL}, *to = "cs336";
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            say("%s", usage);
            return EXIT_CODE_OK;
        }
        if (strcmp(argv[i], "--version") == 0) {
            say("stepckpt %s\n", STEPBENCH_VERSION);
            return EXIT_CODE_OK;
        }
        if (strcmp(argv[i], "--to") == 0 && i + 1 < argc)
            to = argv[++i];
        else if (argv[i][0] == '-' || n == 3)
            die(EXIT_CODE_USAGE, "'%s' is not an option, nor one more word that is wanted; see --help", argv[i]);
        else
            words[n++] = argv[i];
    }
    if (strcmp(to, "cs336") != 0 && strcmp(to, "llama") != 0)
        die(EXIT_CODE_USAGE, "--to is cs336 or llama, not '%s'", to);
    if (n == 2 && strcmp(words[0], "list") == 0)
        return list(words[1]);
    if (n == 2 && strcmp(words[0], "verify") == 0)
        return verify(words[1]);
    if (n == 3 && strcmp(words[0], "export") == 0)
        return export_weights(words[1], to, words[2]);
    die(EXIT_CODE_USAGE, "list FOLDER, verify CHECKPOINT or export CHECKPOINT OUT is wanted; see --help");
}
