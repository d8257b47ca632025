package campaign

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// WriteBenchstat writes a line for each request of the measurement in the format that golang.org/x/perf/cmd/benchstat reads. Arms are
// told apart by a key, so that "benchstat -col /arm" puts them side by side; plain decoding is listed once for each
// request, whichever arm it stood beside.
func WriteBenchstat(w io.Writer, s *store.Store) error {
	d, err := read(s)
	if err != nil {
		return err
	}
	return d.writeBenchstat(w)
}

func (d *data) writeBenchstat(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "Unit tok/s better=higher\nUnit ttft-ms better=lower\n") // the last write reports what goes wrong
	for _, t := range d.trials {
		if s := t.Sample; t.Stage == trial.Measure && s.Error == "" && s.DecodeTokS() > 0 {
			// Readers take what a name has behind its last dash for a number of processors: without one they would see one arm in
			// chain-1 and chain-3.
			fmt.Fprintf(b, "BenchmarkDecode/category=%s/arm=%s-1 1 %d ns/op %.2f tok/s %.3f ttft-ms\n", benchName(t.Category), benchName(t.Arm),
				s.EndNS, s.DecodeTokS(), float64(s.FirstNS)/float64(time.Millisecond))
		}
	}
	return b.Flush()
}

// benchName is a name that can stand in a benchmark's.
func benchName(s string) string {
	if s == "" {
		return "none"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r == '=' {
			return '_'
		}
		return r
	}, s)
}
