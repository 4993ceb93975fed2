// Seconds of a fused attention by its shape.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/model/work.h"

namespace stp {

/// Side of a tile in FlashAttention-2's kernels for heads of 128 on A100 and H100: 128 queries in the
/// forward, 128 keys in the backward. A tile covers the other dimension in steps of kAttentionStep
/// (csrc/flash_attn/src/flash_{fwd,bwd}_launch_template.h, v2.5.8).
inline constexpr int kAttentionTile = 128, kAttentionStep = 64;

/// Seconds of a fused attention. Each head is divided into tiles, and each SM computes one tile at a time,
/// head by head: a causal forward from the shortest tile to the longest, its backward the other way round. A
/// tile takes its length plus `attention_tile_overhead`. With few heads, SMs are idle while the last long
/// tiles run. Many heads and long sequences approach the profile's efficiency. A profile without overhead has
/// that efficiency for every shape. Rates measured by length replace the efficiency; the tiles then give the
/// effect of another number of heads. `sms_aside` SMs are left to communication, if the device has more.
double attention_seconds(const HardwareProfile& profile, const Attention& attention, int sms_aside = 0);

/// FLOP/s of that with many heads: the profile's, or the rate measured at the attention's length.
double attention_rate(const HardwareProfile& profile, const Attention& attention);

}  // namespace stp
