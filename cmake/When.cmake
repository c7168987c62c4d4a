# tests/when.csv says which builds run a test, and how much CPU time it takes. Columns: test, a regular expression of
# whole names (the first row that matches counts); everyday and long, the builds that run it in ./bootstrap.sh test and
# with --long: release, sanitized, both or none; cost, about CPU seconds: ctest begins with the costliest tests, so that
# no long test runs alone at the end. RP_LONG chooses the column. With --long the optimised tests have their full counts
# and the sanitized ones everyday counts, or the full counts, too, where the column long says full.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/when.csv)
file(STRINGS ${CMAKE_SOURCE_DIR}/tests/when.csv rp_when_rows REGEX "^[^#]")
list(POP_FRONT rp_when_rows)

# rp_when(NAME RUNS COUNTS COST): whether this build runs the test, whether with full counts, and its cost (0: unknown).
function(rp_when name runs counts cost)
    foreach(row IN LISTS rp_when_rows)
        string(REPLACE "," ";" row "${row}")
        list(GET row 0 test)
        if(name MATCHES "^${test}$")
            list(GET row 1 builds)
            if(RP_LONG)
                list(GET row 2 builds)
            endif()
            list(GET row 3 seconds)
            break()
        endif()
    endforeach()
    set(this release)
    if(RP_SANITIZE AND NOT RP_SANITIZE MATCHES thread) # that build runs threads.simulate only
        set(this sanitized)
    endif()
    set(${runs} FALSE PARENT_SCOPE)
    if(builds MATCHES "^(${this}|both|full)$")
        set(${runs} TRUE PARENT_SCOPE)
    endif()
    set(${counts} FALSE PARENT_SCOPE)
    if(RP_LONG AND (this STREQUAL release OR builds STREQUAL full))
        set(${counts} TRUE PARENT_SCOPE)
    endif()
    set(${cost} 0 PARENT_SCOPE)
    if(seconds)
        set(${cost} ${seconds} PARENT_SCOPE)
    endif()
endfunction()

if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo rp_avx2 REGEX "^flags.* fma .* avx2 " LIMIT_COUNT 1)
endif()

# rp_add_test(NAME [ENVIRONMENT ...] [TIMEOUT S] COMMAND ...): a test, if tests/when.csv has it in this build. Exit
# status 77 means skipped.
function(rp_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 test "" TIMEOUT "ENVIRONMENT;COMMAND")
    rp_when(${name} runs full_counts cost)
    if(NOT runs)
        return()
    endif()
    if(NOT test_TIMEOUT)
        set(test_TIMEOUT ${RP_TEST_TIMEOUT})
    endif()
    if(full_counts)
        list(APPEND test_ENVIRONMENT RP_LONG=1)
    elseif(rp_avx2) # an OpenBLAS that is older than the processor takes kernels without AVX2; tests of rpexec then take twice as long
        list(APPEND test_ENVIRONMENT OPENBLAS_CORETYPE=Haswell)
    endif()
    add_test(NAME ${name} COMMAND ${test_COMMAND})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${test_TIMEOUT} COST ${cost}
        ENVIRONMENT "${test_ENVIRONMENT}")
endfunction()
