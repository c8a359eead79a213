# Writes OUTPUT, a source file with the contents of the files PAGE and OPENAPI:
#   cmake -D OUTPUT=... -D PAGE=... -D OPENAPI=... -P ReverbEmbed.cmake
function(reverb_bytes path result)
  file(READ ${path} hex HEX)
  # Lines of 32 bytes.
  string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  set(${result} "${bytes}" PARENT_SCOPE)
endfunction()

reverb_bytes(${PAGE} page)
reverb_bytes(${OPENAPI} openapi)
file(WRITE ${OUTPUT} "// Written by cmake/ReverbEmbed.cmake.
#include \"admin/embedded_files.h\"

namespace reverb::internal {
namespace {

constexpr unsigned char kPageBytes[] = {
${page}
};
constexpr unsigned char kOpenApiBytes[] = {
${openapi}
};

}  // namespace

std::string_view PageHtml() { return {reinterpret_cast<const char*>(kPageBytes), sizeof kPageBytes}; }
std::string_view OpenApiJson() { return {reinterpret_cast<const char*>(kOpenApiBytes), sizeof kOpenApiBytes}; }

}  // namespace reverb::internal
")
