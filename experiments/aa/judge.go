package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"draftlab/experiments/rig"
	"draftlab/internal/ui"
	"draftlab/lab/campaign"
	"draftlab/lab/stats"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// window is how many pairs a comparison has that is put together anew. The test's own size with 20 untied pairs is 4.8 %.
const window = 20

// found is what the campaigns showed.
type found struct {
	same, slow []reading
	runs       [][][2]float64 // of each campaign that compared a thing with itself: its pairs as they came, both speeds in their order
}

// reading is what one campaign said of its arm.
type reading struct {
	name  string
	ratio *campaign.Ratio // nil if it had too few pairs
}

// alarms reports that the whole interval lies on one side of 1.
func (r *reading) alarms() bool {
	return r.ratio != nil && r.ratio.Low != nil && (*r.ratio.Low > 1 || *r.ratio.High < 1)
}

// read reads all campaigns.
func (o *options) read(tasks []task) (*found, error) {
	f := new(found)
	for i := range tasks {
		t := &tasks[i]
		err := o.Read(&t.Plan, func(s *store.Store, r *campaign.Result) error {
			one := reading{name: t.Name}
			for _, a := range r.Arms {
				if a.Speedup != nil && a.Name == t.Arm().Name {
					one.ratio = a.Speedup.SameEnv
				}
			}
			if t.Slow > 0 {
				f.slow = append(f.slow, one)
				return nil
			}
			f.same = append(f.same, one)
			pairs, err := inTime(s)
			f.runs = append(f.runs, pairs)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return f, nil
}

// inTime returns the speeds of a campaign's pairs, all in the order in which they were measured.
func inTime(s *store.Store) (pairs [][2]float64, err error) {
	type place struct{ boot, block, pair int }
	byPair := map[place][]*trial.Trial{}
	for t, err := range s.Trials() {
		if err != nil {
			return nil, err
		}
		if t.Stage == trial.Measure && t.Sample.Error == "" {
			at := place{t.Boot, t.Block, t.Pair}
			byPair[at] = append(byPair[at], t)
		}
	}
	first := func(a, b *trial.Trial) int { return cmp.Compare(a.Sample.StartUnixNS, b.Sample.StartUnixNS) }
	var whole [][]*trial.Trial
	for _, p := range byPair {
		if slices.SortFunc(p, first); len(p) == 2 {
			whole = append(whole, p)
		}
	}
	slices.SortFunc(whole, func(a, b []*trial.Trial) int { return first(a[0], b[0]) })
	for _, p := range whole {
		pairs = append(pairs, [2]float64{p[0].Sample.DecodeTokS(), p[1].Sample.DecodeTokS()})
	}
	return pairs, nil
}

// mostAlarms is the largest number of alarms that a test at 5 % exceeds in less than one of a hundred series of n campaigns: 6 of 40.
func mostAlarms(n int) int {
	const p = 0.05
	chance := math.Pow(1-p, float64(n))
	sum := chance
	for k := 0; ; k++ {
		if 1-sum < 0.01 {
			return k
		}
		chance *= float64(n-k) / float64(k+1) * p / (1 - p)
		sum += chance
	}
}

// Bounds of the rate of alarms that is claimed, and the share of slowed arms to find.
const (
	leastRate, mostRate = 0.04, 0.06
	leastFound          = 0.9
)

// write prints the tables and judges.
func (f *found) write(w io.Writer, o *options) error {
	alarms, caught := 0, 0
	for i := range f.same {
		if f.same[i].alarms() {
			alarms++
		}
	}
	for i := range f.slow {
		if s := &f.slow[i]; s.alarms() && s.ratio.Estimate < 1 {
			caught++
		}
	}
	if err := table(w, append(f.slow, f.same...)); err != nil {
		return err
	}
	rate := stats.Placebo(rand.New(rand.NewPCG(o.Seed, 1)), f.runs, window, o.comparisons, 1-campaign.Confidence)
	most, least := mostAlarms(len(f.same)), int(math.Ceil(leastFound*float64(len(f.slow))))
	good := alarms <= most && rate >= leastRate && rate <= mostRate && caught >= least
	_, err := fmt.Fprintf(w, `
%d campaigns compared a thing with itself: %d alarms at 5 %% (at most %d are to be).
%d comparisons of %d pairs put together anew, in the order of time: alarms in %.2f %% (%.0f to %.0f %% are to be).
%d campaigns had an arm slowed by %.1f %%: found in %d (at least %d are to be).
`, len(f.same), alarms, most, o.comparisons, window, 100*rate, 100*leastRate, 100*mostRate, len(f.slow), 100*o.slow, caught, least)
	if err == nil && !good {
		err = rig.ErrClaim
	}
	return err
}

// table prints what each campaign said.
func table(w io.Writer, readings []reading) error {
	columns := []ui.Column{{Head: "CAMPAIGN"}, {Head: "PAIRS", Right: true}, {Head: "RATIO", Right: true}, {Head: "95 % INTERVAL", Right: true}, {Head: "P", Right: true}, {Head: "ALARM"}}
	var rows [][]string
	for i := range readings {
		r := &readings[i]
		row := []string{r.name, "0", "", "", "", ""}
		if q := r.ratio; q != nil {
			row = []string{r.name, fmt.Sprint(q.Pairs), fmt.Sprintf("%.4f", q.Estimate), "", fmt.Sprintf("%.4f", q.P), ""}
			if q.Low != nil {
				row[3] = fmt.Sprintf("%.4f – %.4f", *q.Low, *q.High)
			}
			if r.alarms() {
				row[5] = "yes"
			}
		}
		rows = append(rows, row)
	}
	return ui.Table(w, 0, columns, rows)
}
