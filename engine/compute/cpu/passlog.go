package cpu

import "draftlab/engine/compute"

// LogPasses implements [compute.PassLogger].
func (d *Device) LogPasses(on bool) {
	d.logging = on
	for i := range d.workers {
		d.workers[i].passes = nil
	}
}

// Passes implements [compute.PassLogger].
func (d *Device) Passes(f func(worker int, p *compute.WorkerPass)) {
	for i := range d.workers {
		w := &d.workers[i]
		for j := range w.passes {
			f(i, &w.passes[j])
		}
		w.passes = w.passes[:0]
	}
}

// walkLogged is walk with a look at the clock around each step.
func (d *Device) walkLogged(p *program, id int) {
	w := &d.workers[id]
	pass := compute.WorkerPass{From: d.clock.Mark()}
	at := pass.From
	for i := range p.steps {
		s := &p.steps[i]
		rows := p.batch.Rows
		if s.outs {
			rows = p.batch.Outs
		}
		s.run(w, p.batch, rows)
		pass.To = d.clock.Mark()
		pass.Kinds[s.kind] += pass.To - at
		if i < len(p.steps)-1 {
			d.pool.barrier()
			at = d.clock.Mark()
		}
	}
	w.passes = append(w.passes, pass)
}
