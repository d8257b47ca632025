//go:build noasm

package kernel

const noAssembly = true
