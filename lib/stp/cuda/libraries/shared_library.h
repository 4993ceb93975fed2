// Libraries that are loaded at first use: programs also start on machines without them.
#pragma once

#include <string>

namespace stp::cuda {

class SharedLibrary {
 public:
  /// Loads `soname` ("libnccl.so.2") as the loader finds it, else from the folders known from the build. It
  /// stays loaded. Throws InputError if it is not found.
  explicit SharedLibrary(std::string soname);

  /// The file that was loaded.
  [[nodiscard]] std::string path() const;

  /// The function `name`, of type F. Throws InputError if the library does not have it.
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(symbol(name));  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
  }

 private:
  void* symbol(const char* name) const;

  std::string soname_;
  void* handle_ = nullptr;
};

}  // namespace stp::cuda

/// Sets the member `name` of a table to the library's function of that name.
#define STP_TAKE_FUNCTION(table, library, name) \
  ((table).name = (library).template function<decltype(::name)>(#name))
