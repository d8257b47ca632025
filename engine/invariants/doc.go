// Package invariants holds the one switch for self-checks that cost too much for a release:
// [Enabled] is true under the build tags invariants and race. It knows nothing of what is checked.
package invariants
