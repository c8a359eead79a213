# reverb_link_program(<target> LIBRARIES ... WITHOUT_HIGHWAY <source>): links our libraries into an executable
# whose only dependency is the C library of the machine that it runs on.
#
# All other libraries are static ones of the distribution, including libstdc++ and libgcc. The C library is
# shared: it resolves names with modules that it loads at run time, which must come from the same build. The
# distribution has no static Highway library; the program needs only three of its functions, which the source
# WITHOUT_HIGHWAY provides.
#
# If a static library is missing, with sanitizers, or with REVERB_STATIC_PROGRAM=OFF, it is linked with shared
# libraries.
option(REVERB_STATIC_PROGRAM "Link the program `reverb` with static libraries, except for the C library" ON)

function(reverb_link_program target)
  cmake_parse_arguments(arg "" "WITHOUT_HIGHWAY" "LIBRARIES" ${ARGN})
  set(archives ${reverb_archives})
  set(missing)
  foreach(name re2 z lz4 zstd snappy xxhash)
    find_library(REVERB_LIB_${name} NAMES lib${name}.a)
    mark_as_advanced(REVERB_LIB_${name})
    if(REVERB_LIB_${name})
      list(APPEND archives ${REVERB_LIB_${name}})
    else()
      list(APPEND missing lib${name}.a)
    endif()
  endforeach()
  get_filename_component(folder ${REVERB_LIB_grpc} DIRECTORY)
  file(GLOB abseil ${folder}/libabsl_*.a)
  if(NOT abseil)
    list(APPEND missing libabsl_*.a)
  endif()
  find_library(REVERB_LIB_hwy NAMES libhwy.a)
  mark_as_advanced(REVERB_LIB_hwy)

  if(missing OR REVERB_SANITIZE OR REVERB_FUZZERS OR NOT REVERB_STATIC_PROGRAM)
    if(missing)
      message(STATUS "reverb: linked with shared libraries, because these are missing: ${missing}")
    endif()
    target_link_libraries(${target} PRIVATE ${arg_LIBRARIES})
    return()
  endif()

  if(REVERB_LIB_hwy)
    list(APPEND archives ${REVERB_LIB_hwy})
  else()
    target_sources(${target} PRIVATE ${arg_WITHOUT_HIGHWAY})
  endif()
  set(ours)
  foreach(library IN LISTS arg_LIBRARIES)
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
  target_link_libraries(${target} PRIVATE
    -Wl,--start-group ${files} ${archives} ${abseil} -Wl,--end-group Threads::Threads ${CMAKE_DL_LIBS})
  # Static libraries are passed by path: relinks the program when one changes.
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${files})
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  set_property(TARGET ${target} PROPERTY REVERB_IS_STATIC ON)  # for its tests
endfunction()
