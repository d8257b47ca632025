package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// drawing is an SVG picture in the making. Coordinates are pixels at the picture's own width, and y grows downwards. Colours, strokes
// and type sizes are the style sheet's: a drawing has classes only, so that it follows dark mode and print.
type drawing struct {
	format
	b strings.Builder
	h float64 // so far
}

// format is one of the sizes that every chart is drawn in. The style sheet shows the one that fits, so that text is never scaled to
// something unreadable.
type format struct {
	class string
	w     float64
	small bool // labels stand above what they name, not beside it
}

var (
	wide   = format{class: "wide", w: 760}
	narrow = format{class: "narrow", w: 320, small: true}
)

// textSize is the size of type in charts, and smallSize that of axes and notes; style.css says the same.
const (
	textSize  = 13.0
	smallSize = 11.5
)

type anchor string

const (
	start  anchor = "start"
	middle anchor = "middle"
	end    anchor = "end"
)

// px writes a coordinate. Figures come from files: what is no number, or far outside of any picture, is drawn at its edge.
func px(v float64) string {
	const most = 1e5
	if math.IsNaN(v) {
		v = 0
	}
	return strconv.FormatFloat(math.Round(min(max(v, -most), most)*10)/10, 'f', -1, 64)
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

func (d *drawing) rect(class string, x, y, w, h float64) {
	fmt.Fprintf(&d.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, px(x), px(y), px(max(w, 0)), px(max(h, 0)))
}

// path draws a path of absolute commands, as [path] collects them.
func (d *drawing) path(class string, p *path) {
	if p.b.Len() > 0 {
		fmt.Fprintf(&d.b, `<path class="%s" d="%s"/>`, class, p.b.String())
	}
}

// path is the data of a path.
type path struct{ b strings.Builder }

func (p *path) to(command string, xy ...float64) {
	p.b.WriteString(command)
	for i, v := range xy {
		if i > 0 {
			p.b.WriteByte(' ')
		}
		p.b.WriteString(px(v))
	}
}

// text writes a line of text at its baseline.
func (d *drawing) text(class string, x, y float64, a anchor, s string) {
	fmt.Fprintf(&d.b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, class, px(x), px(y), a, html.EscapeString(s))
}

// shapes is the number of shapes of marks.
const shapes = 6

// mark draws a small shape, so that series differ in more than colour: circle, square, diamond, triangle, upturned triangle, cross.
func (d *drawing) mark(class string, shape int, x, y, r float64) {
	p := new(path)
	switch shape % shapes {
	case 0:
		fmt.Fprintf(&d.b, `<circle class="%s" cx="%s" cy="%s" r="%s"/>`, class, px(x), px(y), px(r))
	case 1:
		d.rect(class, x-r*0.9, y-r*0.9, r*1.8, r*1.8)
	case 2:
		polygon(p, x, y-r*1.25, x+r*1.25, y, x, y+r*1.25, x-r*1.25, y)
	case 3:
		polygon(p, x, y-r*1.15, x+r*1.15, y+r*0.9, x-r*1.15, y+r*0.9)
	case 4:
		polygon(p, x, y+r*1.15, x+r*1.15, y-r*0.9, x-r*1.15, y-r*0.9)
	default:
		a, b := r*0.35, r
		polygon(p, x-a, y-b, x+a, y-b, x+a, y-a, x+b, y-a, x+b, y+a, x+a, y+a, x+a, y+b, x-a, y+b, x-a, y+a, x-b, y+a, x-b, y-a, x-a, y-a)
	}
	d.path(class, p)
}

func polygon(p *path, xy ...float64) {
	for i := 0; i+1 < len(xy); i += 2 {
		command := "L"
		if i == 0 {
			command = "M"
		}
		p.to(command, xy[i], xy[i+1])
	}
	p.to("Z")
}

// sample is an entry of a legend: what a mark looks like and what it means.
type sample struct {
	text string
	draw func(d *drawing, x, y float64) // within 14 pixels to the right of x, around y
}

// legend writes samples in lines from the drawing's present height on.
func (d *drawing) legend(samples []sample) {
	const mark, gap, line = 20, 16, 19
	x, y := 4.0, d.h+line/2
	for _, s := range samples {
		text := fit(s.text, smallSize, d.w-mark-8)
		w := mark + textWidth(text, smallSize)
		if x > 4 && x+w > d.w-4 {
			x, y = 4, y+line
		}
		s.draw(d, x, y)
		d.text("small", x+mark, y+4, start, text)
		x += w + gap
	}
	if len(samples) > 0 {
		d.h = y + line/2 + 6
	}
}

// finish returns the picture; id is unique in the page.
func (d *drawing) finish(id, title, desc string) template.HTML {
	id += "-" + d.class
	return template.HTML(fmt.Sprintf(`<svg class="%s" role="img" aria-labelledby="%s-t %s-d" viewBox="0 0 %s %s"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>%s</svg>`,
		d.class, id, id, px(d.w), px(math.Ceil(d.h)), id, html.EscapeString(title), id, html.EscapeString(desc), d.b.String()))
}

// textWidth is about how wide a text is, in pixels: fonts differ, so it errs on the wide side.
func textWidth(s string, size float64) float64 {
	em := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune("iljtfrI.,:;'|!()[]/ -", r):
			em += 0.36
		case strings.ContainsRune("mwMW%@", r):
			em += 0.92
		case unicode.IsUpper(r):
			em += 0.72
		case r >= 0x1100:
			em += 1.05
		default:
			em += 0.6
		}
	}
	return em * size
}

// fit shortens a text to a width by its middle: names of arms begin alike, with what they draft, and end with what tells them apart.
func fit(s string, size, width float64) string {
	if textWidth(s, size) <= width {
		return s
	}
	runes := []rune(s)
	for n := min(len(runes), int(width/size*4)) - 1; n > 0; n-- {
		head := (n + 1) / 2
		short := strings.TrimRight(string(runes[:head]), " ") + "…" + strings.TrimLeft(string(runes[len(runes)-(n-head):]), " ")
		if textWidth(short, size) <= width {
			return short
		}
	}
	return "…"
}
