# One function per kind of target, so that each folder's CMakeLists.txt only
# names its files and what it leans on.
include(GNUInstallDirs)

# reverb_library(<name> SOURCES ... [DEPS ...] [PRIVATE_DEPS ...]) makes reverb::<name>.
function(reverb_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(reverb_${name} STATIC ${arg_SOURCES})
  add_library(reverb::${name} ALIAS reverb_${name})
  target_include_directories(reverb_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(reverb_${name} PUBLIC ${arg_DEPS}
                        PRIVATE ${arg_PRIVATE_DEPS} $<BUILD_INTERFACE:reverb_options>)
endfunction()

# reverb_test(<name> [SOURCES ...] DEPS ... [TIMEOUT s] [ARGS ...]): a GoogleTest program, each of its
# cases one ctest entry. The source is <name>.cc unless SOURCES says otherwise.
function(reverb_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT REVERB_TESTS)
    return()
  endif()
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${name}.cc)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock_main reverb_options)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()
