package weights

import (
	"bytes"
	"math"
	"reflect"
	"testing"
)

// allKinds has one key of every type that GGUF has, scalar and array.
func allKinds() []KeyValue {
	return []KeyValue{
		{"u8", uint8(200)}, {"i8", int8(-3)}, {"u16", uint16(65535)}, {"i16", int16(-300)},
		{"u32", uint32(math.MaxUint32)}, {"i32", int32(math.MinInt32)}, {"u64", uint64(math.MaxUint64)},
		{"i64", int64(math.MinInt64)}, {"f32", float32(0.1)}, {"f64", 0.1}, {"yes", true}, {"no", false},
		{"text", "né"}, {"nothing", ""},
		{"u8s", []uint8{0, 255}}, {"i8s", []int8{-128, 127}}, {"u16s", []uint16{1}}, {"i16s", []int16{-1}},
		{"u32s", []uint32{5, 6}}, {"i32s", []int32{-5, 6}}, {"u64s", []uint64{1 << 63}}, {"i64s", []int64{-1 << 63}},
		{"f32s", []float32{0.5, -0.25}}, {"f64s", []float64{0.1}}, {"bools", []bool{true, false}},
		{"texts", []string{"", "a", "Ġthe"}}, {"none", []string{}},
	}
}

func parsed(t *testing.T, kvs []KeyValue) *File {
	t.Helper()
	var b bytes.Buffer
	if err := WriteGGUF(&b, kvs, nil); err != nil {
		t.Fatal(err)
	}
	f, err := ParseGGUF("m.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMetadataValueRoundTrip(t *testing.T) {
	m := parsed(t, allKinds()).Meta()
	for i, kv := range allKinds() {
		if m.Keys()[i] != kv.Key {
			t.Errorf("key %d is %s, want %s", i, m.Keys()[i], kv.Key)
		}
		if got, ok := m.Value(kv.Key); !ok || !reflect.DeepEqual(got, kv.Value) {
			t.Errorf("%s: got %T %v, want %T %v", kv.Key, got, got, kv.Value, kv.Value)
		}
	}
	if v, ok := m.Value("absent"); ok {
		t.Errorf("absent key has the value %v", v)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
}

// TestMetadataGetters asks every getter for every key. Where no value is expected, a present key
// must leave an error that names it, and an absent one none.
func TestMetadataGetters(t *testing.T) {
	getters := map[string]struct {
		get  func(Metadata, string) (any, bool)
		want map[string]any
	}{
		"String": {func(m Metadata, k string) (any, bool) { return pair(m.String(k)) },
			map[string]any{"text": "né", "nothing": ""}},
		"Uint": {func(m Metadata, k string) (any, bool) { return pair(m.Uint(k)) },
			map[string]any{"u8": uint64(200), "u16": uint64(65535), "u32": uint64(math.MaxUint32), "u64": uint64(math.MaxUint64)}},
		"Int": {func(m Metadata, k string) (any, bool) { return pair(m.Int(k)) },
			map[string]any{"u8": int64(200), "i8": int64(-3), "u16": int64(65535), "i16": int64(-300),
				"u32": int64(math.MaxUint32), "i32": int64(math.MinInt32), "i64": int64(math.MinInt64)}},
		"Float": {func(m Metadata, k string) (any, bool) { return pair(m.Float(k)) },
			map[string]any{"f32": float64(float32(0.1)), "f64": 0.1}},
		"Bool": {func(m Metadata, k string) (any, bool) { return pair(m.Bool(k)) },
			map[string]any{"yes": true, "no": false}},
		"Strings": {func(m Metadata, k string) (any, bool) { return pair(m.Strings(k)) },
			map[string]any{"texts": []string{"", "a", "Ġthe"}, "none": []string{}}},
		"Ints": {func(m Metadata, k string) (any, bool) { return pair(m.Ints(k)) },
			map[string]any{"u8s": []int64{0, 255}, "i8s": []int64{-128, 127}, "u16s": []int64{1}, "i16s": []int64{-1},
				"u32s": []int64{5, 6}, "i32s": []int64{-5, 6}, "i64s": []int64{-1 << 63}}},
		"Floats": {func(m Metadata, k string) (any, bool) { return pair(m.Floats(k)) },
			map[string]any{"f32s": []float64{0.5, -0.25}, "f64s": []float64{0.1}}},
	}
	f := parsed(t, allKinds())
	for name, g := range getters {
		for _, kv := range allKinds() {
			m := f.Meta()
			got, ok := g.get(m, kv.Key)
			want, expected := g.want[kv.Key]
			if ok != expected || ok && !reflect.DeepEqual(got, want) {
				t.Errorf("%s(%s) = %v, %v; want %v, %v", name, kv.Key, got, ok, want, expected)
			}
			if !expected {
				wantError(t, m.Err(), "m.gguf: at byte", `key "`+kv.Key+`"`)
			} else if m.Err() != nil {
				t.Errorf("%s(%s): %v", name, kv.Key, m.Err())
			}
		}
		m := f.Meta()
		if _, ok := g.get(m, "absent"); ok || m.Err() != nil {
			t.Errorf("%s(absent): %v, %v", name, ok, m.Err())
		}
		if _, ok := g.get(Metadata{}, "absent"); ok || (Metadata{}).Err() != nil {
			t.Errorf("%s of the zero Metadata: %v", name, ok)
		}
	}
}

func pair[T any](v T, ok bool) (any, bool) { return v, ok }

// TestMetadataCollectsErrors: one question at the end tells of all, and another reader has none of them.
func TestMetadataCollectsErrors(t *testing.T) {
	f := parsed(t, allKinds())
	m := f.Meta()
	m.Uint("text")
	m.Strings("u32")
	m.Uint("i8")
	wantError(t, m.Err(), `key "text" is of type string, want an integer`,
		`key "u32" is of type uint32, want an array of strings`, `key "i8" is -3, must not be negative`)
	if err := f.Meta().Err(); err != nil {
		t.Errorf("a fresh reader has %v", err)
	}
}
