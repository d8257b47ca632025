// Package compute says what a device must be able to do for a forward pass. [Device] makes
// matrices, tensors and key/value storage and runs programs; [Recorder] holds the operations,
// which are coarse enough to be fast on a CPU and as a CUDA graph. A pass is recorded once and
// replayed; everything that varies between replays lies in one [Batch].
//
// The package knows no architecture, no file format and no instruction set. Errors are for what
// comes from outside (memory, shapes of a file); a call against a contract panics.
package compute

import "time"

// BlockSlots is the number of token positions in one key/value block. It is also the width of
// a score tile, so that one block of keys fills one 512-bit vector per head dimension.
const BlockSlots = 16

// Input is the representation in which a matrix wants its right-hand side.
type Input uint8

// A device may be asked for both at once (bits).
const (
	Int8    Input = 1 << iota // 8-bit codes with one scale per row and block of 32
	Float32                   // plain float32
	// Int16 is Int8 in two terms, codes and the codes of what they leave: about 16 bits for twice the
	// multiplications. A matrix that asks for Int8 takes it as well.
	Int16
)

// Info describes a device.
type Info struct {
	Name    string // e.g. "cpu"
	ISA     string // instruction set in use, e.g. "avx512vnni"
	Threads int
	// Amortises is true when one pass over the weights serves several rows at little more than the
	// cost of one; without it speculation does not pay and the program says so at start.
	Amortises bool
}

// Matrix is a weight matrix on the device, repacked once: y = W·x with W [Rows, Cols].
type Matrix interface {
	Rows() int
	Cols() int
	Bytes() int64 // bytes that one pass reads
	Input() Input
}

// Vector is a small float32 vector on the device (gains, biases).
type Vector interface{ Len() int }

// Tensor is a float32 activation buffer on the device, [maxRows, Cols], row-major.
type Tensor interface{ Cols() int }

// Operand is a buffer for a MatMul's right-hand side, [maxRows, Cols], in the layout that the
// device's kernels read.
type Operand interface{ Cols() int }

// KV is the paged key/value storage of all layers of one model.
type KV interface {
	Blocks() int
	Bytes() int64
}

// Program is a recorded pass.
type Program interface{}

// Part is one horizontal slice of a matrix as it lies in a file. Parts are stacked along rows.
type Part struct {
	Name string // for errors
	Type uint32 // quant.Type
	Rows int
	Cols int
	// Data holds Rows·Cols elements, row-major in blocks of Type. It is not kept once NewMatrix has returned.
	Data []byte
	// RowOrder, if not nil, maps a row of the device's matrix to a row of Data (undoes GGUF's rotary permutation).
	RowOrder []int32
}

// KVSpec is the shape of a model's key/value storage.
type KVSpec struct {
	Layers, Heads, HeadDim int
	Blocks                 int  // of BlockSlots positions each
	Float32                bool // store float32 (checks); else float16
}

// Epilogue is what a MatMul does with its sums.
type Epilogue uint8

// Store overwrites the destination; Add adds to it (a residual connection).
const (
	Store Epilogue = iota
	Add
)

// Kind classes operations for the ledger and microbench.
type Kind uint8

// The operation kinds, in the order in which reports list them.
const (
	KindEmbed Kind = iota
	KindNorm
	KindMatMul
	KindRope
	KindAttention
	KindHead
	KindCopy
	NumKinds
)

var kindNames = [NumKinds]string{"embed", "norm", "matmul", "rope", "attention", "head", "copy"}

// String returns the kind's name in reports.
func (k Kind) String() string { return kindNames[k] }

// Rope is a rotary embedding: the angles of position p are p·InvFreq[i], both scaled by Scale.
type Rope struct {
	InvFreq []float64 // [HeadDim/2]
	Scale   float32   // attention factor on cos and sin; 1 for most models
}

// AttentionSpec is what RopeAppend and Attention need to know of a layer's heads.
type AttentionSpec struct {
	Layer          int
	Heads, KVHeads int
	HeadDim        int
	Bias           Vector // [(Heads+2·KVHeads)·HeadDim] added to q, k, v first; nil for none
	QNorm, KNorm   Vector // [HeadDim] RMS norm of each head before rotation; nil for none
	NormEps        float32
	Scale          float32 // on scores, usually 1/√HeadDim
	Rope           *Rope   // shared by the layers of a model
}

