// Package cpu is the CPU device: it repacks weights into the kernels' layouts and replays recorded
// passes on persistent workers. [New] makes one; everything else is reached through
// [compute.Device] and [compute.Recorder].
//
// A pass is a list of steps. Every worker walks the whole list, does its share of each step and
// meets the others at a barrier. Shares are cut along outputs (weight groups, rows, positions of a
// score matrix, head dimensions of a sum over values), never through a reduction, so that a row's
// result does not depend on the number of workers or of other rows (invariant 2).
//
// The package knows no architecture and no file format beyond quant's block types, and it reads no
// environment: the caller chooses the number of threads and leaves GOMAXPROCS room for others.
package cpu
