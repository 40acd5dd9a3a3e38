// A file that is written under a temporary name and then published under its own, whole or not at
// all.
//
// The temporary name is `.segment-XXXXXXXXXXXXXXXX.tmp` with sixteen random hex digits, in the
// folder of the final one. Its writer holds an exclusive flock(2) on it: a temporary file whose
// lock is to be had was left by a writer that died, and may be deleted.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace anabranch::store {

class PendingFile {
 public:
  // Creates the temporary file. Throws std::invalid_argument where `name` is not the name of a
  // file, and std::system_error.
  PendingFile(const std::string& folder, const std::string& name);
  // Removes the file unless it was published.
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  // Both throw std::system_error unless all bytes were written or read.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

  // Syncs the file, gives it its name, and syncs the folder. Throws std::system_error: EEXIST where
  // the name is taken, whoever took it.
  void publish();

 private:
  bool create();
  void close() noexcept;

  std::string name_;
  std::string temporary_name_;
  int folder_ = -1;
  int fd_ = -1;
};

}  // namespace anabranch::store
