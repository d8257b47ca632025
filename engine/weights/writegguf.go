package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"draftlab/engine/quant"
)

// WriteGGUF writes a GGUF file, version 3, little-endian: the keys in their order, then the
// tensors in theirs, aligned to the key general.alignment (a uint32) or to 32 bytes. It writes
// only what [ParseGGUF] reads, and refuses the rest before the first byte is written. Data goes to
// w as it is, in large pieces; a caller that wants the file whole or not at all writes it under
// another name and renames it.
func WriteGGUF(w io.Writer, meta []KeyValue, tensors []Tensor) error {
	lazy, err := ready(tensors)
	if err != nil {
		return fmt.Errorf("write GGUF: %w", err)
	}
	return StreamGGUF(w, meta, lazy)
}

// StreamGGUF is WriteGGUF for tensors whose bytes are made as they are written.
func StreamGGUF(w io.Writer, meta []KeyValue, tensors []Lazy) error {
	align, err := checkGGUF(meta, tensors)
	if err != nil {
		return err
	}
	header := append([]byte(ggufMagic), 3, 0, 0, 0)
	header = binary.LittleEndian.AppendUint64(header, uint64(len(tensors)))
	header = binary.LittleEndian.AppendUint64(header, uint64(len(meta)))
	for _, kv := range meta {
		header = appendString(header, kv.Key)
		if header, err = appendValue(header, kv.Value); err != nil {
			return fmt.Errorf("write GGUF: key %s: %w", quoteShort(kv.Key), err)
		}
	}
	off := uint64(0)
	for _, t := range tensors {
		header = appendTensorInfo(header, t.Tensor, off)
		off = alignUp(off+uint64(t.size()), align)
	}
	if len(header) > maxGGUFHeader {
		return fmt.Errorf("write GGUF: keys and tensor table take %d bytes, more than the %d that are read", len(header), maxGGUFHeader)
	}
	_, err = w.Write(header)
	if err == nil {
		err = pad(w, len(header), align)
	}
	if err != nil {
		return fmt.Errorf("write GGUF: header: %w", err)
	}
	for _, t := range tensors {
		if err = t.write(w); err == nil {
			err = pad(w, t.size(), align)
		}
		if err != nil {
			return fmt.Errorf("write GGUF: tensor %s: %w", quoteShort(t.Name), err)
		}
	}
	return nil
}

// checkGGUF checks all that the reader would refuse, save the types of values, and returns the alignment.
func checkGGUF(meta []KeyValue, tensors []Lazy) (align uint64, err error) {
	align = ggufAlignment
	seen := make(map[string]bool)
	for _, kv := range meta {
		if err := checkName(kv.Key, seen); err != nil {
			return 0, fmt.Errorf("write GGUF: key %w", err)
		}
		switch kv.Key {
		case alignmentKey:
			a, ok := kv.Value.(uint32)
			if !ok || a == 0 || a%8 != 0 {
				return 0, fmt.Errorf("write GGUF: %s is %v, want a uint32 that is a multiple of 8", alignmentKey, kv.Value)
			}
			align = uint64(a)
		case splitCountKey:
			return 0, fmt.Errorf("write GGUF: the key %s is for shards, which are not written", splitCountKey)
		}
	}
	clear(seen)
	for _, t := range tensors {
		if err := checkName(t.Name, seen); err != nil {
			return 0, fmt.Errorf("write GGUF: tensor %w", err)
		}
		if err := t.checkShape(); err != nil {
			return 0, fmt.Errorf("write GGUF: %w", err)
		}
		if n := len(t.Shape); n == 0 || n > ggufMaxDims {
			return 0, fmt.Errorf("write GGUF: tensor %s has %d dimensions, want 1 to %d", quoteShort(t.Name), n, ggufMaxDims)
		}
		if t.Kind == Bool {
			return 0, fmt.Errorf("write GGUF: tensor %s: GGUF has no type for booleans", quoteShort(t.Name))
		}
	}
	return align, nil
}

