// Package kernel holds the inner loops of the CPU device: matrix products over packed weights,
// norms, quantisation, rotary embedding, attention and soft-max, each as generic Go (always
// built, the oracle) and as generated assembly. A [Set] is one instruction set's kernels;
// [Sets] lists those that this machine can run, [Best] picks one.
//
// Kernels never allocate, start goroutines or check their arguments twice (invariant 6): slices
// are handed over as pointers and lengths that the device has checked. They know nothing of
// models, batches or threads.
//
// # Orders of arithmetic (invariant 2: one row, one result)
//
// K1. A row's result never depends on how many rows share the call: per output lane there is one
// chain of fused multiply-adds over the input blocks in ascending order.
// K2. No caller cuts a reduction: a call covers all input columns of its output lanes.
// K3. All assembly sets agree to the bit with each other; the generic Go agrees within 1e-5 relative. (Quantize, the
// stores, Add, Scale, SumOrdered and ArgMax agree with it to the bit; exponentials within 2 ulp, the sets' own being within 1.)
// K4. Reductions over a row (sum of squares, maximum) use 16 lanes, lane i taking elements i, i+16, …;
// the lanes are then folded 8+8, 4+4, 2+2, 1+1.
// K5. The soft-max denominator is a sum by position in order; masked positions contribute +0.
//
// # Packed weights
//
// A matrix [N, K] is cut into groups of 16 output rows (N padded with zero rows) and blocks of 32
// input columns. A group's blocks follow each other; lane r of a vector belongs to output row r of
// the group. In the integer formats byte (r, k) of a block's codes sits at (k/4)·64 + r·4 + k%4 for
// 8-bit codes; for 4-bit codes the 64-byte vector j holds k-quads 2j (low nibbles) and 2j+1 (high nibbles).
// d is a factor, m an offset: weight = d·(code − zero) or d·code + m. f16 unless said otherwise.
//
//	W4S   d[16] · codes[256]                     weight = d·(code−8)           Q4_0
//	W4SM  d[16] m[16] · codes[256]               weight = d·code + m           Q4_1
//	W4K   per 8 blocks: d[16] dmin[16], then 8 × (u8 s[16] u8 t[16] codes[256])
//	                                             weight = (d·s)·code − dmin·t  Q4_K
//	W8S   d[16] · codes[512]                     weight = d·(code−128)         Q8_0, Q5_0 (code+112)
//	W8SM  d[16] m[16] · codes[512]               weight = d·code + m           Q5_1
//	W8K   as W4K with codes[512]                                               Q5_K
//	W6K   per 8 blocks: d[16], then 8 × (i8 s[16] i8 s'[16] codes[512]): s for columns 0–15, s' for 16–31
//	                                             weight = (d·s)·(code−32)      Q6_K
//	F16, BF16, F32   per column k: 16 values     weight = value
//
// K formats have whole super-blocks of 256 columns. Codes of W8SM and W8K are below 32 and those of W6K below 64:
// AVX2 adds products in 16 bits that would overflow otherwise.
//
// # Packed activations
//
// Rows are cut into tiles of at most [TileRows]; a tile of T rows holds, for each block of 32
// columns, T units, one a row, so that a kernel for T rows reads straight on. A unit is
//
//	integer formats, 64 bytes: i8 code[32] · f32 s · f32 s·Σ · i32 −8·Σ · i32 −128·Σ · i32 −32·Σ₀ · i32 −32·Σ₁ · 8 spare
//	float formats, 128 bytes:  f32 x[32]
//
// with s = max|x|/127, code = round-to-even(x·(127/max|x|)), Σ the sum of the codes, Σ₀ and Σ₁ those of its halves;
// the spare bytes are 0. Where max|x| < 2⁻¹¹⁹ all is 0. Where x holds an infinity or NaN the codes are 0 and s is not
// finite, so that each product with the row comes out NaN: an overflow is never hidden.
package kernel

// Format is a layout of packed weights (see the package comment).
type Format uint8

// The packed layouts.
const (
	W4S Format = iota
	W4SM
	W4K
	W8S
	W8SM
	W8K
	W6K
	F16
	BF16
	F32
	NumFormats
)

const (
	GroupRows  = 16  // output rows of a weight group: the lanes of one 512-bit vector
	BlockCols  = 32  // input columns of a block
	TileRows   = 8   // most rows of an activation tile: more accumulators do not fit 32 registers beside the unpacked weights
	IntUnit    = 64  // bytes of a row's block in an integer activation tile: one cache line
	FloatUnit  = 128 // the same in a tile of float32
	MaxQueries = 12  // most queries of one Scores or Values call
	MaxSlices  = 4   // most 16-lane slices of the head dimension of one Values call
)

// MatMulFunc multiplies groups·16 weight rows with the T rows of one activation tile, T fixed per
// function: y[r·ldy + g·16 + lane] = Σ over blocks, added to y if add is not 0. w points to the first group, x to
// the tile. y has room for groups·16 columns a row. blocks is positive, a multiple of 8 for K formats. Assembly
// reads the first and the second half of the groups side by side: two streams get more of the memory's bandwidth.
type MatMulFunc func(w, x *byte, y *float32, blocks, groups, ldy, add int)

