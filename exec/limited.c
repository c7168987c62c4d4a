/* Under a limited address space (ulimit -v) OpenBLAS has no threads of its own.
 *
 * It starts them when it is loaded, one per core, and each maps a buffer of 128 MiB: again and
 * again until there is room, so that the process neither ends nor forks. Only the environment of
 * its loading keeps it from that, so programs of this file begin anew with one that does, before
 * any library is initialised: no allocation and no getenv here. Results are the same, since
 * training has one thread per GPU anyway. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SETTING "OPENBLAS_NUM_THREADS="
#define MOST_VARIABLES 4096

static void begin_anew(int argc, char **argv, char **environment)
{
    static char own[] = SETTING "1";
    static char path[4096];
    static char *changed[MOST_VARIABLES + 2];
    struct rlimit limit;
    size_t count = 0;
    if (argc < 1 || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return;
    }
    for (char **variable = environment; *variable != NULL && count < MOST_VARIABLES; variable++) {
        if (strcmp(*variable, own) == 0) {
            return;
        }
        if (strncmp(*variable, SETTING, strlen(SETTING)) != 0) {
            changed[count++] = *variable;
        }
    }
    changed[count] = own;
    if (readlink("/proc/self/exe", path, sizeof path - 1) > 0) {
        (void)execve(path, argv, changed); /* where that fails, the program goes on as it is */
    }
}

__attribute__((section(".preinit_array"),
               used)) static void (*const at_first)(int, char **, char **) = begin_anew;
