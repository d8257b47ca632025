package quant

import "fmt"

// RowBytes returns the bytes that a row of cols elements takes in format t. It is an error if
// the format is unknown, or if cols is not a positive number of whole blocks: no format lets a
// block reach into the next row.
func RowBytes(t Type, cols int) (int, error) {
	l, ok := layouts[t]
	switch {
	case !ok:
		return 0, fmt.Errorf("unknown tensor type %d", uint32(t))
	case cols <= 0:
		return 0, fmt.Errorf("a row of %d elements", cols)
	case cols%l.elems != 0:
		return 0, fmt.Errorf("a row of %d elements is not a multiple of the %d of a %s block", cols, l.elems, l.name)
	}
	blocks := cols / l.elems
	if blocks > maxInt/l.bytes {
		return 0, fmt.Errorf("a row of %d elements is too long", cols)
	}
	return blocks * l.bytes, nil
}

const maxInt = int(^uint(0) >> 1)
