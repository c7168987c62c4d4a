# Data that programs read when they run: installed beside them, and in the build folder links to the sources. Programs
# look in and above their own folder (rp_data_shipped in common/inputs/data.h), so no path is compiled in.
if(IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}")
    message(FATAL_ERROR "CMAKE_INSTALL_DATADIR=${CMAKE_INSTALL_DATADIR}: valid are folders relative to the prefix; "
        "programs find their data from their own place")
endif()
set(data_folder ${CMAKE_INSTALL_DATADIR}/rpsim)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${data_folder})
foreach(folder experiments plots traces)
    file(RELATIVE_PATH link ${CMAKE_BINARY_DIR}/${data_folder} ${CMAKE_SOURCE_DIR}/${folder})
    file(CREATE_LINK ${link} ${CMAKE_BINARY_DIR}/${data_folder}/${folder} SYMBOLIC)
endforeach()
install(DIRECTORY traces/ DESTINATION ${data_folder}/traces PATTERN "*.tar.gz" EXCLUDE)
install(DIRECTORY experiments/ DESTINATION ${data_folder}/experiments FILES_MATCHING PATTERN "*.yaml")
install(DIRECTORY paper-figures/published DESTINATION ${data_folder}/paper-figures) # rppredict
install(DIRECTORY plots/ DESTINATION ${data_folder}/plots FILES_MATCHING PATTERN "*.gp" PATTERN gallery EXCLUDE)
