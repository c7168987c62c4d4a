# Writes OUT, a C file with the sources of the page (common/page) as strings: rp_page_html, rp_page_css and rp_page_js,
# all scripts in the order of FILES.
#   cmake -DOUT=FILE -DFILES=a.html,b.css,c.js,… -P Page.cmake
string(REPLACE "," ";" FILES "${FILES}")
foreach(kind html css js)
    set(bytes_${kind} "")
endforeach()
foreach(file IN LISTS FILES)
    get_filename_component(kind ${file} LAST_EXT)
    string(SUBSTRING ${kind} 1 -1 kind)
    file(READ ${file} bytes HEX)
    string(APPEND bytes_${kind} "${bytes}")
endforeach()
set(text "/* Written by cmake/Page.cmake. */\n#include \"common/page/page_internal.h\"\n")
foreach(kind html css js)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes_${kind}}")
    # Bytes above 127 would not fit a signed char.
    string(REGEX MATCH "0x[89a-f]" beyond "${bytes}")
    if(beyond)
        message(FATAL_ERROR "common/page: a .${kind} file is not plain ASCII; write \\u or &#x there")
    endif()
    string(APPEND text "\nconst char rp_page_${kind}[] = {${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
