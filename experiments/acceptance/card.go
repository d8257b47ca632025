package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// all is the card's word for the row over all categories.
const all = "all"

// card is the model card's table of real prompts, by category.
type card map[string]figures

// figures are a row of the table.
type figures struct {
	conversations int
	conditional   []float64       // by position, from 1
	length        map[int]float64 // accept length by depth
}

// rowName begins the names of the rows that are the held-out prompts.
const rowName = "real prompts, "

// readCard reads the table from a model card.
func readCard(path string) (card, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the model card: %w (run this from the repository's root, or name the file by --card)", err)
	}
	c, err := parseCard(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// parseCard finds the table: the one whose head has "held out" first, then columns by name.
func parseCard(text string) (card, error) {
	var head []string
	c := card{}
	for n, line := range strings.Split(text, "\n") {
		cells := cellsOf(line)
		if len(cells) == 0 {
			continue
		}
		if cells[0] == "held out" && slices.Contains(cells, "K=1") {
			head = cells
		}
		name, ok := strings.CutPrefix(cells[0], rowName)
		if !ok || head == nil {
			continue
		}
		if len(cells) != len(head) {
			return nil, fmt.Errorf("line %d: %d cells, the table has %d columns", n+1, len(cells), len(head))
		}
		row, err := parseRow(head, cells)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		c[name] = row
	}
	row, ok := c[all]
	if !ok {
		return nil, fmt.Errorf("no row %q in a table that begins with \"held out\"", rowName+all)
	}
	for _, depth := range depths {
		if row.length[depth] < 1 || len(row.conditional) < depth {
			return nil, fmt.Errorf("row %q: no accept length at K=%d, or not as many conditional acceptances", rowName+all, depth)
		}
	}
	return c, nil
}

// cellsOf cuts a line of a table, nil for another line. Bold type is dropped.
func cellsOf(line string) []string {
	inner, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !ok {
		return nil
	}
	cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
	for i := range cells {
		cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "*")
	}
	return cells
}

// parseRow reads one row by the names of its columns.
func parseRow(head, cells []string) (figures, error) {
	f := figures{length: map[int]float64{}}
	for i, name := range head {
		var err error
		if depth, ok := strings.CutPrefix(name, "K="); ok {
			var k int
			if k, err = strconv.Atoi(depth); err == nil {
				f.length[k], err = strconv.ParseFloat(cells[i], 64)
			}
		} else if name == "conversations" {
			f.conversations, err = strconv.Atoi(cells[i])
		} else if strings.HasPrefix(name, "conditional acceptance") {
			for _, share := range strings.Split(cells[i], "·") {
				v, bad := strconv.ParseFloat(strings.TrimSpace(share), 64)
				if bad != nil {
					err = bad
				}
				f.conditional = append(f.conditional, v)
			}
		}
		if err != nil {
			return f, fmt.Errorf("column %q: %w", name, err)
		}
	}
	return f, nil
}
