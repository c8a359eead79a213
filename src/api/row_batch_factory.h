// row_batch_factory.h — makes a RowBatch of rows that are at hand.
#ifndef REVERB_API_ROW_BATCH_FACTORY_H_
#define REVERB_API_ROW_BATCH_FACTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reverb/rows.h"
#include "tensor/row.h"

namespace reverb::internal {

struct RowBatchFactory {
  // Makes a batch without a lease. Each record has as many `num_segments` as there are columns.
  static RowBatch Make(std::vector<std::string> columns, std::vector<RowRecord> records, int64_t version);
};

}  // namespace reverb::internal

#endif  // REVERB_API_ROW_BATCH_FACTORY_H_
