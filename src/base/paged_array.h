// paged_array.h — a growing array that can be captured in a moment.
//
// Elements live in pages. Capture() takes a reference on each page and nothing else; a
// later write copies the page it touches first, once. So the cost of a capture is paid by
// the number of pages, and the cost of keeping it by the pages written meanwhile.
//
// Threads: the array needs the caller's lock; a Capture may be read and dropped anywhere.
#ifndef REVERB_BASE_PAGED_ARRAY_H_
#define REVERB_BASE_PAGED_ARRAY_H_

#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace reverb::internal {

template <typename T>
class PagedArray {
  static_assert(std::is_trivially_copyable_v<T>, "pages are copied as bytes");

 public:
  // Small enough that the copy after a capture is a few microseconds.
  static constexpr size_t kPageBytes = 16 * 1024;
  static constexpr size_t kPerPage = std::bit_floor(kPageBytes / sizeof(T));
  static constexpr size_t kShift = std::bit_width(kPerPage) - 1;

 private:
  struct alignas(64) Page {
    T items[kPerPage];
    std::atomic<uint32_t> refs{1};
  };
  static void Unref(Page* page) {
    if (page->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete page;
  }

 public:
  class Capture {
   public:
    Capture() = default;
    Capture(Capture&& other) noexcept
        : pages_(std::exchange(other.pages_, {})), size_(std::exchange(other.size_, 0)) {}
    Capture& operator=(Capture&& other) noexcept {
      std::swap(pages_, other.pages_);
      std::swap(size_, other.size_);
      return *this;
    }
    ~Capture() {
      for (Page* page : pages_) Unref(page);
    }

    size_t size() const { return size_; }
    const T& operator[](size_t i) const {
      assert(i < size_);
      return pages_[i >> kShift]->items[i & (kPerPage - 1)];
    }
    size_t num_pages() const { return pages_.size(); }
    // Two captures that give the same address hold the same bytes in that page.
    const void* page_identity(size_t page) const { return pages_[page]; }

   private:
    friend class PagedArray;
    std::vector<Page*> pages_;
    size_t size_ = 0;
  };

  PagedArray() = default;
  PagedArray(const PagedArray&) = delete;
  PagedArray& operator=(const PagedArray&) = delete;
  ~PagedArray() { Clear(); }

  size_t size() const { return size_; }
  const T& operator[](size_t i) const {
    assert(i < size_);
    return entries_[i >> kShift].page->items[i & (kPerPage - 1)];
  }
  // A reference for writing, valid until the next Capture(), Resize() or Clear().
  T& Mutable(size_t i) {
    assert(i < size_);
    Entry& entry = entries_[i >> kShift];
    if (entry.epoch != epoch_) [[unlikely]] Unshare(entry);
    return entry.page->items[i & (kPerPage - 1)];
  }
  void Prefetch(size_t i) const { __builtin_prefetch(&(*this)[i], 1); }

  // New elements are value-initialised.
  void Resize(size_t size) {
    const size_t pages = (size + kPerPage - 1) >> kShift;
    while (entries_.size() > pages) {
      Unref(entries_.back().page);
      entries_.pop_back();
    }
    while (entries_.size() < pages) entries_.push_back({new Page(), epoch_});
    if (size < size_ && size < entries_.size() << kShift) {
      // A later growth inside the last page must find blank elements.
      for (size_t i = size; i < std::min(size_, entries_.size() << kShift); ++i) {
        size_ = i + 1;
        Mutable(i) = T();
      }
    }
    size_ = size;
  }
  void PushBack(const T& value) {
    Resize(size_ + 1);
    Mutable(size_ - 1) = value;
  }
  void Clear() {
    for (Entry& entry : entries_) Unref(entry.page);
    entries_.clear();
    size_ = 0;
  }

  Capture TakeCapture() {
    Capture capture;
    capture.size_ = size_;
    capture.pages_.reserve(entries_.size());
    for (Entry& entry : entries_) {
      entry.page->refs.fetch_add(1, std::memory_order_relaxed);
      capture.pages_.push_back(entry.page);
    }
    ++epoch_;
    return capture;
  }

 private:
  struct Entry {
    Page* page;
    uint64_t epoch;  // the page is ours alone if this is the array's epoch
  };

  void Unshare(Entry& entry) {
    if (entry.page->refs.load(std::memory_order_acquire) != 1) {
      Page* copy = new Page();
      for (size_t i = 0; i < kPerPage; ++i) copy->items[i] = entry.page->items[i];
      Unref(entry.page);
      entry.page = copy;
    }
    entry.epoch = epoch_;
  }

  std::vector<Entry> entries_;
  size_t size_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_PAGED_ARRAY_H_
