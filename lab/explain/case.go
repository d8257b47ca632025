package explain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"draftlab/lab/costmodel"
)

// Case is a handful of numbers about plain and speculative decoding, as a YAML file gives them. docs/explain.md lists the keys.
type Case struct {
	PlainTokS number  `yaml:"plain_tok_s"` // output tokens a second without speculation, all sequences
	Batch     number  `yaml:"batch"`       // sequences at once, for plain and the arms; absent: 1
	Arms      []arm   `yaml:"arms"`
	WhatIf    *whatIf `yaml:"what_if"`

	doubts    costmodel.Doubts // raised by reading the figures
	lookup    bool             // drafts are looked up in the text so far: no drafter was trained, or can be wired wrongly
	confirmed *confirmation    // of a campaign's winner; nil where none was measured again
}

// arm is one speculative configuration and what was seen of it.
type arm struct {
	Steps       whole  `yaml:"steps"`
	TopK        whole  `yaml:"topk"`         // absent: 1, a chain
	DraftTokens whole  `yaml:"draft_tokens"` // absent: steps + 1, in a chain
	Batch       number `yaml:"batch"`        // absent: the case's
	PlainTokS   number `yaml:"plain_tok_s"`  // at the arm's batch, if that is not the case's
	Context     number `yaml:"context"`      // positions before a cycle, on average
	Cycles      whole  `yaml:"cycles"`       // that the means below are of

	TokS        number `yaml:"tok_s"`
	CycleMs     number `yaml:"cycle_ms"`
	VerifyMs    number `yaml:"verify_ms"`
	VerifyShare number `yaml:"verify_share"` // of the cycle
	DraftMs     number `yaml:"draft_ms"`
	AcceptMs    number `yaml:"accept_ms"`
	ExtendMs    number `yaml:"draft_extend_ms"`
	OtherMs     number `yaml:"other_ms"`

	AcceptLength    number   `yaml:"accept_length"`
	AcceptByStep    []number `yaml:"accept_by_position"` // s1…sK
	AcceptHistogram []whole  `yaml:"accept_histogram"`   // sequence-cycles that accepted 0, 1, … steps drafts

	speedup number // as a campaign's pairs have it, better than that of two means
	boots   int    // starts of the server that speedup rests on; 0 where that is not known
}

// whatIf is a hypothesis about the machine.
type whatIf struct {
	VerifyScale number    `yaml:"verify_scale"`
	DraftScale  number    `yaml:"draft_scale"`
	PlainScale  number    `yaml:"plain_scale"` // of the time of a plain step
	Measured    *measured `yaml:"measured"`
}

// measured is a run under the hypothesis, to score the prediction with.
type measured struct {
	Steps       whole  `yaml:"steps"`
	TopK        whole  `yaml:"topk"`
	DraftTokens whole  `yaml:"draft_tokens"`
	TokS        number `yaml:"tok_s"`
}

// number is a decimal of the file, and how far the figure behind it may be from it: half a unit of the last digit.
type number struct {
	value, half float64
	stderr      float64 // of a mean that a program computed
	known       bool
}

// UnmarshalYAML reads a plain decimal.
func (n *number) UnmarshalYAML(node ast.Node) error {
	text := node.GetToken().Value
	v, err := strconv.ParseFloat(text, 64)
	switch node.(type) {
	case *ast.FloatNode, *ast.IntegerNode:
	default:
		err = errors.New("not a number")
	}
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) || strings.ContainsAny(text, "xX_") {
		return &yaml.SyntaxError{Message: fmt.Sprintf("want a decimal number, not %q", text), Token: node.GetToken()}
	}
	*n = number{value: v, known: true}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(exponent) // "" is 0, and ParseFloat has refused the rest
	n.half = 0.5 * math.Pow(10, float64(power-len(fraction)))
	return nil
}

// whole is a count of the file.
type whole struct {
	value int64
	known bool
}

// UnmarshalYAML reads a whole number: the decoder alone would cut 2.5 down to 2.
func (n *whole) UnmarshalYAML(node ast.Node) error {
	text := node.GetToken().Value
	v, err := strconv.ParseInt(text, 10, 64)
	if _, ok := node.(*ast.IntegerNode); !ok || err != nil {
		return &yaml.SyntaxError{Message: fmt.Sprintf("want a whole number, not %q", text), Token: node.GetToken()}
	}
	*n = whole{v, true}
	return nil
}

func (n number) figure() costmodel.Figure {
	if !n.known {
		return costmodel.Figure{}
	}
	if n.stderr > 0 {
		return costmodel.Measured(n.value, n.stderr)
	}
	return costmodel.Rounded(n.value, min(n.half, 0.5*math.Abs(n.value)))
}

// maxBytes bounds a case file; a long one has a few hundred arms.
const maxBytes = 1 << 20

