// signature_fuzz.cc — signatures from untrusted bytes. A signature that decodes encodes to the same bytes,
// and can be printed and flattened.
#include <string>
#include <string_view>

#include "fuzz_target.h"
#include "reverb/signature.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const reverb::Result<reverb::Signature> decoded = reverb::DecodeSignature(bytes);
  if (!decoded.ok()) return 0;
  const std::string encoded = reverb::EncodeSignature(*decoded);
  FUZZ_CHECK(encoded == bytes);
  const reverb::Result<reverb::Signature> again = reverb::DecodeSignature(encoded);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(*again == *decoded);
  FUZZ_CHECK(!decoded->ToString().empty());
  const auto flat = decoded->Flatten();
  if (flat.ok()) FUZZ_CHECK(flat->size() == decoded->num_leaves());
  return 0;
}
