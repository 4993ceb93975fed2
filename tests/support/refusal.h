// For tests of what is refused, in any module.
#pragma once

#include <string>

#include "stp/base/error.h"

namespace stp {

/// The message of the InputError that `call` throws; "" if it throws none.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace stp
