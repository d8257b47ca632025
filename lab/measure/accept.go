package measure

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"

	"draftlab/lab/client"
)

// acceptance sums up what servers say of each request's drafts, by prompt: requests of one prompt are no independent evidence.
type acceptance struct {
	requests int64
	clusters map[string]*drafts
	total    drafts
	lengths  map[int]*acceptance // by the power of two that requests' contexts do not exceed; nil in those
	idle     *acceptance         // answers of which nobody said that they had drafts, as if each pass gave one token; nil in itself
}

// maxClusters bounds the memory of a run that never repeats a prompt.
const maxClusters = 1 << 14

// drafts are sums over requests.
type drafts struct {
	cycles, drafted, accepted, tokens int64
	histogram                         []int64 // [k] cycles that accepted k
}

func (d *drafts) add(s *client.Speculation, tokens int) {
	d.cycles, d.drafted, d.accepted, d.tokens = d.cycles+s.Cycles, d.drafted+s.Drafted, d.accepted+s.Accepted, d.tokens+int64(tokens)
	for len(d.histogram) < len(s.Histogram) {
		d.histogram = append(d.histogram, 0)
	}
	for k, n := range s.Histogram {
		d.histogram[k] += n
	}
}

// survived returns the cycles that accepted at least k drafts.
func (d *drafts) survived(k int) (n int64) {
	for _, h := range d.histogram[min(k, len(d.histogram)):] {
		n += h
	}
	return n
}

func (a *acceptance) add(r *Record) {
	switch {
	case r.Spec == nil && r.OutputTokens > 1:
		if a.idle == nil {
			a.idle = &acceptance{}
		}
		a.idle.take(r, &client.Speculation{Cycles: int64(r.OutputTokens - 1)})
	case r.Spec != nil && r.Spec.Cycles > 0:
		a.take(r, r.Spec)
	}
}

// take adds a request to all sums.
func (a *acceptance) take(r *Record, spec *client.Speculation) {
	a.sum(r, spec)
	power := max(shortest, bits.Len(uint(max(0, r.PromptTokens+r.OutputTokens/2-1))))
	if a.lengths == nil {
		a.lengths = map[int]*acceptance{}
	}
	if a.lengths[power] == nil {
		a.lengths[power] = &acceptance{}
	}
	a.lengths[power].sum(r, spec)
}

// shortest is the power of two below which contexts are not told apart: a usual prompt and its answer.
const shortest = 10

// sum adds a request to those of its prompt and of all.
func (a *acceptance) sum(r *Record, spec *client.Speculation) {
	if a.clusters == nil {
		a.clusters = map[string]*drafts{}
	}
	key := r.PromptID
	c := a.clusters[key]
	if c == nil && len(a.clusters) >= maxClusters {
		key = fmt.Sprintf("rest %d", r.N%1000) // independent prompts may share a cluster
		c = a.clusters[key]
	}
	if c == nil {
		c = &drafts{}
		a.clusters[key] = c
	}
	c.add(spec, r.OutputTokens)
	a.total.add(spec, r.OutputTokens)
	a.requests++
}

// include adds the answers without drafts if cycles are counted by tokens, as llama.cpp's are, which says nothing of an answer without any: else a
// drafter that seldom drafts would be judged by those answers alone in which it did.
func (a *acceptance) include() {
	if a.idle != nil && a.total.cycles > 0 && a.total.histogram == nil {
		a.merge(a.idle)
	}
	a.idle = nil
}

// merge adds what b has, which then must not be used any more.
func (a *acceptance) merge(b *acceptance) {
	a.requests += b.requests
	a.total.merge(&b.total)
	for key, c := range b.clusters {
		if own := a.clusters[key]; own != nil {
			own.merge(c)
		} else {
			a.clusters[key] = c
		}
	}
	for power, part := range b.lengths {
		if own := a.lengths[power]; own != nil {
			own.merge(part)
		} else {
			a.lengths[power] = part
		}
	}
}

func (d *drafts) merge(e *drafts) {
	d.add(&client.Speculation{Cycles: e.cycles, Drafted: e.drafted, Accepted: e.accepted, Histogram: e.histogram}, int(e.tokens))
}

// Estimate is a ratio with its 95 % interval for prompts like these; the interval is absent with fewer than two prompts.
type Estimate struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low,omitempty"`
	High  *float64 `json:"high,omitempty"`
}

// Acceptance is how drafts fared.
type Acceptance struct {
	Source   string `json:"source"` // "requests" or "counters"
	Prompts  int    `json:"prompts,omitempty"`
	Cycles   int64  `json:"cycles"`
	Drafted  int64  `json:"drafted,omitempty"`
	Accepted int64  `json:"accepted"`

	Length      Estimate   `json:"length"`                // 1 + accepted/cycles: the target's own token counts, the prompt's does not
	Rate        *Estimate  `json:"rate,omitempty"`        // accepted/drafted
	Survival    []Estimate `json:"survival,omitempty"`    // [k-1] cycles that accepted at least k drafts, of all
	Conditional []Estimate `json:"conditional,omitempty"` // [k-1] … of those that accepted k-1
	ByContext   []Reach    `json:"by_context,omitempty"`  // by powers of two, where requests' contexts are not all of one
}

