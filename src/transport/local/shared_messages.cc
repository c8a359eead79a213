#include "transport/local/shared_messages.h"

#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "base/fork.h"
#include "transport/wire_seal.h"

namespace reverb::internal {
namespace {

constexpr uint64_t kMaxOffset = uint64_t{1} << 48;
constexpr uint32_t kMaxSegment = uint32_t{1} << 16;

template <typename T>
void AppendBytes(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

Status BadReference(const std::string& what) {
  return Status::InvalidArgument("the message refers to shared memory wrongly: " + what);
}

// The segments of other processes that are in use here, by device and inode of their memfd, and by whether they are those
// of clients.
struct PeerSegments {
  Mutex mu;
  std::map<std::tuple<uint64_t, uint64_t, bool>, std::weak_ptr<PeerSegment>> segments GUARDED_BY(mu);
};
constinit PerProcess<PeerSegments> peer_segments;

// A block of shared memory.
class SharedBlock final : public BufferOwner {
 public:
  SharedBlock(SharedMemory* memory, uint8_t* block, size_t bytes)
      : memory_(memory), block_(block), bytes_(bytes) {}

 private:
  ~SharedBlock() override { memory_->Free(block_, bytes_); }

  SharedMemory* const memory_;
  uint8_t* const block_;
  const size_t bytes_;
};

}  // namespace

// --- Sending --------------------------------------------------------------------------------------

OutgoingFrame SentMessages::MakeMessage(const WireMessage& message, std::shared_ptr<const void> keeper,
                                        FrameKind kind, Method method) {
  FrameHeader header;
  header.kind = kind;
  header.method = static_cast<uint8_t>(method);
  std::vector<FrameReference> references;
  std::vector<FrameAnnouncement> announcements;
  OutgoingFrame frame;
  Pinned pinned;

  references.reserve(message.parts().size());
  // Of the sum, this message gets what it could use at most; the rest is given back below.
  const uint64_t most = message.total_bytes() + message.parts().size() * sizeof(FrameReference);
  const uint64_t max_pinned_bytes = pinned_sum_ != nullptr ? pinned_sum_->AddUpTo(most) : most;
  MutexLock lock(&mu_);
  for (const Buffer& part : message.parts()) {
    std::optional<SharedMemory::Location> at;
    if (header.inline_bytes <= UINT32_MAX && pinned.bytes + part.size() <= max_pinned_bytes) {
      at = memory_ != nullptr ? memory_->Find(part.data()) : std::nullopt;
      if (at && (at->segment != last_segment_ || part.size() > UINT32_MAX)) {
        at = Locate(part.span(), &announcements, &frame);
      }
    }
    if (!at) {
      header.inline_bytes += part.size();
      frame.parts.push_back(part);
      continue;
    }
    references.push_back({.at = static_cast<uint32_t>(header.inline_bytes),
                          .length = static_cast<uint32_t>(part.size()),
                          .place = MakePlace(at->segment, at->offset)});
    pinned.bytes += part.size();
    if (part.has_owner()) pinned.parts.push_back(part);
  }
  header.num_references = static_cast<uint32_t>(references.size());
  MoveToBody(max_pinned_bytes, &references, &announcements, &header, &frame, &pinned);
  header.num_announcements = static_cast<uint16_t>(announcements.size());
  if (pinned_sum_ != nullptr) pinned_sum_->Subtract(max_pinned_bytes - pinned.bytes);
  if (pinned.bytes > 0) {
    header.number = ++last_number_;
    pinned.keeper = keeper;
    pinned.sent = RealClock()->Now();
    pinned_bytes_ += pinned.bytes;
    pinned_.emplace(header.number, std::move(pinned));
  }
  frame.keeper = std::move(keeper);
  frame.head.reserve(sizeof header + announcements.size() * sizeof(FrameAnnouncement) +
                     references.size() * sizeof(FrameReference));
  AppendBytes(header, &frame.head);
  for (const FrameAnnouncement& announcement : announcements) AppendBytes(announcement, &frame.head);
  frame.head.append(reinterpret_cast<const char*>(references.data()),
                    references.size() * sizeof(FrameReference));
  return frame;
}

void SentMessages::MoveToBody(uint64_t max_pinned_bytes, std::vector<FrameReference>* references,
                              std::vector<FrameAnnouncement>* announcements, FrameHeader* header,
                              OutgoingFrame* frame, Pinned* pinned) {
  const size_t reference_bytes = references->size() * sizeof(FrameReference);
  const size_t bytes = reference_bytes + header->inline_bytes;
  if (!uses_bodies_ || memory_ == nullptr || bytes < kMinBodyBytes ||
      pinned->bytes + bytes > max_pinned_bytes) {
    return;
  }
  uint8_t* const block = memory_->Allocate(bytes);
  if (block == nullptr) return;
  Buffer body(new SharedBlock(memory_, block, bytes), block, bytes);
  const std::optional<SharedMemory::Location> at = Locate(body.span(), announcements, frame);
  if (!at) return;
  if (reference_bytes > 0) std::memcpy(block, references->data(), reference_bytes);
  uint8_t* out = block + reference_bytes;
  for (const Buffer& part : frame->parts) {
    std::memcpy(out, part.data(), part.size());
    out += part.size();
  }
  header->body = MakePlace(at->segment, at->offset);
  references->clear();
  frame->parts.clear();
  pinned->bytes += bytes;
  pinned->parts.push_back(std::move(body));
}

std::optional<SharedMemory::Location> SentMessages::Locate(std::span<const uint8_t> part,
                                                           std::vector<FrameAnnouncement>* announcements,
                                                           OutgoingFrame* frame) {
  if (memory_ == nullptr || part.size() > UINT32_MAX) return std::nullopt;
  const std::optional<SharedMemory::Location> at = memory_->Find(part.data());
  if (!at || at->segment >= kMaxSegment || at->offset >= kMaxOffset) return std::nullopt;
  if (at->segment == last_segment_) return at;
  if (announced_.contains(at->segment)) {
    last_segment_ = at->segment;
    return at;
  }
  if (announcements->size() == kMaxAnnouncements) return std::nullopt;
  announced_.insert(at->segment);
  announcements->push_back({.bytes = memory_->segment_bytes(), .segment = at->segment, .reserved = 0});
  frame->descriptors.push_back(memory_->descriptor(at->segment));
  return at;
}

OutgoingFrame SentMessages::MakeLease(std::span<const uint8_t> word, uint64_t value) {
  std::vector<FrameAnnouncement> announcements;
  OutgoingFrame frame;
  MutexLock lock(&mu_);
  const std::optional<SharedMemory::Location> at = Locate(word, &announcements, &frame);
  assert(at);
  FrameHeader header;
  header.kind = FrameKind::kLease;
  header.num_announcements = static_cast<uint16_t>(announcements.size());
  header.num_references = 1;
  header.number = value;
  AppendBytes(header, &frame.head);
  for (const FrameAnnouncement& announcement : announcements) AppendBytes(announcement, &frame.head);
  AppendBytes(
      FrameReference{
          .at = 0, .length = static_cast<uint32_t>(word.size()), .place = MakePlace(at->segment, at->offset)},
      &frame.head);
  return frame;
}

Status SentMessages::Return(std::span<const uint64_t> numbers) {
  std::vector<Pinned> returned;  // freed without the lock
  returned.reserve(numbers.size());
  MutexLock lock(&mu_);
  for (const uint64_t number : numbers) {
    const auto found = pinned_.find(number);
    if (found == pinned_.end()) {
      return BadReference("message " + std::to_string(number) + " was returned, which was not sent or was " +
                          "returned before");
    }
    pinned_bytes_ -= found->second.bytes;
    if (pinned_sum_ != nullptr) pinned_sum_->Subtract(found->second.bytes);
    returned.push_back(std::move(found->second));
    pinned_.erase(found);
  }
  return Status::Ok();
}

void SentMessages::Clear() {
  std::map<uint64_t, Pinned> pinned;  // freed without the lock
  MutexLock lock(&mu_);
  pinned.swap(pinned_);
  if (pinned_sum_ != nullptr) pinned_sum_->Subtract(pinned_bytes_);
  pinned_bytes_ = 0;
}

std::optional<SentMessages::Oldest> SentMessages::oldest() const {
  MutexLock lock(&mu_);
  if (pinned_.empty()) return std::nullopt;
  return Oldest{.number = pinned_.begin()->first, .sent = pinned_.begin()->second.sent};
}

// --- Receiving ------------------------------------------------------------------------------------

Status SegmentQuota::Take() {
  if (mine_.AddUpTo(1) == 0) {
    return Status::ResourceExhausted("a client process shares at most " + std::to_string(mine_.max()) +
                                     " segments with a server, and this one has announced another");
  }
  if (all_->AddUpTo(1) == 1) return Status::Ok();
  mine_.Subtract(1);
  return Status::Unavailable(
      "the clients of this server share " + std::to_string(all_->max()) +
      " segments with it, more than it maps; run fewer clients on its host, or use gRPC "
      "(local=False)");
}

void SegmentQuota::Return() {
  mine_.Subtract(1);
  all_->Subtract(1);
}

Result<std::shared_ptr<PeerSegment>> PeerSegment::Find(Descriptor fd, uint64_t bytes,
                                                       const std::shared_ptr<SegmentQuota>& quota) {
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) {
    return BadReference(std::string("the descriptor of a segment is unusable: ") + std::strerror(errno));
  }
  if (quota != nullptr && bytes > SharedMemory::kSegmentBytes) {
    return BadReference("a segment of a client has at most " + std::to_string(SharedMemory::kSegmentBytes) +
                        " bytes, but one of " + std::to_string(bytes) + " was announced");
  }
  PeerSegments& all = peer_segments.get();
  const std::tuple<uint64_t, uint64_t, bool> key(info.st_dev, info.st_ino, quota != nullptr);
  std::shared_ptr<PeerSegment> segment;
  {
    MutexLock lock(&all.mu);
    if (const auto found = all.segments.find(key); found != all.segments.end())
      segment = found->second.lock();
  }
  if (segment != nullptr && segment->bytes_ == bytes) return segment;
  if (quota != nullptr) REVERB_RETURN_IF_ERROR(quota->Take());
  segment = std::make_shared<PeerSegment>(std::move(fd), bytes, quota);
  if (const Status mapped = segment->mapping().status(); !mapped.ok()) {
    // Too little memory or address space: of a server, that passes.
    const bool is_shortage = quota != nullptr && mapped.code() == StatusCode::kResourceExhausted;
    return is_shortage ? Status::Unavailable(std::string(mapped.message())) : mapped;
  }
  MutexLock lock(&all.mu);
  std::erase_if(all.segments, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<PeerSegment>& entry = all.segments[key];
  if (const std::shared_ptr<PeerSegment> other = entry.lock(); other != nullptr && other->bytes_ == bytes) {
    return other;  // another thread was first
  }
  entry = segment;
  return segment;
}

Result<std::shared_ptr<const MappedSegment>> PeerSegment::mapping() {
  MutexLock lock(&mu_);
  if (mapping_ == nullptr) {
    REVERB_ASSIGN_OR_RETURN(mapping_, MappedSegment::Map(fd_.get(), bytes_));
    if (quota_ != nullptr) fd_.Close();
  }
  return mapping_;
}

Result<std::shared_ptr<const MappedSegment>> PeerSegment::live_mapping() {
  MutexLock lock(&mu_);
  if (live_mapping_ == nullptr) {
    REVERB_ASSIGN_OR_RETURN(live_mapping_, MappedSegment::Map(fd_.get(), bytes_));
  }
  return live_mapping_;
}

void PeerSegment::Retire(const MappedSegment* mapping) {
  std::shared_ptr<const MappedSegment> retired;  // freed without the lock
  MutexLock lock(&mu_);
  if (mapping_.get() == mapping) retired = std::move(mapping_);
}

Status SegmentTable::Announce(IncomingFrame* frame) {
  for (size_t i = 0; i < frame->announcements.size(); ++i) {
    const FrameAnnouncement& announcement = frame->announcements[i];
    if (segments_.contains(announcement.segment)) {
      return BadReference("segment " + std::to_string(announcement.segment) + " was announced twice");
    }
    if (segments_.size() >= max_segments_) {
      return BadReference("more than " + std::to_string(max_segments_) + " segments were announced");
    }
    REVERB_ASSIGN_OR_RETURN(std::shared_ptr<PeerSegment> segment,
                            PeerSegment::Find(std::move(frame->descriptors[i]), announcement.bytes, quota_));
    segments_.emplace(announcement.segment, std::move(segment));
  }
  return Status::Ok();
}

Status SegmentTable::TakeBody(IncomingFrame* frame) {
  REVERB_RETURN_IF_ERROR(Announce(frame));
  frame->announcements.clear();
  const FrameHeader& header = frame->header;
  if (!header.has_body()) return Status::Ok();
  const auto found = segments_.find(SegmentOf(header.body));
  if (found == segments_.end()) return BadReference("the segment of a body was not announced");
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedSegment> mapping, found->second->mapping());
  const uint64_t offset = OffsetOf(header.body);
  const size_t reference_bytes = header.num_references * sizeof(FrameReference);
  REVERB_ASSIGN_OR_RETURN(const std::span<const uint8_t> references, mapping->Range(offset, reference_bytes));
  REVERB_ASSIGN_OR_RETURN(const std::span<const uint8_t> inline_bytes,
                          mapping->Range(offset + reference_bytes, header.inline_bytes));
  frame->references.resize(header.num_references);
  if (reference_bytes > 0) std::memcpy(frame->references.data(), references.data(), reference_bytes);
  frame->keeper = Buffer::CopyOf(inline_bytes);
  frame->inline_bytes = frame->keeper.span();
  return Status::Ok();
}

namespace {

// The inline bytes of a message, of which those up to `position` are resolved, and the size of what is resolved.
struct ResolvedBytes {
  std::span<const uint8_t> inline_bytes;
  size_t position = 0;
  uint64_t total_bytes = 0;
};

// Appends the slices of references to the bytes of one segment, up to one that is not valid or is to another segment.
// Returns their number. Without errors and calls in the loop: a batch has a thousand references.
size_t AppendSlices(std::span<const FrameReference> references, uint32_t segment,
                    std::span<const uint8_t> bytes, uint64_t max_message_bytes, ResolvedBytes* resolved,
                    std::vector<ByteSlice>* slices) {
  ResolvedBytes now = *resolved;
  size_t count = 0;
  for (; count < references.size(); ++count) {
    const FrameReference reference = references[count];
    const uint64_t offset = reference.offset();
    const uint64_t total = now.total_bytes + reference.length;
    if (reference.segment() != segment || reference.at < now.position ||
        reference.at > now.inline_bytes.size() || reference.length == 0 || offset > bytes.size() ||
        reference.length > bytes.size() - offset || total > max_message_bytes) {
      break;
    }
    if (reference.at > now.position) {
      slices->push_back(now.inline_bytes.subspan(now.position, reference.at - now.position));
      now.position = reference.at;
    }
    slices->emplace_back(bytes.data() + offset, reference.length);
    now.total_bytes = total;
  }
  *resolved = now;
  return count;
}

}  // namespace

Status SegmentTable::Resolve(IncomingFrame* frame, uint64_t max_message_bytes, LocalMessage* message) {
  REVERB_RETURN_IF_ERROR(Announce(frame));
  std::span<const FrameReference> references = frame->references;
  ResolvedBytes resolved{.inline_bytes = frame->inline_bytes, .total_bytes = frame->inline_bytes.size()};
  message->slices.reserve(2 * references.size() + 1);
  while (!references.empty()) {
    const uint32_t segment = references.front().segment();
    const auto found = segments_.find(segment);
    if (found == segments_.end()) {
      return BadReference("segment " + std::to_string(segment) + " was not announced");
    }
    REVERB_ASSIGN_OR_RETURN(std::shared_ptr<const MappedSegment> mapping, found->second->mapping());
    message->mappings.push_back(mapping);
    message->segments.push_back(found->second);
    references = references.subspan(
        AppendSlices(references, segment, mapping->bytes(), max_message_bytes, &resolved, &message->slices));
    if (references.empty()) break;
    const FrameReference& next = references.front();
    if (next.segment() != segment) continue;
    if (next.at < resolved.position || next.at > resolved.inline_bytes.size()) {
      return BadReference("position " + std::to_string(next.at) + " of " +
                          std::to_string(resolved.inline_bytes.size()) + " inline bytes, after " +
                          std::to_string(resolved.position));
    }
    REVERB_RETURN_IF_ERROR(mapping->Range(next.offset(), next.length).status());
    if (next.length == 0) return BadReference("a reference is empty");
    return Status::ResourceExhausted("a message has more than the " + std::to_string(max_message_bytes) +
                                     " bytes that are accepted");
  }
  const std::span<const uint8_t> rest = resolved.inline_bytes.subspan(resolved.position);
  if (!rest.empty()) message->slices.push_back(rest);
  message->total_bytes = resolved.total_bytes;
  message->referenced_bytes = resolved.total_bytes - resolved.inline_bytes.size();
  return Status::Ok();
}

Status SegmentTable::ResolveLease(IncomingFrame* frame, std::shared_ptr<const MappedSegment>* mapping,
                                  const std::atomic<uint64_t>** word) {
  REVERB_RETURN_IF_ERROR(Announce(frame));
  if (frame->references.size() != 1) return BadReference("a lease needs one reference");
  const FrameReference& reference = frame->references[0];
  const auto found = segments_.find(reference.segment());
  if (found == segments_.end()) return BadReference("the segment of a lease was not announced");
  REVERB_ASSIGN_OR_RETURN(*mapping, found->second->live_mapping());
  REVERB_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes,
                          (*mapping)->Range(reference.offset(), reference.length));
  if (bytes.size() < sizeof(uint64_t) || reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    return BadReference("a lease is an aligned word");
  }
  *word = reinterpret_cast<const std::atomic<uint64_t>*>(bytes.data());
  return Status::Ok();
}

