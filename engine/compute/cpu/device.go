package cpu

import (
	"errors"
	"fmt"
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/quant"
)

// Device runs passes on a fixed number of threads. It implements [compute.Device].
type Device struct {
	set     *kernel.Set
	pool    *pool
	workers []worker
	mem     memory // weights, keys and values, scores

	plan   attentionPlan
	scores []float32 // scores of the wave in progress
	dens   []float32 // their soft-max denominators

	clock     compute.HostClock
	logging   bool // passes are logged
	profiling bool
	spent     [compute.NumKinds]time.Duration
}

// worker is what one thread owns: its number and its scratch.
type worker struct {
	id     int
	d      *Device
	row    []float32            // a row being normalised, or the gate half of a SwiGLU chunk
	up     []float32            // the up half of a SwiGLU chunk
	out    []float32            // attention sums of some queries
	rest   []float32            // what a row's codes leave
	pair   []float32            // products of both terms of a chunk
	wide   [2]widened           // weights that many tiles use; gate and up of a SwiGLU
	passes []compute.WorkerPass // while they are logged
	spans  []span               // where the scores of the wave in progress lie
	_      [cacheLine]byte
}

// New returns a device with the given number of worker threads and kernels. It starts threads−1
// goroutines that spin while passes follow each other; the caller sets GOMAXPROCS above threads so
// that the rest of the program is not held up.
func New(threads int, set *kernel.Set) (*Device, error) {
	if threads < 1 {
		return nil, fmt.Errorf("cpu: %d threads: at least 1 is needed", threads)
	}
	d := &Device{set: set, pool: newPool(threads), workers: make([]worker, threads), clock: compute.NewHostClock()}
	for i := range d.workers {
		d.workers[i].id, d.workers[i].d = i, d
	}
	return d, nil
}

// Info implements [compute.Device].
func (d *Device) Info() compute.Info {
	return compute.Info{Name: "cpu", ISA: d.set.Name, Threads: d.pool.n, Amortises: d.set.Amortises}
}

// Clock implements [compute.Device].
func (d *Device) Clock() compute.Clock { return d.clock }

// Close ends the workers and frees weights and key/value storage. Nothing made by d may be used afterwards.
func (d *Device) Close() error {
	d.pool.close()
	d.mem.close()
	return nil
}

// vector is a compute.Vector padded with zeros to a multiple of 32.
type vector struct {
	n    int
	data []float32
}

func (v *vector) Len() int { return v.n }

// NewVector implements [compute.Device].
func (d *Device) NewVector(x []float32) compute.Vector {
	v := &vector{n: len(x), data: floatsAligned(roundUp(len(x), kernel.BlockCols))}
	copy(v.data, x)
	return v
}

// tensor is [rows, ld] floats; ld is cols rounded up to whole blocks, the padding stays finite.
type tensor struct {
	cols, ld int
	data     []float32
}

func (t *tensor) Cols() int              { return t.cols }
func (t *tensor) row(r int) []float32    { return t.data[r*t.ld : (r+1)*t.ld] }
func (t *tensor) at(r, col int) *float32 { return &t.data[r*t.ld+col] }

// NewTensor implements [compute.Device].
func (d *Device) NewTensor(maxRows, cols int) compute.Tensor {
	ld := roundUp(cols, kernel.BlockCols)
	return &tensor{cols: cols, ld: ld, data: floatsAligned(maxRows * ld)}
}

// operand holds activations in the kernels' units: integer, float or both. Rows lie in tiles
// (package kernel). With two terms, each tile's units of codes are followed by those of what the codes leave;
// a tile of at most half a tile's rows holds both as if they were twice as many rows.
type operand struct {
	cols, blocks int
	ints, floats []byte
	terms        int // integer terms of a row: 1 or 2
}

// unit returns where a term of row's unit for a block lies in ints, and the distance to the row's next block.
func (o *operand) unit(rows, row, term, block int) (at, stride int) {
	first := row / kernel.TileRows * kernel.TileRows
	t := min(kernel.TileRows, rows-first)
	at = first * o.terms * o.blocks
	if t*o.terms <= kernel.TileRows {
		return (at + block*t*o.terms + term*t + row - first) * kernel.IntUnit, t * o.terms * kernel.IntUnit
	}
	return (at + (term*o.blocks+block)*t + row - first) * kernel.IntUnit, t * kernel.IntUnit
}

func (o *operand) Cols() int { return o.cols }

