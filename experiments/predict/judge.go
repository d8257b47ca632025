package main

import (
	"cmp"
	"fmt"
	"io"

	"draftlab/experiments/rig"
	"draftlab/internal/ui"
	"draftlab/lab/search"
	"draftlab/lab/trial"
)

// What is claimed.
const (
	leastCovered, mostCovered = 0.84, 0.96
	mostHalfWidth             = 0.05
	leastPredictions          = 100
	leastCampaigns            = 5
)

// write prints how the predictions fared, and judges.
func write(w io.Writer, all []trial.Prediction, campaigns int, each bool) error {
	if each {
		if err := writeEach(w, all); err != nil {
			return err
		}
	}
	columns := []ui.Column{{Head: "QUANTITY"}, {Head: "PREDICTIONS", Right: true}, {Head: "HELD", Right: true}, {Head: "HALF-WIDTH", Right: true}, {Head: "OFF BY", Right: true}}
	var rows [][]string
	for _, q := range []string{search.Speedup, search.AcceptLength, search.Cycle, ""} {
		c := search.Assess(all, q)
		rows = append(rows, []string{cmp.Or(q, "all"), fmt.Sprint(c.Predictions), fmt.Sprintf("%.1f %%", 100*held(c)), fmt.Sprintf("%.1f %%", 100*c.HalfWidth), fmt.Sprintf("%+.1f %%", 100*c.Bias)})
	}
	if err := ui.Table(w, 0, columns, rows); err != nil {
		return err
	}
	c := search.Assess(all, "")
	good := held(c) >= leastCovered && held(c) <= mostCovered && c.HalfWidth <= mostHalfWidth && c.Predictions >= leastPredictions && campaigns >= leastCampaigns
	_, err := fmt.Fprintf(w, "\n%d predictions in %d campaigns: 90 %% intervals held %.1f %% (%.0f to %.0f %% are to be) with a median half-width of %.1f %% (%.0f %% at most).\n",
		c.Predictions, campaigns, 100*held(c), 100*leastCovered, 100*mostCovered, 100*c.HalfWidth, 100*mostHalfWidth)
	if err == nil && !good {
		err = rig.ErrClaim
	}
	return err
}

// held is the share of intervals that held what was measured.
func held(c search.Calibration) float64 { return float64(c.Covered) / float64(max(1, c.Predictions)) }

// writeEach prints every prediction that was measured.
func writeEach(w io.Writer, all []trial.Prediction) error {
	columns := []ui.Column{{Head: "ARM"}, {Head: "QUANTITY"}, {Head: "FORETOLD", Right: true}, {Head: "90 % INTERVAL", Right: true}, {Head: "MEASURED", Right: true}, {Head: "OFF BY", Right: true}}
	var rows [][]string
	for _, p := range all {
		if p.Measured == nil {
			continue
		}
		rows = append(rows, []string{p.Arm, p.Quantity, fmt.Sprintf("%.3f", p.Estimate), fmt.Sprintf("%.3f – %.3f", *p.Low, *p.High),
			fmt.Sprintf("%.3f", p.Measured.Estimate), fmt.Sprintf("%+.1f %%", 100*(p.Measured.Estimate/p.Estimate-1))})
	}
	if err := ui.Table(w, 0, columns, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
