package main

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"

	"draftlab/experiments/rig"
	"draftlab/internal/ui"
)

// draws is how many random choices are worked out.
const draws = 2000

// atRandom is the mean, over random choices of n arms, of the best one's speed-up over the best of all.
func atRandom(measured map[string]float64, n int, rng *rand.Rand) float64 {
	speedups := slices.Sorted(maps.Values(measured))
	best, sum := speedups[len(speedups)-1], 0.0
	for range draws {
		rng.Shuffle(len(speedups), func(i, j int) { speedups[i], speedups[j] = speedups[j], speedups[i] })
		sum += slices.Max(speedups[:max(1, min(n, len(speedups)))])
	}
	return sum / draws / best
}

// What is claimed.
const (
	mostTime   = 0.25 // of the grid's
	leastRatio = 0.97 // lower bound, of the guided search's winner to the grid's
)

// holds reports that the claims hold.
func (o *outcome) holds() bool {
	return o.model.seconds <= mostTime*o.grid.seconds && o.head != nil && o.head.Low != nil && *o.head.Low >= leastRatio
}

// write prints the table and judges.
func write(w io.Writer, all []outcome) error {
	columns := []ui.Column{{Head: "CAMPAIGN", Right: true}, {Head: "GRID ARMS", Right: true}, {Head: "GUIDED", Right: true}, {Head: "GRID S", Right: true}, {Head: "GUIDED S", Right: true},
		{Head: "TIME", Right: true}, {Head: "GRID'S WINNER"}, {Head: "GUIDED'S"}, {Head: "RATIO", Right: true}, {Head: "95 % INTERVAL", Right: true}, {Head: "RANDOM", Right: true}, {Head: "HOLDS"}}
	var rows [][]string
	good := 0
	for i := range all {
		o := &all[i]
		row := []string{fmt.Sprint(i + 1), fmt.Sprint(len(o.grid.measured)), fmt.Sprint(len(o.model.measured)), fmt.Sprintf("%.0f", o.grid.seconds), fmt.Sprintf("%.0f", o.model.seconds),
			fmt.Sprintf("%.3f", o.model.seconds/o.grid.seconds), o.grid.winner.Name, o.model.winner.Name, "", "", fmt.Sprintf("%.3f", o.random), "no"}
		if o.head != nil {
			row[8] = fmt.Sprintf("%.4f", o.head.Estimate)
			if o.head.Low != nil {
				row[9] = fmt.Sprintf("%.4f – %.4f", *o.head.Low, *o.head.High)
			}
		}
		if o.holds() {
			row[11] = "yes"
			good++
		}
		rows = append(rows, row)
	}
	if err := ui.Table(w, 0, columns, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nThe guided search took at most %.2f of the grid's time, and its winner is at least %.2f times as fast, in %d of %d campaigns.\n", mostTime, leastRatio, good, len(all))
	if err == nil && good < len(all) {
		err = rig.ErrClaim
	}
	return err
}
