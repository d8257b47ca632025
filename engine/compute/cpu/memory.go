package cpu

import "unsafe"

// cacheLine is the alignment of every buffer, so that no two workers write one line.
const cacheLine = 64

// arenaChunk is how much the weight arena reserves at a time. Only what is touched becomes resident, in
// huge pages, so a larger chunk costs address space alone.
const arenaChunk = 256 << 20

// bytesAligned returns n zero bytes aligned to a cache line, on the Go heap. The slack of a few
// cache lines at the end lets kernels prefetch past the end without leaving the allocation.
func bytesAligned(n int) []byte {
	b := make([]byte, n+2*cacheLine)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (cacheLine - 1))
	return b[off : off+n : off+n]
}

// floatsAligned returns n zero floats aligned to a cache line, on the Go heap.
func floatsAligned(n int) []float32 {
	b := bytesAligned(4 * max(n, 1))
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// memory is what a device has mapped outside the Go heap (the collector need not know weights and
// keys), where the system offers that. The zero value is ready.
type memory struct {
	free  []func()
	chunk []byte   // rest of the arena's current chunk
	used  [][]byte // what lies in each chunk
}

// mapped returns n zero bytes aligned to a cache line; they become resident when touched.
func (m *memory) mapped(n int, huge bool) ([]byte, error) {
	data, free, err := mapMemory(n, huge)
	if err != nil {
		return nil, err
	}
	m.free = append(m.free, free)
	return data, nil
}

// weights returns n bytes from an arena in huge pages: matrices lie one behind the other in the
// order in which they are made, which is the order in which a pass reads them.
func (m *memory) weights(n int) ([]byte, error) {
	n = roundUp(n, cacheLine)
	if n > len(m.chunk) {
		c, err := m.mapped(max(n, arenaChunk), true)
		if err != nil {
			return nil, err
		}
		m.chunk = c
		m.used = append(m.used, c[:0])
	}
	u := &m.used[len(m.used)-1]
	*u = (*u)[:len(*u)+n]
	data := m.chunk[:n:n]
	m.chunk = m.chunk[n:]
	return data, nil
}

// close gives everything back.
func (m *memory) close() {
	for _, f := range m.free {
		f()
	}
	*m = memory{}
}
