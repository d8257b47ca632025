package weights

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"unicode/utf8"

	"draftlab/engine/quant"
)

// The GGUF format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
const (
	ggufMagic     = "GGUF"
	ggufAlignment = 32 // bytes, where the file does not say
	ggufMaxDims   = 4
	ggufMaxName   = 1<<16 - 1 // bytes of a key or a tensor's name

	// maxGGUFHeader bounds keys and tensor table together. The largest vocabularies in use take
	// about 20 MB; the bound keeps a sparse file from asking for its nominal size in memory.
	maxGGUFHeader = 256 << 20

	ggufI32 quant.Type = 26 // tensor types that are no block formats
	ggufI64 quant.Type = 27

	alignmentKey  = "general.alignment"
	splitCountKey = "split.count"
)

func isGGUF(data []byte) bool { return len(data) >= 4 && string(data[:4]) == ggufMagic }

// ParseGGUF reads a GGUF file, version 2 or 3 and little-endian, from memory. The tensors' Data
// are parts of data, which must not change while they are used. The name stands for the file in
// errors. A file that is one of several shards is refused: its keys name tensors that are elsewhere.
func ParseGGUF(name string, data []byte) (*File, error) {
	c := &cursor{file: name, data: data[:min(len(data), maxGGUFHeader)]}
	nTensors, nKeys := c.ggufHeader(data)
	meta := c.keys(nKeys)
	if c.err != nil {
		return nil, c.err
	}
	align, err := ggufAlign(newMetadata(name, meta))
	if err != nil {
		return nil, err
	}
	infos := c.tensorInfos(nTensors)
	if c.err != nil {
		return nil, c.err
	}
	tensors, err := placeTensors(name, data, alignUp(uint64(c.pos), align), align, infos)
	if err != nil {
		return nil, err
	}
	f := &File{path: name, format: "gguf", size: int64(len(data)), meta: meta}
	f.setTensors(tensors)
	return f, nil
}

// ggufHeader reads magic, version and counts.
func (c *cursor) ggufHeader(data []byte) (nTensors, nKeys uint64) {
	if len(data) >= 4 && !isGGUF(data) {
		c.fail(0, "not a GGUF file: it starts with the bytes % x", data[:4])
	}
	c.take(4, "the magic number")
	switch version := c.u32("the version"); {
	case c.err != nil:
	case version == 2 || version == 3:
	case version == 1:
		c.fail(4, "GGUF version 1, which is not read; convert the model again with a current converter")
	case version&0xffff == 0:
		c.fail(4, "a big-endian GGUF file, which is not read; convert the model for little-endian machines")
	default:
		c.fail(4, "GGUF version %d, and only 2 and 3 are read", version)
	}
	nTensors = c.u64("the count of tensors")
	nKeys = c.u64("the count of keys")
	// The least that one of each takes: an empty name, a type, and one byte or one dimension.
	const minTensor, minKey = 8 + 4 + 8 + 4 + 8, 8 + 4 + 1
	left := uint64(len(c.data) - c.pos)
	if nTensors > left/minTensor {
		c.fail(8, "%d tensors cannot fit into the %d bytes that follow", nTensors, left)
	}
	if nKeys > left/minKey {
		c.fail(16, "%d keys cannot fit into the %d bytes that follow", nKeys, left)
	}
	return nTensors, nKeys
}

// name reads a key or a tensor's name.
func (c *cursor) name(what string) string {
	start := c.pos
	s := c.text(ggufMaxName, what)
	if c.err == nil && (s == "" || !utf8.ValidString(s)) {
		c.fail(start, "%s %s is empty or not UTF-8", what, quoteShort(s))
	}
	return s
}

// ggufAlign returns the alignment of tensor data, and refuses shards, from the keys.
func ggufAlign(meta Metadata) (uint64, error) {
	align := uint64(ggufAlignment)
	if a, ok := meta.Uint(alignmentKey); ok {
		if a == 0 || a%8 != 0 || a > math.MaxUint32 {
			return 0, meta.wrong(alignmentKey, fmt.Sprintf("is %d, not a multiple of 8", a))
		}
		align = a
	}
	if n, ok := meta.Uint(splitCountKey); ok && n > 1 {
		return 0, meta.wrong(splitCountKey, fmt.Sprintf("is %d: one shard of a split GGUF, which is not read; join the shards with llama-gguf-split --merge", n))
	}
	return align, meta.Err()
}

