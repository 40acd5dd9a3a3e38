#include <cstring>
#include <stdexcept>
#include <string>

#include "anabranch/cpu.h"
#include "anabranch/store/errors.h"
#include "anabranch/store/lookup.h"
#include "store/lookup/compile.h"
#include "store/lookup/refusals.h"

namespace anabranch::store {

namespace {

using lookup::Broadcast;
using lookup::Kernel;
using lookup::Refusal;
using lookup::Run;

// What this machine can run, the best first.
std::vector<const Kernel*> find_kernels() {
  std::vector<const Kernel*> kernels;
#if defined(__x86_64__)
  const std::string_view widest = cpu::isa();
  const bool has_rest = __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  if (has_rest && widest == "avx512") kernels.push_back(&lookup::kAvx512Kernel);
  if (has_rest && (widest == "avx512" || widest == "avx2")) {
    kernels.push_back(&lookup::kAvx2Kernel);
  }
#endif
  kernels.push_back(&lookup::kPortableKernel);
  return kernels;
}

const std::vector<const Kernel*>& kernels() {
  static const std::vector<const Kernel*> all = find_kernels();
  return all;
}

const Kernel& kernel_named(std::string_view isa) {
  for (const Kernel* kernel : kernels()) {
    if (isa.empty() || isa == kernel->isa) return *kernel;
  }
  throw std::invalid_argument("this machine has no lookups for the instruction set '" +
                              std::string(isa) + "'");
}

// More rows than this have no place in memory, and products of them might overflow.
constexpr std::int64_t kMostRows = std::int64_t{1} << 31;

// Memory for rows of users; kept by each thread, as large as its largest batch needed.
std::byte* shared_rows(std::size_t bytes) {
  thread_local std::unique_ptr<std::byte[]> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    size = bytes;
  }
  return memory.get();
}

}  // namespace

struct LookupPlan::State {
  std::shared_ptr<const Generation> generation;
  std::vector<LookupSpec> lookups;
  std::vector<BufferSpec> buffers;
  const Kernel* kernel;
  lookup::Program program;

  void check(const LookupArguments& arguments, const Batch& batch) const;
  void check_users(const Batch& batch) const;
  void broadcast(const LookupArguments& arguments, const Batch& batch,
                 const std::byte* shared) const;
};

LookupPlan::LookupPlan(std::shared_ptr<const Generation> generation,
                       std::vector<LookupSpec> lookups, std::vector<BufferSpec> buffers,
                       std::string_view isa) {
  if (generation == nullptr) throw std::invalid_argument("a lookup plan needs a generation");
  const Kernel& kernel = kernel_named(isa);
  lookup::Program program = lookup::compile(lookups, buffers, generation->tables(), kernel);
  state_ = std::make_unique<State>(State{std::move(generation), std::move(lookups),
                                         std::move(buffers), &kernel, std::move(program)});
}

LookupPlan::~LookupPlan() = default;
LookupPlan::LookupPlan(LookupPlan&&) noexcept = default;

void LookupPlan::State::check(const LookupArguments& arguments, const Batch& batch) const {
  if (batch.version < kFirstVersion || batch.version > kMaxVersion) {
    throw std::invalid_argument("store version " + std::to_string(batch.version) +
                                " cannot be; versions are 1 to 2^31 - 1");
  }
  if (batch.rows < 0 || batch.rows > kMostRows || batch.users < 0 || batch.users > kMostRows) {
    throw std::invalid_argument("rows and users of a batch are 0 to 2^31");
  }
  if (arguments.features.size() != lookups.size() || arguments.outputs.size() != buffers.size()) {
    throw std::invalid_argument("the plan has " + std::to_string(lookups.size()) + " lookups and " +
                                std::to_string(buffers.size()) +
                                " buffers; give as many inputs and outputs");
  }
  const auto rows_of = [&](Side side) { return side == Side::kRow ? batch.rows : batch.users; };
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    const LookupSpec& spec = lookups[i];
    const FeatureInput& input = arguments.features[i];
    if (rows_of(spec.side) == 0) continue;
    const bool ragged = spec.bag != BagForm::kFixed;
    const bool has_ids = input.ids != nullptr && (!spec.weighted || input.weights != nullptr);
    if ((!has_ids && (!ragged || input.id_count != 0)) ||
        (ragged && input.bag == nullptr && input.bag_count != 0)) {
      throw std::invalid_argument("feature '" + spec.feature +
                                  "': ids, lengths or offsets, or weights were not given");
    }
    if (ragged && (input.id_count < 0 || input.bag_count < 0)) {
      throw std::invalid_argument("feature '" + spec.feature + "': a count is negative");
    }
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const OutputBuffer& output = arguments.outputs[i];
    if (rows_of(buffers[i].side) == 0) continue;
    if (output.data == nullptr || output.stride < static_cast<std::int64_t>(buffers[i].columns)) {
      throw std::invalid_argument("buffer " + std::to_string(i) + " needs memory and a stride of " +
                                  std::to_string(buffers[i].columns) + " elements at least");
    }
  }
}

