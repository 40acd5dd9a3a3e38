// Adds, retires and finds the records of a counters page.
//
// Thread-safety: everything may be called from any thread; `find` takes no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "anabranch/counters_page.h"
#include "counters_record.h"
#include "counters_text.h"

namespace anabranch::counters_layout {

class CountersDirectory {
 public:
  // Makes an empty page of zeroed memory, which must outlive this.
  explicit CountersDirectory(std::span<std::byte> page);

  // The slot of a series, added when there is none. Throws std::invalid_argument, PageFull.
  Slot add(SeriesKind kind, const RecordText& text);

  // Hides the series and frees its record. Throws std::invalid_argument for what never was a slot.
  void retire(Slot slot);

  // False: the series was retired. Throws std::invalid_argument for what never was a slot.
  bool find(Slot slot, Record& record) const;

 private:
  struct Live {
    Slot slot;
    std::string bounds;  // their bytes
  };
  struct Family {
    SeriesKind kind;
    std::size_t series;
  };

  std::uint64_t* words_at(std::size_t offset) const noexcept {
    return reinterpret_cast<std::uint64_t*>(page_.data() + offset);
  }
  std::uint64_t* header(HeaderWord word) const noexcept { return words_at(0) + word; }
  bool is_record(std::size_t offset) const noexcept;
  std::size_t place(std::size_t record_bytes, std::size_t value_bytes);
  std::size_t append(std::size_t record_bytes, std::size_t value_bytes);
  void rewrite(std::size_t offset, std::uint32_t kind, std::string_view text) noexcept;

  const std::span<std::byte> page_;
  std::vector<std::atomic<std::uint64_t>> record_starts_;  // a bit for each place one may start at

  std::mutex lock_;                             // for everything below, and the writing of records
  std::unordered_map<std::string, Live> live_;  // by identity
  std::unordered_map<Slot, std::string> identities_;
  std::unordered_map<std::string, Family> families_;  // by name
  std::vector<std::size_t> vacant_;                   // offsets of retired records
};

}  // namespace anabranch::counters_layout
