# One function for each kind of target, so that a folder's CMakeLists.txt only lists its dependencies. Files are
# found by name: every *.cc is part of the folder's library, every *_test.cc is a separate test program.
include(GNUInstallDirs)

# For builds from scratch that nothing is changed in afterwards: most of the time goes into the same headers again and again.
option(REVERB_UNITY "Compile source files of a library together: faster from scratch, slower after a change" OFF)

# Compiles the sources of a target together, with REVERB_UNITY. Names in anonymous namespaces must then be unique in
# their folder. CMake compiles sources with options of their own separately; others opt out with
# SKIP_UNITY_BUILD_INCLUSION.
function(reverb_unify target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${REVERB_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  if(REVERB_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Warns about types of anonymous namespaces in files that are included.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# reverb_library(<name> [DEPS ...] [PRIVATE_DEPS ...] [TEST_DEPS ...] [FOLDERS ...] [NO_TSAN_TESTS]): defines
# reverb::<name> from the *.cc of this folder and of the named subfolders. TEST_DEPS: further libraries that its tests
# need. NO_TSAN_TESTS: the tests depend on a library that is not built for ThreadSanitizer, which would report false
# races.
function(reverb_library name)
  cmake_parse_arguments(arg "NO_TSAN_TESTS" "" "DEPS;PRIVATE_DEPS;TEST_DEPS;FOLDERS" ${ARGN})
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
  target_include_directories(reverb_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(reverb_${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS} reverb_options)
  target_compile_features(reverb_${name} PUBLIC cxx_std_20)
  reverb_unify(reverb_${name})

  if(arg_NO_TSAN_TESTS AND REVERB_SANITIZE STREQUAL "thread")
    return()
  endif()
  foreach(test IN LISTS tests)
    get_filename_component(test_name ${test} NAME_WE)
    reverb_test(${test_name} SOURCES ${test} DEPS reverb::${name} ${arg_TEST_DEPS})
  endforeach()
endfunction()

# Returns our libraries that `library` depends on, including itself.
function(reverb_collect_libraries library result)
  set(found ${library})
  get_target_property(links ${library} LINK_LIBRARIES)
  foreach(link IN LISTS links)
    string(REPLACE "reverb::" "reverb_" name "${link}")
    if(link MATCHES "^reverb::" AND TARGET ${name})
      reverb_collect_libraries(${name} below)
      list(APPEND found ${below})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# Builds the precompiled header of the test programs: parsing GoogleTest takes longer than parsing most tests. It is an
# executable, because a library is compiled with other flags (-fPIC), which must match those of the test programs.
if(REVERB_TESTS)
  file(WRITE ${PROJECT_BINARY_DIR}/test_pch.cc "int main() {}\n")
  add_executable(reverb_test_pch EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/test_pch.cc)
  target_link_libraries(reverb_test_pch PRIVATE GTest::gmock_main reverb_options)
  target_compile_options(reverb_test_pch PRIVATE ${REVERB_TEST_FLAGS})
  target_precompile_headers(reverb_test_pch PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <functional> <map> <memory> <optional> <string> <thread> <vector>)
endif()

# reverb_test(<name> [SOURCES ...] DEPS ... [TIMEOUT seconds] [OPTIMIZED]): defines a GoogleTest program, one ctest
# entry, with the label `unit` or the name of its folder below tests/. The default source is <name>.cc. Programs that
# perform much work themselves are OPTIMIZED like the library; compiling the others with REVERB_TEST_FLAGS takes a third
# of the time.
function(reverb_test name)
  cmake_parse_arguments(arg "OPTIMIZED" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT REVERB_TESTS)
    return()
  endif()
  # Unit tests are next to the code; the label of others is their folder below tests/.
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(folder MATCHES "^src/")
    set(label unit)
  else()
    get_filename_component(label ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  endif()
  # Runs ThreadSanitizer only for folders with concurrent code.
  if(REVERB_SANITIZE STREQUAL "thread" AND NOT folder MATCHES "/(base|storage|core|client|service|admin|transport|inproc|local|conformance|concurrency)$")
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
  if(NOT arg_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${REVERB_TEST_FLAGS})
    target_precompile_headers(${name} REUSE_FROM reverb_test_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${label}")
endfunction()
