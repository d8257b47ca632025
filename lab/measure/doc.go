// Package measure turns the samples of a benchmark into figures, each under its own name: a [Meter] takes in a [Record] for each
// request, in any order and as it ends, and its [Summary] has latencies, throughput, goodput, acceptance and failures. docs/metrics.md
// defines each figure and says what other tools call it.
//
// A Meter keeps no request: its memory does not grow with their number. Distributions are exact up to [ExactValues] values and
// within 0.1 % of each value beyond. The package sends nothing and knows no server.
package measure
