package weights

import (
	"encoding/binary"
	"fmt"

	"draftlab/engine/quant"
)

// Kind says what the elements of a tensor are.
type Kind uint8

// The kinds of tensor. All but Weights are for the index maps of drafters; GGUF has no Bool.
const (
	Weights Kind = iota // numbers in the block format Tensor.Type
	I32                 // 4-byte little-endian integers
	I64                 // 8-byte little-endian integers
	Bool                // one byte each, 0 or 1
)

// NotWeights is the Type of a tensor whose Kind is not Weights. It is no known format, so code that
// looks only at Type refuses such a tensor.
const NotWeights = ^quant.Type(0)

var kindNames = [...]string{Weights: "weights", I32: "I32", I64: "I64", Bool: "BOOL"}
var kindBytes = [...]int{I32: 4, I64: 8, Bool: 1}

// String returns the name that safetensors uses, or "weights".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Tensor is one tensor of a file, or one to be written. It is valid until its File is closed.
type Tensor struct {
	Name   string
	Kind   Kind       // Weights for all but integers and booleans
	Type   quant.Type // block format of Weights; NotWeights otherwise
	Shape  []int      // row-major, outermost first ([rows, cols]; GGUF's order turned round); empty for a scalar
	Data   []byte     // mapped and read-only: writing to it is a fault
	Offset int64      // of Data in its file, in bytes

	src *mapping // the mapping that holds Data; nil if none does
}

// Elements returns the product of Shape; 1 for a scalar.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// TypeName returns the element type as files name it: "Q4_1", "BF16", "I64", "BOOL".
func (t Tensor) TypeName() string {
	if t.Kind == Weights {
		return t.Type.String()
	}
	return t.Kind.String()
}

// Floats decodes the elements of a Weights tensor; another kind is an error. It takes 4 bytes an
// element and is for vectors, checks and export: large matrices are better repacked row by row.
func (t Tensor) Floats() ([]float32, error) {
	if t.Kind != Weights || !t.Type.Known() {
		return nil, fmt.Errorf("tensor %s holds %s, want weights", quoteShort(t.Name), t.TypeName())
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	out := make([]float32, t.Elements())
	quant.Decode(t.Type, out, t.Data)
	return out, nil
}

// Int64s returns the elements of an I32 or I64 tensor; any other kind is an error.
func (t Tensor) Int64s() ([]int64, error) {
	if t.Kind != I64 && t.Kind != I32 {
		return nil, fmt.Errorf("tensor %s holds %s, want I64 or I32", quoteShort(t.Name), t.TypeName())
	}
	width := kindBytes[t.Kind]
	out := make([]int64, len(t.Data)/width)
	for i := range out {
		if t.Kind == I64 {
			out[i] = int64(binary.LittleEndian.Uint64(t.Data[i*width:]))
		} else {
			out[i] = int64(int32(binary.LittleEndian.Uint32(t.Data[i*width:])))
		}
	}
	return out, nil
}

// Bools returns the elements of a Bool tensor; another kind, or a byte other than 0 and 1, is an error.
func (t Tensor) Bools() ([]bool, error) {
	if t.Kind != Bool {
		return nil, fmt.Errorf("tensor %s holds %s, want BOOL", quoteShort(t.Name), t.TypeName())
	}
	out := make([]bool, len(t.Data))
	for i, b := range t.Data {
		if b > 1 {
			return nil, fmt.Errorf("tensor %s: element %d is the byte %d, not a boolean", quoteShort(t.Name), i, b)
		}
		out[i] = b == 1
	}
	return out, nil
}

// FromFloats returns a tensor with the given values encoded as typ, to be written. It is an error
// if the shape does not hold exactly the values or its innermost dimension cuts a block.
func FromFloats(name string, typ quant.Type, values []float32, shape ...int) (Tensor, error) {
	t := Tensor{Name: name, Type: typ, Shape: shape}
	n, err := byteSize(Weights, typ, shape)
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %s: %w", quoteShort(name), err)
	}
	if t.Elements() != len(values) {
		return Tensor{}, fmt.Errorf("tensor %s: shape %v for %d values", quoteShort(name), shape, len(values))
	}
	t.Data = make([]byte, n)
	quant.Encode(typ, t.Data, values)
	return t, nil
}

// FromInts returns an I64 tensor with the given values, to be written.
func FromInts(name string, values []int64, shape ...int) Tensor {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return Tensor{Name: name, Kind: I64, Type: NotWeights, Shape: shape, Data: data}
}

// FromBools returns a Bool tensor with the given values, to be written.
func FromBools(name string, values []bool, shape ...int) Tensor {
	data := make([]byte, len(values))
	for i, v := range values {
		if v {
			data[i] = 1
		}
	}
	return Tensor{Name: name, Kind: Bool, Type: NotWeights, Shape: shape, Data: data}
}

// check reports whether Data has the bytes that kind, type and shape ask for. It holds for every
// tensor of a File; one that a caller made may break it.
func (t Tensor) check() error {
	if err := t.checkShape(); err != nil {
		return err
	}
	if n := t.size(); n != len(t.Data) {
		return fmt.Errorf("tensor %s: %d bytes of data, but shape %v of %s takes %d", quoteShort(t.Name), len(t.Data), t.Shape, t.TypeName(), n)
	}
	return nil
}

// checkShape reports whether kind, type and shape go together, whatever Data holds.
func (t Tensor) checkShape() error {
	if _, err := byteSize(t.Kind, t.Type, t.Shape); err != nil {
		return fmt.Errorf("tensor %s: %w", quoteShort(t.Name), err)
	}
	return nil
}

// size returns the bytes that kind, type and shape ask for; checkShape has passed.
func (t Tensor) size() int {
	n, err := byteSize(t.Kind, t.Type, t.Shape)
	if err != nil {
		panic("weights: size of a tensor that was not checked: " + err.Error())
	}
	return n
}

// byteSize returns the bytes that the elements take, with every product checked, so that a shape
// from a file cannot overflow. Dimensions must be positive.
func byteSize(kind Kind, typ quant.Type, shape []int) (int, error) {
	inner, rows := 1, 1
	if len(shape) > 0 {
		inner = shape[len(shape)-1]
	}
	for i, d := range shape {
		if d <= 0 {
			return 0, fmt.Errorf("shape %v has a dimension of %d", shape, d)
		}
		if i == len(shape)-1 {
			break
		}
		if rows > maxInt/d {
			return 0, fmt.Errorf("shape %v overflows", shape)
		}
		rows *= d
	}
	rowBytes, err := rowSize(kind, typ, inner)
	if err != nil {
		return 0, err
	}
	// Blocks hold fewer bytes than 4 an element or elements than 1 a byte, so both products are checked.
	if rows > maxInt/rowBytes || rows > maxInt/inner {
		return 0, fmt.Errorf("shape %v overflows", shape)
	}
	return rows * rowBytes, nil
}

func rowSize(kind Kind, typ quant.Type, cols int) (int, error) {
	if kind == Weights {
		return quant.RowBytes(typ, cols)
	}
	if int(kind) >= len(kindBytes) {
		return 0, fmt.Errorf("unknown kind of tensor %d", uint8(kind))
	}
	if cols > maxInt/kindBytes[kind] {
		return 0, fmt.Errorf("a row of %d elements is too long", cols)
	}
	return cols * kindBytes[kind], nil
}

const maxInt = int(^uint(0) >> 1)