// Device is a place where passes run. One goroutine at a time may call it; the buffers that it
// makes belong to it and are freed by Close.
type Device interface {
	Info() Info
	// NewMatrix repacks the parts into one matrix. All parts have the same Cols and Input.
	NewMatrix(parts ...Part) (Matrix, error)
	NewVector(v []float32) Vector
	NewTensor(maxRows, cols int) Tensor
	NewOperand(maxRows, cols int, in Input) Operand
	NewKV(KVSpec) (KV, error)
	// Record calls f to list the operations of a pass over b and returns the program. Nothing runs.
	Record(b *Batch, f func(Recorder)) Program
	// Run replays a program on what b (given to Record) holds now, and returns when it is done.
	Run(Program)
	// CopyKV moves the keys and values of slots inside a sequence's blocks, all layers.
	CopyKV(kv KV, blocks []int32, from, to []int32)
	// CopyRow sets dst[to] = src[from], outside any pass; the tensors have equal columns.
	CopyRow(dst Tensor, to int, src Tensor, from int)
	// Read copies rows [0, rows) of t to dst, row-major.
	Read(t Tensor, rows int, dst []float32)
	// ReadRow copies row r of t to dst, [Cols].
	ReadRow(t Tensor, r int, dst []float32)
	// ReadWeights reads every weight once on the given number of threads (at most Info.Threads) and does nothing
	// else: the ceiling of any pass. It returns the bytes read and the time taken.
	ReadWeights(threads int) (bytes int64, d time.Duration)
	// Clock returns the clock on whose time line passes run.
	Clock() Clock
	// Profile switches the collection of time by operation kind on or off and returns what was collected since.
	Profile(on bool) [NumKinds]time.Duration
	Close() error
}

// Recorder lists the operations of a pass. "Rows" are the live rows of the batch at replay; after
// SelectOut they are its output rows.
type Recorder interface {
	// EmbedRows sets x[r] = table[Batch.Token[r]].
	EmbedRows(x Tensor, table Matrix)
	// Norm sets y[r] = RMSNorm(x[r])·gain, in y's representation(s).
	Norm(y Operand, x Tensor, gain Vector, eps float32)
	// Convert sets y[r] = x[r], in y's representation(s).
	Convert(y Operand, x Tensor)
	// NormInto sets columns [col, col+x.Cols()) of y[r] to RMSNorm(x[r])·gain; y may be x. col is a multiple of 16.
	NormInto(y Tensor, col int, x Tensor, gain Vector, eps float32)
	// Gather sets columns [col, col+src.Cols()) of dst[r] to src[f], f being Batch.From[r], or to prev[^f] where f is negative. prev has
	// the columns of src; it may be nil if no f is negative, and neither may be dst.
	Gather(dst Tensor, col int, src, prev Tensor)
	// MatMul sets (or adds to) y[r] = W·x[r].
	MatMul(y Tensor, w Matrix, x Operand, ep Epilogue)
	// SwiGLU sets y[r] = silu(gate·x[r]) ⊙ (up·x[r]).
	SwiGLU(y Operand, gate, up Matrix, x Operand)
	// RopeAppend adds the bias, normalises and rotates q and k of qkv in place, and appends k and v to kv at Batch.Slot.
	RopeAppend(qkv Tensor, kv KV, s *AttentionSpec)
	// Attention sets y[r] = softmax(q·K)·V over the slots that the row sees.
	Attention(y Operand, qkv Tensor, kv KV, s *AttentionSpec)
	// CopyRows sets dst[r] = src[r] for all live rows (hidden-state taps).
	CopyRows(dst, src Tensor)
	// SelectOut sets dst[i] = src[Batch.Out[i]]; operations after it work on the output rows.
	SelectOut(dst, src Tensor)
	// Head sets logits[i] = W·x[i], Batch.Best[i] to the arg-max (the lowest id among equals) and
	// Batch.BestLogit[i] to its logit.
	Head(logits Tensor, w Matrix, x Operand)
	// TopK lists the Batch.Top best candidates of each output row in Batch.TopID and Batch.TopProb, by descending logit, the lowest id
	// first among equals; probabilities are of the soft-max over all logits. It comes after Head, whose arg-max it needs. Where
	// candidates run out (a row of NaN, a vocabulary below Top) ids and probabilities are 0.
	TopK(logits Tensor)
}
