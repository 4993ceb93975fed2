// The location of the suite's data files: scenarios, models, hardware profiles, published figures.
#pragma once

#include <string>

namespace stp {

/// The path of a data file, given relative to the source tree ("profiles/a800.json"). The base is
/// $STP_DATA_DIR if set, else share/stp of the running program's installation, else the source tree of its
/// build.
std::string data_path(const std::string& relative);

/// Finds the file that `word` names: a path if it ends in .json (relative to the folder of `from`, if given),
/// else the data file `folder`/`word`.json. If there is no such file, throws InputError that names `field`
/// and lists the available names.
std::string find_data_file(const std::string& word, const std::string& folder, const std::string& from,
                           const std::string& field);

}  // namespace stp
