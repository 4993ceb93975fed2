#include "stp/cuda/libraries/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <sstream>
#include <utility>

#include "stp/base/error.h"

namespace stp::cuda {
namespace {

constexpr const char* kRemedy = "install it, or put the folder that has it on LD_LIBRARY_PATH";

std::string last_error() {
  const char* const error = dlerror();  // NOLINT(concurrency-mt-unsafe): each thread has its own
  return error == nullptr ? "no reason given" : error;
}

}  // namespace

SharedLibrary::SharedLibrary(std::string soname) : soname_(std::move(soname)) {
  std::string problem = "cannot be loaded";
  const auto try_path = [&](const std::string& path) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) problem += " (" + last_error() + ")";
    return handle_ != nullptr;
  };
  if (try_path(soname_)) return;
  std::istringstream folders(STP_CUDA_LIBRARY_DIRS);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (try_path(folder + "/" + soname_)) return;
  throw InputError(soname_, "", problem, kRemedy);
}

std::string SharedLibrary::path() const {
  const link_map* map = nullptr;
  return dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 ? map->l_name : soname_;
}

void* SharedLibrary::symbol(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr)
    throw InputError(soname_, name, "no such function (" + last_error() + ")",
                     "use the version of the library that this was built for, or a newer one");
  return found;
}

}  // namespace stp::cuda
