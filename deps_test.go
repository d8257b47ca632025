package draftlab

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "draftlab"

// goFile is a source file, whatever its build tags.
type goFile struct {
	path string // slash-separated, from the root of the module
	test bool
	ast  *ast.File
}

// parseTree parses every Go file of the module by package folder. Folders that the go command does not
// look into (testdata, _ and . in front) and other modules are passed over.
func parseTree(t *testing.T, mode parser.Mode) map[string][]goFile {
	t.Helper()
	tree := map[string][]goFile{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			_, noModule := os.Stat(filepath.Join(name, "go.mod"))
			if name != "." && (base == "testdata" || strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".") || noModule == nil) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, mode)
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(name)
		tree[path.Dir(slash)] = append(tree[path.Dir(slash)], goFile{slash, strings.HasSuffix(base, "_test.go"), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// rules is deps.txt.
type rules struct {
	order   []string            // packages, lowest first
	may     map[string][]string // package → packages
	outside map[string][]string // folder → modules
	never   map[string][]string // folder → packages of the standard library
}

func readRules(t *testing.T) rules {
	t.Helper()
	text, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	r := rules{may: map[string][]string{}, outside: map[string][]string{}, never: map[string][]string{}}
	for n, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		left, right, ok := strings.Cut(line, ":")
		words, list := strings.Fields(left), strings.Fields(right)
		switch {
		case ok && len(words) == 1:
			for _, p := range list {
				if !slices.Contains(r.order, p) {
					t.Errorf("deps.txt:%d: %s may import %s, which does not stand above it", n+1, words[0], p)
				}
			}
			r.order = append(r.order, words[0])
			r.may[words[0]] = list
		case ok && len(words) == 2 && words[0] == "outside":
			r.outside[words[1]] = list
		case ok && len(words) == 2 && words[0] == "never":
			r.never[words[1]] = list
		default:
			t.Errorf("deps.txt:%d: cannot read %q", n+1, line)
		}
	}
	return r
}

// longest returns the list of the longest folder that holds the package.
func longest(lists map[string][]string, pkg string) []string {
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if list, ok := lists[dir]; ok {
			return list
		}
	}
	return nil
}

func inModule(imp string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") })
}

// allowed says why a file of a package may not import something, or "".
func (r rules) allowed(pkg, imp string, test bool) string {
	first, _, _ := strings.Cut(imp, "/")
	own, ours := strings.CutPrefix(imp, module+"/")
	switch {
	case imp == "C":
		return "nothing here is cgo: CGO_ENABLED=0 builds it all"
	case ours && test:
		if i := slices.Index(r.order, own); i >= 0 && i <= slices.Index(r.order, pkg) {
			return ""
		}
		return "a test may import what stands above its package in deps.txt"
	case ours:
		if slices.Contains(r.may[pkg], own) {
			return ""
		}
		return "add it to the package's line in deps.txt if the layers allow it"
	case strings.Contains(first, "."):
		if inModule(imp, longest(r.outside, pkg)) || test && inModule(imp, r.outside["test"]) {
			return ""
		}
		return "deps.txt allows this module elsewhere or not at all (lines that begin with outside)"
	case !test && slices.Contains(longest(r.never, pkg), imp):
		return "deps.txt forbids it here (lines that begin with never)"
	}
	return ""
}

// TestDeps holds every import of the module to deps.txt, under all build tags.
func TestDeps(t *testing.T) {
	r := readRules(t)
	tree := parseTree(t, parser.ImportsOnly)
	used := map[string]bool{}
	for pkg, files := range tree {
		if pkg == "." {
			continue // these tests
		}
		if _, ok := r.may[pkg]; !ok {
			t.Errorf("%s has no line in deps.txt; add one at its layer", pkg)
			continue
		}
		for _, f := range files {
			for _, spec := range f.ast.Imports {
				imp, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if why := r.allowed(pkg, imp, f.test); why != "" {
					t.Errorf("%s imports %s: %s", f.path, imp, why)
				}
				if own, ours := strings.CutPrefix(imp, module+"/"); ours && !f.test {
					used[pkg+" "+own] = true
				}
			}
		}
	}
	for _, pkg := range r.order {
		if tree[pkg] == nil {
			t.Errorf("deps.txt lists %s, which has no Go files", pkg)
		}
		for _, p := range r.may[pkg] {
			if !used[pkg+" "+p] {
				t.Errorf("deps.txt lets %s import %s, which it does not", pkg, p)
			}
		}
	}
}

// TestPackageComments checks that every package has exactly one package comment and that it begins in
// the usual way, so that "go doc" opens with what the package is for.
func TestPackageComments(t *testing.T) {
	for pkg, files := range parseTree(t, parser.ParseComments|parser.PackageClauseOnly) {
		var with []string
		code := false
		for _, f := range files {
			if f.test {
				continue
			}
			code = true
			if f.ast.Doc == nil {
				continue
			}
			with = append(with, f.path)
			want := "Package " + f.ast.Name.Name + " "
			if f.ast.Name.Name == "main" {
				want = "Command " + path.Base(pkg) + " "
			}
			if !strings.HasPrefix(f.ast.Doc.Text(), want) {
				t.Errorf("%s: the package comment does not begin with %q", f.path, want)
			}
		}
		if code && len(with) != 1 {
			t.Errorf("%s has %d package comments, want one: %q", pkg, len(with), with)
		}
	}
}

// TestEngineReadsNoEnvironment holds the engine to invariant 8: what it depends on is handed to it.
func TestEngineReadsNoEnvironment(t *testing.T) {
	for pkg, files := range parseTree(t, parser.SkipObjectResolution) {
		if pkg != "engine" && !strings.HasPrefix(pkg, "engine/") || pkg == "engine/enginetest" {
			continue
		}
		for _, f := range files {
			if f.test {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				if ok && x.Name == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "Args", "Stdout", "Stderr"}, sel.Sel.Name) {
					t.Errorf("%s uses os.%s: the engine gets what it needs through its options", f.path, sel.Sel.Name)
				}
				return true
			})
		}
	}
}

// TestDepsCatches makes sure that the rules can fail.
func TestDepsCatches(t *testing.T) {
	r := readRules(t)
	for _, c := range []struct {
		pkg, imp string
		test     bool
		ok       bool
	}{
		{"engine/weights", "draftlab/engine/quant", false, true},
		{"engine/quant", "draftlab/engine/weights", false, false},
		{"engine/weights", "draftlab/engine/invariants", false, false},
		{"engine/weights", "draftlab/engine/invariants", true, true},
		{"engine/quant", "draftlab/engine/weights", true, false},
		{"engine/quant", "draftlab/internal/hub", false, false},
		{"internal/hub", "draftlab/internal/hub/hubtest", true, true},
		{"engine/compute/cpu", "golang.org/x/sys/unix", false, true},
		{"engine/compute/cpu", "golang.org/x/system", false, false},
		{"internal/hub", "github.com/spf13/cobra", false, false},
		{"cmd/draftlab", "github.com/spf13/cobra", false, true},
		{"cmd/draftlab", "github.com/rogpeppe/go-internal/testscript", false, false},
		{"cmd/draftlab", "github.com/rogpeppe/go-internal/testscript", true, true},
		{"engine/model", "flag", false, false},
		{"engine/model", "net/http", false, false},
		{"engine/model", "sync", false, true},
		{"engine/model", "C", true, false},
	} {
		if why := r.allowed(c.pkg, c.imp, c.test); (why == "") != c.ok {
			t.Errorf("%s imports %s (test %v): %q", c.pkg, c.imp, c.test, why)
		}
	}
}
