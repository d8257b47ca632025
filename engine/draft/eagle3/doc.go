// Package eagle3 runs EAGLE-3 drafters (Li et al. 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language
// Models via Training-Time Test"): one transformer layer that proposes the target's next tokens from hidden states of the
// target. [Load] reads one, [Random] makes one of a target's shape for cost studies, and a [Drafter] runs on the
// target's device: [Drafter.Features] turns rows of the target's last pass into states, [Drafter.Append] and
// [Drafter.Run] run rows that take such a state or one that the drafter itself put out before, and [Drafter.Propose]
// gives candidates.
//
// # Rows and slots
//
// The drafter shares the target's block ids and tables and has key/value storage of its own. Its row at slot s, s ≥ 1, is made of the
// target's state at slot s−1 and the embedding of the token at slot s; it proposes the token at slot s+1 and has rotary
// position s−1. Slot 0 holds no row, and no row sees it. So whatever lies in a block depends only on tokens up to
// the block's end, and blocks that sequences share as a prefix hold the same drafter rows in each.
//
// Rows whose state is the drafter's own are drafts: once the target has verified tokens, their slots are written anew from its states.
//
// The package knows no request, no tree (package draft grows it) and no sampling.
package eagle3
