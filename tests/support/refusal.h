// For tests of what is refused, in any room.
#pragma once

#include <string>

#include "stp/base/error.h"

namespace stp {

/// What `call` is refused with; "" if it is not.
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
