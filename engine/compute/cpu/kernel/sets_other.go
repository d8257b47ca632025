//go:build !amd64 || noasm

package kernel

var machineSets []*Set
