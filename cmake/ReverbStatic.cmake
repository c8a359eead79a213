# Links our libraries with the static libraries of the distribution, for files that are used on other machines.
#
# reverb_link_program(<target> LIBRARIES ... WITHOUT_HIGHWAY <source>): an executable whose only dependency is the C library
# of the machine that it runs on. All other libraries are static, including libstdc++ and libgcc. The C library is
# shared: it resolves names with modules that it loads at run time, which must come from the same build. The
# distribution has no static Highway library; the program needs only three of its functions, which the source
# WITHOUT_HIGHWAY provides.
#
# reverb_link_module(<target> LIBRARIES ...): a shared object that is loaded into a process with other libraries. The
# compression libraries and gRPC are static and hidden in it. Abseil and re2 stay shared, because their archives are
# compiled for executables (they use thread-local variables in the local-exec model), and so do Highway and libstdc++;
# tools/wheel.sh copies all but the latter into the wheel.
#
# If a static library is missing, with sanitizers, or with REVERB_STATIC_PROGRAM=OFF, both link shared libraries.
option(REVERB_STATIC_PROGRAM "Link the program `reverb` and the Python extension with static libraries where possible" ON)

# Archives that executables and shared objects can link; re2 and Abseil: executables only.
set(reverb_static_archives)
set(reverb_missing_archives)
foreach(name re2 z lz4 zstd snappy xxhash)
  find_library(REVERB_LIB_${name} NAMES lib${name}.a)
  mark_as_advanced(REVERB_LIB_${name})
  if(NOT REVERB_LIB_${name})
    list(APPEND reverb_missing_archives lib${name}.a)
  elseif(NOT name STREQUAL re2)
    list(APPEND reverb_static_archives ${REVERB_LIB_${name}})
  endif()
endforeach()
get_filename_component(reverb_archive_folder ${REVERB_LIB_grpc} DIRECTORY)
file(GLOB reverb_static_abseil ${reverb_archive_folder}/libabsl_*.a)
if(NOT reverb_static_abseil)
  list(APPEND reverb_missing_archives libabsl_*.a)
endif()
find_library(REVERB_LIB_hwy NAMES libhwy.a)
mark_as_advanced(REVERB_LIB_hwy)

# Links `libraries`, of ours, and what they need: `others`. Returns whether it did; otherwise the target has shared libraries.
function(reverb_link_archives target libraries others is_static)
  if(reverb_missing_archives OR REVERB_SANITIZE OR REVERB_FUZZERS OR NOT REVERB_STATIC_PROGRAM)
    if(reverb_missing_archives)
      message(STATUS "${target}: linked with shared libraries, because these are missing: ${reverb_missing_archives}")
    endif()
    target_link_libraries(${target} PRIVATE ${libraries})
    set(${is_static} OFF PARENT_SCOPE)
    return()
  endif()
  set(ours)
  foreach(library IN LISTS libraries)
    reverb_collect_libraries(${library} below)
    list(APPEND ours ${below})
  endforeach()
  list(REMOVE_DUPLICATES ours)
  set(files)
  foreach(library IN LISTS ours)
    list(APPEND files $<TARGET_FILE:${library}>)
    add_dependencies(${target} ${library})
    target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
  target_link_libraries(${target} PRIVATE -Wl,--start-group ${files} ${reverb_archives} ${reverb_static_archives} ${others}
    -Wl,--end-group Threads::Threads ${CMAKE_DL_LIBS})
  # Static libraries are passed by path: relinks the target when one changes.
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${files})
  set(${is_static} ON PARENT_SCOPE)
endfunction()

function(reverb_link_program target)
  cmake_parse_arguments(arg "" "WITHOUT_HIGHWAY" "LIBRARIES" ${ARGN})
  reverb_link_archives(${target} "${arg_LIBRARIES}" "${REVERB_LIB_re2};${reverb_static_abseil}" is_static)
  if(NOT is_static)
    return()
  endif()
  if(REVERB_LIB_hwy)
    target_link_libraries(${target} PRIVATE ${REVERB_LIB_hwy})
  else()
    target_sources(${target} PRIVATE ${arg_WITHOUT_HIGHWAY})
  endif()
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  set_property(TARGET ${target} PROPERTY REVERB_IS_STATIC ON)  # for its tests
endfunction()

function(reverb_link_module target)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  reverb_link_archives(${target} "${arg_LIBRARIES}"
    "-Wl,--push-state,--as-needed;${reverb_shared_abseil};re2;${HWY_LIBRARIES};-Wl,--pop-state" is_static)
endfunction()
