// Package quant describes how weights lie in model files: [Type] names a block format and
// [Decode] turns its bytes into float32 exactly as the format's definition says. It is the
// reference that kernels and repacking are tested against; it is not fast, and it knows
// nothing of files, devices or kernels.
package quant

import (
	"fmt"
	"maps"
	"slices"
)

// Type is a block format of a tensor's elements. Its numeric values are GGUF's ggml_type.
type Type uint32

// The formats that draftlab reads. The numbers are those of the GGUF specification.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// layout is what a block of a format measures.
type layout struct {
	name  string
	elems int // elements in a block
	bytes int // bytes of a block
}

var layouts = map[Type]layout{
	F32:  {"F32", 1, 4},
	F16:  {"F16", 1, 2},
	BF16: {"BF16", 1, 2},
	Q8_0: {"Q8_0", 32, 34},
	Q4_0: {"Q4_0", 32, 18},
	Q4_1: {"Q4_1", 32, 20},
	Q5_0: {"Q5_0", 32, 22},
	Q5_1: {"Q5_1", 32, 24},
	Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176},
	Q6_K: {"Q6_K", 256, 210},
}

// foreign are the names of GGUF's formats that draftlab does not read, so that it can refuse them by name. ggml numbers them.
var foreign = map[Type]string{
	9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
	23: "IQ4_XS", 24: "I8", 25: "I16", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}

// Known reports whether draftlab reads the format.
func (t Type) Known() bool { _, ok := layouts[t]; return ok }

// Names returns the names of the formats that draftlab reads, in the order of their numbers.
func Names() (names []string) {
	for _, t := range slices.Sorted(maps.Keys(layouts)) {
		names = append(names, layouts[t].name)
	}
	return names
}

// String returns the format's usual name, such as "Q4_1".
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	if name, ok := foreign[t]; ok {
		return name
	}
	return fmt.Sprintf("type(%d)", uint32(t))
}

// BlockElems returns the number of elements in one block (1 for the float formats). It panics for an unknown format.
func (t Type) BlockElems() int { return t.must().elems }

// BlockBytes returns the size of one block in bytes. It panics for an unknown format.
func (t Type) BlockBytes() int { return t.must().bytes }

func (t Type) must() layout {
	l, ok := layouts[t]
	if !ok {
		panic(fmt.Sprintf("quant: unknown type %d", uint32(t)))
	}
	return l
}