// Reach is the accept length of the requests whose contexts were of about one length.
type Reach struct {
	UpTo    int64    `json:"up_to"` // tokens, prompt and half of the output: at most so many, and beyond the shortest more than half of it
	Prompts int      `json:"prompts"`
	Length  Estimate `json:"length"`
}

// reaches has the shortest contexts first; nil if all are of one length.
func (a *acceptance) reaches() (out []Reach) {
	if len(a.lengths) < 2 {
		return nil
	}
	for _, power := range slices.Sorted(maps.Keys(a.lengths)) {
		part := a.lengths[power]
		out = append(out, Reach{1 << power, len(part.clusters), part.length()})
	}
	return out
}

// length is the accept length.
func (a *acceptance) length() Estimate {
	return a.ratio(1, math.Inf(1), func(d *drafts) (int64, int64) { return d.cycles + d.accepted, d.cycles })
}

const (
	// enoughPrompts is what an accept length must rest on to be compared.
	enoughPrompts = 5
	// fallen is the share of accepted drafts that is left at long contexts when it is called a fall, beyond doubt.
	fallen = 0.8
)

// fall says that drafts are accepted less at long contexts, "" if they are not, or too few prompts tell.
func (a *Acceptance) fall() string {
	list := slices.DeleteFunc(slices.Clone(a.ByContext), func(r Reach) bool { return r.Prompts < enoughPrompts })
	if len(list) < 2 {
		return ""
	}
	short, long := list[0], list[len(list)-1]
	if *long.Length.High >= *short.Length.Low || long.Length.Value-1 >= fallen*(short.Length.Value-1) {
		return ""
	}
	return fmt.Sprintf("the accept length falls with the context: %.2f for requests of up to %d tokens, %.2f for those of %d to %d. Unless the long ones are of another kind: was the drafter trained on texts of that length (doctor's short_context)?",
		short.Length.Value, short.UpTo, long.Length.Value, long.UpTo/2+1, long.UpTo)
}

// summary returns nil if no request had drafts.
func (a *acceptance) summary() *Acceptance {
	a.include()
	t := &a.total
	if t.cycles == 0 {
		return nil
	}
	out := &Acceptance{Source: "requests", Prompts: len(a.clusters), Cycles: t.cycles, Drafted: t.drafted, Accepted: t.accepted}
	out.Length, out.ByContext = a.length(), a.reaches()
	if t.drafted > 0 {
		rate := a.ratio(0, 1, func(d *drafts) (int64, int64) { return d.accepted, d.drafted })
		out.Rate = &rate
	}
	for k := 1; t.survived(k) > 0; k++ {
		out.Survival = append(out.Survival, a.ratio(0, 1, func(d *drafts) (int64, int64) { return d.survived(k), d.survived(0) }))
		out.Conditional = append(out.Conditional, a.ratio(0, 1, func(d *drafts) (int64, int64) { return d.survived(k), d.survived(k - 1) }))
	}
	return out
}

// ratio estimates Σx/Σy over prompts, with the linearised variance of a ratio of sums over clusters (Cochran, Sampling Techniques,
// 6.4) and Student's t. What it can be lies between two bounds, and so does its interval.
func (a *acceptance) ratio(least, most float64, of func(*drafts) (x, y int64)) Estimate {
	x, y := of(&a.total)
	r := float64(x) / float64(y)
	g := float64(len(a.clusters))
	if g < 2 {
		return Estimate{Value: r}
	}
	sum := 0.0
	for _, c := range a.clusters {
		cx, cy := of(c)
		e := float64(cx) - r*float64(cy)
		sum += e * e
	}
	half := student95(g-1) * math.Sqrt(g/(g-1)*sum) / float64(y)
	low, high := max(r-half, least), min(r+half, most)
	return Estimate{r, &low, &high}
}

// student95 is the 97.5 % quantile of Student's t: exact for one and two degrees of freedom, above by the expansion of Cornish and
// Fisher (Abramowitz and Stegun 26.7.5), which is 0.8 % low at three and closer beyond.
func student95(df float64) float64 {
	switch {
	case df < 1.5:
		return 12.7062
	case df < 2.5:
		return 4.30265
	}
	const z = 1.959964
	z2 := z * z
	return z * (1 + (z2+1)/(4*df) + (5*z2*z2+16*z2+3)/(96*df*df) + (3*z2*z2*z2+19*z2*z2+17*z2-15)/(384*df*df*df))
}

// positions takes over what counters of the same drafts say of positions. They may have counted only cycles with a draft, of all that a has.
func (a *Acceptance) positions(counted *Acceptance) {
	a.Conditional = slices.Clone(counted.Conditional)
	for k, e := range counted.Survival {
		share := min(1, e.Value*float64(counted.Cycles)/float64(a.Cycles))
		a.Survival = append(a.Survival, Estimate{Value: share})
		if k == 0 {
			a.Conditional[0].Value = share
		}
	}
}

// sameRun reports whether counters and requests count the same drafts, but for a few of a cycle that was cut short: nothing else ran.
func (a *Acceptance) sameRun(b *Acceptance) bool {
	return math.Abs(float64(a.Drafted-b.Drafted)) <= .01*float64(b.Drafted)
}
