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

// Table writes rows under the columns' heads: with rules on a terminal, as columns aligned by spaces
// (which awk and people read) elsewhere. Cells are cleaned; a row's missing cells are empty. It panics
// if a row has more cells than there are columns.
func Table(w io.Writer, terminal bool, columns []Column, rows [][]string) error {
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
	if terminal {
		return ruled(w, columns, grid)
	}
	return aligned(w, columns, grid)
}

func ruled(w io.Writer, columns []Column, rows [][]string) error {
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
	t := table.New().Border(lipgloss.RoundedBorder()).StyleFunc(style).Headers(heads...).Rows(rows...)
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func aligned(w io.Writer, columns []Column, rows [][]string) error {
	// tabwriter aligns all columns one way, so cells that go right are padded first.
	width := make([]int, len(columns))
	for j, c := range columns {
		width[j] = lipgloss.Width(c.Head)
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
		// No tab after the last cell: lines end without blanks.
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(cells, "\t"), "\t")) // Flush reports what goes wrong
	}
	line(func(j int) string { return columns[j].Head })
	for _, row := range rows {
		line(func(j int) string { return row[j] })
	}
	return tw.Flush()
}
