// The schedule format of torch.distributed.pipelining: a row per rank, an action per cell, and stages in
// place of chunks.
#pragma once

#include <string>

#include "stp/schedule/schedule.h"
#include "stp/schedule/validate.h"

namespace stp {

/// compute_only: F, I, W and B; torch adds the communication (`_load_csv(file, format="compute_only")`),
/// unless it has passes of the vocabulary, which no other form has, and which are written with the rank's
/// first stage. compute_comms: also SEND_F, RECV_F, SEND_B, RECV_B and REDUCE_GRAD, which torch uses
/// unchanged. compute_comms_waits: the same with WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD. torch 2.15
/// refuses a compute_comms file without them; torch of 2025 misreads a file with them.
enum class CsvForm { compute_only, compute_comms, compute_comms_waits };

/// Writes a schedule that validate() accepts; lines end with CRLF. Chunk c of a rank becomes its virtual
/// stage: the braid F0.5&I1.4 of rank 0 of 4 on the v becomes `(0F5;7I4)OVERLAP_F_B`. In compute_comms a SEND
/// directly follows its producer (the first action of a braid sends first), and REDUCE_GRAD follows a stage's
/// last W or B. A link's RECVs are in the order of its sends. Each is as late as its consumer allows, but
/// before any later send of the rank to that neighbour (times: F, I, W take 1, B takes 2). Both ranks of a
/// pair therefore have all their transfers in one order, and a communicator that carries one transfer at a
/// time cannot hang. Waits: for a forward's send after the stage's own backward, for a backward's send at the
/// end, for the reduction at once.
std::string to_csv(const Schedule& schedule, CsvForm form);

/// Reads any form; a file with any action besides F, I, W and B is compute_comms. Every cell must be an
/// action (or, in compute_only, empty). Every stage must be on one rank. In compute_comms, every tensor sent
/// between ranks must have its SEND after the producer and its RECV before the consumer, in the same order on
/// both sides of a link (and one WAIT_SEND after every SEND, if there is any). Otherwise throws InputError
/// with line and rank, cell, problem and remedy. Drops the communication; lowering adds it again. validate()
/// checks the order of the passes. A rank's stages are its chunks in ascending order; m is the largest
/// microbatch plus 1; the name is the file's.
Schedule schedule_from_csv(const std::string& text, const std::string& file);

/// Returns the places of actions in `text` (which must outlive the result), for a schedule read from it:
/// "line 3 (rank 2), cell 7, 2B1", or "line 3 (rank 2), 2B1".
PlaceOfAction places_in_csv(const std::string& text, const Placement& placement);

}  // namespace stp
