package target

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Schedule says how many steps to draft by the number of requests that decode together: each entry holds from its batch size to the next.
type Schedule map[int]int

// ParseSchedule reads a schedule such as "1:3,8:1,64:0": three steps from one request on, one from eight, none from 64.
func ParseSchedule(text string) (Schedule, error) {
	s := Schedule{}
	for _, part := range strings.Split(text, ",") {
		left, right, ok := strings.Cut(part, ":")
		batch, err := strconv.Atoi(strings.TrimSpace(left))
		steps, err2 := strconv.Atoi(strings.TrimSpace(right))
		if _, twice := s[batch]; !ok || err != nil || err2 != nil || batch < 1 || steps < 0 || twice {
			return nil, fmt.Errorf("%q in schedule %q: want BATCH:STEPS, batches once each and from 1 on", part, text)
		}
		s[batch] = steps
	}
	if _, one := s[1]; !one {
		return nil, fmt.Errorf("schedule %q: it says nothing of one request", text)
	}
	return s, nil
}

// Steps is what the schedule says for a batch size, at least 1.
func (s Schedule) Steps(batch int) int {
	from := 0
	for b := range s {
		if b <= batch {
			from = max(from, b)
		}
	}
	return s[from]
}

// SGLang is the schedule as the file that SGLang's --speculative-adaptive-config names (0.5.11 and later): a batch size with one
// candidate keeps to it, whatever is accepted (srt/speculative/adaptive_spec_params.py).
func (s Schedule) SGLang() []byte {
	doc := map[string]any{}
	for batch, steps := range s {
		doc[strconv.Itoa(batch)] = map[string]any{"candidate_steps": []int{steps}}
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic("target: numbers do not go as JSON: " + err.Error())
	}
	return append(text, '\n')
}

// String is what ParseSchedule reads.
func (s Schedule) String() string {
	var parts []string
	for _, batch := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%d:%d", batch, s[batch]))
	}
	return strings.Join(parts, ",")
}
