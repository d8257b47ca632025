package draft

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestShapeValidate(t *testing.T) {
	for _, c := range []struct {
		s    Shape
		want string // part of the error; "" for valid
	}{
		{Shape{}, ""},
		{Chain(0), ""},
		{Chain(1), ""},
		{Shape{3, 1, 4}, ""},
		{Chain(63), ""},
		{Chain(64), "draft_tokens can be at most 64"},
		{Shape{3, 1, 5}, "a chain (topk 1) of 3 steps has draft_tokens 4"},
		{Shape{3, 1, 3}, "a chain (topk 1) of 3 steps has draft_tokens 4"},
		{Shape{1, 4, 5}, ""},
		{Shape{1, 4, 6}, "1 + topk + (steps−1)·topk² = 5"},
		{Shape{3, 4, 37}, ""},
		{Shape{3, 4, 38}, "1 + topk + (steps−1)·topk² = 37"},
		{Shape{7, 10, 60}, ""},
		{Shape{8, 10, 60}, "70 rows of the drafter's passes; at most 64"},
		{Shape{5, 4, 65}, "draft_tokens can be at most 64"},
		{Shape{5, 17, 20}, "topk can be at most 16"},
		{Shape{5, 4, 1}, "at least 2"},
		{Shape{5, 4, 0}, "at least 2"},
		{Shape{5, 0, 6}, "topk must be at least 1"},
		{Shape{0, 4, 0}, "steps 0 is plain decoding"},
		{Shape{0, 1, 4}, "steps 0 is plain decoding"},
		{Shape{-1, 1, 0}, "negative"},
	} {
		err := c.s.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.s, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: error %v, want one with %q", c.s, err, c.want)
		}
	}
}

// drawShape draws a valid shape; plain decoding is one.
func drawShape(t *rapid.T) Shape {
	steps := rapid.IntRange(0, 8).Draw(t, "steps")
	topk := rapid.IntRange(1, 7).Draw(t, "topk")
	if steps == 0 || topk == 1 {
		return Chain(steps)
	}
	return Shape{steps, topk, rapid.IntRange(2, min(MaxNodes, Bound(steps, topk))).Draw(t, "tokens")}
}

func TestShapeCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		depth, rows := rapid.IntRange(0, 10).Draw(t, "depth"), rapid.IntRange(1, 70).Draw(t, "rows")
		c := s.Cap(depth, rows)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("%v capped at depth %d and %d rows: %v", s, depth, rows, err)
		}
		if c.Within(s) != nil || c.Steps > depth || c.Rows() > rows {
			t.Fatalf("%v capped at depth %d and %d rows is %v", s, depth, rows, c)
		}
		if s.Steps <= depth && s.Rows() <= rows && s.Rows() > s.Steps && s.Steps > 0 && c != s {
			t.Fatalf("%v needs no cap at depth %d and %d rows, and became %v", s, depth, rows, c)
		}
	})
}

func TestShapeWithin(t *testing.T) {
	tree := Shape{5, 4, 16}
	for _, c := range []struct {
		s, limit Shape
		ok       bool
	}{
		{Shape{}, tree, true}, {tree, tree, true}, {Chain(5), tree, true},
		{Chain(6), tree, false}, {Shape{5, 5, 16}, tree, false}, {Shape{5, 4, 17}, tree, false},
		{Chain(0), Shape{}, true}, {Shape{}, Chain(0), true}, {Chain(1), Shape{}, false}, {Chain(0), Chain(3), true},
	} {
		if err := c.s.Within(c.limit); (err == nil) != c.ok {
			t.Errorf("%v within %v: %v", c.s, c.limit, err)
		}
	}
}
