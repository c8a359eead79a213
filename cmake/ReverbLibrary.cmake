# The library that users install: one archive (reverb::static) and one shared library (reverb::shared), both from the
# objects of the folders' libraries, so that nothing is compiled twice.
#
# Public headers include only the standard library, so users of the shared library need none of Reverb's
# dependencies. Users of the archive need them as libraries, not as packages: reverb_archive_libraries is the list of
# linker flags, which the CMake package and the pkg-config files contain.
option(REVERB_SHARED "Build the shared library libreverb.so" ${PROJECT_IS_TOP_LEVEL})

reverb_collect_libraries(reverb_api parts)
set(objects)
foreach(part IN LISTS parts)
  list(APPEND objects $<TARGET_OBJECTS:${part}>)
endforeach()

# --- The libraries that the archive needs ------------------------------------------------------------------------
# By name, without the folder, unless the linker would not find it: the same files serve on other machines.
set(reverb_archive_libraries)
set(folders ${LZ4_LIBRARY_DIRS} ${ZSTD_LIBRARY_DIRS} ${XXHASH_LIBRARY_DIRS} ${HWY_LIBRARY_DIRS} ${GRPC_LIBRARY_DIRS})
set(group)
foreach(archive IN LISTS reverb_archives)
  get_filename_component(name ${archive} NAME)
  get_filename_component(folder ${archive} DIRECTORY)
  list(APPEND group -l:${name})
  list(APPEND folders ${folder})
endforeach()
list(REMOVE_DUPLICATES folders)
foreach(folder IN LISTS folders)
  get_filename_component(real ${folder} REALPATH)
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES AND NOT real IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    list(APPEND reverb_archive_libraries -L${folder})
  endif()
endforeach()
list(APPEND reverb_archive_libraries -Wl,--start-group ${group} -Wl,--end-group -Wl,--push-state,--as-needed)
foreach(name IN LISTS reverb_shared_abseil ITEMS re2 z lz4 zstd xxhash snappy hwy)
  list(APPEND reverb_archive_libraries -l${name})
endforeach()
list(APPEND reverb_archive_libraries -Wl,--pop-state -pthread)
foreach(name IN LISTS CMAKE_DL_LIBS)
  list(APPEND reverb_archive_libraries -l${name})
endforeach()

# --- The archive and the shared library ---------------------------------------------------------------------------
# The build itself links the folders' libraries, as reverb::reverb.
function(reverb_define_library target name)
  add_library(reverb::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME reverb EXPORT_NAME ${name} LINKER_LANGUAGE CXX
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
endfunction()

add_library(reverb_static STATIC ${objects})
reverb_define_library(reverb_static static)
target_link_libraries(reverb_static INTERFACE ${reverb_archive_libraries})

# Sanitizers and fuzzers need their runtime in the program, and all symbols resolved there.
if(REVERB_SHARED AND NOT REVERB_SANITIZE AND NOT REVERB_FUZZERS)
  add_library(reverb_shared SHARED ${objects})
  reverb_define_library(reverb_shared shared)
  # Its objects are all there: this adds the libraries that they need, not our archives' contents a second time.
  target_link_libraries(reverb_shared PRIVATE reverb_api)
  # Before 1.0, a minor version may change the binary interface.
  set_target_properties(reverb_shared PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  # Only public names leave the library. gRPC and everything below it are hidden in it, so that a process which has
  # another gRPC does not mix the two.
  set(exports ${PROJECT_SOURCE_DIR}/cmake/reverb.map)
  target_link_options(reverb_shared PRIVATE -Wl,--version-script=${exports} -Wl,--exclude-libs,ALL
    -Wl,--gc-sections -Wl,--no-undefined)
  set_property(TARGET reverb_shared APPEND PROPERTY LINK_DEPENDS ${exports})
endif()
