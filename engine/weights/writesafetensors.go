package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"unicode/utf8"
)

// WriteSafetensors writes a safetensors file. The metadata may be nil; {"format": "pt"} is what
// Python's loaders expect. Tensors with wider elements go first, in the caller's order among equals,
// so that every element is aligned, as the format's reference writer does. It writes only what
// [ParseSafetensors] reads, and refuses the rest before the first byte is written. A caller that
// wants the file whole or not at all writes it under another name and renames it.
func WriteSafetensors(w io.Writer, metadata map[string]string, tensors []Tensor) error {
	lazy, err := ready(tensors)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return StreamSafetensors(w, metadata, lazy)
}

// StreamSafetensors is WriteSafetensors for tensors whose bytes are made as they are written.
func StreamSafetensors(w io.Writer, metadata map[string]string, tensors []Lazy) error {
	for _, t := range tensors {
		if err := t.checkShape(); err != nil {
			return fmt.Errorf("write safetensors: %w", err)
		}
		if _, ok := elementTypes[t.TypeName()]; !ok {
			return fmt.Errorf("write safetensors: tensor %s: the format has no element type %s", quoteShort(t.Name), t.TypeName())
		}
		if len(t.Shape) > safetensorsMaxDims {
			return fmt.Errorf("write safetensors: tensor %s has %d dimensions, more than %d", quoteShort(t.Name), len(t.Shape), safetensorsMaxDims)
		}
	}
	ordered := append([]Lazy(nil), tensors...)
	sort.SliceStable(ordered, func(i, j int) bool { return ordered[i].elementBytes() > ordered[j].elementBytes() })
	header, err := safetensorsJSON(metadata, ordered)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)); err != nil {
		return fmt.Errorf("write safetensors: header: %w", err)
	}
	for _, t := range ordered {
		if err := t.write(w); err != nil {
			return fmt.Errorf("write safetensors: tensor %s: %w", quoteShort(t.Name), err)
		}
	}
	return nil
}

// elementBytes returns the width of an element of a type that safetensors has.
func (t Tensor) elementBytes() int {
	if t.Kind == Weights {
		return t.Type.BlockBytes()
	}
	return kindBytes[t.Kind]
}

// safetensorsJSON returns the header, padded with spaces to a multiple of 8 bytes. The object is put
// together member by member because its order is the tensors' order.
func safetensorsJSON(metadata map[string]string, tensors []Lazy) ([]byte, error) {
	b := []byte{'{'}
	if metadata != nil {
		for k, v := range metadata { // json.Marshal would put U+FFFD for what is not UTF-8
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("metadata %s is not UTF-8", quoteShort(k))
			}
		}
		b = appendMember(b, metadataKey, metadata)
	}
	seen := map[string]bool{metadataKey: true}
	off := 0
	for _, t := range tensors {
		if t.Name == "" || !utf8.ValidString(t.Name) || seen[t.Name] {
			return nil, fmt.Errorf("tensor %s: the name is empty, not UTF-8, reserved, or occurs twice", quoteShort(t.Name))
		}
		seen[t.Name] = true
		b = appendMember(b, t.Name, struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{t.TypeName(), append([]int{}, t.Shape...), [2]int{off, off + t.size()}}) // a scalar's shape is [], not null
		off += t.size()
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if len(b) > maxSafetensorsHeader {
		return nil, fmt.Errorf("the header takes %d bytes, more than the format's %d", len(b), maxSafetensorsHeader)
	}
	return b, nil
}

// appendMember appends "key":value to an open JSON object. Strings, integers and maps of strings
// always marshal, so an error is a mistake in this package.
func appendMember(b []byte, key string, value any) []byte {
	k, errKey := json.Marshal(key)
	v, errValue := json.Marshal(value)
	if errKey != nil || errValue != nil {
		panic(fmt.Sprintf("weights: header member %q: %v", key, errors.Join(errKey, errValue)))
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	return append(append(append(b, k...), ':'), v...)
}
