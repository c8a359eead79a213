// The handle of include/reverb/sampled_trajectory.h over a trajectory.
#include "reverb/sampled_trajectory.h"

#include <string>
#include <utility>
#include <vector>

#include "tensor/column.h"
#include "tensor/trajectory.h"

namespace reverb {

uint32_t SampledTrajectory::num_columns() const { return trajectory_->num_columns(); }

bool SampledTrajectory::is_squeezed(uint32_t index) const { return trajectory_->squeeze(index); }

size_t SampledTrajectory::decoded_bytes() const {
  size_t bytes = 0;
  for (uint32_t i = 0; i < num_columns(); ++i) {
    const internal::ColumnView view = trajectory_->column_view(i);
    bytes += view.row_elements() * ItemSize(view.dtype) * static_cast<size_t>(trajectory_->length(i));
  }
  return bytes;
}

Result<Tensor> SampledTrajectory::Decode(uint32_t index, const TensorPool* pool) const {
  if (index >= num_columns()) {
    return Status::InvalidArgument("item " + std::to_string(key_) + " has " + std::to_string(num_columns()) +
                                   " columns; there is no column " + std::to_string(index));
  }
  const internal::ColumnView view = trajectory_->column_view(index);
  std::vector<int64_t> dims;
  if (!trajectory_->squeeze(index)) dims.push_back(trajectory_->length(index));
  dims.insert(dims.end(), view.row_shape.begin(), view.row_shape.end());
  REVERB_ASSIGN_OR_RETURN(Tensor tensor, pool ? Tensor::Allocate(view.dtype, std::move(dims), *pool)
                                              : Tensor::Allocate(view.dtype, std::move(dims)));
  if (view.dtype == DType::kString) {
    tensor.strings().clear();
    REVERB_RETURN_IF_ERROR(trajectory_->ReadStrings(index, &tensor.strings()));
  } else {
    REVERB_RETURN_IF_ERROR(trajectory_->Read(index, tensor.bytes()));
  }
  return tensor;
}

}  // namespace reverb
