/* Under a limited address space (ulimit -v) OpenBLAS has no threads of its own.
 *
 * It starts them when it is loaded, one per core, and each maps a buffer of 128 MiB: again and
 * again until there is room, so that the process neither ends nor forks. Only the environment of
 * its loading keeps it from that, so programs of this file begin anew with one that does, before
 * any library is initialised: no allocation and no getenv here. Results are the same, since
 * training has one thread per GPU anyway.
 *
 * Neither do threads get arenas of malloc's of their own, 64 MiB of address space each: they could
 * take what rpexec_host_reserve_buffers has found to be free. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MOST_VARIABLES 4096
#define SETTINGS 2

/* The setting that a variable is about; SETTINGS: none. */
static size_t setting_of(const char *variable, char *const *settings)
{
    size_t i = 0;
    while (i < SETTINGS && strncmp(variable, settings[i],
                                   (size_t)(strchr(settings[i], '=') + 1 - settings[i])) != 0) {
        i++;
    }
    return i;
}

static void begin_anew(int argc, char **argv, char **environment)
{
    static char openblas[] = "OPENBLAS_NUM_THREADS=1";
    static char arenas[] = "MALLOC_ARENA_MAX=1";
    static char path[4096];
    static char *changed[MOST_VARIABLES + SETTINGS + 1];
    char *const settings[SETTINGS] = {openblas, arenas};
    struct rlimit limit;
    size_t count = 0;
    size_t there = 0;
    if (argc < 1 || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return;
    }
    for (char **variable = environment; *variable != NULL && count < MOST_VARIABLES; variable++) {
        size_t setting = setting_of(*variable, settings);
        if (setting == SETTINGS) {
            changed[count++] = *variable;
        } else {
            there += strcmp(*variable, settings[setting]) == 0 ? 1 : 0;
        }
    }
    if (there == SETTINGS) {
        return;
    }
    for (size_t i = 0; i < SETTINGS; i++) {
        changed[count++] = settings[i];
    }
    if (readlink("/proc/self/exe", path, sizeof path - 1) > 0) {
        (void)execve(path, argv, changed); /* where that fails, the program goes on as it is */
    }
}

__attribute__((section(".preinit_array"),
               used)) static void (*const at_first)(int, char **, char **) = begin_anew;
