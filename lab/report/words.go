package report

import (
	"cmp"
	"draftlab/lab/campaign"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
)

func compare(a, b float64) int { return cmp.Compare(a, b) }

// times writes a ratio.
func times(v float64) string {
	if math.Abs(v) >= 100 {
		return short(v) + "×"
	}
	return fmt.Sprintf("%.2f×", v)
}

// between writes an interval, or nothing where there is none.
func between(low, high *float64, decimals int) string {
	if low == nil || high == nil {
		return "none"
	}
	return fmt.Sprintf("%.*f – %.*f", decimals, *low, decimals, *high)
}

// level writes a level of confidence.
func level(c float64) string {
	if !(c > 0 && c < 1) {
		return "95 %"
	}
	return short(100*c) + " %"
}

// ratioWords is a ratio with its interval, for prose.
func ratioWords(r *campaign.Ratio) string {
	if r.Low == nil || r.High == nil {
		return fmt.Sprintf("%s (%s, too few for an interval)", times(r.Estimate), count(r.Pairs, "pair"))
	}
	return fmt.Sprintf("%s (%s interval %s)", times(r.Estimate), level(r.Confidence), between(r.Low, r.High, 2))
}

// ratioBrief is the same beside a chart.
func ratioBrief(r *campaign.Ratio) string {
	if r.Low == nil || r.High == nil {
		return times(r.Estimate)
	}
	return times(r.Estimate) + " (" + between(r.Low, r.High, 2) + ")"
}

// medianWords is a spread's median, "" for none.
func medianWords(s *campaign.Spread) string {
	if s == nil {
		return ""
	}
	return figure3(s.Median)
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", math.Round(100*v)+0) } // + 0: no -0

func finePercent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

func signedPercent(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100*v)
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// seconds writes a duration for people.
func seconds(s float64) string {
	switch {
	case s < 10:
		return short(s) + " s"
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	case s < 2*3600:
		return fmt.Sprintf("%.0f min", s/60)
	}
	return fmt.Sprintf("%.1f h", s/3600)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// clean replaces what a page must not hold: control characters, which no document may, and marks that turn the direction of text, with
// which a name could make a figure read as another one.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == 0xFFFE, r == 0xFFFF:
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
