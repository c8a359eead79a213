// paged_array.h — a growable array with cheap copy-on-write snapshots.
//
// Elements are stored in pages. TakeCapture() only takes a reference to each page; the first later write to a
// page copies it. The cost of a capture is therefore proportional to the number of pages, and its memory to
// the pages written while it exists.
//
// Threads: the caller locks the array; a Capture may be read and destroyed on any thread.
// Invariants: (1) a page whose entry has the array's epoch is in no capture; (2) a page that is in a capture
// is never written; (3) the contents past size() in the last page are unspecified.
#ifndef REVERB_BASE_PAGED_ARRAY_H_
#define REVERB_BASE_PAGED_ARRAY_H_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace reverb::internal {

template <typename T>
class PagedArray {
  static_assert(std::is_trivially_copyable_v<T>, "pages are copied as bytes");

 public:
  // Small enough to copy a page in a few microseconds.
  static constexpr size_t kPageBytes = 16 * 1024;
  static constexpr size_t kPerPage = std::bit_floor(kPageBytes / sizeof(T));
  static constexpr size_t kShift = std::bit_width(kPerPage) - 1;

 private:
  static_assert(sizeof(T) <= kPageBytes, "a page holds at least one element");

  struct alignas(64) Page {
    // Leaves the elements uninitialised: the caller overwrites them.
    Page() {}  // NOLINT(modernize-use-equals-default)
    union {
      T items[kPerPage];
    };
    std::atomic<uint32_t> refs{1};
  };
  static Page* NewBlankPage() {
    Page* page = new Page;
    std::uninitialized_value_construct_n(page->items, kPerPage);
    return page;
  }
  static void Unref(Page* page) {
    if (page->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete page;
  }

 public:
  class Capture {
   public:
    Capture() = default;
    Capture(Capture&& other) noexcept
        : pages_(std::exchange(other.pages_, {})),
          versions_(std::exchange(other.versions_, {})),
          size_(std::exchange(other.size_, 0)) {}
    Capture& operator=(Capture&& other) noexcept {
      Capture taken(std::move(other));  // releases the previous pages immediately
      std::swap(pages_, taken.pages_);
      std::swap(versions_, taken.versions_);
      std::swap(size_, taken.size_);
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
    // Two live captures of one array that return the same address hold the same bytes in that page. The
    // address of a destroyed capture's page means nothing: the page may have been reused.
    const void* page_identity(size_t page) const { return pages_[page]; }
    // Two captures of one array that return the same number hold the same bytes in that page, even if the
    // earlier one has been destroyed.
    uint64_t page_version(size_t page) const { return versions_[page]; }

   private:
    friend class PagedArray;
    std::vector<Page*> pages_;
    std::vector<uint64_t> versions_;
    size_t size_ = 0;
  };

  PagedArray() = default;
  PagedArray(const PagedArray&) = delete;
  PagedArray& operator=(const PagedArray&) = delete;
  ~PagedArray() { Clear(); }

  size_t size() const { return size_; }
  size_t num_pages() const { return entries_.size(); }
  // The number of pages that were copied because a capture shares them, in total. A copy takes kPageMemory.
  uint64_t pages_copied() const { return pages_copied_; }
  static constexpr size_t kPageMemory = sizeof(Page);
  // The reference is valid until the next call of a non-const method.
  const T& operator[](size_t i) const {
    assert(i < size_);
    return entries_[i >> kShift].page->items[i & (kPerPage - 1)];
  }
  // Returns a reference for writing, valid until the next TakeCapture(), Resize(), PushBack() or Clear().
  T& Mutable(size_t i) {
    assert(i < size_);
    Entry& entry = entries_[i >> kShift];
    if (entry.epoch != epoch_) [[unlikely]]
      Unshare(entry);
    return entry.page->items[i & (kPerPage - 1)];
  }
  [[gnu::always_inline]] void Prefetch(size_t i) const { __builtin_prefetch(&(*this)[i], 1); }

  // New elements are value-initialised. Shrinking writes nothing, so it copies no captured page.
  void Resize(size_t size) {
    const size_t pages = (size + kPerPage - 1) >> kShift;
    while (entries_.size() > pages) {
      Unref(entries_.back().page);
      entries_.pop_back();
    }
    if (size > size_) BlankTail(std::min(size, entries_.size() << kShift));
    while (entries_.size() < pages) AddPage();
    size_ = size;
  }
  void PushBack(const T& value) {
    const T copy = value;  // `value` may lie in a page that is released below
    const size_t i = size_;
    if (i == entries_.size() << kShift) [[unlikely]]
      AddPage();
    ++size_;
    Mutable(i) = copy;
  }
  void Swap(PagedArray& other) {
    std::swap(entries_, other.entries_);
    std::swap(size_, other.size_);
    // Neither array may reuse a version that it gave to other bytes.
    epoch_ = other.epoch_ = std::max(epoch_, other.epoch_) + 1;
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
    capture.versions_.reserve(entries_.size());
    for (Entry& entry : entries_) {
      entry.page->refs.fetch_add(1, std::memory_order_relaxed);
      capture.pages_.push_back(entry.page);
      capture.versions_.push_back(entry.epoch);
    }
    ++epoch_;
    return capture;
  }

 private:
  struct Entry {
    Page* page;
    // of the last write, approximately: equal to the array's epoch if no capture shares the page
    uint64_t epoch;
  };

  void AddPage() {
    std::unique_ptr<Page> page(NewBlankPage());  // owns the page until the entry exists
    entries_.push_back({page.get(), epoch_});
    (void)page.release();
  }

  // Clears [size_, end), which lies in the last page and may hold elements from before a shrink.
  void BlankTail(size_t end) {
    if (size_ >= end) return;
    Entry& entry = entries_[size_ >> kShift];
    if (entry.epoch != epoch_) Unshare(entry);
    T* const first = entry.page->items + (size_ & (kPerPage - 1));
    std::fill(first, first + (end - size_), T());
  }

  void Unshare(Entry& entry) {
    // Acquire: reads through a capture happen before the write that follows.
    if (entry.page->refs.load(std::memory_order_acquire) != 1) {
      Page* copy = new Page;
      std::memcpy(static_cast<void*>(copy->items), entry.page->items, sizeof(copy->items));
      Unref(entry.page);
      entry.page = copy;
      ++pages_copied_;
    }
    entry.epoch = epoch_;
  }

  std::vector<Entry> entries_;
  size_t size_ = 0;
  uint64_t epoch_ = 0;
  uint64_t pages_copied_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_PAGED_ARRAY_H_
