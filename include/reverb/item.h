// item.h — the key and priority of an item.
#ifndef REVERB_ITEM_H_
#define REVERB_ITEM_H_

#include <cstdint>

namespace reverb {

struct KeyPriority {
  uint64_t key = 0;
  double priority = 0;
};

}  // namespace reverb

#endif  // REVERB_ITEM_H_
