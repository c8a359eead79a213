# `cmake --install`: the headers of include/reverb, the libraries, a package for find_package(reverb), and files for
# pkg-config.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/reverb)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/reverb DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS reverb_static EXPORT reverb_static_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT reverb_static_targets NAMESPACE reverb:: DESTINATION ${package_dir})
if(TARGET reverb_shared)
  install(TARGETS reverb_shared EXPORT reverb_shared_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT reverb_shared_targets NAMESPACE reverb:: DESTINATION ${package_dir})
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/reverbConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/reverbConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/reverbConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/reverbConfig.cmake ${PROJECT_BINARY_DIR}/reverbConfigVersion.cmake
        DESTINATION ${package_dir})

# reverb.pc is the shared library, where it is built; reverb-static.pc is always the archive. Paths are relative to the
# files, so that an installed tree can be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(REVERB_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(REVERB_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up /${pkgconfig_dir} /)
  string(REGEX REPLACE "/$" "" REVERB_PC_PREFIX "\${pcfiledir}/${up}")
  set(REVERB_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(REVERB_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(REVERB_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
list(JOIN reverb_archive_libraries " " archive_libraries)

# Writes <name>.pc, which links `library`, `libs`, and with --static also `libs_private`.
function(reverb_install_pkgconfig name library libs libs_private)
  set(REVERB_PC_NAME ${name})
  set(REVERB_PC_LIBS "${library} ${libs}")
  string(STRIP "${REVERB_PC_LIBS}" REVERB_PC_LIBS)
  set(REVERB_PC_LIBS_PRIVATE "${libs_private}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/reverb.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig_dir})
endfunction()
if(TARGET reverb_shared)
  reverb_install_pkgconfig(reverb -lreverb "" "${archive_libraries}")
else()
  reverb_install_pkgconfig(reverb -lreverb "${archive_libraries}" "")
endif()
reverb_install_pkgconfig(reverb-static -l:libreverb.a "${archive_libraries}" "")
