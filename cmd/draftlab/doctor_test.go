package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"draftlab/engine/wiring"
)

// TestDoctorCodesAreDocumented: docs/doctor.md lists every code that doctor prints, whoever finds it.
func TestDoctorCodesAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, v := range []wiring.Verdict{wiring.Confirmed, wiring.Wrong, wiring.Undecided, wiring.None} {
		codes[string(v)] = true
	}
	code := regexp.MustCompile(`(?:\bFinding\{|\badd\((?:[\w.]+, )?|Code: )"([a-z_]+)"`)
	for _, pattern := range []string{"../../engine/doctor/*.go", "../../lab/target/*.go", "doctor*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range code.FindAllStringSubmatch(string(text), -1) {
				codes[found[1]] = true
			}
		}
	}
	if len(codes) < 45 {
		t.Errorf("only %d codes were found: %v", len(codes), codes)
	}
	for c := range codes {
		if !strings.Contains(string(manual), "`"+c+"`") {
			t.Errorf("docs/doctor.md lacks %s", c)
		}
	}
}
