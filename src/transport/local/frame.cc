#include "transport/local/frame.h"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "transport/local/endpoint.h"

namespace reverb::internal {
namespace {

constexpr size_t kMaxTextBytes = 1024;

void WriteIdentity(const LocalIdentity& identity, WireWriter* writer) {
  const auto nested = writer->Begin(2);
  writer->Bytes(1, identity.boot_id);
  writer->Uint(2, identity.network_namespace);
  writer->Uint(3, identity.process_id);
  writer->End(nested);
}

Status ParseIdentity(ProtoReader reader, LocalIdentity* identity) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&identity->boot_id, kMaxTextBytes);
        break;
      case 2:
        reader.Read(&identity->network_namespace);
        break;
      case 3:
        reader.Read(&identity->process_id);
        break;
    }
  }
  return reader.status("LocalIdentity");
}

ProtoReader ReaderOf(std::span<const uint8_t> bytes) {
  return ProtoReader(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace

OutgoingFrame MakeFrame(FrameKind kind, const WireMessage& message, Method method) {
  FrameHeader header;
  header.kind = kind;
  header.method = static_cast<uint8_t>(method);
  header.inline_bytes = message.total_bytes();
  OutgoingFrame frame;
  frame.head.assign(reinterpret_cast<const char*>(&header), sizeof header);
  frame.parts = message.parts();
  return frame;
}

OutgoingFrame MakeFrame(FrameKind kind, uint64_t number) {
  FrameHeader header;
  header.kind = kind;
  header.number = number;
  OutgoingFrame frame;
  frame.head.assign(reinterpret_cast<const char*>(&header), sizeof header);
  return frame;
}

OutgoingFrame MakeCallFrame(FrameKind kind, uint64_t number, const WireMessage& message, Method method) {
  FrameHeader header;
  header.kind = kind;
  header.method = static_cast<uint8_t>(method);
  header.inline_bytes = message.total_bytes();
  header.number = number;
  OutgoingFrame frame;
  frame.head.assign(reinterpret_cast<const char*>(&header), sizeof header);
  frame.parts = message.parts();
  return frame;
}

LocalIdentity OwnIdentity() {
  return {.boot_id = BootId(),
          .network_namespace = NetworkNamespace(),
          .process_id = static_cast<uint64_t>(getpid())};
}

WireMessage EncodeLocalHello(const LocalHello& hello) {
  WireWriter writer;
  writer.Uint(1, hello.version);
  WriteIdentity(hello.identity, &writer);
  writer.Bytes(3, hello.wanted_address);
  if (!hello.token.empty()) writer.Bytes(4, hello.token);
  return writer.Finish();
}

Result<LocalHello> DecodeLocalHello(std::span<const uint8_t> bytes) {
  LocalHello hello;
  hello.version = 0;
  ProtoReader reader = ReaderOf(bytes);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&hello.version);
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(ParseIdentity(reader.ReadMessage(), &hello.identity));
        break;
      case 3:
        reader.Read(&hello.wanted_address, kMaxTextBytes);
        break;
      case 4:
        reader.Read(&hello.token, kMaxTextBytes);
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status("LocalHello"));
  return hello;
}

WireMessage EncodeLocalWelcome(const LocalWelcome& welcome) {
  WireWriter writer;
  writer.Uint(1, welcome.version);
  WriteIdentity(welcome.identity, &writer);
  writer.Bytes(3, {reinterpret_cast<const char*>(welcome.life_id.data()), welcome.life_id.size()});
  writer.Uint(4, welcome.max_pinned_bytes);
  return writer.Finish();
}

Result<LocalWelcome> DecodeLocalWelcome(std::span<const uint8_t> bytes) {
  LocalWelcome welcome;
  welcome.version = 0;
  ProtoReader reader = ReaderOf(bytes);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&welcome.version);
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(ParseIdentity(reader.ReadMessage(), &welcome.identity));
        break;
      case 3:
        reader.Read(&welcome.life_id);
        break;
      case 4:
        reader.Read(&welcome.max_pinned_bytes);
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status("LocalWelcome"));
  return welcome;
}

}  // namespace reverb::internal
