# reverb::grpc_library: gRPC from the distribution's static libraries, with its dependencies.
#
# Static, because a process may also load another gRPC (TensorFlow, grpcio), and the two must not be mixed.
# Abseil and re2 are linked as shared libraries: Abseil's symbols contain its version, and their static
# libraries cannot be linked into a shared object (ReverbStatic.cmake).
pkg_check_modules(GRPC REQUIRED grpc++)
add_library(reverb::grpc_library INTERFACE IMPORTED GLOBAL)

set(reverb_archives)
foreach(name grpc++ grpc address_sorting upb gpr cares ssl crypto)
  find_library(REVERB_LIB_${name} NAMES lib${name}.a REQUIRED)
  mark_as_advanced(REVERB_LIB_${name})
  list(APPEND reverb_archives ${REVERB_LIB_${name}})
endforeach()
set(reverb_shared_abseil ${GRPC_LIBRARIES})
list(FILTER reverb_shared_abseil INCLUDE REGEX "^absl_")
list(REMOVE_DUPLICATES reverb_shared_abseil)
target_include_directories(reverb::grpc_library SYSTEM INTERFACE ${GRPC_INCLUDE_DIRS})
target_link_libraries(reverb::grpc_library INTERFACE
  -Wl,--start-group ${reverb_archives} -Wl,--end-group
  -Wl,--push-state,--as-needed ${reverb_shared_abseil} re2 z -Wl,--pop-state
  Threads::Threads ${CMAKE_DL_LIBS})

# reverb::openssl_library: the same static OpenSSL, for the code that uses it directly (src/access).
add_library(reverb::openssl_library INTERFACE IMPORTED GLOBAL)
target_link_libraries(reverb::openssl_library INTERFACE
  ${REVERB_LIB_ssl} ${REVERB_LIB_crypto} Threads::Threads ${CMAKE_DL_LIBS})
