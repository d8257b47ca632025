package model

import "draftlab/engine/compute"

// ParamCount is the number of weights, norms and biases included, a tied embedding counted once.
func (c Config) ParamCount() int64 {
	var n int64
	add := func(roles []role, times int) {
		for _, r := range roles {
			elements := int64(times)
			for _, d := range c.shape(r) {
				elements *= int64(d)
			}
			n += elements
		}
	}
	add(c.globalRoles(), 1)
	add(c.layerRoles(), c.Layers)
	return n
}

// MatMACsPerRow is the multiply-adds of the matrix products of one row, its logits included.
func (c Config) MatMACsPerRow() int64 {
	layer := c.QKVRows()*c.Hidden + c.Heads*c.HeadDim*c.Hidden + 3*c.FFN*c.Hidden
	return int64(c.Layers)*int64(layer) + int64(c.Vocab)*int64(c.Hidden)
}

// AttentionMACsPerRow is the multiply-adds of one row's scores and weighted sums over context positions.
func (c Config) AttentionMACsPerRow(context int) int64 {
	return 2 * int64(c.Layers) * int64(c.Heads) * int64(c.HeadDim) * int64(context)
}

// FLOPsPerRow counts two operations for each multiply-add of one row that sees context positions.
func (c Config) FLOPsPerRow(context int) int64 {
	return 2 * (c.MatMACsPerRow() + c.AttentionMACsPerRow(context))
}

// KVBytesPerToken is the size of one position's keys and values, all layers: what a pass appends for a row.
func (c Config) KVBytesPerToken(float32KV bool) int64 {
	size := int64(2) // float16
	if float32KV {
		size = 4
	}
	return 2 * int64(c.Layers) * int64(c.KVHeads) * int64(c.HeadDim) * size
}

// WeightBytesPerToken is what one pass reads of the weights as they lie on the device, however many rows it
// has: the layers and the head once. An embedding that is not the head does not count; a pass reads a
// row of it for each token.
func (m *Model) WeightBytesPerToken() int64 {
	n := m.vectorBytes + m.head.Bytes()
	for i := range m.layers {
		l := &m.layers[i]
		for _, w := range []compute.Matrix{l.qkv, l.o, l.gate, l.up, l.down} {
			n += w.Bytes()
		}
	}
	return n
}

// WeightBytes is the memory that the weights take on the device.
func (m *Model) WeightBytes() int64 {
	n := m.WeightBytesPerToken()
	if !m.cfg.TiedHead {
		n += m.embed.Bytes()
	}
	return n
}
