// embedded_files.h — the files of this folder that the admin port serves, embedded by cmake/ReverbEmbed.cmake.
#ifndef REVERB_ADMIN_EMBEDDED_FILES_H_
#define REVERB_ADMIN_EMBEDDED_FILES_H_

#include <string_view>

namespace reverb::internal {

std::string_view PageHtml();     // page.html
std::string_view OpenApiJson();  // openapi.json

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_EMBEDDED_FILES_H_
