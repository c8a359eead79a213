// reverb._core: the extension module.
#include "introspection.h"
#include "python_api.h"

namespace reverb::python {

NB_MODULE(_core, module) {
  module.doc() = "The native part of reverb. Use the names of `reverb`; these may change.";
  // Objects may outlive the interpreter at exit; do not warn about them.
  nb::set_leak_warnings(false);
  module.attr("__version__") = REVERB_PYTHON_VERSION;
  BindGil(module);
  BindLog(module);
  BindArrays(module);
  BindTree(module);
  BindSignatures(module);
  BindSelectors(module);
  BindTable(module);
  BindCheckpoints(module);
  BindAccess(module);
  BindServer(module);
  BindClient(module);
  BindLeases(module);
  BindRows(module);
  BindCompletions(module);
  BindAsyncRows(module);
  BindSampler(module);
  BindBatches(module);
  BindSampleStream(module);
  BindColumns(module);
  BindTrajectoryWriter(module);
  BindVectorColumns(module);
  BindVectorWriter(module);
  BindStructuredWriter(module);
  BindLegacyWriter(module);
  BindIntrospection(module);
}

}  // namespace reverb::python
