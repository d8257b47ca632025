package target

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSchedule(t *testing.T) {
	s, err := ParseSchedule("8:1, 1:3,64:0")
	if err != nil || s.String() != "1:3,8:1,64:0" {
		t.Fatalf("%v %v", s, err)
	}
	for batch, steps := range map[int]int{1: 3, 7: 3, 8: 1, 63: 1, 64: 0, 1000: 0} {
		if got := s.Steps(batch); got != steps {
			t.Errorf("batch %d: %d", batch, got)
		}
	}
	var doc map[string]struct {
		Steps []int `json:"candidate_steps"`
	}
	if err := json.Unmarshal(s.SGLang(), &doc); err != nil || len(doc) != 3 || len(doc["8"].Steps) != 1 || doc["8"].Steps[0] != 1 || doc["64"].Steps[0] != 0 {
		t.Errorf("%s %v", s.SGLang(), err)
	}
	for _, bad := range []string{"", "1", "1:", "x:1", "8:1", "1:3,1:2", "0:1", "1:-1", "1:3,"} {
		if s, err := ParseSchedule(bad); err == nil || !strings.Contains(err.Error(), "schedule") {
			t.Errorf("%q: %v", bad, s)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add("1:3,8:1,64:0")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchedule(text)
		if err != nil {
			return
		}
		again, err := ParseSchedule(s.String())
		if err != nil || again.String() != s.String() || s.Steps(1) != again[1] {
			t.Errorf("%q: %v %v", text, again, err)
		}
	})
}
