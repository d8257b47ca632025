package eagle3

import "draftlab/engine/compute"

// WeightBytesPerPass is what one Run reads of the weights as they lie on the device, however many rows it has; the
// embedding, of which a pass reads a row for each token, does not count.
func (d *Drafter) WeightBytesPerPass() int64 {
	n := d.head.Bytes()
	for _, w := range []compute.Matrix{d.qkv, d.o, d.gate, d.up, d.down} {
		n += w.Bytes()
	}
	return n
}

// FeatureBytesPerPass is what Features reads of the weights, however many rows it makes.
func (d *Drafter) FeatureBytesPerPass() int64 { return d.fc.Bytes() }
