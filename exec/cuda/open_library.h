/** @file open_library.h  Opens NVIDIA's libraries at run time. */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/**
 * Opens a library: only the file in the environment variable `variable` if that is set; otherwise
 * in the system's folders, then in CUDA's.
 * @param mode argument of dlopen
 * @return NULL: it cannot be opened; dlerror has the reason
 */
static inline void *rpexec_open_library(const char *variable, const char *soname, int mode)
{
    const char *given = getenv(variable);
    const char *home = getenv("CUDA_HOME");
    char path[512];
    if (given != NULL) {
        return dlopen(given, mode);
    }
    void *found = dlopen(soname, mode);
    snprintf(path, sizeof path, "%s/lib64/%s", home != NULL ? home : "/usr/local/cuda", soname);
    return found != NULL ? found : dlopen(path, mode);
}
