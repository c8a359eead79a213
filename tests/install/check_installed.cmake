# BUILD, EXAMPLES, CONSUMER, WORK, COMPILER, GENERATOR, LAUNCHER, PKG_CONFIG, LIBDIR: see CMakeLists.txt beside this.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}")
  endif()
endfunction()

# Runs a command and fails unless its result and its output match.
function(expect expected_result expected_output)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  if(NOT result MATCHES "${expected_result}" OR NOT output MATCHES "${expected_output}")
    message(FATAL_ERROR "${ARGN}: result ${result}, expected ${expected_result} and output ${expected_output}")
  endif()
endfunction()

# Sets `result` to the output of pkg-config as a list.
function(pkg_config result)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${prefix}/${LIBDIR}/pkgconfig ${PKG_CONFIG} ${ARGN}
                  OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(output UNIX_COMMAND "${output}")
  set(${result} ${output} PARENT_SCOPE)
endfunction()

function(expect_errors program)
  expect(0 "sampled 7" ${program})
  # CMake describes a signal in words.
  expect("[Aa]bort" "a Result has no value: FAILED_PRECONDITION: cannot listen on .*the port is taken; choose another"
         ${program} taken-port)
  expect(1 "NOT_FOUND: .*\"reply\".*replay" ${program} missing-table)
  expect(1 "INVALID_ARGUMENT: .*\"localhost\".*port" ${program} bad-address)
  expect(1 "(UNAVAILABLE|DEADLINE_EXCEEDED): .*127.0.0.1:[0-9]+" ${program} no-server)
endfunction()

set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${prefix} ${WORK}/moved ${WORK}/examples ${WORK}/consumer ${WORK}/build-examples ${WORK}/build-consumer
     ${WORK}/missing ${WORK}/pkg-config)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/moved)
file(RENAME ${WORK}/moved ${prefix})  # an installed tree can be moved
# Copies, so that nothing of the tree around them can help.
file(COPY ${EXAMPLES}/ DESTINATION ${WORK}/examples)
file(COPY ${CONSUMER}/ DESTINATION ${WORK}/consumer)

# --- CMake: the examples with the shared library, the consumer with the archive ---
foreach(project examples consumer)
  run(${CMAKE_COMMAND} -S ${WORK}/${project} -B ${WORK}/build-${project} -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${prefix}
      -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -D CMAKE_BUILD_TYPE=Release)
  # Searching for gRPC, Abseil and protobuf would make this take ten seconds instead of one.
  file(STRINGS ${WORK}/build-${project}/CMakeCache.txt found REGEX "absl|gRPC|GRPC|rotobuf|PKG_CONFIG")
  if(found)
    message(FATAL_ERROR "configuring ${project} searched for packages: ${found}")
  endif()
  run(${CMAKE_COMMAND} --build ${WORK}/build-${project})
endforeach()
run(${WORK}/build-examples/reverb_actor_learner)
run(${WORK}/build-examples/reverb_table_extension)
expect_errors(${WORK}/build-consumer/consumer)

# A component that is not installed.
file(WRITE ${WORK}/missing/CMakeLists.txt [=[
cmake_minimum_required(VERSION 3.22)
project(missing LANGUAGES NONE)
find_package(reverb REQUIRED COMPONENTS dynamic)
]=])
expect(1 "no component \"dynamic\".*it has:[ \n]+shared;static"
       ${CMAKE_COMMAND} -S ${WORK}/missing -B ${WORK}/missing/build -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${prefix})

# --- pkg-config: one object, linked with the shared library and with the archive ---
file(MAKE_DIRECTORY ${WORK}/pkg-config)
pkg_config(cflags --cflags reverb)
run(${LAUNCHER} ${COMPILER} -std=c++20 -O2 -DNDEBUG ${cflags} -c ${CONSUMER}/consumer.cc -o ${WORK}/pkg-config/consumer.o)
pkg_config(shared --libs reverb)
if(NOT "${shared}" MATCHES "^-L[^;]*;-lreverb$")
  message(FATAL_ERROR "pkg-config --libs reverb: ${shared}")
endif()
pkg_config(both --static --libs reverb)
pkg_config(static --libs reverb-static)
foreach(kind shared both static)
  run(${COMPILER} ${WORK}/pkg-config/consumer.o ${${kind}} -Wl,-rpath,${prefix}/${LIBDIR} -o ${WORK}/pkg-config/${kind})
  expect_errors(${WORK}/pkg-config/${kind})
endforeach()