// NewOperand implements [compute.Device].
func (d *Device) NewOperand(maxRows, cols int, in compute.Input) compute.Operand {
	o := &operand{cols: cols, blocks: roundUp(cols, kernel.BlockCols) / kernel.BlockCols, terms: 1}
	if in&compute.Int16 != 0 {
		o.terms = 2
	}
	if in&(compute.Int8|compute.Int16) != 0 {
		o.ints = bytesAligned(maxRows * o.terms * o.blocks * kernel.IntUnit)
	}
	if in&compute.Float32 != 0 {
		o.floats = bytesAligned(maxRows * o.blocks * kernel.FloatUnit)
	}
	return o
}

// kv is paged storage: per layer, keys then values; a block holds every head's [dim][16] keys (or [16][dim] values).
type kv struct {
	spec   compute.KVSpec
	elem   int // bytes of an element
	head   int // bytes of one head's block
	block  int // bytes of one block: all heads
	layers [][2][]byte
}

func (k *kv) Blocks() int  { return k.spec.Blocks }
func (k *kv) Bytes() int64 { return 2 * int64(k.spec.Layers) * int64(k.spec.Blocks) * int64(k.block) }

// NewKV implements [compute.Device].
func (d *Device) NewKV(s compute.KVSpec) (compute.KV, error) {
	if s.HeadDim%kernel.GroupRows != 0 {
		return nil, fmt.Errorf("cpu: head dimension %d is not a multiple of %d, which the attention kernels need", s.HeadDim, kernel.GroupRows)
	}
	k := &kv{spec: s, elem: 2}
	if s.Float32 {
		k.elem = 4
	}
	k.head = s.HeadDim * compute.BlockSlots * k.elem
	k.block = s.Heads * k.head
	mem, err := d.mem.mapped(int(k.Bytes()), false)
	if err != nil {
		return nil, err
	}
	part := s.Blocks * k.block
	for range s.Layers {
		k.layers = append(k.layers, [2][]byte{mem[:part:part], mem[part : 2*part : 2*part]})
		mem = mem[2*part:]
	}
	return k, nil
}

// matrix is packed weights: panels of 16-row groups, one panel a part.
type matrix struct {
	rows, cols, blocks, groups int
	in                         compute.Input
	panels                     []panel
	bytes                      int64
}

// panel is one part of a matrix: groups [first, first+groups) in one format.
type panel struct {
	format        kernel.Format
	first, groups int
	groupBytes    int
	data          []byte
}

func (m *matrix) Rows() int            { return m.rows }
func (m *matrix) Cols() int            { return m.cols }
func (m *matrix) Bytes() int64         { return m.bytes }
func (m *matrix) Input() compute.Input { return m.in }

// NewMatrix implements [compute.Device]. All workers pack.
func (d *Device) NewMatrix(parts ...compute.Part) (compute.Matrix, error) {
	m := &matrix{cols: parts[0].Cols, blocks: parts[0].Cols / kernel.BlockCols}
	if m.cols%kernel.BlockCols != 0 {
		return nil, fmt.Errorf("tensor %s: %d columns are not a multiple of %d, which the kernels need", parts[0].Name, m.cols, kernel.BlockCols)
	}
	for i := range parts {
		if err := d.addPanel(m, &parts[i], i == len(parts)-1); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", parts[i].Name, err)
		}
	}
	return m, nil
}

var errMixedInput = errors.New("integer and float weights are fused into one matrix")

// addPanel packs one part behind the panels that m has.
func (d *Device) addPanel(m *matrix, p *compute.Part, last bool) error {
	t := quant.Type(p.Type)
	rowBytes, err := quant.RowBytes(t, p.Cols)
	if err != nil {
		return err
	}
	switch {
	case p.Cols != m.cols:
		return fmt.Errorf("%d columns beside %d in the same matrix", p.Cols, m.cols)
	case len(p.Data) != p.Rows*rowBytes:
		return fmt.Errorf("%d bytes of data, %d rows of %d bytes expected", len(p.Data), p.Rows, rowBytes)
	case p.Rows%kernel.GroupRows != 0 && !last:
		return fmt.Errorf("%d rows are not a multiple of %d, which a fused matrix needs", p.Rows, kernel.GroupRows)
	}
	f := kernel.FormatOf(t)
	if in := inputOf(f); m.in == 0 {
		m.in = in
	} else if m.in != in {
		return errMixedInput
	}
	pn := panel{format: f, first: m.groups, groups: roundUp(p.Rows, kernel.GroupRows) / kernel.GroupRows, groupBytes: kernel.GroupBytes(f, p.Cols)}
	if pn.data, err = d.mem.weights(pn.groups * pn.groupBytes); err != nil {
		return err
	}
	d.pool.read(func(id int) {
		from, to := share(pn.groups, id, d.pool.n)
		for g := from; g < to; g++ {
			packGroup(pn.data[g*pn.groupBytes:(g+1)*pn.groupBytes], p, g, rowBytes)
		}
	})
	m.panels = append(m.panels, pn)
	m.rows += p.Rows
	m.groups += pn.groups
	m.bytes += int64(pn.groups) * int64(pn.groupBytes)
	return nil
}

