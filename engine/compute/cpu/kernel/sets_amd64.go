//go:build amd64 && !noasm

package kernel

import "golang.org/x/sys/cpu"

var machineSets = detect()

// detect lists the assembly sets that the processor can run, slowest first. The cpu package
// reports AVX2 and the AVX-512 family only where the operating system saves those registers,
// so that no further test of XCR0 is needed here.
func detect() (sets []*Set) {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C {
		return nil
	}
	s := &Set{Name: "avx2", Amortises: true}
	matmulAVX2(s)
	vectorAVX2(s)
	attentionAVX2(s)
	sets = append(sets, s)
	if x.HasAVXVNNI {
		s := &Set{Name: "avx2vnni", Amortises: true}
		matmulAVX2VNNI(s)
		vectorAVX2(s)
		attentionAVX2(s)
		sets = append(sets, s)
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
		s := &Set{Name: "avx512vnni", Amortises: true}
		matmulAVX512(s)
		widenAVX512(s)
		vectorAVX512(s)
		attentionAVX512(s)
		sets = append(sets, s)
	}
	return sets
}
