package probe

import "draftlab/lab/measure"

// Between returns what happened between two readings, all requests of that time included, nil if nothing was drafted or the
// server started anew.
func Between(before, after Drafts) *measure.Acceptance {
	a := &measure.Acceptance{
		Source: "counters", Cycles: after.Cycles - before.Cycles, Drafted: after.Drafted - before.Drafted, Accepted: after.Accepted - before.Accepted,
	}
	if a.Cycles <= 0 || a.Drafted < 0 || a.Accepted < 0 {
		return nil
	}
	cycles := float64(a.Cycles)
	a.Length = measure.Estimate{Value: 1 + float64(a.Accepted)/cycles}
	if a.Drafted > 0 {
		a.Rate = &measure.Estimate{Value: float64(a.Accepted) / float64(a.Drafted)}
	}
	reached := cycles
	for k, n := range after.PerPosition {
		if k < len(before.PerPosition) {
			n -= before.PerPosition[k]
		}
		if n <= 0 {
			break
		}
		a.Survival = append(a.Survival, measure.Estimate{Value: float64(n) / cycles})
		a.Conditional = append(a.Conditional, measure.Estimate{Value: float64(n) / reached})
		reached = float64(n)
	}
	return a
}
