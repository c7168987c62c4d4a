/* Sets variables that OpenBLAS and malloc read before a program can set them: a program with this
 * file starts itself anew with them, before any library is initialised, so that nothing is
 * allocated here and getenv is not used.
 *
 * Under a limited address space (ulimit -v) OpenBLAS gets no threads of its own. It would start
 * them when it is loaded, one per core, and each maps a buffer of 128 MiB: again and again until
 * there is room, so that the process neither ends nor forks. Results are the same, since training
 * has one thread per GPU anyway. Threads do not get their own arenas from malloc either, 64 MiB of
 * address space each: these could take the space that rpexec_host_reserve_buffers has found to be
 * free.
 *
 * On Zen 3 OpenBLAS is told to take its kernels for Haswell, which pack matrices faster, unless
 * OPENBLAS_CORETYPE is set (measured: tests/bench/results/README.md). */
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MOST_VARIABLES 4096
#define MOST_SETTINGS 3

static char threads[] = "OPENBLAS_NUM_THREADS=1";
static char arenas[] = "MALLOC_ARENA_MAX=1";
static char kernels[] = "OPENBLAS_CORETYPE=Haswell";

static bool is_zen3(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("znver3") != 0;
#else
    return false;
#endif
}

/* @return the number of settings */
static size_t settings_of(char **environment, char **settings)
{
    struct rlimit limit;
    size_t count = 0;
    bool chosen = !is_zen3();
    for (char **variable = environment; *variable != NULL; variable++) {
        chosen = chosen || strncmp(*variable, kernels, sizeof "OPENBLAS_CORETYPE") == 0;
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        settings[count++] = threads;
        settings[count++] = arenas;
    }
    if (!chosen) {
        settings[count++] = kernels;
    }
    return count;
}

/* The setting that a variable belongs to; `count`: none. */
static size_t setting_of(const char *variable, char *const *settings, size_t count)
{
    size_t i = 0;
    while (i < count && strncmp(variable, settings[i],
                                (size_t)(strchr(settings[i], '=') + 1 - settings[i])) != 0) {
        i++;
    }
    return i;
}

static void begin_anew(int argc, char **argv, char **environment)
{
    static char path[4096];
    static char *changed[MOST_VARIABLES + MOST_SETTINGS + 1];
    char *settings[MOST_SETTINGS];
    size_t wanted = settings_of(environment, settings);
    size_t count = 0;
    size_t there = 0;
    if (argc < 1) {
        return;
    }
    for (char **variable = environment; *variable != NULL && count < MOST_VARIABLES; variable++) {
        size_t setting = setting_of(*variable, settings, wanted);
        if (setting == wanted) {
            changed[count++] = *variable;
        } else {
            there += strcmp(*variable, settings[setting]) == 0 ? 1 : 0;
        }
    }
    if (there == wanted) {
        return;
    }
    for (size_t i = 0; i < wanted; i++) {
        changed[count++] = settings[i];
    }
    if (readlink("/proc/self/exe", path, sizeof path - 1) > 0) {
        (void)execve(path, argv, changed); /* if it fails, the program goes on without them */
    }
}

__attribute__((section(RPEXEC_AT_FIRST), used)) static void (*const at_first)(int, char **,
                                                                              char **) = begin_anew;