// Parse reads a case. The name is for errors, which name the line and show it.
func Parse(name string, source []byte) (*Case, error) {
	if len(source) > maxBytes {
		return nil, fmt.Errorf("%s has %d bytes; a case has at most %d", name, len(source), maxBytes)
	}
	if err := plain(source); err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	c := new(Case)
	dec := yaml.NewDecoder(bytes.NewReader(source), yaml.Strict())
	if err := dec.Decode(c); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is empty: it needs plain_tok_s and arms", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if err := dec.Decode(new(Case)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s holds more than one document", name)
	}
	if p := c.check(); p != nil {
		return nil, p.at(name, source)
	}
	return c, nil
}

// plain refuses tags, anchors and aliases: a case needs none, and a decoder that meets a tag where a list should be may panic.
func plain(source []byte) error {
	file, err := parser.ParseBytes(source, 0)
	if err != nil {
		return err
	}
	var found odd
	for _, doc := range file.Docs {
		if doc.Body != nil {
			ast.Walk(&found, doc.Body)
		}
	}
	if found.node == nil {
		return nil
	}
	return &yaml.SyntaxError{Message: "tags, anchors, aliases and merge keys have no meaning in a case", Token: found.node.GetToken()}
}

// odd is the first node of a kind that plain refuses.
type odd struct{ node ast.Node }

// Visit is the walk's callback.
func (o *odd) Visit(node ast.Node) ast.Visitor {
	switch node.(type) {
	case *ast.TagNode, *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		if o.node == nil {
			o.node = node
		}
		return nil
	}
	return o
}

// problem is a wrong value and where it stands.
type problem struct{ path, text string }

// at puts the line of the file in front of the problem and below it.
func (p *problem) at(name string, source []byte) error {
	path, err := yaml.PathString(p.path)
	if err == nil {
		var node ast.Node
		if node, err = path.ReadNode(bytes.NewReader(source)); err == nil {
			excerpt, _ := path.AnnotateSource(source, false) // without it the line is still named
			return fmt.Errorf("%s:%d: %s: %s\n%s", name, node.GetToken().Position.Line, p.path[2:], p.text, strings.TrimRight(string(excerpt), "\n"))
		}
	}
	return fmt.Errorf("%s: %s: %s", name, p.path[2:], p.text) // a key that is absent has no line
}

// check says what is missing or impossible.
func (c *Case) check() *problem {
	if p := positive("$.plain_tok_s", c.PlainTokS, 0); p != nil {
		return p
	}
	if !c.PlainTokS.known {
		return &problem{"$.plain_tok_s", "is missing: output tokens a second without speculation are what all is compared with"}
	}
	if len(c.Arms) == 0 {
		return &problem{"$.arms", "is missing or empty: list at least one speculative configuration with what was measured"}
	}
	for i := range c.Arms {
		if p := c.Arms[i].check(fmt.Sprintf("$.arms[%d]", i), c); p != nil {
			return p
		}
	}
	if w := c.WhatIf; w != nil {
		return w.check(c)
	}
	return nil
}

func (w *whatIf) check(c *Case) *problem {
	for _, f := range []struct {
		key string
		number
	}{{"verify_scale", w.VerifyScale}, {"draft_scale", w.DraftScale}, {"plain_scale", w.PlainScale}} {
		if p := positive("$.what_if."+f.key, f.number, 100); p != nil {
			return p
		}
	}
	if !w.VerifyScale.known && !w.DraftScale.known && !w.PlainScale.known {
		return &problem{"$.what_if", "changes nothing: give verify_scale, draft_scale or plain_scale, such as 0.73 for 27 % less time"}
	}
	if m := w.Measured; m != nil {
		if !m.TokS.known {
			return &problem{"$.what_if.measured", "has no tok_s"}
		}
		if p := positive("$.what_if.measured.tok_s", m.TokS, 0); p != nil {
			return p
		}
		if err := m.shape(c).Check(); err != nil {
			return &problem{"$.what_if.measured", err.Error()}
		}
	}
	return nil
}

// positive refuses numbers that are not above 0, or above most unless that is 0.
func positive(path string, n number, most float64) *problem {
	switch {
	case n.known && !(n.value > 0):
		return &problem{path, fmt.Sprintf("is %g, but must be above 0", n.value)}
	case n.known && most > 0 && n.value > most:
		return &problem{path, fmt.Sprintf("is %g, but is at most %g", n.value, most)}
	}
	return nil
}

func (a *arm) check(path string, c *Case) *problem {
	if err := a.shape(c).Check(); err != nil {
		return &problem{path, err.Error()}
	}
	if a.Batch.known && a.Batch.value != c.batch() && !a.PlainTokS.known {
		return &problem{path + ".batch", fmt.Sprintf("is %g, but plain_tok_s was measured at %g: give this arm its own plain_tok_s", a.Batch.value, c.batch())}
	}
	if a.PlainTokS.known && a.shape(c).Batch == c.batch() {
		return &problem{path + ".plain_tok_s", "belongs to an arm of another batch: at the case's own there is one plain_tok_s for all"}
	}
	for _, f := range []struct {
		key  string
		n    number
		most float64
	}{
		{"plain_tok_s", a.PlainTokS, 0}, {"tok_s", a.TokS, 0}, {"cycle_ms", a.CycleMs, 0}, {"verify_ms", a.VerifyMs, 0},
		{"verify_share", a.VerifyShare, 1}, {"accept_length", a.AcceptLength, float64(a.Steps.value + 1)},
	} {
		p := positive(path+"."+f.key, f.n, f.most)
		switch {
		case p != nil && f.key == "verify_share" && f.n.value > 1:
			p.text += ": a share of the cycle, not per cent"
		case p != nil && f.key == "accept_length":
			p.text += ": steps drafts and the target's own token"
		}
		if p != nil {
			return p
		}
	}
	if p := a.checkParts(path); p != nil {
		return p
	}
	o := a.observation(c)
	if err := o.Check(); err != nil {
		return &problem{path, err.Error()}
	}
	return a.checkYield(path, o.Batch)
}

