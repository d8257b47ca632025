//go:build invariants || race

package invariants

// Enabled reports whether costly self-checks run. It is a constant, so a release build drops them.
const Enabled = true
