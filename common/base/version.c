#include "common/base/version.h"

const char *rp_version(void)
{
    return RP_VERSION;
}

/* A program that links the build's commit (CMakeLists.txt: rp_commit) overrides this definition. */
__attribute__((weak)) const char *rp_commit(void)
{
    return "unknown";
}
