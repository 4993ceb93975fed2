// Seconds of a fused attention by its shape.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/model/work.h"

namespace stp {

/// Side of a tile of FlashAttention-2's kernels for heads of 128 on A100 and H100: 128 queries in the
/// forward, 128 keys in the backward. A tile goes over the other dimension in steps of kAttentionStep
/// (csrc/flash_attn/src/flash_{fwd,bwd}_launch_template.h, v2.5.8).
inline constexpr int kAttentionTile = 128, kAttentionStep = 64;

/// Each head is divided into tiles, and each SM computes one tile at a time, in the order of the heads: the
/// forward of a causal attention from the shortest tile to the longest, its backward the other way round. A
/// tile takes its length plus `attention_tile_overhead`. So few heads leave SMs idle while the last long
/// tiles run. Approaches the profile's efficiency for many heads and long sequences. Without an overhead in
/// the profile: at that efficiency, whatever the shape. `sms_aside` SMs are left to communication, if the
/// device has more.
double attention_seconds(const HardwareProfile& profile, const Attention& attention, int sms_aside = 0);

}  // namespace stp
