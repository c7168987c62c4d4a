# Documents of an installation, and packages: `cpack --config BUILD/CPackConfig.cmake -G DEB` (or TGZ), docs/install.md.
# Nothing that is installed names the prefix, so that all of it may be moved.

# The documents under their paths in the repository: they link to each other.
file(GLOB_RECURSE documents CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} common/*.md docs/*.md exec/*.md
    experiments/*.md paper-figures/*.md plots/*.md sim/*.md traces/*.md)
list(APPEND documents ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE README.md plots/pipeline-study.png
    docs/library/CMakeLists.txt docs/library/command.c docs/library/throughput.c docs/runs.csv)
foreach(document IN LISTS documents)
    get_filename_component(folder ${document} DIRECTORY)
    install(FILES ${document} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
install(FILES cmake/packaging/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(RP_PACKAGER "rpsim packagers <packages@localhost>" CACHE STRING "Maintainer of packages: NAME <ADDRESS>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR rpsim)
set(CPACK_PACKAGE_CONTACT "${RP_PACKAGER}")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # has ldconfig run
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS gnuplot-nox) # --gantt-out
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, sqlite3")
# Up to 0.2 the package was called roundpipe: apt removes it, as its programs have the same paths.
set(CPACK_DEBIAN_PACKAGE_CONFLICTS "roundpipe (<< 0.3)")
set(CPACK_DEBIAN_PACKAGE_REPLACES "roundpipe (<< 0.3)")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "simulates and runs schedules of pipeline-parallel training")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "rpsim simulates one training step of a language model on a server of GPUs under
many pipeline schedules, and reports time, memory and the causes of idle time.
rpadvise finds the fastest configuration that fits. rpexec trains with the same
programs and compares measured with predicted time. With the library librpsim
and a Python module.")
include(CPack)