void LookupPlan::State::check_users(const Batch& batch) const {
  if (batch.user_index == nullptr) {
    if (batch.users != 1) {
      throw std::invalid_argument("a batch of " + std::to_string(batch.users) +
                                  " users needs a user index for its rows");
    }
    return;
  }
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t user = batch.user_index[row];
    if (user < 0 || user >= batch.users) {
      throw Refused("row " + std::to_string(row) + " is of user " + std::to_string(user) +
                    ", but there are " + std::to_string(batch.users) + " users");
    }
  }
}

void LookupPlan::State::broadcast(const LookupArguments& arguments, const Batch& batch,
                                  const std::byte* shared) const {
  for (const Broadcast& part : program.broadcasts) {
    const OutputBuffer& buffer = arguments.outputs[part.buffer];
    const std::ptrdiff_t step =
        buffer.stride * (buffers[part.buffer].type == OutputType::kF32 ? 4 : 2);
    auto* out = static_cast<std::byte*>(buffer.data) + part.offset;
    for (std::int64_t row = 0; row < batch.rows; ++row, out += step) {
      std::size_t user = 0;
      if (batch.user_index != nullptr) {
        user = static_cast<std::size_t>(__atomic_load_n(batch.user_index + row, __ATOMIC_RELAXED));
        // It was checked, but another thread may have rewritten it since.
        if (user >= static_cast<std::size_t>(batch.users)) user = 0;
      }
      std::memcpy(out, shared + user * program.shared_stride + part.shared, part.bytes);
    }
  }
}

void LookupPlan::run(const LookupArguments& arguments, const Batch& batch) const {
  const State& state = *state_;
  state.check(arguments, batch);
  const bool shares = !state.program.broadcasts.empty() && batch.rows > 0;
  std::byte* shared = nullptr;
  if (!state.program.broadcasts.empty()) {
    if (shares) state.check_users(batch);
    shared = shared_rows(static_cast<std::size_t>(batch.users) * state.program.shared_stride);
  }
  const Run run{
      .features = state.program.features.data(),
      .feature_count = state.program.features.size(),
      .inputs = arguments.features.data(),
      .outputs = arguments.outputs.data(),
      .shared = {shared, static_cast<std::ptrdiff_t>(state.program.shared_stride)},
      .keys = arguments.keys,
      .misses = arguments.misses,
      .rows = batch.rows,
      .users = batch.users,
      .version = batch.version,
  };
  const Refusal refusal = state.kernel->run(run);
  if (refusal.kind != Refusal::Kind::kNone) {
    throw Refused(lookup::describe(refusal, state.lookups[refusal.feature],
                                   arguments.features[refusal.feature],
                                   state.program.features[refusal.feature].table));
  }
  if (shares) state.broadcast(arguments, batch, shared);
}

std::span<const LookupSpec> LookupPlan::lookups() const noexcept { return state_->lookups; }
std::span<const BufferSpec> LookupPlan::buffers() const noexcept { return state_->buffers; }
std::string_view LookupPlan::isa() const noexcept { return state_->kernel->isa; }

std::span<const std::string_view> LookupPlan::instruction_sets() noexcept {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const Kernel* kernel : kernels()) all.emplace_back(kernel->isa);
    return all;
  }();
  return names;
}

}  // namespace anabranch::store
