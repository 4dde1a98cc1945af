// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"bytes"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// limited calls f and fails if it allocates more than 64 times the input plus 1 MiB. Allocations of
// other goroutines count too, so a result above the limit is measured again.
func limited(t *testing.T, input int, f func()) {
	t.Helper()
	limit := uint64(64*input + 1<<20)
	var least uint64
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = after.TotalAlloc - before.TotalAlloc; least <= limit {
			return
		}
	}
	t.Errorf("decoding %d bytes allocated %d bytes, want at most %d", input, least, limit)
}

// seeds returns inputs that would exhaust the memory or the stack of a decoder without limits, and
// a few valid inputs.
func seeds() [][]byte {
	list := "\xdd\x00\x00\x40\x00"
	all := [][]byte{
		{},
		{0xc0},
		{0xc1},
		{0x80},
		{0x90},
		[]byte("\xdb\xff\xff\xff\xff"), []byte("\xdd\xff\xff\xff\xff"), []byte("\xdf\xff\xff\xff\xff"),
		bytes.Repeat([]byte{0x91}, 200), bytes.Repeat([]byte{0x81, 0x01}, 101), []byte("\xd6\xff\xdf\xff\xff\xff\xff"),
		[]byte("\x81\xa3Any\xd6\xff\xdf\xff\xff\xff"), []byte("\x81\xa3Any\x81\x91\x01\x02"),
	}
	for _, field := range []string{"Structs", "Pointers", "Arrays", "Map", "Big", "Sets", "Any", "Any2", "Strings", "Lists", "Bytes", "Pair", "Tree"} {
		for _, elem := range []string{"\xc0", "\x80", "\x90", "\xa0", "\x81\xa0\xc0", "\x91\x90"} {
			all = append(all, append([]byte{0x81, 0xa0 | byte(len(field))}, field+list+strings.Repeat(elem, 1<<14)...))
			all = append(all, append([]byte{0x81, 0xa0 | byte(len(field))}, field+"\x92"+elem+elem...))
		}
	}
	for _, v := range []any{
		&amplifier{Structs: []sparse{{A: "a"}}, Map: map[string]sparse{"a": {}}, Tree: &tree{Left: &tree{}}, Any: map[int]string{1: "a"}},
		&containers{Array: [3]uint16{1, 2, 3}, Floats: map[float64]struct{}{1: {}}}, &scalars{Bool: true}, &account{Balance: 5},
	} {
		st, err := codec.NewState(reflect.TypeOf(v))
		if err != nil {
			panic(err)
		}
		data, err := st.Encode(v)
		if err != nil {
			panic(err)
		}
		all = append(all, data)
	}
	return all
}

func FuzzCheck(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		limited(t, 0, func() { err = codec.Check(data) })
		if err != nil {
			return
		}
		// The library decodes every accepted input as one value.
		rest := bytes.NewReader(data)
		if err := msgpack.NewDecoder(rest).Skip(); err != nil || rest.Len() > 0 {
			t.Errorf("%x: the library returned %v and left %d bytes, want none", data, err, rest.Len())
		}
	})
}

func FuzzDecode(f *testing.F) {
	r := codec.Types(
		codec.Name[amplifier]("amplifier"), codec.Name[containers]("containers"), codec.Name[scalars]("scalars"), codec.Name[boxes]("boxes"), codec.Name[*tree]("tree"),
	)
	if err := r.Err(); err != nil {
		f.Fatal(err)
	}
	manifests := []string{"amplifier", "containers", "scalars", "boxes", "tree"}
	for _, seed := range seeds() {
		f.Add(uint8(0), seed)
		if len(seed) > 1<<14 && effort.Race() { // amplifier has the lists of the other types
			continue
		}
		f.Add(uint8(1), seed)
		f.Add(uint8(3), seed)
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		manifest := manifests[int(which)%len(manifests)]
		before := bytes.Clone(data)
		var got []any
		var err error
		limited(t, len(data), func() { got, err = r.DecodeAppend(nil, manifest, data) })
		if !bytes.Equal(data, before) {
			t.Error("Decode changed the payload")
		}
		if err != nil {
			return
		}
		stable(t, r, got[0])
	})
}

// stable checks that v, if it can be encoded, is decoded to a value with the same encoding.
func stable(t *testing.T, r *codec.Registry, v any) {
	t.Helper()
	manifest, once, err := r.Encode(v)
	if err != nil {
		return
	}
	again, err := r.Decode(manifest, once)
	if err != nil {
		t.Fatalf("%#v was encoded and can't be decoded: %v", v, err)
	}
	if _, twice, err := r.Encode(again); err != nil || !bytes.Equal(once, twice) {
		t.Fatalf("%x is encoded again as %x, %v", once, twice, err)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	r := codec.Types(codec.Name[amplifier]("amplifier"), codec.Name[boxes]("boxes"), codec.Name[*tree]("tree")).Using(codec.JSON())
	if err := r.Err(); err != nil {
		f.Fatal(err)
	}
	manifests := []string{"amplifier+json", "boxes+json", "tree+json"}
	length := effort.Count(1<<9, 1<<12, 1<<12) // TestAcceptedDataStaysWithinTheLimit has lists of other lengths
	for i := range manifests {
		for _, elem := range []string{"null", "0", "{}", "[]", `{"":0}`, `{"A":"a"}`, `""`, "[[]]"} {
			list := "[" + strings.Repeat(elem+",", length) + elem + "]"
			for _, field := range []string{"Structs", "pointers", "Any", "Lists", "Strings", "Bytes", "Arrays", "Sets", "More", "List"} {
				f.Add(uint8(i), []byte(`{"`+field+`":`+list+"}"))
				f.Add(uint8(i), []byte(`{"`+field+`":[`+elem+","+elem+"]}"))
			}
		}
		f.Add(uint8(i), []byte(`{"Map":{"a":{"A":"b"}},"Tree":{"Left":{}},"\u0041ny":1e3}`))
		f.Add(uint8(i), []byte(strings.Repeat(`{"Any":`, 101)))
		f.Add(uint8(i), []byte(strings.Repeat(`{"Left":`, 99)+"null"+strings.Repeat("}", 99)))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		manifest := manifests[int(which)%len(manifests)]
		var got []any
		var err error
		limited(t, len(data), func() { got, err = r.DecodeAppend(nil, manifest, data) })
		if err == nil {
			stable(t, r, got[0])
		}
	})
}

func FuzzState(f *testing.F) {
	st, err := codec.NewState(reflect.TypeFor[*account]())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a account
		var err error
		limited(t, len(data), func() {
			a = account{rates: fixedRates(1)}
			err = st.Decode(data, &a)
		})
		if err != nil {
			return
		}
		if a.rates == nil {
			t.Error("Decode removed the value of an injected field")
		}
		once, err := st.Encode(&a)
		if err != nil {
			return
		}
		var again account
		if err := st.Decode(once, &again); err != nil {
			t.Fatal(err)
		}
		if twice, err := st.Encode(&again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%x is encoded again as %x, %v", once, twice, err)
		}
	})
}
