package file

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"draftlab/lab/costmodel"
	"draftlab/lab/probe"
)

// Settings are what an arm or the baseline sets; what it does not is the campaign's.
type Settings struct {
	Name                     string
	Drafter                  string
	Steps, TopK, DraftTokens *int
	Flags, Env               map[string]*string // nil is: not set at all
	DrafterConfig            map[string]any
}

// Factor is a setting with the values that are tried.
type Factor struct {
	Key    string // steps, topk, draft_tokens, drafter, flags.NAME, env.NAME or drafter.config.KEY
	Values []func(*Settings)
}

// most bounds steps, candidates and draft tokens: the largest that any engine takes is far below.
const most = 1 << 12

// set reads the value of a setting and returns what it does; nil if there is no such setting.
func (e entry) set(v node) func(*Settings) {
	number := func(least int, at func(*Settings) **int) func(*Settings) {
		i := v.whole(least, most)
		return func(s *Settings) { *at(s) = &i }
	}
	switch e.key {
	case "drafter":
		word := v.drafter()
		return func(s *Settings) { s.Drafter = word }
	case "steps":
		return number(0, func(s *Settings) **int { return &s.Steps })
	case "topk":
		return number(1, func(s *Settings) **int { return &s.TopK })
	case "draft_tokens":
		return number(2, func(s *Settings) **int { return &s.DraftTokens })
	}
	for _, p := range []struct {
		prefix string
		name   func(entry) string
		at     func(*Settings) *map[string]*string
	}{
		{"flags.", entry.flagName, func(s *Settings) *map[string]*string { return &s.Flags }},
		{"env.", entry.variableName, func(s *Settings) *map[string]*string { return &s.Env }},
	} {
		if name, ok := strings.CutPrefix(e.key, p.prefix); ok {
			named := e
			named.key = name
			if probe.Secret(name) {
				e.at.fail("is a secret by its name, and what arms differ in stands in their names, in results and in reports: give it to all arms alike, with target.%s", strings.TrimSuffix(p.prefix, "."))
			}
			return assign(p.at, p.name(named), v.optional())
		}
	}
	if key, ok := strings.CutPrefix(e.key, "drafter.config."); ok && key != "" {
		value := v.any()
		return func(s *Settings) {
			if s.DrafterConfig == nil {
				s.DrafterConfig = map[string]any{}
			}
			s.DrafterConfig[key] = value
		}
	}
	return nil
}

// drafters are the ways of drafting that some target has: each refuses those that are not its own.
var drafters = []string{"eagle3", "ngram", "eagle", "nextn", "standalone", "dflash", "dspark"}

// specType is a way of drafting in llama.cpp's own words.
var specType = regexp.MustCompile(`^(draft|ngram)(-[a-z0-9]+)+$`)

// drafter reads a way of drafting.
func (n node) drafter() string {
	if s, ok := n.Node.(*ast.StringNode); ok && (slices.Contains(drafters, s.Value) || specType.MatchString(s.Value)) {
		return s.Value
	}
	n.fail("want one of %s, or a --spec-type of llama.cpp's, not %s", strings.Join(drafters, ", "), n.kind())
	return ""
}

// assign is the setting of one entry of a map.
func assign(at func(*Settings) *map[string]*string, name string, value *string) func(*Settings) {
	return func(s *Settings) {
		m := at(s)
		if *m == nil {
			*m = map[string]*string{}
		}
		(*m)[name] = value
	}
}

// optional reads a scalar, nil for null.
func (n node) optional() *string {
	if n.null() {
		return nil
	}
	s := n.scalar()
	return &s
}

const settingKeys = "drafter, steps, topk, draft_tokens, flags.NAME, env.NAME, drafter.config.KEY"

// settings reads the settings of an arm or of the baseline.
func (n node) settings() (s Settings) {
	for _, e := range n.entries() {
		if e.key == "name" {
			s.Name = e.text()
			continue
		}
		set := e.set(e.node)
		if set == nil {
			e.at.fail("no such setting: there are name, %s", settingKeys)
			return s
		}
		set(&s)
	}
	if err := s.shape(); err != nil {
		n.fail("%v", err)
	}
	return s
}

// shape says what is impossible about the drafts of an arm that names all of them.
func (s *Settings) shape() error {
	if s.Steps == nil || *s.Steps == 0 {
		return nil
	}
	shape := costmodel.Chain(*s.Steps, 1)
	if s.TopK != nil {
		shape.TopK = *s.TopK
	}
	if s.DraftTokens != nil {
		shape.DraftTokens = *s.DraftTokens
	} else if shape.TopK > 1 {
		return fmt.Errorf("a tree (topk %d) needs draft_tokens: how many rows a verification has", shape.TopK)
	}
	if shape.TopK == 1 && shape.DraftTokens != shape.Steps+1 {
		return fmt.Errorf("a chain (topk 1) of %d steps verifies %d draft_tokens, not %d: leave draft_tokens out", shape.Steps, shape.Steps+1, shape.DraftTokens)
	}
	return shape.Check()
}

// arms reads a list of settings.
func (n node) arms() (out []Settings) {
	for _, e := range n.list() {
		out = append(out, e.settings())
	}
	return out
}

// factors reads settings with lists of values.
func (n node) factors() (out []Factor) {
	for _, e := range n.entries() {
		f := Factor{Key: e.key}
		for _, v := range e.list() {
			set := e.set(v)
			if set == nil {
				e.at.fail("no such factor: there are %s", settingKeys)
				return out
			}
			f.Values = append(f.Values, set)
		}
		out = append(out, f)
	}
	switch {
	case len(out) == 0:
		n.fail("is empty: there are %s", settingKeys)
	case combinations(out) > MostArms:
		n.fail("more than %d combinations: try fewer values at once", MostArms)
	}
	return out
}

// Product returns every combination of the factors' values, the last factor varying fastest.
func Product(factors []Factor) []Settings {
	all := [][]func(*Settings){nil}
	for _, f := range factors {
		var next [][]func(*Settings)
		for _, so := range all {
			for _, v := range f.Values {
				next = append(next, append(append([]func(*Settings){}, so...), v))
			}
		}
		all = next
	}
	out := make([]Settings, len(all))
	for i, set := range all {
		for _, do := range set {
			do(&out[i])
		}
	}
	return out
}

// MostArms bounds the product of the factors.
const MostArms = 4096

// combinations is the size of the product, MostArms+1 if it is larger.
func combinations(factors []Factor) int {
	n := 1
	for _, f := range factors {
		if n *= len(f.Values); n > MostArms {
			return MostArms + 1
		}
	}
	return n
}
