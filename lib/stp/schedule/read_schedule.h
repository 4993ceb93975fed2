// Schedule files of any form.
#pragma once

#include <string>

#include "stp/schedule/schedule.h"

namespace stp {

/// Whether `path` ends in .json, .csv or .txt.
bool is_schedule_file(const std::string& path);

/// Reads `path` by its ending: .json (schedule_from_json), .csv (schedule_from_csv) or .txt
/// (schedule_from_text). With another ending, as of standard input, the first line gives the form. Validates
/// the schedule; errors name the place in the file.
Schedule read_schedule_file(const std::string& path);

/// Reads text in memory, whose form `file` gives as above; errors name `file`. Checks only the form:
/// validate() checks the order.
Schedule read_schedule(const std::string& text, const std::string& file);

}  // namespace stp
