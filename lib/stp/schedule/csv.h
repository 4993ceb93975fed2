// The schedule format of torch.distributed.pipelining: a row per rank, an action per cell, stages instead of
// chunks.
#pragma once

#include <string>

#include "stp/schedule/schedule.h"
#include "stp/schedule/validate.h"

namespace stp {

/// compute_only: only F, I, W and B; torch adds the communication (`_load_csv(file, format="compute_only")`).
/// compute_comms: also SEND_F, RECV_F, SEND_B, RECV_B and REDUCE_GRAD, which torch uses unchanged.
/// compute_comms_waits: the same with WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, without which torch 2.15
/// refuses a compute_comms file, and with which torch of 2025 misreads it.
enum class CsvForm { compute_only, compute_comms, compute_comms_waits };

/// Writes a schedule that validate() accepts; lines end with CRLF. Chunk c of a rank becomes its virtual
/// stage, the braid F0.5&I1.4 of rank 0 of 4 on the v becomes `(0F5;7I4)OVERLAP_F_B`. In compute_comms a SEND
/// directly follows its producer (of a braid, the first action sends first), and REDUCE_GRAD follows a
/// stage's last W or B. A link's RECVs are in the order of its sends, each as late as its consumer allows,
/// but before any later send of the rank to that neighbour (times: F, I, W take 1, B takes 2). So both ends
/// of a pair of ranks have all transfers between them in one order, and even a communicator that carries one
/// transfer at a time cannot hang. Waits: for a forward's send after the stage's own backward, for a
/// backward's send at the end, for the reduction at once.
std::string to_csv(const Schedule& schedule, CsvForm form);

/// Reads any form; the file is compute_comms if it has any action besides F, I, W and B. Checks that every
/// cell is an action (or, in compute_only, empty), that every stage is on one rank and does each microbatch's
/// F and B, or F, I and W, once and in that order, and, in compute_comms, that every tensor sent between
/// ranks has its SEND after the producer and its RECV before the consumer, in the same order on both sides of
/// a link (and, if there is any WAIT_SEND, one after every SEND). Else throws InputError with line and rank,
/// cell, problem and remedy. Communication is then dropped: lowering adds it again. Deadlock across ranks is
/// left to validate(). A rank's stages are its chunks in ascending order; m is the largest microbatch plus 1;
/// the name is the file's.
Schedule schedule_from_csv(const std::string& text, const std::string& file);

/// Where the actions of a schedule that was read from `text` (which must outlive the result) stand: "line 3
/// (rank 2), cell 7, 2B1".
PlaceOfAction places_in_csv(const std::string& text, const Placement& placement);

}  // namespace stp
