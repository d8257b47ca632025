package campaign

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"draftlab/lab/campaign/file"
	"draftlab/lab/costmodel"
	"draftlab/lab/trial"
)

// Arms returns the arms of a campaign file: the baseline first, those that it lists, the combinations of its factors that can be, and
// plain decoding in each environment among them. Dropped says which combinations cannot be.
func Arms(c *file.Campaign) (arms []trial.Arm, dropped []string, err error) {
	b := builder{file: c, named: named(c), index: map[string]int{}}
	b.plain(b.knobs(&c.Baseline))
	for i := range c.Arms {
		if err := b.add(c.Arms[i].Name, b.knobs(&c.Arms[i])); err != nil {
			return nil, nil, err
		}
	}
	if len(c.Factors) > 0 {
		for _, s := range file.Product(c.Factors) {
			k := b.knobs(&s)
			if why := impossible(k); why != "" {
				b.dropped = append(b.dropped, why)
				continue
			}
			if err := b.add("", k); err != nil {
				return nil, nil, err
			}
		}
	}
	if len(b.arms) < 2 {
		return nil, nil, fmt.Errorf("no arm is left beside the baseline %s: %s", b.arms[0].Name, strings.Join(b.dropped, "; "))
	}
	slices.Sort(b.dropped)
	return b.arms, slices.Compact(b.dropped), nil
}

// Base returns the flags and variables that all arms have: those of the file's target but for what an arm or a factor sets.
func Base(c *file.Campaign) (flags, env map[string]string) {
	n := named(c)
	flags, env = maps.Clone(c.Target.Flags), maps.Clone(c.Target.Env)
	maps.DeleteFunc(flags, func(name, _ string) bool { return n.flags[name] })
	maps.DeleteFunc(env, func(name, _ string) bool { return n.env[name] })
	return flags, env
}

// names are the flags and variables that differ between arms.
type names struct{ flags, env map[string]bool }

func named(c *file.Campaign) names {
	n := names{map[string]bool{}, map[string]bool{}}
	for _, s := range slices.Concat([]file.Settings{c.Baseline}, c.Arms, file.Product(c.Factors)) {
		for name := range s.Flags {
			n.flags[name] = true
		}
		for name := range s.Env {
			n.env[name] = true
		}
	}
	return n
}

// builder collects arms.
type builder struct {
	file    *file.Campaign
	named   names
	arms    []trial.Arm
	index   map[string]int // by what the arm is
	dropped []string
}

// knobs fills in what settings leave out.
func (b *builder) knobs(s *file.Settings) trial.Knobs {
	k := trial.Knobs{Drafter: s.Drafter, TopK: 1, DrafterConfig: s.DrafterConfig,
		Flags: settle(b.named.flags, s.Flags, b.file.Target.Flags), Env: settle(b.named.env, s.Env, b.file.Target.Env)}
	if s.Steps != nil {
		k.Steps = *s.Steps
	}
	if s.TopK != nil {
		k.TopK = *s.TopK
	}
	if k.Drafter == "" {
		if k.Drafter = "eagle3"; b.file.Drafter == "" || b.file.Drafter == "none" {
			k.Drafter = "ngram"
		}
	}
	switch {
	case k.Steps == 0:
		return plain(k)
	case k.TopK == 1:
		k.DraftTokens = k.Steps + 1
	case s.DraftTokens != nil:
		k.DraftTokens = *s.DraftTokens
	}
	return k
}

// settle returns the values of the names that differ between arms: the arm's own, or else the target's.
func settle(names map[string]bool, own map[string]*string, base map[string]string) map[string]string {
	var out map[string]string
	for name := range names {
		value, ok := base[name]
		if v, set := own[name]; set {
			if ok = v != nil; ok {
				value = *v
			}
		}
		if ok {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = value
		}
	}
	return out
}

// plain is plain decoding in the environment of an arm. Flags of drafts mean nothing to it.
func plain(k trial.Knobs) trial.Knobs {
	flags := maps.Clone(k.Flags)
	maps.DeleteFunc(flags, func(name, _ string) bool {
		return strings.HasPrefix(name, "spec") || strings.HasPrefix(name, "draft")
	})
	if len(flags) == 0 {
		flags = nil
	}
	return trial.Knobs{Drafter: "none", Flags: flags, Env: k.Env}
}

// impossible says why drafts cannot be, "" if they can.
func impossible(k trial.Knobs) string {
	if k.Plain() {
		return ""
	}
	if err := (costmodel.Shape{Steps: k.Steps, TopK: k.TopK, DraftTokens: k.DraftTokens, Batch: 1}).Check(); err != nil {
		return err.Error()
	}
	return ""
}

// add adds an arm, with plain decoding in its environment before it. An arm that is there already is not added again.
func (b *builder) add(name string, k trial.Knobs) error {
	if k.Plain() {
		b.plain(k)
		return nil
	}
	base := b.plain(plain(k))
	key := identity(k)
	if _, ok := b.index[key]; ok {
		return nil
	}
	if name == "" {
		name = b.name(k)
	}
	if i := slices.IndexFunc(b.arms, func(a trial.Arm) bool { return a.Name == name }); i >= 0 {
		return fmt.Errorf("two arms have the name %q: give them names that differ", name)
	}
	b.index[key] = len(b.arms)
	b.arms = append(b.arms, trial.Arm{Name: name, Knobs: k, Baseline: base})
	return nil
}

// plain adds plain decoding unless it is there, and returns its name.
func (b *builder) plain(k trial.Knobs) string {
	key := identity(k)
	if i, ok := b.index[key]; ok {
		return b.arms[i].Name
	}
	b.index[key] = len(b.arms)
	b.arms = append(b.arms, trial.Arm{Name: b.name(k), Knobs: k})
	return b.arms[len(b.arms)-1].Name
}

// name makes a name that says what differs from the baseline's environment.
func (b *builder) name(k trial.Knobs) string {
	parts := []string{"plain"}
	switch {
	case k.Plain():
	case k.TopK > 1:
		parts[0] = fmt.Sprintf("%s-%d-%d-%d", word(k.Drafter, "tree"), k.Steps, k.TopK, k.DraftTokens)
	default:
		parts[0] = fmt.Sprintf("%s-%d", word(k.Drafter, "chain"), k.Steps)
	}
	if len(b.arms) > 0 { // or else this is the baseline
		parts = append(parts, changes(b.arms[0].Knobs, k)...)
	}
	return strings.Join(parts, ",")
}

// changes are the settings of one environment that are not another's, in the order of their names.
func changes(base, k trial.Knobs) (out []string) {
	for _, m := range []struct{ base, own map[string]string }{{base.Flags, k.Flags}, {base.Env, k.Env}} {
		all := maps.Clone(m.base)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, m.own)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			was, had := m.base[name]
			value, has := m.own[name]
			switch {
			case has && (!had || was != value):
				out = append(out, name+"="+value)
			case had && !has:
				out = append(out, name+" unset")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.DrafterConfig)) {
		text, _ := json.Marshal(k.DrafterConfig[name]) // it came from a document of the kind
		out = append(out, name+"="+string(text))
	}
	return out
}

// word is how an arm's name begins: drafters beside the usual one say themselves what they are.
func word(drafter, otherwise string) string {
	if drafter == "eagle3" {
		return otherwise
	}
	return drafter
}

// identity is equal for equal knobs: maps are written in the order of their keys.
func identity(k trial.Knobs) string {
	text, err := json.Marshal(k)
	if err != nil {
		panic("campaign: knobs that are no JSON: " + err.Error())
	}
	return string(text)
}
