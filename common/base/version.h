/** @file version.h  The version of this build. */
#pragma once

/** @return "0.3.0", the project's version; static. The library exports it
 * (sim/library/rpsim.h). */
__attribute__((visibility("default"))) const char *rp_version(void);

/**
 * The git commit of this build.
 * @return 40 hexadecimal digits, with "-dirty" where tracked files differed from it; "unknown" for
 * a build outside of git, and in programs that do not link it (CMakeLists.txt: rp_commit); static
 */
const char *rp_commit(void);
