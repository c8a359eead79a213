// introspection.h — signatures of native functions for inspect.signature() and help().
#ifndef REVERB_PYTHON_INTROSPECTION_H_
#define REVERB_PYTHON_INTROSPECTION_H_

#include "python_api.h"

namespace reverb::python {

// Gives the functions, methods and bound methods of the module a `__signature__`, and lets classes that are
// generic in the stub be subscripted. Call it last: needs the classes of `module`. Calls of the functions cost the
// same as without it.
void BindIntrospection(nb::module_& module);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_INTROSPECTION_H_
