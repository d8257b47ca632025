package sample

// History counts the tokens of a sequence for the penalties: which ids the prompt holds, and how
// often the output holds each. Push and Pop are a stack, so that a draft path can be walked and
// taken back; neither scans anything. A History belongs to one goroutine.
type History struct {
	entries []entry // one a distinct id, in order of first appearance
	pushed  []int32 // index into entries of each pushed token
	table   []int32 // open addressing with linear probing: index into entries plus 1, 0 is free
}

// entry is what a History knows of one token id.
type entry struct {
	id     int32
	output int32 // times in the output
	prompt bool  // in the prompt
}

// minTable is the smallest table: room for 16 distinct ids.
const minTable = 32

// NewHistory returns the history of a sequence that has a prompt and no output yet.
func NewHistory(prompt []int32) *History {
	h := &History{table: make([]int32, minTable)}
	for _, id := range prompt {
		h.entries[h.find(id)].prompt = true
	}
	return h
}

// Reserve makes room, so that the next n Pushes allocate nothing.
func (h *History) Reserve(n int) {
	h.entries = append(make([]entry, 0, len(h.entries)+n), h.entries...)
	h.pushed = append(make([]int32, 0, len(h.pushed)+n), h.pushed...)
	h.grow(len(h.entries) + n)
}

// Len returns the number of output tokens.
func (h *History) Len() int { return len(h.pushed) }

// Push appends an output token.
func (h *History) Push(id int32) {
	i := h.find(id)
	h.entries[i].output++
	h.pushed = append(h.pushed, int32(i))
}

// Pop takes the last pushed token back. It panics if there is none.
func (h *History) Pop() {
	if len(h.pushed) == 0 {
		panic("sample: Pop of a History without output tokens")
	}
	i := h.pushed[len(h.pushed)-1]
	h.pushed = h.pushed[:len(h.pushed)-1]
	e := &h.entries[i]
	e.output--
	if e.output > 0 || e.prompt {
		return
	}
	// The entry goes with the Push that made it, so it is the last entry, and no later one was
	// placed by probing past its slot: freeing the slot breaks no chain.
	h.table[h.slot(e.id)] = 0
	h.entries = h.entries[:i]
}

// find returns the index of an id's entry, which it adds if it must.
func (h *History) find(id int32) int {
	s := h.slot(id)
	if i := h.table[s]; i != 0 {
		return int(i) - 1
	}
	if 2*(len(h.entries)+1) > len(h.table) {
		h.grow(2 * len(h.entries))
		s = h.slot(id)
	}
	h.entries = append(h.entries, entry{id: id})
	h.table[s] = int32(len(h.entries))
	return len(h.entries) - 1
}

// slot returns where an id is in the table, or the free slot where it belongs.
func (h *History) slot(id int32) int {
	mask := len(h.table) - 1
	// The multiplier is 2^32 over the golden ratio: neighbouring ids land far apart.
	s := int(uint32(id)*0x9E3779B9>>7) & mask
	for h.table[s] != 0 && h.entries[h.table[s]-1].id != id {
		s = (s + 1) & mask
	}
	return s
}

// grow makes the table large enough for n distinct ids at half load. Entries go in again in the
// order of their first appearance, on which Pop relies.
func (h *History) grow(n int) {
	size := max(len(h.table), minTable)
	for size < 2*n {
		size *= 2
	}
	if size == len(h.table) {
		return
	}
	h.table = make([]int32, size)
	for i := range h.entries {
		h.table[h.slot(h.entries[i].id)] = int32(i) + 1
	}
}
