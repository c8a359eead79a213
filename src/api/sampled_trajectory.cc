// The handle of include/reverb/sampled_trajectory.h over a Sample.
#include "reverb/sampled_trajectory.h"

#include <string>
#include <utility>
#include <vector>

#include "tensor/column.h"
#include "tensor/item.h"

namespace reverb {

SampledTrajectory::SampledTrajectory(internal::Sample sample)
    : sample_(std::make_shared<const internal::Sample>(std::move(sample))) {}

uint64_t SampledTrajectory::key() const { return sample_->key; }
double SampledTrajectory::priority() const { return sample_->priority; }
double SampledTrajectory::probability() const { return sample_->probability; }
int64_t SampledTrajectory::table_size() const { return sample_->table_size; }
int32_t SampledTrajectory::times_sampled() const { return sample_->times_sampled; }
int64_t SampledTrajectory::inserted_at_nanos() const { return sample_->inserted_at; }

uint32_t SampledTrajectory::num_columns() const { return sample_->trajectory.num_columns(); }

bool SampledTrajectory::is_squeezed(uint32_t index) const { return sample_->trajectory.squeeze(index); }

size_t SampledTrajectory::decoded_bytes() const {
  size_t bytes = 0;
  for (uint32_t i = 0; i < num_columns(); ++i) {
    const internal::ColumnView view = sample_->trajectory.column_view(i);
    bytes += view.row_elements() * ItemSize(view.dtype) * static_cast<size_t>(sample_->trajectory.length(i));
  }
  return bytes;
}

Result<Tensor> SampledTrajectory::Decode(uint32_t index, const TensorPool* pool) const {
  if (index >= num_columns()) {
    return Status::InvalidArgument("item " + std::to_string(key()) + " has " + std::to_string(num_columns()) +
                                   " columns; there is no column " + std::to_string(index));
  }
  const internal::ColumnView view = sample_->trajectory.column_view(index);
  std::vector<int64_t> dims;
  if (!sample_->trajectory.squeeze(index)) dims.push_back(sample_->trajectory.length(index));
  dims.insert(dims.end(), view.row_shape.begin(), view.row_shape.end());
  REVERB_ASSIGN_OR_RETURN(Tensor tensor, pool ? Tensor::Allocate(view.dtype, std::move(dims), *pool)
                                              : Tensor::Allocate(view.dtype, std::move(dims)));
  if (view.dtype == DType::kString) {
    tensor.strings().clear();
    REVERB_RETURN_IF_ERROR(sample_->trajectory.ReadStrings(index, &tensor.strings()));
  } else {
    REVERB_RETURN_IF_ERROR(sample_->trajectory.Read(index, tensor.bytes()));
  }
  return tensor;
}

}  // namespace reverb
