// Entry points about libraries, kernels and launches.
//
// The code in a library is not looked at: a kernel is there when a twin of its name is.
#include <numeric>
#include <string>
#include <vector>

#include "capture.h"
#include "driver.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

CUkernel as_kernel(CUfunction function) { return reinterpret_cast<CUkernel>(function); }

std::vector<std::vector<std::byte>> copy_arguments(const KernelTwin& twin, void** parameters) {
  std::vector<std::vector<std::byte>> arguments;
  for (std::size_t index = 0; index < twin.sizes.size(); ++index) {
    const auto* begin = static_cast<const std::byte*>(parameters[index]);
    arguments.emplace_back(begin, begin + twin.sizes[index]);
  }
  return arguments;
}

CUresult launch(const char* name, CUfunction function, std::array<unsigned, 3> grid,
                std::array<unsigned, 3> block, CUstream handle, void** parameters) {
  return call(name, CallKind::kWork, [&](Driver& driver, Lock& lock, std::string& about) {
    const std::shared_ptr<const KernelTwin> twin = driver.kernels.find(as_kernel(function));
    const std::shared_ptr<Stream> stream = driver.stream_of(handle);
    if (twin == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    about = "kernel=" + twin->name;
    KernelCall kernel{twin, grid, block, copy_arguments(*twin, parameters)};
    return submit(driver, lock, stream, std::move(kernel), about);
  });
}

CUresult load(const char* name, CUlibrary* library) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    *library = driver.libraries.add(std::make_shared<Library>());
    return CUDA_SUCCESS;
  });
}

// An entry point that asks for an attribute of a kernel; all of them are 0.
CUresult ask_kernel(const char* name, int* value, CUkernel kernel) {
  return call(name, CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    *value = 0;
    return driver.kernels.find(kernel) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return load("cuLibraryLoadData", library);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char*, CUjit_option*, void**, unsigned,
                               CUlibraryOption*, void**, unsigned) {
  return load("cuLibraryLoadFromFile", library);
}

CUresult cuLibraryUnload(CUlibrary library) {
  return call("cuLibraryUnload", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Library> unloaded = driver.libraries.take(library);
    if (unloaded == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (const CUkernel kernel : unloaded->kernels) driver.kernels.take(kernel);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  return call("cuLibraryGetKernel", CallKind::kWork,
              [=](Driver& driver, Lock&, std::string& about) {
                about = name;
                const std::shared_ptr<Library> library = driver.libraries.find(handle);
                if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                const std::shared_ptr<const KernelTwin> twin = driver.twins.find(name);
                if (twin == nullptr) return CUDA_ERROR_NOT_FOUND;
                *kernel = driver.kernels.add(twin);
                library->kernels.push_back(*kernel);
                return CUDA_SUCCESS;
              });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute, CUkernel kernel, CUdevice) {
  return ask_kernel("cuKernelGetAttribute", value, kernel);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction function) {
  return ask_kernel("cuFuncGetAttribute", value, as_kernel(function));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                              std::size_t* bytes) {
  return call("cuKernelGetParamInfo", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<const KernelTwin> twin = driver.kernels.find(kernel);
    if (twin == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= twin->sizes.size()) return CUDA_ERROR_INVALID_VALUE;
    const auto begin = twin->sizes.begin();
    *offset = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(index), std::size_t{0});
    if (bytes != nullptr) *bytes = twin->sizes[index];
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                        CUstream stream, void** parameters, void**) {
  return launch("cuLaunchKernel", function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                stream, parameters);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void**) {
  return launch(
      "cuLaunchKernelEx", function, {config->gridDimX, config->gridDimY, config->gridDimZ},
      {config->blockDimX, config->blockDimY, config->blockDimZ}, config->hStream, parameters);
}
