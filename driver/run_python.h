// Starts other programs: Python for `stp compare` and plots, and those that lie beside this one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stp/base/file_descriptor.h"

namespace stp {

/// The path of the program `name` beside this one. Throws InputError with this remedy if it is missing.
std::string program_beside(const std::string& name, const std::string& remedy);

/// Runs `program` with `arguments`, and ends it if a signal arrives (Interrupted). Returns its exit status, 1
/// if a signal ended it, nothing if it cannot be started.
std::optional<int> run_program(const std::string& program, const std::vector<std::string>& arguments);

/// Runs `script`, a data file ("plots/compare.py"), with `arguments`, by $STP_PYTHON, else by the build's
/// Python. Returns its exit status; the script prints the reason if that is not 0. Throws InputError if there
/// is no such Python, or no such script.
int run_python(const std::string& script, const std::vector<std::string>& arguments);

/// Runs a script, as run_python() does, while this program goes on. The script reads lines from its standard
/// input. A terminal's Ctrl-C reaches this program alone, which then ends the script and what that started.
class PythonProcess {
 public:
  /// `without`: a remedy that needs no Python.
  PythonProcess(const std::string& script, const std::vector<std::string>& arguments,
                const std::string& without);
  ~PythonProcess();  // ends it unless wait() was called
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  void send_line(const std::string& line) const;  // does nothing if the script has ended
  /// After the last line: its exit status, as run_python() returns it.
  int wait();

 private:
  FileDescriptor input_;
  int process_ = 0;
};

/// For optional output: runs the script as run_python() and returns the reason if it failed, else "".
std::string failure_of_python(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace stp
