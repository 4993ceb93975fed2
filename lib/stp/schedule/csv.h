// The schedule format of torch.distributed.pipelining: a row per rank, an action per cell, stages in place of
// chunks.
#pragma once

#include <string>

#include "stp/schedule/schedule.h"

namespace stp {

/// compute_only: F, I, W and B alone; torch adds the communication (`_load_csv(file,
/// format="compute_only")`). compute_comms: with SEND_F, RECV_F, SEND_B, RECV_B and REDUCE_GRAD, used by
/// torch as it stands. compute_comms_waits: the same with WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD,
/// without which torch 2.15 refuses a compute_comms file, and with which torch of 2025 misreads it.
enum class CsvForm { compute_only, compute_comms, compute_comms_waits };

/// Writes a schedule that validate() accepts; lines end with CRLF. Chunk c of a rank becomes its virtual
/// stage, the braid F0.5&I1.4 of rank 0 of 4 on the v becomes `(0F5;7I4)OVERLAP_F_B`. In compute_comms a SEND
/// stands right behind its producer (of a braid, the action named first sends first) and REDUCE_GRAD behind a
/// stage's last W or B. A link's RECVs stand in the order of its sends, as late as the need for one of them
/// allows; only where the rank itself sends to that neighbour later than it was sent to (F, I, W taking 1 and
/// B 2) do they stand before that. So both ends of a pair of ranks have all transfers between them in one
/// order, and not even a communicator that carries them one by one can hang. Waits: for a forward's send
/// behind the stage's own backward, for a backward's at the end, for the reduction at once.
std::string to_csv(const Schedule& schedule, CsvForm form);

/// Reads any form; the file is compute_comms if it holds any action besides F, I, W and B. InputError that
/// names line and rank, cell, problem and remedy unless every cell is an action (or, in compute_only, empty),
/// every stage lies on one rank and does each microbatch's F and B, or F, I and W, once and in that order,
/// and, in compute_comms, every hand-over between ranks has its SEND behind the producer and its RECV before
/// the consumer, in the same order on both sides of a link (and, if it has any WAIT_SEND, one behind every
/// SEND). Communication is then dropped: the passes over the Program make their own. What spans ranks besides
/// (deadlock) is left to validate(). A rank's stages are its chunks in ascending order, m is the largest
/// microbatch plus 1, the name is the file's.
Schedule schedule_from_csv(const std::string& text, const std::string& file);

}  // namespace stp
