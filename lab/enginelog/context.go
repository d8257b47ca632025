package enginelog

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// Reach is the accept length of the lines whose requests had contexts of about one length.
type Reach struct {
	UpTo         int64 `json:"up_to"` // tokens of a request, the mean over those that ran: at most so many, and beyond the shortest more than half of it
	AcceptLength *Dist `json:"accept_length"`
}

// reaches are accept lengths by the power of two that their contexts do not exceed.
type reaches map[int]*values

// shortest is the power of two below which contexts are not told apart: a prompt and its answer.
const shortest = 10

// add takes a line's accept length. tokens are those that the running requests hold in memory.
func (r *reaches) add(accept, tokens, running float64) {
	each := math.Ceil(tokens / running)
	if !(each >= 1 && each < 1<<40) { // none runs, or a mad log
		return
	}
	power := max(shortest, bits.Len64(uint64(each)-1))
	if *r == nil {
		*r = reaches{}
	}
	if (*r)[power] == nil {
		(*r)[power] = new(values)
	}
	(*r)[power].add(accept)
}

// report has the shortest contexts first.
func (r reaches) report() []Reach {
	out := []Reach{}
	for _, power := range slices.Sorted(maps.Keys(r)) {
		out = append(out, Reach{1 << power, r[power].dist()})
	}
	return out
}

const (
	// enoughLines is what an accept length must have been told by to be compared: SGLang writes a line for each 40 cycles, so that these are of 1,600.
	enoughLines = 40
	// fallen is the share of accepted drafts that is left at long contexts when it is called a fall. Kinds of text differ by that much at times; a
	// drafter beyond the length that it was trained for keeps a tenth.
	fallen = 0.6
)

// fall says that drafts are accepted less at long contexts, "" if they are not, or nobody can tell.
func (r reaches) fall() string {
	powers := slices.DeleteFunc(slices.Sorted(maps.Keys(r)), func(power int) bool { return len(*r[power]) < enoughLines })
	if len(powers) < 2 {
		return ""
	}
	least, most := powers[0], powers[len(powers)-1]
	short, long := r[least].dist().P50, r[most].dist().P50
	if long-1 >= fallen*(short-1) || !r[most].below(*r[least]) {
		return ""
	}
	return fmt.Sprintf("the accept length falls with the context: %.2f where requests hold up to %d tokens, %.2f where they hold %d to %d. Unless long requests are of another kind: was the drafter trained on texts of that length "+
		"(max_position_embeddings in its config.json, doctor's short_context)? If not, keep requests shorter, or serve long ones without drafts",
		short, int64(1)<<least, long, int64(1)<<(most-1)+1, int64(1)<<most)
}
