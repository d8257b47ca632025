package weights

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestSafetensorsHostile(t *testing.T) {
	one := func(fields string) []byte { return st(`{"w":{`+fields+`}}`, 8) }
	for name, c := range map[string]struct {
		data []byte
		want []string
	}{
		"empty":              {nil, []string{"0 bytes are too few"}},
		"no header":          {(&raw{}).u64(0).Bytes(), []string{"not a JSON object"}},
		"huge header":        {(&raw{}).u64(math.MaxUint64).zeros(9).Bytes(), []string{"header of 18446744073709551615 bytes, more than 100000000"}},
		"header cut":         {(&raw{}).u64(1000).zeros(99).Bytes(), []string{"header of 1000 bytes in a file of 107", "cut short"}},
		"not JSON":           {st(`{"w":`, 0), []string{"JSON is not valid"}},
		"array":              {st(`[]`, 0), []string{"not a JSON object"}},
		"two objects":        {st(`{}{}`, 0), []string{"JSON is not valid"}},
		"not UTF-8":          {st("{\"w\xff\":{}}", 0), []string{"JSON is not valid"}},
		"deep":               {st(`{"w":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`, 0), []string{"JSON is not valid"}},
		"tensor is a number": {st(`{"w":1}`, 0), []string{`tensor "w"`, "want {"}},
		"no name":            {st(`{"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8), []string{"without a name"}},
		"name twice": {st(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
			[]string{`"w" occurs twice`}},
		"escaped name twice": {st(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"\u0077":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
			[]string{`"w" occurs twice`}},
		"field twice":       {one(`"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]`), []string{`tensor "w"`, `"dtype" occurs twice`}},
		"field missing":     {one(`"dtype":"F32","shape":[2]`), []string{`tensor "w"`, "needs dtype, shape and data_offsets"}},
		"field in capitals": {one(`"DType":"F32","shape":[2],"data_offsets":[0,8]`), []string{`unknown field "DType"`}},
		"field more":        {one(`"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1`), []string{`unknown field "x"`}},
		"dtype":             {one(`"dtype":"F64","shape":[1],"data_offsets":[0,8]`), []string{`tensor "w"`, `element type "F64" is not read`}},
		"dtype of GGUF":     {one(`"dtype":"Q8_0","shape":[1],"data_offsets":[0,8]`), []string{`"Q8_0" is not read`}},
		"dtype number":      {one(`"dtype":1,"shape":[1],"data_offsets":[0,8]`), []string{"want a string"}},
		"shape string":      {one(`"dtype":"F32","shape":"2","data_offsets":[0,8]`), []string{"want ["}},
		"shape nested":      {one(`"dtype":"F32","shape":[[2]],"data_offsets":[0,8]`), []string{"want a whole number"}},
		"shape of strings":  {one(`"dtype":"F32","shape":["2"],"data_offsets":[0,8]`), []string{"want a whole number"}},
		"shape fraction":    {one(`"dtype":"F32","shape":[2.0],"data_offsets":[0,8]`), []string{"want a whole number"}},
		"shape negative":    {one(`"dtype":"F32","shape":[-2],"data_offsets":[0,8]`), []string{"want a whole number"}},
		"shape zero":        {one(`"dtype":"F32","shape":[0],"data_offsets":[0,0]`), []string{"dimension 0 is 0"}},
		"shape too large":   {one(`"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]`), []string{"want a whole number"}},
		"shape overflows":   {one(`"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]`), []string{`tensor "w"`, "overflows"}},
		"bytes overflow":    {one(`"dtype":"I64","shape":[2305843009213693952],"data_offsets":[0,8]`), []string{"too long"}},
		"nine dimensions":   {one(`"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]`), []string{"more than 8 numbers"}},
		"one offset":        {one(`"dtype":"F32","shape":[2],"data_offsets":[0]`), []string{"data_offsets has 1 numbers"}},
		"three offsets":     {one(`"dtype":"F32","shape":[2],"data_offsets":[0,8,8]`), []string{"more than 2 numbers"}},
		"offsets reversed":  {one(`"dtype":"F32","shape":[2],"data_offsets":[8,0]`), []string{"data offsets 8 to 0"}},
		"size":              {one(`"dtype":"F32","shape":[3],"data_offsets":[0,8]`), []string{"shape [3] of F32 takes 12 bytes"}},
		"past the end":      {one(`"dtype":"F32","shape":[4],"data_offsets":[0,16]`), []string{`tensor "w"`, "ends at 16 of 8 bytes"}},
		"offsets near 2^63": {one(`"dtype":"F32","shape":[2],"data_offsets":[9223372036854775799,9223372036854775807]`), []string{"ends at"}},
		"hole at the front": {one(`"dtype":"F32","shape":[1],"data_offsets":[4,8]`), []string{`tensor "w" at byte`, "bytes 0 to 4", "belong to no tensor"}},
		"bytes at the end":  {one(`"dtype":"F32","shape":[1],"data_offsets":[0,4]`), []string{"4 bytes after the last tensor"}},
		"data of none":      {st(`{}`, 8), []string{"8 bytes after the last tensor"}},
		"overlap": {st(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[2],"data_offsets":[2,6]}}`, 6),
			[]string{`tensor "b"`, "overlaps"}},
		"hole between": {st(`{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"F16","shape":[1],"data_offsets":[4,6]}}`, 6),
			[]string{`tensor "b"`, "bytes 2 to 4"}},
		"metadata number": {st(`{"__metadata__":{"a":1}}`, 0), []string{"want a string"}},
		"metadata twice":  {st(`{"__metadata__":{"a":"","a":""}}`, 0), []string{`"a" occurs twice`}},
	} {
		t.Run(name, func(t *testing.T) {
			var f *File
			var err error
			boundedAlloc(t, len(c.data), func() { f, err = ParseSafetensors("m.safetensors", c.data) })
			if f != nil && err != nil {
				t.Error("a file and an error")
			}
			wantError(t, err, append(c.want, "m.safetensors: ")...)
			var fe *FormatError
			if !errors.As(err, &fe) {
				t.Errorf("%T is not a FormatError", err)
			}
		})
	}
}

func TestSafetensorsLegal(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":       st(`{}`, 0),
		"spaces behind": st(`{}      `, 0),
		"only metadata": st(`{"__metadata__":{"format":"pt"}}`, 0),
		"fields in another order, table not in data order": st(
			`{"b":{"data_offsets":[2,6],"shape":[1],"dtype":"F32"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}`, 6),
	} {
		f, err := ParseSafetensors("m", data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(f.Meta().Keys()) != 0 || f.Format() != "safetensors" {
			t.Errorf("%s: keys %v, format %s", name, f.Meta().Keys(), f.Format())
		}
		if ts := f.Tensors(); len(ts) == 2 && (ts[0].Name != "a" || ts[0].Elements() != 1 || ts[1].Offset != ts[0].Offset+2) {
			t.Errorf("%s: %v", name, ts)
		}
	}
}

func TestSafetensorsTruncated(t *testing.T) {
	good := st(`{"w":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}`, 16)
	if _, err := ParseSafetensors("m", good); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := ParseSafetensors("m", good[:n:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a whole file", n, len(good))
		}
	}
}
