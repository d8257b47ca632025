//go:build amd64 && !noasm

package kernel

// vectorAVX2 fills in the kernels on single rows.
func vectorAVX2(s *Set) {
	vector256(s)
	s.RMSNorm, s.SwiGLU = rmsNormAVX2, swiGLUAVX2
	s.Add, s.Scale = addAVX2, scaleAVX2
	s.SoftmaxExp, s.SumExp = softmaxExpAVX2, sumExpAVX2
	s.ArgMax, s.ReadMem = argMaxAVX2, readMemAVX2
}

// vectorAVX512 is vectorAVX2 with wider registers where they pay.
func vectorAVX512(s *Set) {
	vector256(s)
	s.RMSNorm, s.SwiGLU = rmsNormAVX512, swiGLUAVX512
	s.Add, s.Scale = addAVX512, scaleAVX512
	s.SoftmaxExp, s.SumExp = softmaxExpAVX512, sumExpAVX512
	s.ArgMax, s.ReadMem = argMaxAVX512, readMemAVX512
}

// vector256 fills in what both sets share.
func vector256(s *Set) {
	s.Quantize, s.Residual, s.CopyUnits = quantizeAVX2, residualAVX2, copyUnitsAVX2
	s.Rope, s.SumOrdered = ropeAVX2, sumOrderedAVX2
}
