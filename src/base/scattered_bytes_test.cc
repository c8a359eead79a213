#include "base/scattered_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

namespace reverb::internal {
namespace {

class ScatteredBytesTest : public ::testing::Test {
 protected:
  // Parts of 3, 0, 1, 5 and 11 bytes over 0, 1, 2, …
  ScatteredBytesTest() : bytes_(20) {
    std::iota(bytes_.begin(), bytes_.end(), uint8_t{0});
    size_t at = 0;
    for (const size_t size : {3, 0, 1, 5, 11}) {
      parts_.push_back(std::span<const uint8_t>(bytes_).subspan(at, size));
      at += size;
    }
  }

  std::vector<uint8_t> bytes_;
  std::vector<ScatteredBytes::Part> parts_;
};

TEST_F(ScatteredBytesTest, EveryRangeIsCopiedFromItsParts) {
  const ScatteredBytes scattered({}, parts_);
  ASSERT_EQ(scattered.size(), bytes_.size());
  for (size_t offset = 0; offset <= bytes_.size(); ++offset) {
    for (size_t size = 0; offset + size <= bytes_.size(); ++size) {
      std::vector<uint8_t> out(size + 1, 0xEE);
      EXPECT_TRUE(scattered.CopyTo(out.data(), offset, size).ok());
      EXPECT_TRUE(std::equal(out.begin(), out.end() - 1, bytes_.begin() + static_cast<ptrdiff_t>(offset)));
      EXPECT_EQ(out.back(), 0xEE) << "wrote past the end";
    }
  }
}

TEST_F(ScatteredBytesTest, EveryRangeOfPartsOfOneSizeIsCopied) {
  for (size_t part_bytes = 1; part_bytes <= bytes_.size(); ++part_bytes) {
    std::vector<ScatteredBytes::Part> parts;
    for (size_t at = 0; at < bytes_.size(); at += part_bytes) {
      parts.push_back(std::span<const uint8_t>(bytes_).subspan(at, std::min(part_bytes, bytes_.size() - at)));
    }
    const ScatteredBytes scattered({}, parts);
    for (size_t offset = 0; offset <= bytes_.size(); ++offset) {
      for (size_t size = 0; offset + size <= bytes_.size(); ++size) {
        std::vector<uint8_t> out(size);
        EXPECT_TRUE(scattered.CopyTo(out.data(), offset, size).ok());
        EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes_.begin() + static_cast<ptrdiff_t>(offset)));
      }
    }
  }
}

TEST_F(ScatteredBytesTest, PartsFromReturnsThePartOfAByte) {
  const ScatteredBytes scattered({}, parts_);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    size_t offset = i;
    const auto parts = scattered.PartsFrom(&offset);
    ASSERT_FALSE(parts.empty());
    ASSERT_LT(offset, parts[0].size());
    EXPECT_EQ(parts[0][offset], bytes_[i]);
  }
}

TEST_F(ScatteredBytesTest, ACopyFailsIfTheOwnerHasLostTheBytes) {
  struct Lender final : BufferOwner {
    Status CheckValid() const override {
      return is_valid ? Status::Ok() : Status::Unavailable("the peer took its memory back");
    }
    bool is_valid = true;
  };
  auto* const lender = new Lender;
  const ScatteredBytes scattered(Buffer(lender, nullptr, 0), parts_);
  std::vector<uint8_t> out(bytes_.size());
  EXPECT_TRUE(scattered.CopyTo(out.data(), 0, out.size()).ok());
  lender->is_valid = false;
  EXPECT_EQ(scattered.CopyTo(out.data(), 0, 1).code(), StatusCode::kUnavailable);
}

TEST_F(ScatteredBytesTest, ConcurrentCallersJoinThePartsOnce) {
  const ScatteredBytes scattered({}, parts_);
  std::vector<const uint8_t*> seen(4);
  std::vector<std::thread> threads;
  for (auto& place : seen) threads.emplace_back([&] { place = scattered.Contiguous().data(); });
  for (auto& thread : threads) thread.join();
  for (const uint8_t* place : seen) EXPECT_EQ(place, seen[0]);
  EXPECT_TRUE(std::ranges::equal(scattered.Contiguous(), bytes_));
}

TEST_F(ScatteredBytesTest, KeepsItsOwnerAlive) {
  struct Keeper final : BufferOwner {
    explicit Keeper(bool* flag) : gone(flag) {}
    ~Keeper() override { *gone = true; }
    bool* gone;
  };
  bool gone = false;
  {
    const ScatteredBytes scattered(Buffer(new Keeper(&gone), nullptr, 0), parts_);
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(gone);
}

TEST(ScatteredBytesEmptyTest, NoPartsJoinToAnEmptyPart) {
  const ScatteredBytes scattered({}, {});
  EXPECT_EQ(scattered.size(), 0u);
  EXPECT_TRUE(scattered.Contiguous().empty());
  EXPECT_TRUE(scattered.CopyTo(nullptr, 0, 0).ok());
}

}  // namespace
}  // namespace reverb::internal
