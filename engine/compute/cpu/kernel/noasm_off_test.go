//go:build !noasm

package kernel

const noAssembly = false
