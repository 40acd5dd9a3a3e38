// An open change: what Change and the writer that makes it agree on.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "anabranch/store/writer.h"
#include "store/writer/writer_core.h"

namespace anabranch::store {

struct Change::State {
  explicit State(std::shared_ptr<WriterCore> opened)
      : core(std::move(opened)), version(core->version + 1) {
    core->change_open = true;
  }
  // Does `work` on the books of a table. Where it throws, the change can only be dropped.
  template <class Work>
  void on_table(std::size_t number, Work&& work);
  // Room for what `apply` tells a growth about the keys of `table`.
  void reserve_changed_keys(std::size_t table);

  std::shared_ptr<WriterCore> core;
  std::uint32_t version;
  ChangeCounts counts;  // once applied
  bool open = true;     // neither applied nor dropped
  bool failed = false;  // a call threw
};

}  // namespace anabranch::store
