# Compiler settings shared by every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Overrides the build's flags for test programs: most of them take longer to compile than to run.
set(REVERB_TEST_FLAGS -O0 CACHE STRING "Compiler flags of the test programs that are not OPTIMIZED")

# Compiler options of our own targets; users of an installed package do not inherit them.
add_library(reverb_options INTERFACE)
# Designated initialisers omit fields that have a default, which -Wextra warns about.
target_compile_options(reverb_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(REVERB_WERROR)
  target_compile_options(reverb_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 at -O3 reports false overlapping copies in std::string's operator+ (GCC bug 105329).
  target_compile_options(reverb_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(reverb_options INTERFACE -Wthread-safety)
endif()

# Sums must be bit-identical on all machines: no fused multiply-add, unless requested explicitly.
target_compile_options(reverb_options INTERFACE -ffp-contract=off)

# The oldest supported x86-64 level; wider SIMD is selected at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(reverb_options INTERFACE -march=x86-64-v2)
endif()

if(REVERB_SANITIZE STREQUAL "address")
  set(sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(REVERB_SANITIZE STREQUAL "thread")
  set(sanitize_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(REVERB_SANITIZE)
  message(FATAL_ERROR "REVERB_SANITIZE is '${REVERB_SANITIZE}'; use address, thread, or leave it empty")
endif()
if(REVERB_FUZZERS)
  list(APPEND sanitize_flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
endif()
if(sanitize_flags)
  add_compile_options(${sanitize_flags})
  add_link_options(${sanitize_flags})
endif()
