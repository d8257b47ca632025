package ui

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
)

// Column is a column of a table.
type Column struct {
	Head  string
	Right bool // flush right, for numbers
}

// Table writes rows under the columns' heads: with rules on a terminal, whose width in columns is not 0, and as columns aligned by
// spaces (which awk and people read) elsewhere. On a terminal that is too narrow for the rules they are left out, then heads take several lines, and
// on one that is too narrow for the columns each row is a paragraph that names its cells; a table of two columns is left to the terminal
// then. Cells are cleaned; a row's missing cells are empty. It panics if a row has more cells than there are columns.
func Table(w io.Writer, width int, columns []Column, rows [][]string) error {
	grid := make([][]string, len(rows))
	for i, row := range rows {
		if len(row) > len(columns) {
			panic(fmt.Sprintf("ui: row %d has %d cells for %d columns", i, len(row), len(columns)))
		}
		grid[i] = make([]string, len(columns))
		for j, cell := range row {
			grid[i][j] = Clean(cell)
		}
	}
	if width == 0 {
		return aligned(w, columns, grid, 1)
	}
	text := ruled(columns, grid)
	for _, lines := range []int{1, mostHeadLines} {
		if lipgloss.Width(text) <= width {
			break
		}
		var b strings.Builder
		if err := aligned(&b, columns, grid, lines); err != nil {
			return err
		}
		text = b.String()
	}
	if lipgloss.Width(text) > width && len(columns) > 2 {
		text = stacked(width, columns, grid)
	}
	_, err := io.WriteString(w, text)
	return err
}

// mostHeadLines is how many lines a head of several words may take where that makes a table fit.
const mostHeadLines = 3

// broken returns a head in so many lines, as narrow as its words allow, with empty ones above.
func broken(head string, lines int) []string {
	if lines == 1 {
		return []string{head}
	}
	words := strings.Fields(head)
	for width := 1; ; width++ {
		var out []string
		for _, word := range words {
			if last := len(out) - 1; last >= 0 && (word == "%" || lipgloss.Width(out[last]+" "+word) <= width) { // which stays with its number
				out[last] += " " + word
			} else {
				out = append(out, word)
			}
		}
		if len(out) <= lines {
			return append(make([]string, lines-len(out)), out...)
		}
	}
}

// stacked has a paragraph for each row: the first cell, and the others behind their heads.
func stacked(width int, columns []Column, rows [][]string) string {
	const gap, indent = "  ", "  "
	var b strings.Builder
	if columns[0].Head != "" {
		b.WriteString(columns[0].Head + "\n")
	}
	for _, row := range rows {
		b.WriteString(lipgloss.NewStyle().Bold(true).Render(row[0]))
		column := lipgloss.Width(row[0])
		for j, cell := range row[1:] {
			if cell == "" {
				continue
			}
			item := strings.TrimSpace(columns[j+1].Head + " " + cell)
			if n := lipgloss.Width(item); column+len(gap)+n > width {
				b.WriteString("\n" + indent)
				column = len(indent) + n
			} else {
				b.WriteString(gap)
				column += len(gap) + n
			}
			b.WriteString(item)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func ruled(columns []Column, rows [][]string) string {
	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = c.Head
	}
	style := func(row, col int) lipgloss.Style {
		s := lipgloss.NewStyle().Padding(0, 1)
		if columns[col].Right {
			s = s.Align(lipgloss.Right)
		}
		return s.Bold(row == table.HeaderRow)
	}
	return table.New().Border(lipgloss.RoundedBorder()).StyleFunc(style).Headers(heads...).Rows(rows...).Render() + "\n"
}

// aligned pads cells to the widest of their column, under heads of so many lines at most.
func aligned(w io.Writer, columns []Column, rows [][]string, lines int) error {
	most := 1 // words of a head: more lines would be empty
	for _, c := range columns {
		most = max(most, len(strings.Fields(c.Head)))
	}
	heads := make([][]string, len(columns))
	for j, c := range columns {
		heads[j] = broken(c.Head, min(lines, most))
	}
	// tabwriter aligns all columns one way, so cells that go right are padded first.
	width := make([]int, len(columns))
	for j := range columns {
		for _, head := range heads[j] {
			width[j] = max(width[j], lipgloss.Width(head))
		}
		for _, row := range rows {
			width[j] = max(width[j], lipgloss.Width(row[j]))
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cell func(j int) string) {
		cells := make([]string, len(columns))
		for j, c := range columns {
			cells[j] = cell(j)
			if c.Right {
				cells[j] = strings.Repeat(" ", width[j]-lipgloss.Width(cells[j])) + cells[j]
			}
		}
		// No tab after the last cell that has something: lines end without blanks.
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(cells, "\t"), "\t ")) // Flush reports what goes wrong
	}
	for i := range heads[0] {
		line(func(j int) string { return heads[j][i] })
	}
	for _, row := range rows {
		line(func(j int) string { return row[j] })
	}
	return tw.Flush()
}
