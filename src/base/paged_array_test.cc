#include "base/paged_array.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "testing/seed.h"

namespace reverb::internal {
namespace {

using Array = PagedArray<uint64_t>;
constexpr size_t kPerPage = Array::kPerPage;

std::vector<uint64_t> Contents(const Array& array) {
  std::vector<uint64_t> contents;
  for (size_t i = 0; i < array.size(); ++i) contents.push_back(array[i]);
  return contents;
}

std::vector<uint64_t> Contents(const Array::Capture& capture) {
  std::vector<uint64_t> contents;
  for (size_t i = 0; i < capture.size(); ++i) contents.push_back(capture[i]);
  return contents;
}

void FillWithIndex(Array& array, size_t size) {
  array.Resize(size);
  for (size_t i = 0; i < size; ++i) array.Mutable(i) = i;
}

TEST(PagedArrayTest, NewElementsAreValueInitialized) {
  Array array;
  array.Resize(kPerPage + 10);
  for (size_t i = 0; i < array.size(); ++i) ASSERT_EQ(array[i], 0u);

  struct Marked {
    int32_t value = -1;
  };
  PagedArray<Marked> marked;
  marked.Resize(3);
  EXPECT_EQ(marked[2].value, -1);
}

TEST(PagedArrayTest, KeepsWritesAcrossManyPages) {
  Array array;
  for (uint64_t i = 0; i < 3 * kPerPage + 5; ++i) array.PushBack(i * 7);
  ASSERT_EQ(array.size(), 3 * kPerPage + 5);
  for (size_t i = 0; i < array.size(); ++i) ASSERT_EQ(array[i], i * 7);
}

TEST(PagedArrayTest, ElementsMayBeLargeAndOfOddSize) {
  struct Odd {
    std::array<uint8_t, 6001> bytes;
  };
  static_assert(PagedArray<Odd>::kPerPage == 2);
  struct Huge {
    std::array<uint8_t, 16 * 1024> bytes;
  };
  static_assert(PagedArray<Huge>::kPerPage == 1);
  PagedArray<Odd> odd;
  PagedArray<Huge> huge;
  for (int i = 0; i < 5; ++i) {
    Odd o{};
    o.bytes.back() = static_cast<uint8_t>(i);
    odd.PushBack(o);
    Huge h{};
    h.bytes.back() = static_cast<uint8_t>(i);
    huge.PushBack(h);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(odd[i].bytes.back(), i);
    EXPECT_EQ(huge[i].bytes.back(), i);
  }
}

TEST(PagedArrayTest, GrowingAfterAShrinkYieldsClearedElements) {
  for (const size_t low : {size_t{0}, size_t{1}, kPerPage - 1, kPerPage, kPerPage + 1}) {
    for (const size_t high : {kPerPage, kPerPage + 2, 2 * kPerPage + 3}) {
      if (high < low) continue;
      Array array;
      FillWithIndex(array, 2 * kPerPage + 3);
      array.Resize(low);
      EXPECT_EQ(array.size(), low);
      array.Resize(high);
      for (size_t i = 0; i < high; ++i)
        ASSERT_EQ(array[i], i < low ? i : 0) << low << " " << high << " " << i;
    }
  }
}

TEST(PagedArrayTest, ACaptureSeesOldValuesWhileTheArrayChanges) {
  Array array;
  FillWithIndex(array, 2 * kPerPage);
  const Array::Capture capture = array.TakeCapture();
  for (size_t i = 0; i < array.size(); i += 3) array.Mutable(i) = 1'000'000 + i;
  array.PushBack(5);
  ASSERT_EQ(capture.size(), 2 * kPerPage);
  for (size_t i = 0; i < capture.size(); ++i) {
    ASSERT_EQ(capture[i], i);
    ASSERT_EQ(array[i], i % 3 == 0 ? 1'000'000 + i : i);
  }
}

TEST(PagedArrayTest, ACaptureOutlivesShrinkingClearingAndTheArray) {
  auto array = std::make_unique<Array>();
  FillWithIndex(*array, kPerPage + 7);
  const std::vector<uint64_t> expected = Contents(*array);
  const Array::Capture before_shrink = array->TakeCapture();
  array->Resize(3);
  array->Resize(kPerPage + 7);
  EXPECT_EQ((*array)[5], 0u);
  const Array::Capture before_clear = array->TakeCapture();
  array->Clear();
  EXPECT_EQ(array->size(), 0u);
  array->PushBack(9);
  EXPECT_EQ((*array)[0], 9u);
  array.reset();
  EXPECT_EQ(Contents(before_shrink), expected);
  EXPECT_EQ(before_clear.size(), kPerPage + 7);
  EXPECT_EQ(before_clear[2], 2u);
  EXPECT_EQ(before_clear[3], 0u);
}

TEST(PagedArrayTest, OnlyWrittenPagesAreCopied) {
  Array array;
  FillWithIndex(array, 3 * kPerPage);
  const Array::Capture first = array.TakeCapture();
  array.Mutable(kPerPage + 1) = 0;
  const void* const copy = &array[kPerPage];
  array.Mutable(kPerPage + 2) = 0;
  EXPECT_EQ(&array[kPerPage], copy) << "copied once, not at every write";
  const Array::Capture second = array.TakeCapture();
  ASSERT_EQ(first.num_pages(), 3u);
  ASSERT_EQ(second.num_pages(), 3u);
  EXPECT_EQ(first.page_identity(0), second.page_identity(0));
  EXPECT_NE(first.page_identity(1), second.page_identity(1));
  EXPECT_EQ(first.page_identity(2), second.page_identity(2));
}

TEST(PagedArrayTest, ShrinkingCopiesNoCapturedPage) {
  Array array;
  FillWithIndex(array, kPerPage);
  const Array::Capture first = array.TakeCapture();
  array.Resize(10);
  const Array::Capture second = array.TakeCapture();
  EXPECT_EQ(first.page_identity(0), second.page_identity(0));
  EXPECT_EQ(second.size(), 10u);
}

TEST(PagedArrayTest, APageIsNotCopiedAfterItsCaptureIsDestroyed) {
  Array array;
  FillWithIndex(array, 10);
  const void* const page = &array[0];
  { const Array::Capture dropped = array.TakeCapture(); }
  array.Mutable(0) = 1;
  EXPECT_EQ(&array[0], page);
}

TEST(PagedArrayTest, AssigningACaptureReleasesTheOldPagesImmediately) {
  Array array;
  FillWithIndex(array, 10);
  Array::Capture kept = array.TakeCapture();
  Array other;
  other.PushBack(77);
  Array::Capture source = other.TakeCapture();
  const void* const page = &array[0];
  kept = std::move(source);
  array.Mutable(0) = 5;
  EXPECT_EQ(&array[0], page) << "no capture shared the page any more";
  EXPECT_EQ(Contents(kept), std::vector<uint64_t>{77});
  EXPECT_EQ(source.size(), 0u);  // NOLINT: a moved-from capture is empty
  Array::Capture& alias = kept;
  kept = std::move(alias);
  EXPECT_EQ(Contents(kept), std::vector<uint64_t>{77});
}

TEST(PagedArrayTest, AnElementOfTheArrayMayBePushed) {
  Array array;
  array.PushBack(123);
  for (size_t i = 1; i < 2 * kPerPage + 1; ++i) {
    if (i % 100 == 0) static_cast<void>(array.TakeCapture());
    array.PushBack(array[0]);
  }
  for (size_t i = 0; i < array.size(); ++i) ASSERT_EQ(array[i], 123u);
}

TEST(PagedArrayTest, CapturesMayBeReadAndDroppedOnAnotherThreadWhileTheArrayIsWritten) {
  Array array;
  array.Resize(4 * kPerPage);
  Mutex mu;
  CondVar changed;
  std::deque<Array::Capture> queue;
  bool done = false;
  std::atomic<int> torn{0};
  std::thread reader([&] {
    while (true) {
      Array::Capture capture;
      {
        MutexLock lock(&mu);
        while (queue.empty() && !done) changed.Wait(&mu);
        if (queue.empty()) return;
        capture = std::move(queue.front());
        queue.pop_front();
      }
      // The writer sets all elements to the same value between two captures.
      for (size_t i = 0; i < capture.size(); i += 97) torn += capture[i] != capture[0];
    }
  });
  for (uint64_t round = 0; round < 200; ++round) {
    for (size_t i = 0; i < array.size(); ++i) array.Mutable(i) = round;
    Array::Capture capture = array.TakeCapture();
    MutexLock lock(&mu);
    queue.push_back(std::move(capture));
    changed.NotifyOne();
  }
  {
    MutexLock lock(&mu);
    done = true;
    changed.NotifyOne();
  }
  reader.join();
  EXPECT_EQ(torn, 0);
}

TEST(PagedArrayTest, RandomOperationsAgreeWithAVectorUnderSeveralCaptures) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  Array array;
  std::vector<uint64_t> model;
  std::vector<std::pair<Array::Capture, std::vector<uint64_t>>> captures;
  // Sizes around page boundaries, where errors are likely.
  const auto random_size = [&]() -> size_t {
    const size_t pages = random.Below(4);
    const size_t near = random.Below(7);
    return random.Below(2) == 0 ? random.Below(4 * kPerPage)
                                : std::max<size_t>(pages * kPerPage + near, 3) - 3;
  };
  for (int step = 0; step < 4000; ++step) {
    switch (random.Below(8)) {
      case 0:
      case 1:
      case 2:
        for (int n = 0; n < 20 && !model.empty(); ++n) {
          const size_t i = random.Below(model.size());
          model[i] = array.Mutable(i) = random.Next();
        }
        break;
      case 3:
      case 4:
        for (uint64_t n = random.Below(50); n > 0; --n) {
          model.push_back(random.Next());
          array.PushBack(model.back());
        }
        break;
      case 5: {
        const size_t size = random_size();
        array.Resize(size);
        model.resize(size);
        break;
      }
      case 6:
        if (random.Below(20) == 0) {
          array.Clear();
          model.clear();
        } else if (!captures.empty()) {
          const size_t i = random.Below(captures.size());
          ASSERT_EQ(Contents(captures[i].first), captures[i].second) << "capture, step " << step;
          captures.erase(captures.begin() + static_cast<ptrdiff_t>(i));
        }
        break;
      case 7:
        if (captures.size() < 5) captures.emplace_back(array.TakeCapture(), model);
        break;
    }
    ASSERT_EQ(array.size(), model.size()) << "step " << step;
    if (step % 16 == 0) {
      ASSERT_EQ(Contents(array), model) << "step " << step;
    }
  }
  for (const auto& [capture, expected] : captures) ASSERT_EQ(Contents(capture), expected);
}

}  // namespace
}  // namespace reverb::internal
