# Targets that keep the sources in one style:
#
#   format         rewrites the C++ files with clang-format
#   format-check   fails and lists the files that `format` would change
#   tidy           runs clang-tidy over src/ and apps/ with this build's compile commands
#
# A missing tool fails the target that needs it, not the configuration: nobody needs clang to build.
set(LOWTIDE_STYLE_DIRS include,src,apps,bench,tests)  # one word: a list would be taken apart on its way to the script
find_program(LOWTIDE_CLANG_FORMAT NAMES clang-format-14 clang-format)
find_program(LOWTIDE_CLANG_TIDY NAMES clang-tidy-14 clang-tidy)

function(lowtide_style_target name tool package)
  cmake_parse_arguments(arg "" "" "COMMAND" ${ARGN})
  if(NOT tool)
    set(arg_COMMAND ${CMAKE_COMMAND} -E echo "${name}: ${package} is missing: install Debian's ${package}"
        COMMAND ${CMAKE_COMMAND} -E false)
  endif()
  add_custom_target(${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM USES_TERMINAL)
endfunction()

foreach(mode IN ITEMS format format-check)
  lowtide_style_target(${mode} "${LOWTIDE_CLANG_FORMAT}" clang-format
    COMMAND ${CMAKE_COMMAND} -DCLANG_FORMAT=${LOWTIDE_CLANG_FORMAT} -DMODE=${mode} -DDIRS=${LOWTIDE_STYLE_DIRS}
            -P ${CMAKE_CURRENT_LIST_DIR}/format_sources.cmake)
endforeach()
lowtide_style_target(tidy "${LOWTIDE_CLANG_TIDY}" clang-tidy
  COMMAND ${CMAKE_COMMAND} -DCLANG_TIDY=${LOWTIDE_CLANG_TIDY} -DBUILD_DIR=${PROJECT_BINARY_DIR}
          -P ${CMAKE_CURRENT_LIST_DIR}/tidy_sources.cmake)
