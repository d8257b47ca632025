// Package weights opens model files, GGUF and safetensors, memory-mapped and strict. [Open]
// returns a [File]; its [Tensor] values name a format, a shape and the mapped bytes, and its
// [Metadata] holds GGUF's keys. Every length, count and offset in a file is checked against the
// file's size before anything is allocated or sliced, so a hostile file gives an error that
// names file, tensor and byte offset, never a panic. [WriteGGUF] and [WriteSafetensors] write
// what Open reads.
//
// The package does not know what a tensor is for: which tensors a model needs, and that none is
// left over, is for the model to check. It converts no format (that is package quant) and reads
// neither config.json nor tokenizer.json; [File.Dir] says where they lie.
//
// # A file that shrinks while it is open
//
// Sizes are checked when a file is opened. If another program truncates it afterwards, touching
// the lost part of a mapping raises SIGBUS, which ends a Go program with "unexpected fault
// address" and a stack. [File.Guard] turns that into an error for the code that reads tensors.
// Replacing a file by rename, as careful programs do, is harmless: the mapping keeps the old one.
package weights

import (
	"fmt"
	"sort"
)

// File is an opened model: one GGUF or safetensors file, or the shards of a safetensors index.
// Its methods may be called from several goroutines at once, except Close.
type File struct {
	path    string
	dir     string
	format  string
	size    int64
	meta    table
	tensors []Tensor
	byName  map[string]int
	maps    []*mapping
}

// Format returns "gguf" or "safetensors".
func (f *File) Format() string { return f.format }

// Path returns the model file, the index of a sharded model, or the name given to a parser.
func (f *File) Path() string { return f.path }

// Dir returns the directory of the model file, where its config.json and tokenizer.json lie. It
// is empty for a file parsed from memory.
func (f *File) Dir() string { return f.dir }

// Size returns the bytes of the model file, of all shards together if there are several.
func (f *File) Size() int64 { return f.size }

// Tensor returns the tensor with the given name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Tensors returns all tensors in the order of their data, shard after shard. The caller owns the slice.
func (f *File) Tensors() []Tensor { return append([]Tensor(nil), f.tensors...) }

// Meta returns a fresh reader of the file's GGUF keys, without errors yet; for safetensors it has no keys.
func (f *File) Meta() Metadata { return newMetadata(f.path, f.meta) }

// Release tells the system that the tensor's mapped pages are not needed for now, which a loader
// does after it has repacked a tensor so that peak memory stays near one copy of the model. The
// tensor stays readable; its pages are read again when touched. It does nothing for tensors that
// are not mapped, and failure of the system call is ignored because it costs memory, not truth.
func (f *File) Release(t Tensor) {
	if t.src != nil {
		t.src.release(int(t.Offset), len(t.Data))
	}
}

// Close unmaps the file. No tensor's Data may be touched afterwards: that is a fault which ends the
// program. Metadata stays valid. A second Close does nothing.
func (f *File) Close() error {
	var first error
	for _, m := range f.maps {
		if err := m.close(); err != nil && first == nil {
			first = fmt.Errorf("%s: unmap: %w", f.path, err)
		}
	}
	f.maps = nil
	return first
}

// setTensors puts the tensors of one file in the order of their data and indexes them by name.
// Names are unique by now.
func (f *File) setTensors(ts []Tensor) {
	sort.SliceStable(ts, func(i, j int) bool { return ts[i].Offset < ts[j].Offset })
	f.tensors = ts
	f.byName = make(map[string]int, len(ts))
	for i, t := range ts {
		f.byName[t.Name] = i
	}
}

// FormatError is a model file that breaks its format's rules or uses what draftlab does not read.
type FormatError struct {
	File    string // path, or the name given to a parser
	Tensor  string // the tensor's name, empty where none is concerned
	Offset  int64  // byte in File at which the offending field or data starts
	Problem string
}

// Error names the file, the tensor if any, the byte offset and the problem.
func (e *FormatError) Error() string {
	if e.Tensor != "" {
		return fmt.Sprintf("%s: tensor %s at byte %d: %s", e.File, quoteShort(e.Tensor), e.Offset, e.Problem)
	}
	return fmt.Sprintf("%s: at byte %d: %s", e.File, e.Offset, e.Problem)
}

// quoteShort quotes a name from a file for a message: control characters escaped, and cut, since
// a hostile name may be as long as the file.
func quoteShort(s string) string {
	const limit = 80
	if len(s) > limit {
		return fmt.Sprintf("%q…", s[:limit])
	}
	return fmt.Sprintf("%q", s)
}
