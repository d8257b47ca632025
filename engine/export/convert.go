package export

import (
	"fmt"
	"io"
	"math"

	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// overflow is the least magnitude that a type rounds to infinity; a NaN is below none.
var overflow = map[quant.Type]float64{
	quant.F32:  math.Inf(1),
	quant.F16:  65520,                                      // half a step beyond the largest, 65504
	quant.BF16: float64(math.Float32frombits(0x7f7f_8000)), // likewise
	quant.Q8_0: 65504 * 127,                                // its scale, the largest magnitude over 127, is an F16
}

// convert returns a tensor of the given name and type, with the values of src row by row: row i is src's row
// order[i], or row i if order is nil. A value that is not a finite number, there or once it is rounded, is an error
// when the tensor is written, since nothing can run on it. After it has been written, release is called.
func convert(src weights.Tensor, name string, typ quant.Type, order []int32, release func(weights.Tensor)) weights.Lazy {
	to := weights.Lazy{Tensor: weights.Tensor{Name: name, Type: typ, Shape: src.Shape}}
	to.Write = func(w io.Writer) error {
		defer release(src)
		if src.Kind != weights.Weights || !src.Type.Known() {
			return fmt.Errorf("%s holds %s, want weights", src.Name, src.TypeName())
		}
		cols := src.Shape[len(src.Shape)-1]
		rows := src.Elements() / cols
		rowBytes := len(src.Data) / rows
		outBytes, err := quant.RowBytes(typ, cols)
		if err != nil {
			return err // StreamGGUF and StreamSafetensors have refused such a shape
		}
		values, out := make([]float32, cols), make([]byte, outBytes)
		for i := range rows {
			r := i
			if order != nil {
				r = int(order[i])
			}
			quant.Decode(src.Type, values, src.Data[r*rowBytes:(r+1)*rowBytes])
			for j, v := range values {
				if !(math.Abs(float64(v)) < overflow[typ]) {
					return notFinite(src.Name, r, j, v, typ)
				}
			}
			quant.Encode(typ, out, values)
			if _, err := w.Write(out); err != nil {
				return err
			}
		}
		return nil
	}
	return to
}

func notFinite(name string, row, col int, v float32, typ quant.Type) error {
	msg := fmt.Sprintf("tensor %s: row %d, column %d is %v", name, row, col, v)
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return &Error{Msg: msg + ", not a finite number", Hint: "the source is damaged: fetch it again, or run draftlab model verify"}
	}
	return &Error{Msg: fmt.Sprintf("%s, too large for %s", msg, typ), Hint: "choose a type of a larger range: bf16 or f32"}
}

// bytesOf returns the bytes that the tensors will take.
func bytesOf(tensors []weights.Lazy) (n int64) {
	for _, t := range tensors {
		n += lazyBytes(t)
	}
	return n
}

// lazyBytes returns the bytes of one tensor whose type divides its rows; where it does not, the writer refuses it.
func lazyBytes(t weights.Lazy) int64 {
	n := int64(t.Elements())
	if t.Kind == weights.Weights {
		return n / int64(t.Type.BlockElems()) * int64(t.Type.BlockBytes())
	}
	return n * int64(map[weights.Kind]int{weights.I32: 4, weights.I64: 8, weights.Bool: 1}[t.Kind])
}

// parametersOf counts the elements of the weights.
func parametersOf(tensors []weights.Lazy) (n int64) {
	for _, t := range tensors {
		if t.Kind == weights.Weights {
			n += int64(t.Elements())
		}
	}
	return n
}
