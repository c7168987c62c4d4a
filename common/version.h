/** @file version.h  The version of this build. */
#pragma once

/** @return "0.1.0", the project's version; static. */
const char *rp_version(void);
