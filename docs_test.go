package draftlab

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// treeOfReadme returns the paths of README's tree in their order, without a slash at the end.
func treeOfReadme(t *testing.T) (list []string) {
	t.Helper()
	_, section, _ := strings.Cut(readFile(t, "README.md"), "\n## The tree\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var within []string // the folders that a line stands in
	for line := range strings.Lines(section) {
		name := strings.TrimLeft(line, " ")
		indent := len(line) - len(name)
		if indent < 4 {
			continue // prose
		}
		depth := indent/2 - 2
		if indent%2 != 0 || depth > len(within) {
			t.Fatalf("README.md: the line %q stands in no folder", line)
		}
		within = append(within[:depth], strings.TrimSuffix(strings.Fields(name)[0], "/"))
		list = append(list, path.Join(within...))
	}
	return list
}

// TestReadmeTree holds README's tree to the disk and to deps.txt: what it shows exists, it shows each package, and those
// of one folder stand in the order of the layers.
func TestReadmeTree(t *testing.T) {
	tree, order := treeOfReadme(t), readRules(t).order
	top := map[string]int{} // by folder: the highest layer that has been shown in it
	for _, name := range tree {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("README.md shows what is not there: %v", err)
		}
		layer, dir := slices.Index(order, name), path.Dir(name)
		if layer >= 0 && layer < top[dir] {
			t.Errorf("README.md shows %s below %s, which is of a higher layer", name, order[top[dir]])
		}
		top[dir] = max(top[dir], layer)
	}
	for _, pkg := range order {
		if !slices.Contains(tree, pkg) {
			t.Errorf("README.md's tree lacks %s", pkg)
		}
	}
}

// TestCodesAreDocumented: each of these pages has a row for every code of a finding or a doubt that these files can
// yield, and no other.
func TestCodesAreDocumented(t *testing.T) {
	tree := parseTree(t, parser.SkipObjectResolution)
	for page, files := range map[string]string{
		"docs/doctor.md":  `^(engine/(doctor|wiring)/|lab/target/|cmd/draftlab/doctor)[^/]*$`,
		"docs/targets.md": `^lab/target/[^/]*$`,
		"docs/explain.md": `^lab/(explain|costmodel)/[^/]*$`,
	} {
		yields, of := map[string]bool{}, regexp.MustCompile(files)
		for _, pkg := range tree {
			for _, f := range pkg {
				if !f.test && of.MatchString(f.path) {
					codesOf(f.ast, yields)
				}
			}
		}
		rows := codeRows(readFile(t, page))
		for c := range yields {
			// What ends with _ is completed at run time.
			if !slices.ContainsFunc(rows, func(r string) bool { return r == c || strings.HasSuffix(c, "_") && strings.HasPrefix(r, c) }) {
				t.Errorf("%s has no row for the code %s", page, c)
			}
		}
		for _, r := range rows {
			if begin, _, _ := strings.Cut(r, "_"); !yields[r] && !yields[begin+"_"] {
				t.Errorf("%s has a row for %s, a code that nothing yields", page, r)
			}
		}
		if len(rows) < 25 {
			t.Errorf("%s: found only the codes %v", page, rows)
		}
	}
}

// codeRows returns the codes in the first columns of a page's tables of codes.
func codeRows(page string) (codes []string) {
	word, inTable := regexp.MustCompile("`([a-z_]+)`"), false
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		first := strings.Split(line, "|")[1]
		inTable = inTable || strings.TrimSpace(first) == "code"
		for _, m := range word.FindAllStringSubmatch(first, -1) {
			if inTable {
				codes = append(codes, m[1])
			}
		}
	}
	return codes
}

// codesOf collects the codes that a file writes down: the first argument of add and doubt, or the one behind a level; the
// field Code, or the first, of a Finding and a Doubt; what is assigned to a variable code; and constants of type Verdict.
func codesOf(f *ast.File, codes map[string]bool) {
	code, level := regexp.MustCompile(`^[a-z_]+$`), regexp.MustCompile(`^(OK|Note|Warning|Fault|level)$`)
	note := func(list ...ast.Expr) {
		for _, x := range list {
			if b, ok := x.(*ast.BinaryExpr); ok {
				x = b.X
			}
			if lit, ok := x.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil && code.MatchString(s) {
					codes[s] = true
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name := lastName(n.Fun); name == "add" || name == "doubt" {
				note(n.Args[0])
				if level.MatchString(lastName(n.Args[0])) {
					note(n.Args[1])
				}
			}
		case *ast.CompositeLit:
			list := []ast.Expr{n}
			of := n.Type
			if array, ok := of.(*ast.ArrayType); ok {
				list, of = n.Elts, array.Elt
			}
			for _, x := range list {
				lit, ok := x.(*ast.CompositeLit)
				if name := lastName(of); !ok || name != "Finding" && name != "Doubt" {
					break
				}
				for i, e := range lit.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok && lastName(kv.Key) == "Code" {
						note(kv.Value)
					} else if i == 0 {
						note(e)
					}
				}
			}
		case *ast.AssignStmt:
			if lastName(n.Lhs[0]) == "code" {
				note(n.Rhs[0])
			}
		case *ast.ValueSpec:
			if lastName(n.Type) == "Verdict" {
				note(n.Values...)
			}
		}
		return true
	})
}

// lastName is the last identifier of a name, "" for what is no name.
func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}
