package eagle3

import (
	"math"

	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// reference is the drafter in float64, written from the paper's description row by row.
type reference struct {
	c     Config
	w     map[string][]float64
	k, v  [][]float64 // [row][KVHeads·HeadDim] of the rows run so far, keys rotated
	embed func(token int32) []float64
}

func newReference(c Config, tensors []weights.Tensor, embed func(int32) []float64) *reference {
	m := &reference{c: c, w: map[string][]float64{}, embed: embed}
	for _, t := range tensors {
		if t.Kind != weights.Weights {
			continue
		}
		v := make([]float32, t.Elements())
		quant.Decode(t.Type, v, t.Data)
		m.w[canonical(t.Name)] = widen(v)
	}
	return m
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func (m *reference) mul(name string, x []float64) []float64 {
	w := m.w[name]
	y := make([]float64, len(w)/len(x))
	for r := range y {
		for i, v := range x {
			y[r] += w[r*len(x)+i] * v
		}
	}
	return y
}

func (m *reference) norm(name string, x []float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	r := 1 / math.Sqrt(sum/float64(len(x))+float64(m.c.NormEps))
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * r * m.w[name][i]
	}
	return y
}

func plus(x, y []float64) []float64 {
	z := make([]float64, len(x))
	for i := range x {
		z[i] = x[i] + y[i]
	}
	return z
}

// feature fuses three hidden states of the target.
func (m *reference) feature(tapped [taps][]float64) []float64 {
	var g []float64
	for i, h := range tapped {
		if m.c.FCNorm {
			h = m.norm([]string{"fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight"}[i], h)
		}
		g = append(g, h...)
	}
	if m.c.NormBeforeFC {
		g = m.norm("input_norm.weight", g)
	}
	return m.mul("fc.weight", g)
}

func (m *reference) rotate(x []float64, pos int) {
	half := m.c.HeadDim / 2
	for h := 0; h < len(x); h += m.c.HeadDim {
		for i := range half {
			angle := float64(pos) * math.Pow(m.c.Rope.Theta, -float64(2*i)/float64(m.c.HeadDim))
			a, b := x[h+i], x[h+i+half]
			x[h+i] = a*math.Cos(angle) - b*math.Sin(angle)
			x[h+i+half] = b*math.Cos(angle) + a*math.Sin(angle)
		}
	}
}

// row runs one row that sees the given earlier rows and itself, and returns its index, what the next step takes as state,
// and its logits.
func (m *reference) row(token int32, pos int, state []float64, sees []int) (at int, out, logits []float64) {
	const layer, attn, mlp = "midlayer.", "midlayer.self_attn.", "midlayer.mlp."
	normed := m.norm(layer+"hidden_norm.weight", state)
	x := append(m.norm(layer+"input_layernorm.weight", m.embed(token)), normed...)
	q, k := m.mul(attn+"q_proj.weight", x), m.mul(attn+"k_proj.weight", x)
	m.rotate(q, pos)
	m.rotate(k, pos)
	at = len(m.k)
	m.k, m.v = append(m.k, k), append(m.v, m.mul(attn+"v_proj.weight", x))
	if m.c.NormBeforeResidual {
		state = normed
	}
	x = plus(state, m.mul(attn+"o_proj.weight", m.attend(q, append(append([]int{}, sees...), at))))
	n := m.norm(layer+"post_attention_layernorm.weight", x)
	gate, up := m.mul(mlp+"gate_proj.weight", n), m.mul(mlp+"up_proj.weight", n)
	for i, g := range gate {
		gate[i] = g / (1 + math.Exp(-g)) * up[i]
	}
	x = plus(x, m.mul(mlp+"down_proj.weight", gate))
	last := m.norm("norm.weight", x)
	if out = x; m.c.NormOutput {
		out = last
	}
	return at, out, m.mul("lm_head.weight", last)
}

func (m *reference) attend(q []float64, sees []int) []float64 {
	dim := m.c.HeadDim
	out := make([]float64, len(q))
	for h := range m.c.Heads {
		kv := h / (m.c.Heads / m.c.KVHeads) * dim
		var sum float64
		for _, r := range sees {
			var dot float64
			for i := range dim {
				dot += q[h*dim+i] * m.k[r][kv+i]
			}
			w := math.Exp(dot / math.Sqrt(float64(dim)))
			sum += w
			for i := range dim {
				out[h*dim+i] += w * m.v[r][kv+i]
			}
		}
		for i := range dim {
			out[h*dim+i] /= sum
		}
	}
	return out
}
