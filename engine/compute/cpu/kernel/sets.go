package kernel

// Sets returns the kernel sets that this machine can run, slowest first; the first is always the generic one.
func Sets() []*Set { return append([]*Set{generic}, machineSets...) }

// Best returns the fastest set that this machine can run.
func Best() *Set {
	s := Sets()
	return s[len(s)-1]
}

var generic = newGeneric()

func newGeneric() *Set {
	s := &Set{Name: "generic"}
	matmulGeneric(s)
	vectorGeneric(s)
	attentionGeneric(s)
	return s
}

// TileOffset returns where row's unit of the given block lies in packed activations of rows rows
// and blocks blocks, in bytes: tiles of TileRows, the last one smaller.
func TileOffset(rows, row, block, blocks, unit int) int {
	tile := row / TileRows
	t := min(TileRows, rows-tile*TileRows)
	return (tile*TileRows*blocks + block*t + row%TileRows) * unit
}
