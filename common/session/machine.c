/* SPDX-License-Identifier: MIT */
/* The machine's short name and the report of what it is; see machine.h. */
#include "common/session/machine.h"

#include <ctype.h>
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/core/build_info.h"
#include "common/core/results.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/device/internal.h"
#include "common/device/host.h"

#if defined(HAVE_NCCL) && __has_include(<nccl.h>) /* it may be in a folder that only the collectives are told of */
#include <nccl.h>
#endif

/* ---- the short name ---- */

/* 80 GB is the usual memory of the GPUs whose name has a size: an H100 is "h100", and one of 96 GB "h100-96gb". */
static bool is_noise(const char *word)
{
    return text_has_word("nvidia geforce tesla quadro intel amd r tm cpu gpu with processor graphics 80gb hbm3 hbm2e",
                         word);
}

void machine_slug(device_kind kind, const device_info *info, char *out, unsigned long bytes)
{
    bool cpu = kind == DEVICE_CPU;
    char name[sizeof info->name], tail[16], words[96] = "";
    snprintf(name, sizeof name, "%s", info->name);
    name[strcspn(name, "@")] = 0; /* "... @ 2.40GHz" */
    for (char *c = name; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : ' ';
    char *rest = name;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        size_t used = strlen(words);
        if (!is_noise(word))
            snprintf(words + used, sizeof words - used, "%s%s", used ? "-" : "", word);
    }
    snprintf(tail, sizeof tail, "-x%d", cpu ? info->sm_count : info->count);
    int room = (int)bytes - 1 - (int)strlen(tail);
    OWNED char *head = xasprintf("%s%s", cpu ? "cpu-" : "", *words ? words : "unknown");
    snprintf(out, bytes, "%.*s%s", room > 0 ? room : 0, head, tail);
}

static bool is_of_others(const char *name, const char *uuids)
{
    OWNED char *path = xasprintf("results/%s/machine.csv", name);
    OWNED_CSV csv *file = csv_read(path);
    bool others = false;
    for (size_t i = 0; file && i < file->rows; i++)
        if (csv_is(file, i, "key", "gpu_uuid")) {
            if (text_has_word(uuids, csv_cell(file, i, "value")))
                return false;
            others = true;
        }
    return others;
}

char *machine_name(const char *slug, const char *uuids)
{
    char *name = xstrdup(slug);
    for (int n = 2; *uuids && is_of_others(name, uuids); n++) {
        free(name);
        name = xasprintf("%s-%d", slug, n);
    }
    return name;
}

/* ---- machine.csv ---- */

typedef struct facts {
    FILE *out;
    const char *run_id;
} facts;

