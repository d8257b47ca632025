package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// KeyValue is one GGUF key with its value: a bool, string, float32, float64 or sized integer, or a slice of one of those.
type KeyValue struct {
	Key   string
	Value any
}

// Metadata reads the keys of a GGUF file. A getter's ok is false if the key is absent, and also
// if it is present with a value of another type or out of range; the latter is kept as an error
// that [Metadata.Err] returns. So a caller reads all keys that it wants and asks Err once:
//
//	m := file.Meta()
//	layers, ok := m.Uint("llama.block_count")
//	…
//	if err := m.Err(); err != nil { return err }
//
// A Metadata is for one goroutine; each call of [File.Meta] returns another one.
type Metadata struct {
	file string
	table
	errs *[]error
}

// table is the key/value section of a file; it does not change once read.
type table struct {
	values map[string]value
	keys   []string // in file order
}

// value is a GGUF value as it lies in the file.
type value struct {
	typ   valueType // of the value, or of an array's elements
	array bool
	n     int    // elements; 1 if it is no array
	raw   string // little-endian bytes; strings of an array each behind a length
	off   int    // byte in the file at which the value's type stands
}

func newMetadata(file string, t table) Metadata { return Metadata{file, t, new([]error)} }

// Err returns what the getters have met so far: every key that was present with an unsuitable value.
func (m Metadata) Err() error {
	if m.errs == nil {
		return nil
	}
	return errors.Join(*m.errs...)
}

// Keys returns all keys in file order. The caller owns the slice.
func (m Metadata) Keys() []string { return append([]string(nil), m.keys...) }

// String returns a string.
func (m Metadata) String(key string) (string, bool) {
	v, ok := m.find(key, false, "a string", typeString)
	return v.raw, ok
}

// Uint returns an integer of any width that is not negative.
func (m Metadata) Uint(key string) (uint64, bool) {
	v, ok := m.find(key, false, "an integer", integers...)
	if !ok {
		return 0, false
	}
	if v.typ == typeU64 {
		return v.bits(0), true
	}
	n, _ := v.integer(0)
	if n < 0 {
		_ = m.wrong(key, fmt.Sprintf("is %d, must not be negative", n))
		return 0, false
	}
	return uint64(n), true
}

// Int returns an integer of any width that fits into 64 bits with a sign.
func (m Metadata) Int(key string) (int64, bool) {
	v, ok := m.find(key, false, "an integer", integers...)
	if !ok {
		return 0, false
	}
	n, fits := v.integer(0)
	if !fits {
		_ = m.wrong(key, fmt.Sprintf("is %d, too large", v.bits(0)))
	}
	return n, fits
}

// Float returns a float32, widened, or a float64.
func (m Metadata) Float(key string) (float64, bool) {
	v, ok := m.find(key, false, "a float", typeF32, typeF64)
	if !ok {
		return 0, false
	}
	return v.float(0), true
}

// Bool returns a boolean.
func (m Metadata) Bool(key string) (b, ok bool) {
	v, ok := m.find(key, false, "a bool", typeBool)
	return ok && v.raw[0] == 1, ok
}

// Strings returns an array of strings. The caller owns the slice.
func (m Metadata) Strings(key string) ([]string, bool) {
	v, ok := m.find(key, true, "an array of strings", typeString)
	if !ok {
		return nil, false
	}
	return stringsIn(v.raw, v.n), true
}

