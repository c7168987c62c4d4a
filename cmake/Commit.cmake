# Writes OUT, a C file with the git commit that SOURCE is at; a file that says so already is left
# alone, so that nothing is compiled again. "-dirty": tracked files differ from the commit.
# "unknown": SOURCE is not the top of a git work tree (an unpacked archive), or there is no git.
#   cmake -DSOURCE=FOLDER -DOUT=FILE -P Commit.cmake
set(ENV{GIT_OPTIONAL_LOCKS} 0)
set(commit unknown)
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
file(REAL_PATH ${SOURCE} source)
if(failed STREQUAL "0" AND top STREQUAL source)
    execute_process(COMMAND git -C ${SOURCE} rev-parse --verify HEAD
        OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed STREQUAL "0")
        execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
            OUTPUT_VARIABLE changes ERROR_QUIET)
        set(commit ${head})
        if(NOT changes STREQUAL "")
            string(APPEND commit -dirty)
        endif()
    endif()
endif()
set(text "/* Written by cmake/Commit.cmake at each build. */
#include \"common/base/version.h\"

const char *rp_commit(void)
{
    return \"${commit}\";
}
")
set(before "")
if(EXISTS ${OUT})
    file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
    file(WRITE ${OUT} "${text}")
endif()
