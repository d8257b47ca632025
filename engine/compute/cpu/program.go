package cpu

import (
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
)

// step is one operation of a recorded pass. All workers call run, each doing its share of the rows
// live rows; the barrier between steps is the caller's.
type step interface {
	run(w *worker, b *compute.Batch, rows int)
}

// program is a recorded pass over one batch.
type program struct {
	batch *compute.Batch
	steps []recorded
	walk  func(id int) // bound once, so that Run allocates nothing
}

// recorded is a step with what the walk needs to know of it.
type recorded struct {
	step
	kind compute.Kind
	outs bool // works on the output rows
}

// recorder implements [compute.Recorder].
type recorder struct {
	d        *Device
	p        *program
	outs     bool
	rotation *rotation // recorded by the first layer
}

// Record implements [compute.Device].
func (d *Device) Record(b *compute.Batch, f func(compute.Recorder)) compute.Program {
	p := &program{batch: b}
	p.walk = func(id int) { d.walk(p, id) }
	f(&recorder{d: d, p: p})
	return p
}

func (r *recorder) add(k compute.Kind, s step) {
	r.p.steps = append(r.p.steps, recorded{step: s, kind: k, outs: r.outs})
}

// grow makes sure that a scratch buffer of every worker holds n floats.
func (r *recorder) grow(n int, buffer func(*worker) *[]float32) {
	for i := range r.d.workers {
		if b := buffer(&r.d.workers[i]); len(*b) < n {
			*b = floatsAligned(n)
		}
	}
}

func rowBuffer(w *worker) *[]float32  { return &w.row }
func upBuffer(w *worker) *[]float32   { return &w.up }
func outBuffer(w *worker) *[]float32  { return &w.out }
func restBuffer(w *worker) *[]float32 { return &w.rest }
func pairBuffer(w *worker) *[]float32 { return &w.pair }

// packs notes that a step packs rows into o.
func (r *recorder) packs(o *operand) {
	if o.terms == 2 {
		r.grow(o.blocks*kernel.BlockCols, restBuffer)
	}
}

// Run implements [compute.Device].
func (d *Device) Run(p compute.Program) {
	prog := p.(*program)
	if prog.batch.Rows == 0 {
		return
	}
	d.plan.prepare(prog.batch)
	d.pool.run(prog.walk)
}

// walk is one worker's way through a program.
func (d *Device) walk(p *program, id int) {
	if d.logging {
		d.walkLogged(p, id)
		return
	}
	w := &d.workers[id]
	measure := d.profiling && id == 0
	var last time.Time
	if measure {
		last = time.Now()
	}
	for i := range p.steps {
		s := &p.steps[i]
		rows := p.batch.Rows
		if s.outs {
			rows = p.batch.Outs
		}
		s.run(w, p.batch, rows)
		if i < len(p.steps)-1 {
			d.pool.barrier() // the pool ends the last step with its own
		}
		if measure {
			now := time.Now()
			d.spent[s.kind] += now.Sub(last)
			last = now
		}
	}
}

// put packs x, n blocks from block blk of row r, into an operand of rows rows.
func (w *worker) put(o *operand, rows, r, blk, n int, x []float32) {
	set := w.d.set
	if o.ints != nil {
		at, stride := o.unit(rows, r, 0, blk)
		set.Quantize(&o.ints[at], &x[0], n, stride)
		if o.terms == 2 {
			set.Residual(&w.rest[0], &x[0], &o.ints[at], n, stride)
			at, stride = o.unit(rows, r, 1, blk)
			set.Quantize(&o.ints[at], &w.rest[0], n, stride)
		}
	}
	if o.floats != nil {
		t := min(kernel.TileRows, rows-r/kernel.TileRows*kernel.TileRows)
		set.CopyUnits(&o.floats[kernel.TileOffset(rows, r, blk, o.blocks, kernel.FloatUnit)], &x[0], n, t*kernel.FloatUnit)
	}
}