// packGroup packs group g of a part, in the part's row order; rows past the end are zero.
func packGroup(dst []byte, p *compute.Part, g, rowBytes int) {
	var rows [kernel.GroupRows][]byte
	for lane := range rows {
		r := g*kernel.GroupRows + lane
		if r >= p.Rows {
			break
		}
		if p.RowOrder != nil {
			r = int(p.RowOrder[r])
		}
		rows[lane] = p.Data[r*rowBytes : (r+1)*rowBytes]
	}
	kernel.PackGroup(dst, quant.Type(p.Type), &rows, p.Cols)
}

// inputOf says which activations a format's kernels read.
func inputOf(f kernel.Format) compute.Input {
	if f >= kernel.F16 {
		return compute.Float32
	}
	return compute.Int8
}

// CopyKV implements [compute.Device].
func (d *Device) CopyKV(dst compute.KV, blocks, from, to []int32) {
	k := dst.(*kv)
	dim := k.spec.HeadDim
	for _, layer := range k.layers {
		for i := range from {
			fb, tb := int(blocks[from[i]/compute.BlockSlots])*k.block, int(blocks[to[i]/compute.BlockSlots])*k.block
			fs, ts := int(from[i]%compute.BlockSlots)*k.elem, int(to[i]%compute.BlockSlots)*k.elem
			for h := range k.spec.Heads {
				src, dst := layer[0][fb+h*k.head:], layer[0][tb+h*k.head:]
				for j := range dim {
					at := j * compute.BlockSlots * k.elem
					copy(dst[at+ts:at+ts+k.elem], src[at+fs:at+fs+k.elem])
				}
				src, dst = layer[1][fb+h*k.head:], layer[1][tb+h*k.head:]
				copy(dst[ts*dim:(ts+k.elem)*dim], src[fs*dim:(fs+k.elem)*dim])
			}
		}
	}
}

// CopyRow implements [compute.Device].
func (d *Device) CopyRow(dst compute.Tensor, to int, src compute.Tensor, from int) {
	x, y := src.(*tensor), dst.(*tensor)
	if x.cols != y.cols {
		panic("cpu: rows of different tensors differ in columns")
	}
	copy(y.row(to), x.row(from))
}

// Read implements [compute.Device].
func (d *Device) Read(t compute.Tensor, rows int, dst []float32) {
	x := t.(*tensor)
	for r := range rows {
		copy(dst[r*x.cols:(r+1)*x.cols], x.row(r))
	}
}

// ReadRow implements [compute.Device].
func (d *Device) ReadRow(t compute.Tensor, r int, dst []float32) {
	x := t.(*tensor)
	copy(dst[:x.cols], x.row(r))
}

// ReadWeights implements [compute.Device].
func (d *Device) ReadWeights(threads int) (int64, time.Duration) {
	const line = 1024 // what the kernel reads at a time
	total := 0
	for _, c := range d.mem.used {
		total += len(c) / line * line
	}
	start := time.Now()
	d.pool.run(func(id int) {
		if id >= threads {
			return
		}
		for _, c := range d.mem.used {
			from, to := share(len(c)/line, id, threads)
			for ; from < to; from += 512 { // half a MiB a call: the collector must not wait on assembly
				d.set.ReadMem(&c[from*line], min(512, to-from)*line)
			}
		}
	})
	return int64(total), time.Since(start)
}

// Profile implements [compute.Device].
func (d *Device) Profile(on bool) [compute.NumKinds]time.Duration {
	spent := d.spent
	d.spent = [compute.NumKinds]time.Duration{}
	d.profiling = on
	return spent
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
