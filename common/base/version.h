/** @file version.h  The version of this build. */
#pragma once

/** @return "0.3.0", the project's version; static. The library exports it
 * (sim/library/rpsim.h). */
__attribute__((visibility("default"))) const char *rp_version(void);

/**
 * The git commit of this build.
 * @return 40 hexadecimal digits, with "-dirty" if tracked files differed from the commit; "unknown"
 * for a build outside git and in programs that do not link rp_commit (CMakeLists.txt); static
 */
const char *rp_commit(void);
