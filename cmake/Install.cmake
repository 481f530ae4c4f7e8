# Installs the program, the libraries and a package: find_package(lowtide) then gives the target lowtide::lowtide.
# LibTorch is not installed along: the package finds the one it was built with, or the one lowtide_TORCH_DIR names.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lowtide)

# Device libraries and programs lie beside what loads them; all find LibTorch by the path it has now.
get_property(programs DIRECTORY ${PROJECT_SOURCE_DIR}/apps/lowtide PROPERTY BUILDSYSTEM_TARGETS)
set(installed)
set(cudart_dir)
if(LOWTIDE_CUDART)
  get_filename_component(cudart_dir ${LOWTIDE_CUDART} DIRECTORY)
endif()
foreach(target IN LISTS programs ITEMS lowtide lowtide_sim lowtide_cuda)
  if(NOT TARGET ${target})
    continue()
  endif()
  get_target_property(type ${target} TYPE)
  if(type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY|STATIC_LIBRARY)$")
    list(APPEND installed ${target})
    set_target_properties(${target} PROPERTIES
      INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${LOWTIDE_TORCH_DIR}/lib;${cudart_dir}")
  endif()
endforeach()
list(REMOVE_DUPLICATES installed)
list(REMOVE_ITEM installed lowtide)
install(TARGETS ${installed} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lowtide EXPORT lowtide_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(DIRECTORY include/lowtide DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY configs/cards DESTINATION ${CMAKE_INSTALL_DATADIR}/lowtide)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT lowtide_targets NAMESPACE lowtide:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lowtideConfig.cmake.in lowtideConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(lowtideConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lowtideConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lowtideConfigVersion.cmake
        DESTINATION ${package_dir})
