// Processes over TCP, where there is no MPI.
#pragma once

#include <memory>
#include <string>

#include "stp/processes/processes.h"

namespace stp {

/// How a launcher (torchrun) tells its processes of each other.
struct Rendezvous {
  std::string host;  // of process 0
  int port;
  int index, count;
  int index_on_node;
};

/// Joins the processes at process 0's port, which process 0 opens: at the host's address, or at all of its
/// machine's if the host is a name. Throws InputError if the host stays unknown for six deadlines or the port
/// is taken. A process that finds no other within six deadlines ends with exit code 1, as do all if one of
/// them ends or fails: by exit code and words that name it.
std::unique_ptr<Processes> join_by_tcp(Rendezvous rendezvous, double deadline_s);

}  // namespace stp
