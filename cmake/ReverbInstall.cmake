# `cmake --install`: the headers of include/reverb, the libraries, and a package for find_package(reverb).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/reverb)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/reverb DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT reverbTargets NAMESPACE reverb:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/reverbConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/reverbConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/reverbConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/reverbConfig.cmake ${PROJECT_BINARY_DIR}/reverbConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/ReverbDependencies.cmake ${PROJECT_SOURCE_DIR}/cmake/ReverbGrpc.cmake
        DESTINATION ${package_dir})
