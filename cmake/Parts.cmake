# One OBJECT library per part of src/, linked only to the parts it may use: CMake refuses cycles among OBJECT libraries.
#
#   lowtide_part(plan SOURCES a.cpp b.cpp USES graph base [LINKS lowtide::torch])
#
# `USES` lists the parts whose headers it may include. Executables that need a set of parts name them with
# lowtide_link_parts(target plan graph base).
function(lowtide_part name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES;LINKS" ${ARGN})
  add_library(lowtide_${name} OBJECT ${arg_SOURCES})
  target_include_directories(lowtide_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  foreach(used IN LISTS arg_USES)
    target_link_libraries(lowtide_${name} PUBLIC lowtide_${used})
  endforeach()
  target_link_libraries(lowtide_${name} PUBLIC ${arg_LINKS})
  if("lowtide::torch" IN_LIST arg_LINKS)
    lowtide_precompile_torch(lowtide_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY LOWTIDE_PARTS ${name})
endfunction()

function(lowtide_link_parts target)
  foreach(part IN LISTS ARGN)
    target_link_libraries(${target} PRIVATE lowtide_${part})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:lowtide_${part}>)
  endforeach()
endfunction()

# ATen headers cost seconds per translation unit: they are precompiled once and shared by all targets of equal flags.
function(lowtide_precompile_torch target)
  if(TARGET lowtide_torch_pch AND NOT target STREQUAL lowtide_torch_pch)
    target_precompile_headers(${target} REUSE_FROM lowtide_torch_pch)
  endif()
endfunction()
