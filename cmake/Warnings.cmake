# This interface library has the compiler flags of every target of ours.
add_library(rp_warnings INTERFACE)
# Warnings are errors with the compilers that have built the tree. Other compilers may have new warnings, which must not
# fail a user's first build, so there they stay warnings.
set(RP_WERROR AUTO CACHE STRING "Warnings as errors: AUTO (with known compilers), ON, OFF")
set_property(CACHE RP_WERROR PROPERTY STRINGS AUTO ON OFF)
set(rp_known_compiler OFF)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13)
    set(rp_known_compiler ON)
elseif(CMAKE_C_COMPILER_ID STREQUAL "Clang" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 17)
    set(rp_known_compiler ON)
endif()
if(RP_WERROR STREQUAL "ON" OR (RP_WERROR STREQUAL "AUTO" AND rp_known_compiler))
    target_compile_options(rp_warnings INTERFACE -Werror)
else()
    message(STATUS "Warnings are not errors with ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}; RP_WERROR=ON makes them")
endif()
target_compile_options(rp_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wswitch-enum -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -ffp-contract=off
    # An empty cell of a table is printed with an empty format; lists of rows are read by macros that leave columns out.
    $<$<C_COMPILER_ID:Clang>:-Wno-format-zero-length> $<$<C_COMPILER_ID:Clang>:-Wno-gnu-zero-variadic-macro-arguments>)
# Programs do not contain the name of their build folder. ccache ensures this itself if it shares objects between
# folders.
if(NOT DEFINED ENV{CCACHE_BASEDIR})
    target_compile_options(rp_warnings INTERFACE $<$<COMPILE_LANGUAGE:C>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>)
endif()
if(RP_SANITIZE) # -g1 keeps the names of functions and the lines for reports; -g costs a quarter of the build
    target_compile_options(rp_warnings INTERFACE -fsanitize=${RP_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer -g1)
    if(RP_SANITIZE MATCHES undefined AND NOT RP_LONG) # AddressSanitizer sees what comes of these; a quarter of the build
        target_compile_options(rp_warnings INTERFACE -fno-sanitize=null,object-size,pointer-overflow)
    endif()
    target_link_options(rp_warnings INTERFACE -fsanitize=${RP_SANITIZE})
endif()
if(RP_SANITIZE) # -O2 costs a third of the build; lengths of texts are only known there
    set(level -O1)
    if(RP_SANITIZE MATCHES thread)
        set(level -O0) # one short test
    endif()
    target_compile_options(rp_warnings INTERFACE ${level} $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
endif()
# Libraries that a program does not use are not loaded (Ubuntu's compilers do so by themselves): each test case is a
# process, and OpenBLAS and MPI take longer to load than most cases run.
target_link_options(rp_warnings INTERFACE LINKER:--as-needed)

# For programs that tests start thousands of times: GCC's sanitizers linked in, since loading them takes a quarter of
# such a start. A program that loads sanitized libraries needs them shared.
add_library(rp_quick_start INTERFACE)
if(RP_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    include(CheckLinkerFlag)
    check_linker_flag(C "-fsanitize=${RP_SANITIZE};-static-libasan;-static-libubsan" RP_STATIC_SANITIZERS)
    if(RP_STATIC_SANITIZERS)
        target_link_options(rp_quick_start INTERFACE -static-libasan -static-libubsan)
    endif()
endif()
