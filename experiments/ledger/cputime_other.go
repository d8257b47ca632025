//go:build !linux

package main

// threadSeconds is only known on Linux.
func threadSeconds() (float64, bool) { return 0, false }