static void fact_add(const facts *f, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fact_add(const facts *f, const char *key, const char *fmt, ...)
{
    char value[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    results_fact(f->out, f->run_id, key, value);
}

static void add_real(const facts *f, const char *key, double value)
{
    if (!isnan(value))
        fact_add(f, key, "%.9g", value);
}

static void add_cuda_version(const facts *f, const char *key, int version)
{
    fact_add(f, key, "%d.%d", version / 1000, version % 1000 / 10);
}

static void add_nccl(const facts *f)
{
#ifdef NCCL_VERSION_CODE
    fact_add(f, "nccl_header", "%d.%d.%d", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
#endif
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    int (*get)(int *) = NULL, version;
    void *symbol = library ? dlsym(library, "ncclGetVersion") : NULL;
    memcpy(&get, &symbol, sizeof symbol);
    if (get && get(&version) == 0) {
        bool old = version < 10000; /* up to 2.8: 2708 is 2.7.8 */
        fact_add(f, "nccl_library", "%d.%d.%d", version / (old ? 1000 : 10000), version % (old ? 1000 : 10000) / 100,
                 version % 100);
    }
    if (library)
        dlclose(library);
}

static void add_cublas(const facts *f)
{
    enum { MAJOR, MINOR, PATCH, PARTS }; /* values of libraryPropertyType */
    int (*get)(int, int *) = NULL, part[PARTS];
    void *symbol = dlsym(RTLD_DEFAULT, "cublasGetProperty");
    memcpy(&get, &symbol, sizeof symbol);
    if (get && get(MAJOR, &part[MAJOR]) == 0 && get(MINOR, &part[MINOR]) == 0 && get(PATCH, &part[PATCH]) == 0)
        fact_add(f, "cublas", "%d.%d.%d", part[MAJOR], part[MINOR], part[PATCH]);
}

static void add_gpu(const facts *f, const device *d)
{
    const device_info *info = device_get_info(d);
    clocks_facts c = clocks_read(d->clocks);
    fact_add(f, "gpu_name", "%s", info->name);
    fact_add(f, "gpu_count", "%d", info->count);
    fact_add(f, "gpu_uuid", "%s", info->uuid);
    fact_add(f, "gpu_compute_capability", "%d.%d", info->compute_major, info->compute_minor);
    fact_add(f, "gpu_sm_count", "%d", info->sm_count);
    fact_add(f, "gpu_memory_bytes", "%zu", info->memory_bytes);
    fact_add(f, "gpu_l2_bytes", "%zu", info->l2_bytes);
    add_real(f, "gpu_ecc", c.ecc);
    add_real(f, "gpu_persistence", c.persistence);
    add_real(f, "gpu_sm_mhz", c.sm_mhz);
    add_real(f, "gpu_sm_max_mhz", c.sm_max_mhz);
    add_real(f, "gpu_memory_mhz", c.memory_mhz);
    add_real(f, "gpu_memory_max_mhz", c.memory_max_mhz);
    add_real(f, "gpu_power_w", c.power_w);
    add_real(f, "gpu_power_limit_w", c.power_limit_w);
    add_real(f, "gpu_temperature_c", c.temperature_c);
    fact_add(f, "driver", "%s", clocks_driver());
    add_cuda_version(f, "cuda_driver", info->driver_version);
    add_cuda_version(f, "cuda_runtime", info->runtime_version);
    add_cublas(f);
    add_nccl(f);
}

static void add_host(const facts *f)
{
    char model[128];
    struct utsname u;
    host_cpu_model(model, sizeof model);
    fact_add(f, "cpu", "%s", model);
    fact_add(f, "cpu_cores", "%d", host_cores());
    fact_add(f, "cpu_cores_allowed", "%d", host_cores_allowed());
    const double quota = host_cpu_quota("");
    if (isnan(quota)) /* printf might write "-nan" */
        fact_add(f, "cpu_quota", "nan");
    add_real(f, "cpu_quota", quota);
    fact_add(f, "host_memory_bytes", "%zu", host_memory_bytes());
    if (uname(&u) == 0)
        fact_add(f, "host_os", "%s %s %s", u.sysname, u.release, u.machine); /* not nodename: it is nobody's business */
}

/* Only what changes results and names nobody: NCCL_COMM_ID and NCCL_HOSTID hold addresses, NCCL_TESTS a folder. */
static void add_environment(const facts *f)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "OMP_NUM_THREADS",
                                        "OPENBLAS_NUM_THREADS"};
    extern char **environ;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            fact_add(f, names[i], "%s", getenv(names[i]));
    for (char **e = environ; *e; e++) {
        char key[64];
        size_t length = strcspn(*e, "=");
        if (strncmp(*e, "NCCL_", 5) != 0 || length >= sizeof key || !(*e)[length])
            continue;
        snprintf(key, sizeof key, "%.*s", (int)length, *e);
        if (strcmp(key, "NCCL_COMM_ID") != 0 && strcmp(key, "NCCL_HOSTID") != 0 && strcmp(key, "NCCL_TESTS") != 0)
            fact_add(f, key, "%s", *e + length + 1);
    }
}

void machine_report(const device *d, const options *o, const char *folder, const char *run_id)
{
    OWNED char *text = NULL, *values = options_describe(o), *path = xasprintf("%s/machine.csv", folder);
    size_t bytes;
    facts f = {text_stream(&text, &bytes), run_id};
    fact_add(&f, "bench", "%s", options_bench(o)->name);
    fact_add(&f, "command", "%s", options_command_line(o));
    fact_add(&f, "options", "%s", values);
    if (device_kind_of(d) == DEVICE_CUDA)
        add_gpu(&f, d);
    add_host(&f);
    fact_add(&f, "build", "%s", build_describe());
    fact_add(&f, "commit", "%s", build_commit());
    add_environment(&f);
    fclose(f.out);
    results_facts_append(path, text);
}
