// reverb._core: the extension module.
#include "python_api.h"

namespace reverb::python {

NB_MODULE(_core, module) {
  module.doc() = "The native part of reverb. Use the names of `reverb`; these may change.";
  // What is alive when the interpreter ends is of no interest to anybody.
  nb::set_leak_warnings(false);
  module.attr("__version__") = REVERB_PYTHON_VERSION;
  BindGil(module);
  BindLog(module);
  BindArrays(module);
  BindTree(module);
  BindSelectors(module);
  BindTable(module);
  BindCheckpoints(module);
  BindServer(module);
  BindClient(module);
  BindSampler(module);
  BindBatches(module);
  BindColumns(module);
  BindTrajectoryWriter(module);
  BindVectorColumns(module);
  BindVectorWriter(module);
  BindStructuredWriter(module);
  BindLegacyWriter(module);
}

}  // namespace reverb::python
