// Objects of the caller that graphs keep alive, and the destructors that are due.
//
// A destructor runs outside of the lock, at the end of the call that dropped the last reference.
//
// Thread-safety: the driver's lock is held wherever a reference is dropped.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cuda_header.h"

namespace anabranch::cuda_stub {

struct DueDestructor {
  CUhostFn function;
  void* data;
};

using DueDestructors = std::vector<DueDestructor>;

class UserObject {
 public:
  UserObject(DueDestructor destructor, DueDestructors& due) : destructor_(destructor), due_(due) {}
  ~UserObject() { due_.push_back(destructor_); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

 private:
  DueDestructor destructor_;
  DueDestructors& due_;
};

// A handle of one: it names the object as long as anybody has it, and holds the caller's
// references.
struct UserObjectHandle {
  std::weak_ptr<UserObject> object;
  std::vector<std::shared_ptr<UserObject>> references;
};

}  // namespace anabranch::cuda_stub
