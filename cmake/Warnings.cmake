# One interface library carries the flags that every target of ours is compiled with.
add_library(rp_warnings INTERFACE)
target_compile_options(rp_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wswitch-enum -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Werror -ffp-contract=off)
if(RP_SANITIZE)
    target_compile_options(rp_warnings INTERFACE -fsanitize=${RP_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer -g)
    target_link_options(rp_warnings INTERFACE -fsanitize=${RP_SANITIZE})
endif()
