// checked_handler.h — the requests of one client, each checked against its token.
//
// A decorator of the server's handler: the only place where rights are checked, for all transports. Streams are checked
// when they open and where they name a table; their items cost a comparison each if the token is not for all tables.
// Actions that need Right::kAdmin are logged, for every caller.
//
// Threads: like any RequestHandler.
#ifndef REVERB_ACCESS_CHECKED_HANDLER_H_
#define REVERB_ACCESS_CHECKED_HANDLER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "access/access_control.h"
#include "access/checked_streams.h"
#include "access/rights.h"
#include "transport/transport.h"

namespace reverb::internal {

class CheckedHandler final : public RequestHandler {
 public:
  static std::shared_ptr<CheckedHandler> Of(std::shared_ptr<AccessControl> control,
                                            std::shared_ptr<RequestHandler> handler,
                                            const std::shared_ptr<const AccessToken>& token,
                                            std::string address) {
    return std::shared_ptr<CheckedHandler>(new CheckedHandler(std::move(control), std::move(handler),
                                                              Identity{token->digest(), token->name()},
                                                              std::move(address)));
  }
  // With all rights; `who` is for the log.
  static std::shared_ptr<CheckedHandler> Trusted(std::shared_ptr<AccessControl> control,
                                                 std::shared_ptr<RequestHandler> handler, std::string who) {
    return std::shared_ptr<CheckedHandler>(
        new CheckedHandler(std::move(control), std::move(handler), std::nullopt, std::move(who)));
  }

  const Id128& life_id() const override { return handler_->life_id(); }
  const WireLimits& wire_limits() const override { return handler_->wire_limits(); }
  PayloadSource* payload_source() const override { return handler_->payload_source(); }
  MemoryBudget* memory() const override { return handler_->memory(); }
  Result<std::shared_ptr<InsertSession>> OpenInsert(const Hello& hello,
                                                    std::shared_ptr<InsertPeer> peer) override;
  Result<std::shared_ptr<SampleSession>> OpenSample(const Hello& hello,
                                                    std::shared_ptr<SamplePeer> peer) override;
  Result<ChunkRef> AllocateChunk(const ChunkHeader& header, uint8_t** payload) override;
  Result<ServerInfo> Info() override;
  Status Mutate(const MutateRequest& request) override;
  Status Reset(std::string_view table) override;
  Status SetRateLimiter(const SetRateLimiterRequest& request) override;
  Status CreateTable(const CreateTableRequest& request) override;
  Status RemoveTable(std::string_view table) override;
  Status ChangeTable(const ChangeTableRequest& request) override;
  Result<InspectReply> Inspect(const InspectRequest& request) override;
  bool inspect_may_block() const override { return handler_->inspect_may_block(); }
  Result<std::string> Checkpoint() override;
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request) override;
  std::shared_ptr<PendingCall> StartRows(RowsRequest request, const RowsDone& done) override;

 private:
  struct Identity {
    TokenDigest digest;
    std::string name;
  };
  using TokenPtr = std::shared_ptr<const AccessToken>;

  CheckedHandler(std::shared_ptr<AccessControl> control, std::shared_ptr<RequestHandler> handler,
                 std::optional<Identity> identity, std::string address)
      : control_(std::move(control)),
        handler_(std::move(handler)),
        identity_(std::move(identity)),
        address_(std::move(address)) {}

  // Returns the client's token as it is now; null for a trusted client. An error refuses the call.
  Result<TokenPtr> Check(const Need& need, std::string_view action, std::string_view table) const;
  Status CheckCall(Method method, std::string_view table) const;
  // Returns what the client counts in, by its name.
  StreamClient ClientOf(TokenPtr token, const std::string& name) const;
  // Checks, executes and logs an action of an administrator.
  template <typename F>
  auto Administer(const Need& need, std::string_view action, std::string_view table, F&& execute)
      -> decltype(execute());
  void LogAction(std::string_view action, std::string_view table, const Status& outcome) const;

  const std::shared_ptr<AccessControl> control_;
  const std::shared_ptr<RequestHandler> handler_;
  const std::optional<Identity> identity_;  // absent: a trusted client
  const std::string address_;
  // The bytes of chunks that were received for the insert stream that uses this handler.
  const std::shared_ptr<std::atomic<uint64_t>> received_bytes_ = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_CHECKED_HANDLER_H_
