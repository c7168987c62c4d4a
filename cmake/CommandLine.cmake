# rp_command_line(PROGRAM...)
# Programs write their man page and their completions of bash and zsh from the rows of their options
# (common/cli/options.h). This makes and installs them.
function(rp_command_line)
    foreach(program IN LISTS ARGN)
        set(folder ${CMAKE_BINARY_DIR}/command_line)
        set(man ${folder}/man1/${program}.1)
        set(bash ${folder}/completions/${program})
        set(zsh ${folder}/site-functions/_${program})
        add_custom_command(OUTPUT ${man} ${bash} ${zsh}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}/man1 ${folder}/completions ${folder}/site-functions
            COMMAND ${program} --print-man > ${man}
            COMMAND ${program} --print-bash > ${bash}
            COMMAND ${program} --print-zsh > ${zsh}
            DEPENDS ${program} COMMENT "" VERBATIM)
        add_custom_target(${program}_command_line ALL DEPENDS ${man} ${bash} ${zsh})
        install(FILES ${man} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
        install(FILES ${bash} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
        install(FILES ${zsh} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    endforeach()
endfunction()
