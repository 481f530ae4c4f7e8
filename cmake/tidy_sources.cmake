# Runs clang-tidy over the files of this repository that a build compiles, one file at a time:
#   cmake -DCLANG_TIDY=... -DBUILD_DIR=... -P tidy_sources.cmake
# Units are taken from the compile commands, so that a preset without LibTorch checks what it builds and no more.
file(READ ${BUILD_DIR}/compile_commands.json commands)
# clang stumbles over g++'s precompiled headers. Sources include what they use, so the commands work without.
string(REGEX REPLACE "-Winvalid-pch|-include [^ \"]*cmake_pch\\.hxx" "" commands "${commands}")
file(WRITE ${BUILD_DIR}/tidy/compile_commands.json "${commands}")
string(JSON last LENGTH "${commands}")
math(EXPR last "${last} - 1")
set(files)
foreach(i RANGE ${last})
  string(JSON file GET "${commands}" ${i} file)
  if(file MATCHES "/(src|apps)/.*\\.cpp$")
    list(APPEND files ${file})
  endif()
endforeach()
list(REMOVE_DUPLICATES files)
set(failed)
foreach(file IN LISTS files)
  # -Wno-unknown-...: the commands were written for g++, whose flags clang need not know.
  execute_process(COMMAND ${CLANG_TIDY} -p ${BUILD_DIR}/tidy --quiet --extra-arg=-Wno-unknown-warning-option
                          --extra-arg=-Wno-ignored-optimization-argument ${file}
                  RESULT_VARIABLE status OUTPUT_VARIABLE findings ERROR_QUIET)
  if(NOT status EQUAL 0)
    message("${findings}")
    list(APPEND failed ${file})
  endif()
endforeach()
list(LENGTH files count)
if(failed)
  list(JOIN failed "\n  " listing)
  message(FATAL_ERROR "tidy: findings in\n  ${listing}")
endif()
message("tidy: ${count} files, no findings")