// tensorInfo is one entry of the tensor table, not yet placed.
type tensorInfo struct {
	name  string
	kind  Kind
	typ   quant.Type
	shape []int
	off   uint64 // of the data, from the start of the data section
	entry int    // of the entry itself, in the file
}

// tensorInfos reads the tensor table.
func (c *cursor) tensorInfos(n uint64) []tensorInfo {
	var infos []tensorInfo
	seen := make(map[string]bool)
	for i := uint64(0); i < n && c.err == nil; i++ {
		info := c.tensorInfo()
		if c.err != nil {
			break
		}
		if seen[info.name] {
			c.failTensor(info, "the name occurs twice")
		}
		seen[info.name] = true
		infos = append(infos, info)
	}
	return infos
}

func (c *cursor) tensorInfo() tensorInfo {
	info := tensorInfo{entry: c.pos}
	info.name = c.name("a tensor's name")
	dims := c.u32("a tensor's number of dimensions")
	if c.err == nil && (dims == 0 || dims > ggufMaxDims) {
		c.failTensor(info, "%d dimensions, want 1 to %d", dims, ggufMaxDims)
		return info
	}
	info.shape = make([]int, dims)
	for i := range info.shape {
		d := c.u64("a dimension")
		if c.err == nil && (d == 0 || d > uint64(maxInt)) {
			c.failTensor(info, "dimension %d is %d", i, d)
		}
		info.shape[int(dims)-1-i] = int(d)
	}
	info.typ = quant.Type(c.u32("a tensor's type"))
	switch {
	case info.typ.Known():
	case info.typ == ggufI32:
		info.kind, info.typ = I32, NotWeights
	case info.typ == ggufI64:
		info.kind, info.typ = I64, NotWeights
	default:
		c.failTensor(info, "its format is %s, which is not read; quantise the model to one of %s", info.typ, strings.Join(quant.Names(), ", "))
	}
	info.off = c.u64("a tensor's offset")
	return info
}

// failTensor records a problem of a tensor's entry.
func (c *cursor) failTensor(info tensorInfo, format string, args ...any) {
	if c.err == nil {
		c.err = &FormatError{File: c.file, Tensor: info.name, Offset: int64(info.entry), Problem: fmt.Sprintf(format, args...)}
	}
}

// placeTensors slices each tensor's bytes out of the data section, which starts at base, and
// checks that they are aligned, inside the file, and overlap nothing. Gaps are legal in GGUF.
func placeTensors(file string, data []byte, base, align uint64, infos []tensorInfo) ([]Tensor, error) {
	sort.SliceStable(infos, func(i, j int) bool { return infos[i].off < infos[j].off })
	tensors := make([]Tensor, 0, len(infos))
	size := uint64(len(data))
	end := base // of the last tensor
	for i, info := range infos {
		fail := func(off uint64, format string, args ...any) error {
			return &FormatError{File: file, Tensor: info.name, Offset: int64(min(off, math.MaxInt64)), Problem: fmt.Sprintf(format, args...)}
		}
		n, err := byteSize(info.kind, info.typ, info.shape)
		switch {
		case err != nil:
			return nil, fail(uint64(info.entry), "%v", err)
		case info.off%align != 0:
			return nil, fail(uint64(info.entry), "data offset %d is not a multiple of %d", info.off, align)
		case base > size || info.off > size-base || uint64(n) > size-base-info.off:
			return nil, fail(uint64(info.entry), "%d bytes of data at offset %d from byte %d reach past the end of the file at %d (is it cut short? fetch it again)", n, info.off, base, size)
		case base+info.off < end:
			return nil, fail(base+info.off, "its data overlaps that of tensor %s", quoteShort(infos[i-1].name))
		}
		start := base + info.off
		end = start + uint64(n)
		tensors = append(tensors, Tensor{Name: info.name, Kind: info.kind, Type: info.typ, Shape: info.shape,
			Data: data[start:end:end], Offset: int64(start)})
	}
	return tensors, nil
}

// alignUp rounds n up to a multiple of align. The caller's n is a position in a file, so it cannot overflow.
func alignUp(n, align uint64) uint64 { return (n + align - 1) / align * align }
