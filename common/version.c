#include "common/version.h"

const char *rp_version(void)
{
    return RP_VERSION;
}
