package weights

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"

	"draftlab/engine/quant"
)

// The safetensors format: https://github.com/huggingface/safetensors#format
const (
	// maxSafetensorsHeader is the reference implementation's bound on the JSON header.
	maxSafetensorsHeader = 100_000_000
	safetensorsMaxDims   = 8
	metadataKey          = "__metadata__"
)

// looksLikeSafetensors reports whether a header length and the brace of its JSON come first.
func looksLikeSafetensors(data []byte) bool {
	return len(data) > 8 && data[8] == '{' && binary.LittleEndian.Uint64(data) <= uint64(len(data)-8)
}

// ParseSafetensors reads a safetensors file from memory. The tensors' Data are parts of data, which
// must not change while they are used. The name stands for the file in errors. Element types are
// F32, F16 and BF16, and I32, I64 and BOOL for index maps; the data must cover the rest of the file
// exactly, without a hole or an overlap.
func ParseSafetensors(name string, data []byte) (*File, error) {
	header, err := safetensorsHeader(name, data)
	if err != nil {
		return nil, err
	}
	entries, err := readEntries(name, header)
	if err != nil {
		return nil, err
	}
	tensors, err := placeEntries(name, data, 8+len(header), entries)
	if err != nil {
		return nil, err
	}
	f := &File{path: name, format: "safetensors", size: int64(len(data))}
	f.setTensors(tensors)
	return f, nil
}

// safetensorsHeader returns the JSON at the front of the file.
func safetensorsHeader(name string, data []byte) ([]byte, error) {
	fail := func(format string, args ...any) ([]byte, error) {
		return nil, &FormatError{File: name, Problem: fmt.Sprintf(format, args...)}
	}
	if len(data) < 8 {
		return fail("%d bytes are too few for a safetensors file", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	switch {
	case n > maxSafetensorsHeader:
		return fail("a header of %d bytes, more than %d; is this a safetensors file?", n, maxSafetensorsHeader)
	case n > uint64(len(data)-8):
		return fail("a header of %d bytes in a file of %d (is it cut short? fetch it again)", n, len(data))
	case n == 0 || data[8] != '{':
		return fail("the header is not a JSON object; is this a safetensors file?")
	}
	return data[8 : 8+n], nil
}

// entry is one tensor of the header, not yet placed.
type entry struct {
	tensor     Tensor
	begin, end int64
}

// elementTypes are the dtypes that are read.
var elementTypes = map[string]struct {
	kind Kind
	typ  quant.Type
}{
	"F32": {Weights, quant.F32}, "F16": {Weights, quant.F16}, "BF16": {Weights, quant.BF16},
	"I32": {I32, NotWeights}, "I64": {I64, NotWeights}, "BOOL": {Bool, NotWeights},
}

// readEntries reads the header's object of tensors.
func readEntries(file string, header []byte) ([]entry, error) {
	r, err := newJSONReader(file, 8, header)
	if err != nil {
		return nil, err
	}
	var entries []entry
	err = r.object(func(key string) error {
		if key == metadataKey {
			return r.object(func(string) error { _, err := r.text(); return err })
		}
		e, err := r.entry(key)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, r.end()
}

// entry reads {"dtype": …, "shape": […], "data_offsets": […, …]}: these three, each once, no other.
func (r *jsonReader) entry(name string) (entry, error) {
	if name == "" {
		return entry{}, r.fail("a tensor without a name")
	}
	e := entry{tensor: Tensor{Name: name}}
	r.tensor = name
	defer func() { r.tensor = "" }()
	fields := 0
	err := r.object(func(key string) (err error) {
		fields++
		switch key {
		case "dtype":
			var dtype string
			if dtype, err = r.text(); err != nil {
				return err
			}
			et, ok := elementTypes[dtype]
			if !ok {
				return r.fail("element type %s is not read; convert it to F32, F16 or BF16", quoteShort(dtype))
			}
			e.tensor.Kind, e.tensor.Type = et.kind, et.typ
		case "shape":
			var dims []int64
			if dims, err = r.numbers(safetensorsMaxDims); err != nil {
				return err
			}
			e.tensor.Shape, err = r.shape(dims)
		case "data_offsets":
			var offs []int64
			if offs, err = r.numbers(2); err == nil && len(offs) != 2 {
				err = r.fail("data_offsets has %d numbers, want 2", len(offs))
			}
			if err == nil {
				e.begin, e.end = offs[0], offs[1]
			}
		default:
			err = r.fail("unknown field %s", quoteShort(key))
		}
		return err
	})
	if err == nil && fields != 3 {
		err = r.fail("it needs dtype, shape and data_offsets")
	}
	return e, err
}

// shape checks that dimensions are positive and fit into int.
func (r *jsonReader) shape(dims []int64) ([]int, error) {
	shape := make([]int, len(dims))
	for i, d := range dims {
		if d == 0 || d > int64(maxInt) {
			return nil, r.fail("dimension %d is %d", i, d)
		}
		shape[i] = int(d)
	}
	return shape, nil
}

// placeEntries slices each tensor's bytes out of the data, which starts at base, and checks that
// they follow one another from the first byte to the last.
func placeEntries(file string, data []byte, base int, entries []entry) ([]Tensor, error) {
	sort.SliceStable(entries, func(i, j int) bool { return entries[i].begin < entries[j].begin })
	body := data[base:]
	tensors := make([]Tensor, 0, len(entries))
	next := int64(0)
	for _, e := range entries {
		t := e.tensor
		fail := func(format string, args ...any) error {
			off := int64(base)
			if e.begin <= math.MaxInt64-off {
				off += e.begin
			}
			return &FormatError{File: file, Tensor: t.Name, Offset: off, Problem: fmt.Sprintf(format, args...)}
		}
		n, err := byteSize(t.Kind, t.Type, t.Shape)
		switch {
		case err != nil:
			return nil, fail("%v", err)
		case e.end < e.begin || e.end-e.begin != int64(n):
			return nil, fail("data offsets %d to %d, but shape %v of %s takes %d bytes", e.begin, e.end, t.Shape, t.TypeName(), n)
		case e.end > int64(len(body)):
			return nil, fail("its data ends at %d of %d bytes (is the file cut short? fetch it again)", e.end, len(body))
		case e.begin < next:
			return nil, fail("its data overlaps that of another tensor, which ends at %d", next)
		case e.begin > next:
			return nil, fail("bytes %d to %d of the data belong to no tensor", next, e.begin)
		}
		next = e.end
		t.Data = body[e.begin:e.end:e.end]
		t.Offset = int64(base) + e.begin
		tensors = append(tensors, t)
	}
	if next != int64(len(body)) {
		return nil, &FormatError{File: file, Offset: int64(base) + next,
			Problem: strconv.FormatInt(int64(len(body))-next, 10) + " bytes after the last tensor belong to none"}
	}
	return tensors, nil
}

// numbers reads an array of at most limit integers that are not negative.
func (r *jsonReader) numbers(limit int) ([]int64, error) {
	if err := r.delim('['); err != nil {
		return nil, err
	}
	var out []int64
	for r.dec.More() {
		tok, err := r.token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		n, err := strconv.ParseInt(num.String(), 10, 64)
		if !ok || err != nil || n < 0 {
			return nil, r.fail("want a whole number, got %s", quoteShort(fmt.Sprint(tok)))
		}
		if len(out) == limit {
			return nil, r.fail("more than %d numbers", limit)
		}
		out = append(out, n)
	}
	return out, r.delim(']')
}
