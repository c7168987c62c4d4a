/** @file open_library.h  NVIDIA's libraries that a run loads when it asks for them. */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/**
 * Opens a library: the file that the environment variable `variable` names and nothing else,
 * otherwise where the system looks, then where CUDA is installed.
 * @param mode of dlopen
 * @return NULL: there is none; dlerror says why
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
