// Libraries that are loaded when they are first needed: programs start without them, on machines that have
// none.
#pragma once

#include <string>

namespace stp::cuda {

class SharedLibrary {
 public:
  /// Loads `soname` ("libnccl.so.2") as the loader finds it, otherwise from the folders where its like was
  /// when this was built. It stays loaded. Throws InputError where there is none.
  explicit SharedLibrary(std::string soname);

  /// The function `name`, of type F. Throws InputError where the library has none.
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