// checkName checks a key or a tensor's name and marks it as seen.
func checkName(name string, seen map[string]bool) error {
	switch {
	case name == "" || len(name) > ggufMaxName || !utf8.ValidString(name):
		return fmt.Errorf("%s is empty, too long or not UTF-8", quoteShort(name))
	case seen[name]:
		return fmt.Errorf("%s occurs twice", quoteShort(name))
	}
	seen[name] = true
	return nil
}

func appendTensorInfo(b []byte, t Tensor, off uint64) []byte {
	b = appendString(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
	for _, d := range slices.Backward(t.Shape) {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	typ := map[Kind]quant.Type{Weights: t.Type, I32: ggufI32, I64: ggufI64}[t.Kind]
	b = binary.LittleEndian.AppendUint32(b, uint32(typ))
	return binary.LittleEndian.AppendUint64(b, off)
}

// pad writes zeros behind n bytes up to a multiple of align.
func pad(w io.Writer, n int, align uint64) error {
	left := alignUp(uint64(n), align) - uint64(n)
	// An alignment may be up to 4 GiB, so the padding is written in pieces.
	zeros := make([]byte, min(left, 1<<16))
	for left > 0 {
		piece := zeros[:min(left, uint64(len(zeros)))]
		if _, err := w.Write(piece); err != nil {
			return err
		}
		left -= uint64(len(piece))
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends a value behind its type.
func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case []uint8:
		return appendArray(b, v)
	case []int8:
		return appendArray(b, v)
	case []uint16:
		return appendArray(b, v)
	case []int16:
		return appendArray(b, v)
	case []uint32:
		return appendArray(b, v)
	case []int32:
		return appendArray(b, v)
	case []uint64:
		return appendArray(b, v)
	case []int64:
		return appendArray(b, v)
	case []float32:
		return appendArray(b, v)
	case []float64:
		return appendArray(b, v)
	case []bool:
		return appendArray(b, v)
	case []string:
		return appendArray(b, v)
	}
	typ, raw, err := encodeScalar(nil, v)
	if err != nil {
		return nil, err
	}
	return append(binary.LittleEndian.AppendUint32(b, uint32(typ)), raw...), nil
}

func appendArray[T any](b []byte, vs []T) ([]byte, error) {
	var zero T
	typ, _, err := encodeScalar(nil, zero)
	if err != nil {
		return nil, err
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(typeArray))
	b = binary.LittleEndian.AppendUint32(b, uint32(typ))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(vs)))
	for _, v := range vs {
		if _, b, err = encodeScalar(b, v); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// encodeScalar appends a value without its type and returns both.
func encodeScalar(b []byte, v any) (valueType, []byte, error) {
	le := binary.LittleEndian
	switch v := v.(type) {
	case uint8:
		return typeU8, append(b, v), nil
	case int8:
		return typeI8, append(b, byte(v)), nil
	case uint16:
		return typeU16, le.AppendUint16(b, v), nil
	case int16:
		return typeI16, le.AppendUint16(b, uint16(v)), nil
	case uint32:
		return typeU32, le.AppendUint32(b, v), nil
	case int32:
		return typeI32, le.AppendUint32(b, uint32(v)), nil
	case uint64:
		return typeU64, le.AppendUint64(b, v), nil
	case int64:
		return typeI64, le.AppendUint64(b, uint64(v)), nil
	case float32:
		return typeF32, le.AppendUint32(b, math.Float32bits(v)), nil
	case float64:
		return typeF64, le.AppendUint64(b, math.Float64bits(v)), nil
	case bool:
		if v {
			return typeBool, append(b, 1), nil
		}
		return typeBool, append(b, 0), nil
	case string:
		return typeString, appendString(b, v), nil
	}
	return 0, nil, fmt.Errorf("a value of Go type %T cannot be written", v)
}
