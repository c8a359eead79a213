// signatures.h — nests of specs as signatures, and signatures as nests.
//
// Leaves are what reverb._specs.as_spec() accepts; they come back as reverb.TensorSpec or BoundedTensorSpec,
// namedtuples as the class that reverb._signatures.namedtuple_class() has for their name and fields.
// Threads: with the GIL.
#ifndef REVERB_PYTHON_SIGNATURES_H_
#define REVERB_PYTHON_SIGNATURES_H_

#include "python_api.h"
#include "reverb/signature.h"

namespace reverb::python {

// ValueError for a leaf that is not a spec and for a nest beyond the limits of signatures; TypeError for keys
// that are not str and for dtypes that cannot be stored.
Signature ToSignature(nb::handle nest);

nb::object ToNest(const Signature& signature);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_SIGNATURES_H_
