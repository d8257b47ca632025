package weights

import "encoding/binary"

// valueType is how GGUF stores a value; the numbers are those of its specification.
type valueType uint32

const (
	typeU8 valueType = iota
	typeI8
	typeU16
	typeI16
	typeU32
	typeI32
	typeF32
	typeBool
	typeString
	typeArray
	typeU64
	typeI64
	typeF64
)

// valueTypes gives each type's name for people and its bytes, 0 for those that vary.
var valueTypes = [...]struct {
	name  string
	bytes int
}{
	typeU8: {"uint8", 1}, typeI8: {"int8", 1}, typeU16: {"uint16", 2}, typeI16: {"int16", 2},
	typeU32: {"uint32", 4}, typeI32: {"int32", 4}, typeF32: {"float32", 4}, typeBool: {"bool", 1},
	typeString: {"string", 0}, typeArray: {"array", 0},
	typeU64: {"uint64", 8}, typeI64: {"int64", 8}, typeF64: {"float64", 8},
}

// keys reads the key/value section.
func (c *cursor) keys(n uint64) table {
	t := table{values: make(map[string]value)}
	for i := uint64(0); i < n && c.err == nil; i++ {
		start := c.pos
		key := c.name("a key")
		v := c.value(key)
		if c.err != nil {
			break
		}
		if _, twice := t.values[key]; twice {
			c.fail(start, "key %s occurs twice", quoteShort(key))
		}
		t.values[key] = v
		t.keys = append(t.keys, key)
	}
	return t
}

// value reads one typed value and copies its bytes, so that it outlives the mapping.
func (c *cursor) value(key string) value {
	start := c.pos
	v := value{off: start, typ: valueType(c.u32("a value's type")), n: 1}
	if c.err == nil && v.typ == typeArray {
		v.array = true
		v.typ = valueType(c.u32("an array's type"))
		v.n = c.count()
	}
	if c.err != nil {
		return v
	}
	switch {
	case int(v.typ) >= len(valueTypes):
		c.fail(start, "key %s has the unknown value type %d", quoteShort(key), uint32(v.typ))
	case v.typ == typeArray:
		c.fail(start, "key %s is an array of arrays, which is not read", quoteShort(key))
	case v.typ == typeString:
		v.raw = c.strings(v.n, v.array)
	default:
		v.raw = string(c.take(uint64(v.n)*uint64(valueTypes[v.typ].bytes), "the value of key "+quoteShort(key)))
	}
	for i := 0; v.typ == typeBool && i < len(v.raw) && c.err == nil; i++ {
		if v.raw[i] > 1 {
			c.fail(start, "key %s has a boolean with the byte %d", quoteShort(key), v.raw[i])
		}
	}
	return v
}

// count reads the length of an array. No element takes less than a byte.
func (c *cursor) count() int {
	start := c.pos
	n := c.u64("an array's length")
	if left := uint64(len(c.data) - c.pos); c.err == nil && n > left {
		c.fail(start, "an array of %d elements cannot fit into the %d bytes that follow", n, left)
		return 0
	}
	return int(n)
}

// strings walks n strings and returns their bytes as they lie in the file, each behind its length.
func (c *cursor) strings(n int, array bool) string {
	start := c.pos
	for i := 0; i < n && c.err == nil; i++ {
		c.take(c.u64("a string's length"), "a string")
	}
	if c.err != nil {
		return ""
	}
	if !array {
		start += 8 // a lone string needs no length
	}
	return string(c.data[start:c.pos])
}

// stringsIn cuts the n strings apart that strings has walked.
func stringsIn(raw string, n int) []string {
	out := make([]string, n)
	for i := range out {
		size := binary.LittleEndian.Uint64([]byte(raw[:8]))
		out[i], raw = raw[8:8+size], raw[8+size:]
	}
	return out
}
