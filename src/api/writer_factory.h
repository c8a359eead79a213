// writer_factory.h — creates the writers of reverb/writer.h and vector_writer.h over a client's sinks.
#ifndef REVERB_API_WRITER_FACTORY_H_
#define REVERB_API_WRITER_FACTORY_H_

#include <memory>

#include "client/item_sink.h"
#include "reverb/status.h"
#include "reverb/vector_writer.h"
#include "reverb/writer.h"

namespace reverb::internal {

// Each function fails if the options are invalid, and then closes the sink.
struct WriterFactory {
  static Result<reverb::TrajectoryWriter> MakeTrajectoryWriter(std::unique_ptr<ItemSink> sink,
                                                               const TrajectoryWriterOptions& options);
  static Result<reverb::StructuredWriter> MakeStructuredWriter(std::unique_ptr<ItemSink> sink,
                                                               StructuredWriterOptions options);
  static Result<reverb::VectorWriter> MakeVectorWriter(std::unique_ptr<ItemSink> sink,
                                                       const VectorWriterOptions& options);
  static Result<reverb::Writer> MakeWriter(std::unique_ptr<ItemSink> sink, const WriterOptions& options);
};

}  // namespace reverb::internal

#endif  // REVERB_API_WRITER_FACTORY_H_
