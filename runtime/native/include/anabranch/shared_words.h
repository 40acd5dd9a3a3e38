// A fixed number of 64-bit words in shared memory, each on a cache line of its own.
//
// The memory is a memfd whose size is sealed. Unlike a counters page it may be mapped for writing
// again, so that a writer that was restarted goes on with the words that its readers look at. Who
// is to read only gets a descriptor from `reader_fd`. The byte layout is in docs/formats.md,
// section "Shared words".
//
// Thread-safety: every function may be called from any thread, beside other processes that have the
// words open. `store` and `add` release, `load` and `add` acquire: whoever reads a value also sees
// what its writer wrote before it.
// Invariants: no word ever moves, and no access leaves the mapping, whatever the memory holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace anabranch {

// What a descriptor names is no shared words, or damaged, or of a newer format.
class DamagedWords : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SharedWords {
 public:
  static constexpr std::size_t kMaxWords = std::size_t{1} << 20;

  // New words, all zero, writable. Throws std::invalid_argument for a count outside 1..kMaxWords
  // and std::system_error when the kernel refuses.
  static SharedWords create(std::size_t words);

  // The words behind `fd`, which stays the caller's and may be closed afterwards. Throws
  // DamagedWords, and std::system_error when the descriptor cannot be mapped: EACCES where
  // `writable` is asked of a read-only one.
  static SharedWords open(int fd, bool writable);

  ~SharedWords();
  SharedWords(SharedWords&&) noexcept;
  SharedWords& operator=(SharedWords&&) = delete;

  // The memfd, readable and, where these words are writable, writable; closed with this object.
  int fd() const noexcept { return fd_; }
  // A new descriptor through which the words cannot be mapped for writing; the caller closes it.
  // Throws std::system_error.
  int reader_fd() const;

  std::size_t words() const noexcept { return words_; }
  bool writable() const noexcept { return writable_; }

  // Throws std::out_of_range.
  std::uint64_t load(std::size_t index) const { return at(index).load(std::memory_order_acquire); }
  // Throws std::out_of_range, and std::system_error (EACCES) when these words are read-only.
  void store(std::size_t index, std::uint64_t value) {
    writable_at(index).store(value, std::memory_order_release);
  }
  // Returns the sum, which wraps around at 2^64. Throws as `store` does.
  std::uint64_t add(std::size_t index, std::int64_t amount) {
    const auto step = static_cast<std::uint64_t>(amount);
    return writable_at(index).fetch_add(step, std::memory_order_acq_rel) + step;
  }

 private:
  using Word = std::atomic_ref<std::uint64_t>;
  static constexpr std::size_t kLine = 64;
  static_assert(Word::is_always_lock_free, "words are shared between processes");

  SharedWords(int fd, std::byte* page, std::size_t words, bool writable) noexcept
      : fd_(fd), page_(page), words_(words), writable_(writable) {}

  Word at(std::size_t index) const {
    if (index >= words_) no_such_word(index);
    return Word(*reinterpret_cast<std::uint64_t*>(page_ + (index + 1) * kLine));
  }
  Word writable_at(std::size_t index) const {
    if (!writable_) read_only();
    return at(index);
  }
  [[noreturn]] void no_such_word(std::size_t index) const;
  [[noreturn]] static void read_only();

  int fd_;
  std::byte* page_;
  std::size_t words_;
  bool writable_;
};

}  // namespace anabranch
