// progress.h — passes the progress of long work to a Python callable.
#ifndef REVERB_PYTHON_BINDINGS_PROGRESS_H_
#define REVERB_PYTHON_BINDINGS_PROGRESS_H_

#include "python_api.h"
#include "reverb/checkpoint.h"

namespace reverb::python {

// Returns a callback, to be used without the GIL, that calls callable(bytes_done, bytes_total) about ten times a second;
// none for None. `callable` must outlive it. Exceptions of the callable are reported as
// unraisable; Ctrl-C during the call is passed on.
CheckpointProgressCallback ProgressCallback(nb::handle callable);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_BINDINGS_PROGRESS_H_