// WidenFunc writes the weights of a format of 4-bit codes in the format [Format.Wide] of 8-bit codes, blocks blocks of
// whole groups. Products with either are the same to the bit: the integer sums are equal and the factors are copied.
type WidenFunc func(dst, w *byte, blocks int)

// ScoresFunc computes the scores of Q queries (fixed per function) over whole key blocks:
//
//	for i < blocks: s[q·lds + i·16 + lane] = Σ over d ascending of query[q·dim + d] · key(i, d, lane)
//
// where block i lies at k + table[i]·stride bytes as [dim][16] elements (16 positions side by side).
type ScoresFunc func(s *float32, lds int, query *float32, k *byte, table *int32, blocks, stride, dim int)

// ValuesFunc sums weighted values of Q queries over z 16-lane slices (both fixed per function):
//
//	o[q·ldo + j] = Σ over t < n ascending of p[q·ldp + t] · value(t, j), j < 16·z
//
// where value row t lies at v + table[t/16]·stride + (t%16)·dim·elem bytes (v already points at the wanted slice).
// No row from n on is read, so stale storage there may hold anything. n may be 0.
type ValuesFunc func(o *float32, ldo int, p *float32, ldp int, v *byte, table *int32, n, stride, dim int)

// Set is one instruction set's implementation of every kernel.
type Set struct {
	Name string
	// Amortises: one load of the weights serves all rows of a tile (false for the generic set).
	Amortises bool

	// MatMul[f][t] serves tiles of t rows, 1 ≤ t ≤ TileRows.
	MatMul [NumFormats][TileRows + 1]MatMulFunc
	// Widen[f] is nil unless it pays where many tiles use the same weights: unpacking is a ninth of an
	// 8-row product's instructions.
	Widen [NumFormats]WidenFunc

	// Quantize packs blocks·32 floats of one row into integer units, stride bytes apart.
	Quantize func(dst *byte, x *float32, blocks, stride int)
	// Residual sets dst = x − s·code for blocks·32 floats of one row and the units that Quantize made of them: what
	// the codes leave. Quantised in its turn it is the second of two terms that carry about 16 bits. dst may be x.
	Residual func(dst, x *float32, units *byte, blocks, stride int)
	// CopyUnits packs blocks·32 floats of one row into float units, stride bytes apart.
	CopyUnits func(dst *byte, x *float32, blocks, stride int)
	// RMSNorm sets y = x · (1/√(mean(x²)+eps)) · gain for n elements (K4); n is a multiple of 16. y may be x.
	RMSNorm func(y, x, gain *float32, n int, eps float32)
	// SwiGLU sets y = gate/(1+exp(−gate)) · up for n elements, a multiple of 16. y may be gate or up.
	// Below −88 (−∞ too) gate/(1+exp(−gate)) is 0; +∞ and NaN stay what they are.
	SwiGLU func(y, gate, up *float32, n int)
	// Add sets y += x for n elements, a multiple of 16.
	Add func(y, x *float32, n int)
	// Rope rotates x[i] and x[i+half] by the angles whose cosines and sines are given; half is a multiple of 8.
	Rope func(x, cos, sin *float32, half int)

	// StoreK writes dim floats as one position's column of a key block: dst[d·16] (dst points at the column).
	// Values beyond the range saturate, infinities too, and NaN becomes +0, so that all storage is finite: a masked row
	// times +0 must be 0 (invariant 2). A row that is NaN still shows it, by its residual.
	StoreK16 func(dst *byte, x *float32, dim int)
	StoreK32 func(dst *byte, x *float32, dim int)
	// StoreV writes dim floats as one position's row of a value block.
	StoreV16 func(dst *byte, x *float32, dim int)
	StoreV32 func(dst *byte, x *float32, dim int)

	// Scores16[q] and Scores32[q] serve q queries over float16 or float32 keys; entries that are nil are served by smaller
	// ones. One query is always served; AVX2 serves up to 6, AVX-512 up to MaxQueries. Fewer than 8 blocks in a call cost more each.
	Scores16, Scores32 [MaxQueries + 1]ScoresFunc
	// Values16[q][z] and Values32[q][z] likewise, z being 1, 2 or 4. The most slices at once are the fastest.
	Values16, Values32 [MaxQueries + 1][MaxSlices + 1]ValuesFunc

	// SoftmaxExp sets s[t] = exp((s[t]−max)·scale) for t < n, and +0 from n to the next multiple of 16; n ≥ 1, scale > 0.
	// Scores of −Inf become +0, even if all are; exp is +0 below −87.33, NaN stays NaN (and is never max).
	SoftmaxExp func(s *float32, n int, scale float32)
	// SumExp returns Σ exp(x[i]−top) over n elements (K4), exp as in SoftmaxExp; x may be read up to the next multiple of 16.
	SumExp func(x *float32, n int, top float32) float32
	// SumOrdered sets out[q] = Σ over t < n ascending of s[q·lds+t] (K5). Eight queries cost what one costs.
	SumOrdered func(out, s *float32, lds, queries, n int)
	// Scale sets x *= a for n elements, a multiple of 16.
	Scale func(x *float32, n int, a float32)
	// ArgMax returns the index of the largest of n elements, the lowest among equals (±0 are); NaN never wins, and of n NaN the first does.
	ArgMax func(x *float32, n int) int

	// ReadMem reads n bytes, a multiple of 1024, and does nothing with them (the bandwidth probe).
	ReadMem func(p *byte, n int)
}
