package draft

import "slices"

// Fixed grows a candidate tree whose form is settled before any token of it is known, as rule B needs: there candidates are
// drawn at random, and a candidate that is kept or dropped for what it is would no longer come up with the probability that its test
// assumes. (What hangs below a node may depend on the node and on all levels above: the draws there are still to come.)
//
// The form is the best one where each candidate of a node is accepted with the same probability if it is tested at all (Sequoia, Chen et
// al. 2024, with one probability for all): of all possible nodes the DraftTokens−1 likeliest to be reached, with at most TopK children
// a node and TopK nodes expanded a level. The calls are those of a [Builder]; Propose takes drawn tokens in the order
// of the draws. It allocates nothing after NewFixed.
type Fixed struct {
	planner *Builder
	guess   []float32 // [TopK] what the planner takes for the probabilities of a node's candidates
	none    []int32   // [TopK]
	shape   Shape
	form    Tree // of shape; its tokens mean nothing

	root    int32
	minProb float64
	token   [MaxNodes]int32
	score   [MaxNodes]float64 // product of probabilities along the path; 0 for a node without a candidate
	ran     [MaxNodes]int32   // the drafter's run of the node, counted from 1 in this draft; the root's is 0
	level   int
	rows    []Row
	spare   []Row
	runs    int32
	kept    [MaxNodes]int32 // node of the form by node of the tree
}

// acceptGuess is the probability with which the form's plan has a candidate accepted. A larger one makes trees deeper and narrower. The
// shipped drafter's chains reach 0.5 at temperature 1; there 0.5 and 0.6 gave trees 5-4-16 accept lengths of 2.34 and 2.25 (about 780
// cycles each), and trees 3-4-12 the same 2.22, as 0.7 did.
const acceptGuess = 0.5

// NewFixed makes one for shapes within a valid limit.
func NewFixed(limit Shape) *Fixed {
	f := &Fixed{planner: NewBuilder(limit), none: make([]int32, max(1, limit.TopK))}
	left := 1.0
	for range f.none {
		f.guess = append(f.guess, float32(left*acceptGuess))
		left *= 1 - acceptGuess
	}
	f.rows, f.spare = make([]Row, 0, len(f.none)), make([]Row, 0, len(f.none))
	f.plan(limit)
	return f
}

// plan settles the form for a shape: the tree that a Builder makes of the guessed probabilities.
func (f *Fixed) plan(shape Shape) {
	b := f.planner
	b.Start(shape, 0, 0)
	b.Propose(0, f.none, f.guess)
	for rows := b.Next(); len(rows) > 0; rows = b.Next() {
		for i := range rows {
			b.Propose(i, f.none, f.guess)
		}
	}
	b.Tree(&f.form)
	f.shape = shape
}

// Rows returns how many runs of the drafter a draft of the shape takes at most, the root's included.
func (f *Fixed) Rows() (n int) {
	for i := range f.form.N {
		if f.form.FirstChild(i) >= 0 {
			n++
		}
	}
	return n
}

// Start begins a draft behind the token root. Nodes whose cumulative probability is below minProb are verified, but get no children.
func (f *Fixed) Start(shape Shape, root int32, minProb float32) {
	if shape != f.shape {
		f.plan(shape) // it panics for a shape beyond the limit
	}
	f.root, f.minProb = root, float64(minProb)
	clear(f.score[:])
	f.score[0], f.ran[0], f.runs, f.level = 1, 0, 0, 0
	f.rows = append(f.rows[:0], Row{Token: root})
}

// Want returns how many candidates row i of the last Next (the root before the first) is to get, and which of the
// draft's runs of the drafter, counted from 0 for the root's, the row is.
func (f *Fixed) Want(i int) (candidates, run int) {
	node := int(f.rows[i].node)
	for c := f.form.FirstChild(node); c >= 0; c = f.form.NextSibling(c) {
		candidates++
	}
	return candidates, int(f.ran[node])
}

// Propose sets the candidates of row i, in the order in which they were drawn; beyond those wanted they are left out.
func (f *Fixed) Propose(i int, tokens []int32, probs []float32) {
	node := int(f.rows[i].node)
	c := f.form.FirstChild(node)
	for k := 0; k < len(tokens) && c >= 0; k++ {
		f.token[c], f.score[c] = tokens[k], f.score[node]*float64(probs[k])
		c = f.form.NextSibling(c)
	}
}

// Next closes a level and returns the rows to run for the one below it; none when the draft is complete. The rows are good until
// the next call.
func (f *Fixed) Next() []Row {
	f.level++
	next := f.spare[:0]
	for i := range f.form.N {
		if int(f.form.Depth[i]) != f.level || f.form.FirstChild(i) < 0 || f.score[i] == 0 || f.score[i] < f.minProb {
			continue
		}
		parent := f.form.Parent[i]
		from := slices.IndexFunc(f.rows, func(r Row) bool { return r.node == parent })
		r := Row{Token: f.token[i], From: int32(from), Tail: f.runs, node: int32(i)}
		if !f.shape.IsChain() {
			r.Mask = 1<<f.runs | f.rows[from].Mask
		}
		f.runs++
		f.ran[i] = f.runs
		next = append(next, r)
	}
	f.rows, f.spare = next, f.rows
	return f.rows
}

// Tree writes the draft to t, parents before children, siblings in the order of their draws.
func (f *Fixed) Tree(t *Tree) {
	t.Reset(f.root)
	var at [MaxNodes]int
	f.kept[0] = 0
	for i := 1; i < f.form.N; i++ {
		if f.score[i] > 0 {
			at[i] = t.Add(at[f.form.Parent[i]], f.token[i], float32(f.score[i]))
			f.kept[at[i]] = int32(i)
		}
	}
}

// Run returns which of the draft's runs of the drafter the children of a node of the last Tree were drawn from, as Want counts.
func (f *Fixed) Run(node int) int { return int(f.ran[f.kept[node]]) }
