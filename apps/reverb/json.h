// json.h — the writer of JSON, which the program shares with the admin port.
#ifndef REVERB_APPS_REVERB_JSON_H_
#define REVERB_APPS_REVERB_JSON_H_

#include "view/json.h"

namespace reverb::program {

using internal::JsonWriter;

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_JSON_H_
