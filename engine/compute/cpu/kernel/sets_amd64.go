//go:build amd64 && !noasm

package kernel

import "golang.org/x/sys/cpu"

var machineSets = detect()

// detect lists the assembly sets that the processor can run, slowest first.
func detect() (sets []*Set) {
	x := &cpu.X86
	if x.HasAVX2 && x.HasFMA && hasF16C() {
		s := &Set{Name: "avx2", Amortises: true}
		matmulAVX2(s, false)
		vectorAVX2(s)
		attentionAVX2(s)
		sets = append(sets, s)
		if hasAVXVNNI() {
			s := &Set{Name: "avx2vnni", Amortises: true}
			matmulAVX2(s, true)
			vectorAVX2(s)
			attentionAVX2(s)
			sets = append(sets, s)
		}
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
			s := &Set{Name: "avx512vnni", Amortises: true}
			matmulAVX512(s)
			vectorAVX512(s)
			attentionAVX512(s)
			sets = append(sets, s)
		}
	}
	return sets
}