Status CheckReferencesAreInPayloads(const IncomingFrame& frame, ByteSlices message) {
  if (frame.references.empty()) return Status::Ok();
  // Skips payloads without reading them. So if all references are in payloads, what this reads is private.
  ProtoReader reader(message);
  const size_t total = reader.remaining();
  size_t next = 0;          // reference
  uint64_t referenced = 0;  // bytes before it
  // Returns the position of a reference in the message.
  const auto begin_of = [&](size_t i) { return frame.references[i].at + referenced; };
  while (next < frame.references.size() && reader.Next()) {
    if (reader.field() != kDataField) continue;
    ProtoReader chunk = reader.ReadMessage();
    while (next < frame.references.size() && chunk.Next()) {
      if (chunk.field() != kDataField) continue;
      const size_t size = chunk.ReadMessage().remaining();
      const size_t end = total - reader.remaining() - chunk.remaining();
      while (next < frame.references.size() && begin_of(next) >= end - size &&
             begin_of(next) + frame.references[next].length <= end) {
        referenced += frame.references[next++].length;
      }
    }
    if (!chunk.ok()) return chunk.status("InsertRequest");
  }
  if (!reader.ok()) return reader.status("InsertRequest");
  if (next == frame.references.size()) return Status::Ok();
  return BadReference("only payloads of chunks may be in shared memory");
}

}  // namespace reverb::internal