// checkYield refuses more tokens a second than cycles of the given length can yield.
func (a *arm) checkYield(path string, batch float64) *problem {
	cycle := a.CycleMs.value
	if !a.CycleMs.known && a.VerifyShare.known {
		cycle = a.VerifyMs.value / a.VerifyShare.value
	}
	length := a.TokS.value * cycle / 1000 / batch
	if most := float64(a.Steps.value + 1); length > (1+agree)*most {
		return &problem{path + ".tok_s", fmt.Sprintf("needs an accept length of %.2f with cycles of %s ms, but %d steps yield at most %g", length, digits(cycle), a.Steps.value, most)}
	}
	return nil
}

// checkParts holds phases and counts to what they are parts of.
func (a *arm) checkParts(path string) *problem {
	parts := 0.0
	for _, f := range []struct {
		key string
		n   number
	}{{"verify_ms", a.VerifyMs}, {"draft_ms", a.DraftMs}, {"accept_ms", a.AcceptMs}, {"draft_extend_ms", a.ExtendMs}, {"other_ms", a.OtherMs}} {
		if f.n.value < 0 {
			return &problem{path + "." + f.key, fmt.Sprintf("is %g, but cannot be negative", f.n.value)}
		}
		parts += max(f.n.value-f.n.half, 0)
	}
	switch {
	case a.CycleMs.known && parts > (a.CycleMs.value+a.CycleMs.half)*(1+1e-9): // sums of floating-point numbers
		return &problem{path + ".cycle_ms", fmt.Sprintf("is %g, less than its phases, which sum up to %.4g", a.CycleMs.value, parts)}
	case a.AcceptLength.known && a.AcceptLength.value < 1:
		return &problem{path + ".accept_length", fmt.Sprintf("is %g, but counts the target's own token and is at least 1", a.AcceptLength.value)}
	case a.Cycles.value < 0:
		return &problem{path + ".cycles", "cannot be negative"}
	case a.Context.value < 0:
		return &problem{path + ".context", "cannot be negative"}
	}
	return nil
}

func (c *Case) batch() float64 {
	if c.Batch.known {
		return c.Batch.value
	}
	return 1
}

func (a *arm) shape(c *Case) costmodel.Shape {
	batch := c.batch()
	if a.Batch.known {
		batch = a.Batch.value
	}
	return shape(a.Steps, a.TopK, a.DraftTokens, batch)
}

func (m *measured) shape(c *Case) costmodel.Shape {
	return shape(m.Steps, m.TopK, m.DraftTokens, c.batch())
}

// shape fills in what a chain need not say. A tree without draft tokens stays impossible, and so is refused.
func shape(steps, topK, draftTokens whole, batch float64) costmodel.Shape {
	s := costmodel.Shape{Steps: steps.int(), TopK: 1, Batch: batch}
	if topK.known {
		s.TopK = topK.int()
	}
	switch {
	case draftTokens.known:
		s.DraftTokens = draftTokens.int()
	case s.TopK == 1:
		s.DraftTokens = s.Steps + 1
	}
	return s
}

// int is the count, cut to what no shape allows.
func (n whole) int() int { return int(min(max(n.value, math.MinInt32), math.MaxInt32)) }

// observation is the arm as the cost model takes it.
func (a *arm) observation(c *Case) costmodel.Observation {
	o := costmodel.Observation{
		Shape: a.shape(c), Context: a.Context.value, Cycles: float64(a.Cycles.value),
		Cycle: a.CycleMs.figure(), Verify: a.VerifyMs.figure(), Draft: a.DraftMs.figure(), Accept: a.AcceptMs.figure(),
		Extend: a.ExtendMs.figure(), Other: a.OtherMs.figure(), VerifyShare: a.VerifyShare.figure(),
		AcceptLength: a.AcceptLength.figure(), TokS: a.TokS.figure(),
	}
	for _, s := range a.AcceptByStep {
		o.Survival = append(o.Survival, s.value)
	}
	for _, n := range a.AcceptHistogram {
		o.Accepted = append(o.Accepted, n.value)
	}
	if a.PlainTokS.known && o.Batch != c.batch() {
		o.Plain = step(a.PlainTokS, o.Batch)
	}
	return o
}

// step turns plain tokens a second into the ms of a step.
func step(tokS number, batch float64) costmodel.Figure {
	ms := batch / tokS.value * 1000
	return costmodel.Rounded(ms, ms*min(tokS.half/tokS.value, 0.5))
}
