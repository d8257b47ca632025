package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// digits writes a figure with three significant digits, or all before the point.
func digits(x float64) string {
	switch size := math.Abs(x); {
	case size >= 99.95 || size == 0:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case size >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case size >= 0.9995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// within adds an interval to a figure, unless it would print as the figure itself does.
func within(i *Interval) string {
	lo, hi := digits(i[0]), digits(i[1])
	if lo == hi || i[1]-i[0] < 0.015*math.Abs(i[1]) {
		return ""
	}
	return fmt.Sprintf(" (%s to %s)", lo, hi)
}

// percent writes a ratio as more or less.
func percent(ratio float64) string {
	if ratio < 1 {
		return fmt.Sprintf("%.0f %% less", 100*(1-ratio))
	}
	return fmt.Sprintf("%.0f %% more", 100*(ratio-1))
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
