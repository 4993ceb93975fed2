// For tests of what is refused or fails, in any module.
#pragma once

#include <string>

#include "stp/base/error.h"

namespace stp {

/// The message of the `Error` that `call` throws; "" if it throws none.
template <typename Error, typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <typename Call>
std::string refusal(Call call) {
  return error_of<InputError>(call);
}

}  // namespace stp
