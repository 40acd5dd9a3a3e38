// Threads that replay, update weights, capture, allocate and free beside each other; for
// ThreadSanitizer, which cannot look into a Python process.
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "control.h"
#include "cuda_header.h"

namespace {

constexpr std::size_t kRows = 64;
constexpr int kReplays = 300;

// out = in * weights[0] + weights[1]
void affine(const unsigned*, const unsigned*, void** arguments) {
  std::array<float*, 3> buffers;
  for (std::size_t index = 0; index < buffers.size(); ++index) {
    std::memcpy(&buffers[index], arguments[index], sizeof(float*));
  }
  for (std::size_t row = 0; row < kRows; ++row) {
    buffers[2][row] = buffers[0][row] * buffers[1][0] + buffers[1][1];
  }
}

void must(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(result));
}

float* pinned(std::size_t count) {
  void* memory = nullptr;
  must(cuMemAllocHost_v2(&memory, count * sizeof(float)));
  return static_cast<float*>(memory);
}

CUdeviceptr address_of(const float* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// An executor: one stream, one captured graph, weights that are replaced in stream order.
class Executor {
 public:
  explicit Executor(CUkernel kernel) {
    must(cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0));
    must(cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr* buffer : {&device_in_, &device_out_, &device_weights_}) {
      must(cuMemAllocAsync(buffer, kRows * sizeof(float), stream_));
    }
    CUfunction function;
    must(cuKernelGetFunction(&function, kernel));
    must(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    must(cuMemcpyAsync(device_in_, address_of(in_), kRows * sizeof(float), stream_));
    std::array<void*, 3> arguments{&device_in_, &device_weights_, &device_out_};
    must(cuLaunchKernel(function, 1, 1, 1, kRows, 1, 1, 0, stream_, arguments.data(), nullptr));
    must(cuMemcpyAsync(address_of(out_), device_out_, kRows * sizeof(float), stream_));
    must(cuStreamEndCapture(stream_, &graph_));
    must(cuGraphInstantiateWithFlags(&exec_, graph_, 0));
  }

  ~Executor() {
    must(cuGraphExecDestroy(exec_));
    must(cuGraphDestroy(graph_));
    for (const CUdeviceptr buffer : {device_in_, device_out_, device_weights_}) {
      must(cuMemFreeAsync(buffer, stream_));
    }
    must(cuStreamSynchronize(stream_));
    for (float* buffer : {in_, out_, weights_}) must(cuMemFreeHost(buffer));
    must(cuEventDestroy_v2(done_));
    must(cuStreamDestroy_v2(stream_));
  }

  void update(float weight) {
    weights_[0] = weights_[1] = weight;
    must(cuMemcpyAsync(device_weights_, address_of(weights_), 2 * sizeof(float), stream_));
  }

  // Returns whether every row is what these weights make of it.
  bool replay(float value, float weight) {
    for (std::size_t row = 0; row < kRows; ++row) in_[row] = value;
    must(cuGraphLaunch(exec_, stream_));
    must(cuEventRecord(done_, stream_));
    must(cuEventSynchronize(done_));
    bool right = true;
    for (std::size_t row = 0; row < kRows; ++row) {
      right = right && out_[row] == value * weight + weight;
    }
    return right;
  }

 private:
  float* in_ = pinned(kRows);
  float* out_ = pinned(kRows);
  float* weights_ = pinned(kRows);
  CUstream stream_ = nullptr;
  CUevent done_ = nullptr;
  CUdeviceptr device_in_ = 0;
  CUdeviceptr device_out_ = 0;
  CUdeviceptr device_weights_ = 0;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

CUkernel affine_kernel() {
  const std::array<std::size_t, 3> sizes{sizeof(float*), sizeof(float*), sizeof(float*)};
  cuda_stub_register_kernel("affine", &affine, sizes.size(), sizes.data());
  CUlibrary library;
  must(cuLibraryLoadData(&library, "", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  must(cuLibraryGetKernel(&kernel, library, "affine"));
  return kernel;
}

CUcontext primary_context() {
  must(cuInit(0));
  CUcontext context;
  must(cuDevicePrimaryCtxRetain(&context, 0));
  return context;
}

void replay_beside_each_other(bool lazy) {
  const CUcontext context = primary_context();
  must(cuCtxSetCurrent(context));
  cuda_stub_set_lazy(lazy ? 1 : 0);
  const CUkernel kernel = affine_kernel();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([=] {
      must(cuCtxSetCurrent(context));
      Executor executor(kernel);
      float weight = 0;
      for (int replay = 0; replay < kReplays; ++replay) {
        if (replay % 10 == 0) executor.update(weight = static_cast<float>(replay));
        CHECK(executor.replay(static_cast<float>(replay + thread), weight));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CudaStubCounts counts;
  cuda_stub_counts(&counts);
  CHECK_EQ(counts.streams, 0U);
  CHECK_EQ(counts.events, 0U);
  CHECK_EQ(counts.execs, 0U);
  CHECK_EQ(counts.graphs, 0U);
  CHECK_EQ(counts.device_pool_bytes, 0U);
  CHECK_EQ(counts.pinned_bytes, 0U);
  CHECK_EQ(counts.pending_operations, 0U);
}

void add_one(void* count) { ++*static_cast<std::uint64_t*>(count); }

// Threads force operations of streams that others enqueue to, across events.
void pass_on_beside_each_other() {
  const CUcontext context = primary_context();
  must(cuCtxSetCurrent(context));
  cuda_stub_set_lazy(1);
  constexpr int kRounds = 200;
  std::array<CUstream, 3> streams;
  for (CUstream& stream : streams) must(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  std::array<std::uint64_t, 3> calls{};
  std::uint64_t on_default_stream = 0;
  std::vector<std::thread> threads;
  for (std::size_t own = 0; own < streams.size(); ++own) {
    threads.emplace_back([&, own] {
      must(cuCtxSetCurrent(context));
      CUevent event;
      must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
      for (int round = 0; round < kRounds; ++round) {
        must(cuLaunchHostFunc(streams[own], add_one, &calls[own]));
        must(cuEventRecord(event, streams[own]));
        must(cuStreamWaitEvent(streams[(own + 1) % streams.size()], event, 0));
        if (round % 5 == 0) must(cuStreamSynchronize(streams[(own + 2) % streams.size()]));
        must(cuLaunchHostFunc(CU_STREAM_LEGACY, add_one, &on_default_stream));
        if (round % 11 == 0) must(cuCtxSynchronize());
      }
      must(cuEventDestroy_v2(event));
    });
  }
  for (std::thread& thread : threads) thread.join();
  must(cuCtxSynchronize());
  for (const std::uint64_t count : calls) CHECK_EQ(count, static_cast<std::uint64_t>(kRounds));
  CHECK_EQ(on_default_stream, static_cast<std::uint64_t>(3 * kRounds));
  for (CUstream stream : streams) must(cuStreamDestroy_v2(stream));
}

}  // namespace

TEST(lazy_replays_beside_each_other_are_whole) { replay_beside_each_other(true); }

TEST(eager_replays_beside_each_other_are_whole) { replay_beside_each_other(false); }

TEST(threads_run_what_others_enqueued) { pass_on_beside_each_other(); }

int main() { return anabranch::testing::run_tests(); }
