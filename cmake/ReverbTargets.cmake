# One function per kind of target, so that a folder's CMakeLists.txt says only what the
# folder leans on. Files are found by name: every *.cc is part of the folder's library,
# every *_test.cc beside them is a test program of its own.
include(GNUInstallDirs)

# reverb_library(<name> [DEPS ...] [PRIVATE_DEPS ...] [FOLDERS ...] [NO_TSAN_TESTS]): reverb::<name> from the
# *.cc of this folder and of the named folders below it. NO_TSAN_TESTS: the tests lean on a library that is
# not built for ThreadSanitizer, which would report races that are none.
function(reverb_library name)
  cmake_parse_arguments(arg "NO_TSAN_TESTS" "" "DEPS;PRIVATE_DEPS;FOLDERS" ${ARGN})
  set(patterns *.cc)
  foreach(folder IN LISTS arg_FOLDERS)
    list(APPEND patterns ${folder}/*.cc)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${patterns})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")

  add_library(reverb_${name} STATIC ${sources})
  add_library(reverb::${name} ALIAS reverb_${name})
  target_include_directories(reverb_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(reverb_${name} PUBLIC ${arg_DEPS}
                        PRIVATE ${arg_PRIVATE_DEPS} $<BUILD_INTERFACE:reverb_options>)
  target_include_directories(reverb_${name} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(reverb_${name} PUBLIC cxx_std_20)
  set_target_properties(reverb_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS reverb_${name} EXPORT reverbTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

  if(arg_NO_TSAN_TESTS AND REVERB_SANITIZE STREQUAL "thread")
    return()
  endif()
  foreach(test IN LISTS tests)
    get_filename_component(test_name ${test} NAME_WE)
    reverb_test(${test_name} SOURCES ${test} DEPS reverb::${name})
  endforeach()
endfunction()

# reverb_test(<name> [SOURCES ...] DEPS ... [TIMEOUT seconds]): a GoogleTest program, each of its cases one
# ctest entry. The source is <name>.cc unless SOURCES says otherwise.
function(reverb_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT REVERB_TESTS)
    return()
  endif()
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${name}.cc)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock_main reverb_options)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()
