package report

// rows is the layout of a chart of horizontal rows with a common scale: the name of each and its figures stand beside it, or above it on
// a narrow page.
type rows struct {
	*drawing
	from, to   float64 // the scale's pixels
	name       float64 // widths
	value      float64
	top, pitch float64
	bar        float64 // from the top of a row to the middle of its marks
}

// boldSize is the size of type that is as wide as bold type of the usual size.
const boldSize = textSize * 1.1

// newRows lays out rows of names and values whose marks take a height, below what is drawn already.
func newRows(d *drawing, names, values []string, height float64) *rows {
	r := &rows{drawing: d, top: d.h + 4}
	widest := func(texts []string, most float64) (w float64) {
		for _, t := range texts {
			w = max(w, textWidth(t, boldSize))
		}
		return min(w, most)
	}
	r.name, r.value = widest(names, 210), widest(values, 200)
	if d.small {
		r.from, r.to = 8, d.w-8
		r.pitch, r.bar = height+26, 20+height/2
		r.value = min(r.value, d.w*0.62)
		r.name = d.w - r.value - 12
		return r
	}
	r.from, r.to = r.name+14, d.w-r.value-12
	r.pitch, r.bar = height+12, (height+12)/2
	return r
}

// row writes the name and the figures of row i and returns the middle of its marks.
func (r *rows) row(i int, name, value, class string) float64 {
	top := r.top + float64(i)*r.pitch
	name = fit(name, boldSize, r.name)
	if r.small {
		r.text(class, 4, top+14, start, name)
		r.text(class, r.w-4, top+14, end, fit(value, boldSize, r.value))
		return top + r.bar
	}
	r.text(class, r.from-10, top+r.bar+4.5, end, name)
	r.text(class, r.w-4, top+r.bar+4.5, end, fit(value, boldSize, r.value))
	return top + r.bar
}

// bottom is the end of n rows.
func (r *rows) bottom(n int) float64 { return r.top + float64(n)*r.pitch }
