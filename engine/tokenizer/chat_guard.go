package tokenizer

import (
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"
)

// Bounds on what a chat template may do. Published templates have up to 40 KB, recurse a few levels into tool
// schemas, and loop over messages, tools and now and then the characters of a text.
const (
	maxLoopSteps  = 500_000 // rounds of all loops and calls of all macros in one rendering
	maxMacroDepth = 200     // the library recurses with the macro, and Go cannot survive a stack overflow
	maxRange      = 100_000 // items that range() makes
)

// The names are such as no template uses; shadowing them only harms the template's author.
const (
	stepName  = "__draftlab_step"
	enterName = "__draftlab_enter"
	leaveName = "__draftlab_leave"
)

// guard counts for one rendering.
type guard struct{ steps, depth int }

// install adds the guard's functions, and a bounded range, to a template's variables.
func (g *guard) install(vars map[string]jinja.Value) {
	add := func(name string, f func(args []jinja.Value) (jinja.Value, error)) {
		vars[name] = jinja.NewCallable(name, func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) { return f(args) })
	}
	add(stepName, func([]jinja.Value) (jinja.Value, error) { return jinja.None(), g.step() })
	add(enterName, func([]jinja.Value) (jinja.Value, error) {
		if g.depth++; g.depth > maxMacroDepth {
			return jinja.None(), fmt.Errorf("macros are nested more than %d deep", maxMacroDepth)
		}
		return jinja.None(), g.step()
	})
	add(leaveName, func([]jinja.Value) (jinja.Value, error) { g.depth--; return jinja.None(), nil })
	add("range", boundedRange)
}

func (g *guard) step() error {
	if g.steps++; g.steps > maxLoopSteps {
		return fmt.Errorf("the template loops more than %d times", maxLoopSteps)
	}
	return nil
}

// boundedRange is Python's range as a list of at most maxRange items.
func boundedRange(args []jinja.Value) (jinja.Value, error) {
	n := [3]int64{0, 0, 1}
	for _, a := range args {
		if !a.IsInt() {
			return jinja.None(), errors.New("range takes integers")
		}
	}
	switch len(args) {
	case 1:
		n[1] = args[0].AsInt()
	case 2, 3:
		for i, a := range args {
			n[i] = a.AsInt()
		}
	default:
		return jinja.None(), errors.New("range takes one to three integers")
	}
	start, stop, step := n[0], n[1], n[2]
	if step == 0 {
		return jinja.None(), errors.New("range with a step of 0")
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if len(items) == maxRange {
			return jinja.None(), fmt.Errorf("range has more than %d items", maxRange)
		}
		items = append(items, jinja.NewInt(i))
		next := i + step
		if next > i != (step > 0) {
			break // beyond the integers
		}
		i = next
	}
	return jinja.NewList(items), nil
}