// Ints returns an array of integers of any width. The caller owns the slice.
func (m Metadata) Ints(key string) ([]int64, bool) {
	v, ok := m.find(key, true, "an array of integers", integers...)
	if !ok {
		return nil, false
	}
	out := make([]int64, v.n)
	for i := range out {
		n, fits := v.integer(i)
		if !fits {
			_ = m.wrong(key, fmt.Sprintf("has the element %d, too large", v.bits(i)))
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

// Floats returns an array of float32, widened, or of float64. The caller owns the slice.
func (m Metadata) Floats(key string) ([]float64, bool) {
	v, ok := m.find(key, true, "an array of floats", typeF32, typeF64)
	if !ok {
		return nil, false
	}
	out := make([]float64, v.n)
	for i := range out {
		out[i] = v.float(i)
	}
	return out, true
}

// Value returns a value as the Go type that WriteGGUF writes back alike: uint32, string, []float32, ….
// The caller owns a slice. It never records an error.
func (m Metadata) Value(key string) (any, bool) {
	v, ok := m.values[key]
	if !ok {
		return nil, false
	}
	return v.native(), true
}

var integers = []valueType{typeU8, typeI8, typeU16, typeI16, typeU32, typeI32, typeU64, typeI64}

// find returns the key's value if it is of one of the types, and records an error if it is of another.
func (m Metadata) find(key string, array bool, want string, types ...valueType) (value, bool) {
	v, ok := m.values[key]
	if !ok {
		return value{}, false
	}
	if v.array == array {
		for _, t := range types {
			if v.typ == t {
				return v, true
			}
		}
	}
	_ = m.wrong(key, fmt.Sprintf("is %s, want %s", v.describe(), want))
	return value{}, false
}

// wrong records and returns the error that a key's value is unsuitable.
func (m Metadata) wrong(key, problem string) error {
	err := &FormatError{File: m.file, Offset: int64(m.values[key].off), Problem: "key " + quoteShort(key) + " " + problem}
	*m.errs = append(*m.errs, err)
	return err
}

// describe names the value's type for a message.
func (v value) describe() string {
	if v.array {
		return fmt.Sprintf("an array of %d %s", v.n, valueTypes[v.typ].name)
	}
	return "of type " + valueTypes[v.typ].name
}

// bits returns element i, zero-extended.
func (v value) bits(i int) uint64 {
	var b [8]byte
	width := valueTypes[v.typ].bytes
	copy(b[:], v.raw[i*width:(i+1)*width])
	return binary.LittleEndian.Uint64(b[:])
}

// integer returns element i of an integer type; fits is false if it is above the range of int64.
func (v value) integer(i int) (n int64, fits bool) {
	b := v.bits(i)
	switch v.typ {
	case typeI8:
		return int64(int8(b)), true
	case typeI16:
		return int64(int16(b)), true
	case typeI32:
		return int64(int32(b)), true
	case typeI64:
		return int64(b), true
	}
	return int64(b), b <= math.MaxInt64
}

// float returns element i of a float type.
func (v value) float(i int) float64 {
	if v.typ == typeF32 {
		return float64(math.Float32frombits(uint32(v.bits(i))))
	}
	return math.Float64frombits(v.bits(i))
}

// native returns the value as the Go type of the same width.
func (v value) native() any {
	switch v.typ {
	case typeString:
		if v.array {
			return stringsIn(v.raw, v.n)
		}
		return v.raw
	case typeBool:
		return elements(v, func(i int) bool { return v.raw[i] == 1 })
	case typeF32:
		return elements(v, func(i int) float32 { return math.Float32frombits(uint32(v.bits(i))) })
	case typeF64:
		return elements(v, v.float)
	case typeU8:
		return elements(v, func(i int) uint8 { return v.raw[i] })
	case typeI8:
		return elements(v, func(i int) int8 { return int8(v.raw[i]) })
	case typeU16:
		return elements(v, func(i int) uint16 { return uint16(v.bits(i)) })
	case typeI16:
		return elements(v, func(i int) int16 { return int16(v.bits(i)) })
	case typeU32:
		return elements(v, func(i int) uint32 { return uint32(v.bits(i)) })
	case typeI32:
		return elements(v, func(i int) int32 { return int32(v.bits(i)) })
	case typeU64:
		return elements(v, v.bits)
	}
	return elements(v, func(i int) int64 { return int64(v.bits(i)) })
}

// elements returns the lone element, or a slice of all if the value is an array.
func elements[T any](v value, at func(i int) T) any {
	if !v.array {
		return at(0)
	}
	out := make([]T, v.n)
	for i := range out {
		out[i] = at(i)
	}
	return out
}
