// How callers find entry points, and what they find for those that there are none of.
#include <dlfcn.h>

#include <array>
#include <string>
#include <utility>

#include "driver.h"

using namespace anabranch::cuda_stub;

namespace {

constexpr std::size_t kTraps = 768;

// Names of the entry points that traps stand for, in the order of their first lookup.
struct TrapNames {
  std::array<std::string, kTraps> names;
  std::size_t count = 0;
};

TrapNames& trap_names() {
  static TrapNames& names = *new TrapNames;
  return names;
}

CUresult refuse(std::size_t index) {
  return call(trap_names().names[index].c_str(), CallKind::kQuery,
              [](Driver&, Lock&, std::string& about) {
                about = "unimplemented";
                return CUDA_ERROR_NOT_SUPPORTED;
              });
}

template <std::size_t kIndex>
CUresult trap() {
  return refuse(kIndex);
}

using Trap = CUresult (*)();

template <std::size_t... kIndices>
constexpr std::array<Trap, sizeof...(kIndices)> make_traps(std::index_sequence<kIndices...>) {
  return {&trap<kIndices>...};
}

// Returns a function that says the name and refuses, null where there are too many names.
void* trap_for(const std::string& name) {
  static constexpr std::array<Trap, kTraps> kTrapFunctions =
      make_traps(std::make_index_sequence<kTraps>());
  TrapNames& known = trap_names();
  std::size_t index = 0;
  while (index < known.count && known.names[index] != name) ++index;
  if (index == kTraps) return nullptr;
  if (index == known.count) known.names[known.count++] = name;
  return reinterpret_cast<void*>(kTrapFunctions[index]);
}

// Forms of an entry point whose arguments are others than before, and the version that they came
// with.
struct Form {
  const char* symbol;
  int since;
};

constexpr Form kForms[] = {{"cuCtxGetDevice_v2", 13000},
                           {"cuStreamGetCaptureInfo_v3", 12030},
                           {"cuStreamGetCtx_v2", 12050}};

bool is_newer(const std::string& symbol, int version) {
  for (const Form& form : kForms) {
    if (symbol == form.symbol) return version < form.since;
  }
  return false;
}

void* own_symbol(const std::string& name) {
  static void* const own = [] {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return own == nullptr ? nullptr : dlsym(own, name.c_str());
}

void* entry_point(const std::string& name, int version) {
  if (name == "cuGraphInstantiate") return own_symbol("cuGraphInstantiateWithFlags");
  for (const char* suffix : {"_v3", "_v2", ""}) {
    const std::string symbol = name + suffix;
    if (is_newer(symbol, version)) continue;
    if (void* found = own_symbol(symbol)) return found;
  }
  return nullptr;
}

}  // namespace

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  // Forms with the thread's own default stream for the null one are not there, and not hidden.
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  *function = per_thread ? nullptr : entry_point(symbol, version);
  if (*function == nullptr) *function = trap_for(symbol);
  const bool found = *function != nullptr;
  if (status != nullptr) {
    *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// NVRTC looks for private tables, and takes a refusal.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
