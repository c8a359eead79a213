// call_kinds.h — the kinds of calls that a server answers over gRPC.
#ifndef REVERB_TRANSPORT_GRPC_CALL_KINDS_H_
#define REVERB_TRANSPORT_GRPC_CALL_KINDS_H_

#include <grpcpp/generic/async_generic_service.h>

#include <memory>

#include "reverb/status.h"
#include "transport/grpc/server_call.h"
#include "transport/grpc/server_methods.h"

namespace reverb::internal {

// Creates a call of the kind that `method` needs.
std::shared_ptr<ServerCall> MakeCall(GrpcMethod method, const std::shared_ptr<ServerCore>& core);
// Ends a new call with an error.
grpc::ServerGenericBidiReactor* RefuseCall(const std::shared_ptr<ServerCore>& core, const Status& why);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_CALL_KINDS_H_
