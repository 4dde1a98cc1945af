// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
	"unsafe"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/testkit/effort"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	repeat := func(s string, n int) string { return strings.Repeat(s, n) }
	for name, c := range map[string]struct {
		data string
		want error
	}{
		"empty":                    {"", codec.ErrMalformed},
		"nil":                      {"\xc0", nil},
		"never used":               {"\xc1", codec.ErrMalformed},
		"trailing":                 {"\xc0\xc0", codec.ErrMalformed},
		"string":                   {"\xa3abc", nil},
		"short string":             {"\xa3ab", codec.ErrMalformed},
		"string of gigabytes":      {"\xdb\xff\xff\xff\xff", codec.ErrMalformed},
		"binary of gigabytes":      {"\xc6\x7f\xff\xff\xff", codec.ErrMalformed},
		"array of gigabytes":       {"\xdd\xff\xff\xff\xff", codec.ErrMalformed},
		"map of gigabytes":         {"\xdf\xff\xff\xff\xff", codec.ErrMalformed},
		"extension of gigabytes":   {"\xc9\xff\xff\xff\xff\x01", codec.ErrMalformed},
		"map without a value":      {"\x81\xa0", codec.ErrMalformed},
		"map with more than fits":  {"\x82\x01\x01\x01", codec.ErrMalformed},
		"cut head":                 {"\xcd\x01", codec.ErrMalformed},
		"cut length":               {"\xda\x01", codec.ErrMalformed},
		"cut extension":            {"\xd4", codec.ErrMalformed},
		"extension":                {"\xd6\xff\x00\x00\x00\x00", nil},
		"short extension":          {"\xd6\xff\x00\x00\x00", codec.ErrMalformed},
		"long extension":           {"\xc7\x03\x05abc", nil},
		"100 arrays":               {repeat("\x91", 99) + "\x90", nil},
		"101 arrays":               {repeat("\x91", 100) + "\x90", codec.ErrLimit},
		"100 maps":                 {repeat("\x81\x01", 99) + "\x80", nil},
		"101 maps":                 {repeat("\x81\x01", 100) + "\x80", codec.ErrLimit},
		"maps as keys":             {repeat("\x81", 1000), codec.ErrLimit},
		"deep after wide":          {"\x93\x90\x90" + repeat("\x91", 98) + "\x90", nil},
		"too deep after wide":      {"\x93\x90\x90" + repeat("\x91", 99) + "\x90", codec.ErrLimit},
		"a million arrays":         {repeat("\x91", 1_000_000), codec.ErrLimit},
		"every other kind of head": {"\x9d\xc2\xc3\xca\x00\x00\x00\x00\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xcc\x00\xcd\x00\x00\xce\x00\x00\x00\x00\xcf\x00\x00\x00\x00\x00\x00\x00\x00\xd0\x00\xd1\x00\x00\xd2\x00\x00\x00\x00\xd3\x00\x00\x00\x00\x00\x00\x00\x00\xff", nil},
	} {
		if err := codec.Check([]byte(c.data)); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestCheckDoesNotAllocate(t *testing.T) { //nolint:paralleltest // counts allocations
	good := []byte("\x82\xa1a\x93\x01\x02\xc0\xa1b\xc4\x01x")
	if n := testing.AllocsPerRun(100, func() {
		if codec.Check(good) != nil {
			t.Error("Check of a valid value returned an error")
		}
	}); n != 0 {
		t.Errorf("Check allocates %v times, want 0", n)
	}
}

func TestEncodeLimitsTheDepth(t *testing.T) {
	t.Parallel()
	type node struct{ Next *node }
	list := func(n int) node {
		var first node
		for range n - 1 {
			next := first
			first = node{&next}
		}
		return first
	}
	r := registry[node](t)
	for format, r := range map[string]*codec.Registry{"msgpack": r, "json": r.Using(codec.JSON())} {
		manifest, payload, err := r.Encode(list(100))
		if err != nil {
			t.Errorf("%s: 100 levels: %v", format, err)
		}
		if got, err := r.Decode(manifest, payload); err != nil || !reflect.DeepEqual(got, list(100)) {
			t.Errorf("%s: 100 levels: %v", format, err)
		}
		if _, _, err := r.Encode(list(101)); !errors.Is(err, codec.ErrLimit) {
			t.Errorf("%s: 101 levels: %v, want ErrLimit", format, err)
		}
		var circle node
		circle.Next = &circle
		if _, _, err := r.Encode(circle); err == nil {
			t.Errorf("%s: Encode of a cyclic value returned no error", format)
		}
	}
	// The depth of a value that encodes itself is added to the depth at which it is nested.
	deep := boxes{Any: deepForm(98)}
	manifest, payload, err := registry[boxes](t).Encode(deep)
	if err != nil || codec.Check(payload) != nil {
		t.Errorf("%s: %v", manifest, err)
	}
	if _, _, err = registry[boxes](t).Encode(boxes{Any: deepForm(100)}); !errors.Is(err, codec.ErrLimit) {
		t.Error(err)
	}
}

// A deepForm encodes itself as nested arrays. Its value is the number of arrays.
type deepForm int

func (d deepForm) MarshalMsgpack() ([]byte, error) {
	return append(bytes.Repeat([]byte{0x91}, int(d)), 0xc0), nil
}

func (*deepForm) UnmarshalMsgpack([]byte) error { return nil }

type (
	big64  [8]uint64
	sparse struct {
		A, B, C, D, E, F, G, H, I, J string `msgpack:",omitempty"`
	}
	amplifier struct {
		Structs  []sparse
		Pointers []*sparse
		Arrays   [][]big64
		Map      map[string]sparse
		Big      map[big64]big64           `json:"-"`
		Large    map[[20]string][20]string `json:"-"`
		Sets     []map[int8]struct{}
		Any      any
		Any2     []any
		Strings  []string
		Lists    [][]string
		Bytes    [][]byte
		Fixed    *[1 << 16]uint64
		Tree     *tree
		Pair     []pairForm
	}
)

// Data that needs far more memory than its size is rejected before the memory is allocated.
func TestAmplificationIsRejected(t *testing.T) {
	t.Parallel()
	const n = 1 << 16
	list := "\xdd\x00\x01\x00\x00"
	r := registry[amplifier](t)
	for path, value := range map[string]string{
		"Structs":  list + strings.Repeat("\xc0", n),
		"Pointers": list + strings.Repeat("\x80", n),
		"Arrays":   list + strings.Repeat("\x91\xc0", n),
		"Map":      "\xdf\x00\x00\x80\x00" + strings.Repeat("\xa0\x80", n/2),
		"Any":      list + strings.Repeat("\x81\xa0\xc0", n),
		"Any2":     list + strings.Repeat("\x81\xa0\xc0", n),
	} {
		payload := append([]byte{0x81, 0xa0 | byte(len(path))}, path+value...)
		if err := codec.Check(payload); err != nil {
			t.Fatal(err)
		}
		got, err := r.Decode("t", payload)
		if !errors.Is(err, codec.ErrLimit) {
			t.Errorf("%s: %v, want ErrLimit", path, err)
		}
		if got != nil {
			t.Errorf("%s: Decode returned a value with its error", path)
		}
	}
	if _, err := r.Decode("t", []byte("\x81\xa5Fixed\xc0")); err != nil {
		t.Error(err)
	}
	// Encode rejects a value that Decode would reject.
	if _, _, err := r.Encode(amplifier{Structs: make([]sparse, n)}); !errors.Is(err, codec.ErrLimit) {
		t.Errorf("Encode: %v, want ErrLimit", err)
	}
}

type (
	Deep   struct{ Inside []sparse }
	deeper struct{ deepest }
	// deepest also has a field Inside. The field of Deep hides it, because Deep is embedded higher.
	deepest struct {
		Below  []sparse
		Inside []int
	}
)

func TestJSONAmplificationIsRejected(t *testing.T) {
	t.Parallel()
	type target struct {
		Structs  []struct{ A, B, C, D, E, F, G, H, I, J string }
		Pointers []*[20]int
		Map      map[string][50]int
		Any      any
		Item     []struct{ Seven [7]int } `json:"item,omitempty"`
		Name     string
		Deep
		*deeper
	}
	r := codec.Types(codec.Name[target]("t")).Using(codec.JSON())
	list := func(s string) string { return "[" + strings.Repeat(s+",", 20_000) + s + "]" }
	for name, doc := range map[string]string{
		"embedded":      `{"inside":` + list("{}") + `}`,
		"embedded deep": `{"Below":` + list("{}") + `}`,
		"nulls":         `{"Structs":` + list("null") + `}`,
		"numbers":       `{"Structs":` + list("0") + `}`,
		"other case":    `{"strUCTS":` + list("0") + `}`,
		"folded":        `{"ſtructs":` + list("0") + `}`,
		"escaped":       `{"\u0053tructs":` + list("0") + `}`,
		"tagged":        `{"item":` + list("{}") + `}`,
		"pointers":      `{"Pointers":` + list("[]") + `}`,
		"again":         `{"Structs":[],"Structs":` + list("{}") + `}`,
		"map":           `{"Map":{` + strings.Repeat(`"a":null,`, 20_000) + `"b":null}}`,
		"map in any":    `{"Any":` + list(`{"":0}`) + `}`,
		"arrays in any": `{"Any":` + list(list("")[:2]) + `}`,
	} {
		if !json.Valid([]byte(doc)) && name != "arrays in any" {
			t.Fatalf("%s: the document of the test is invalid JSON", name)
		}
		if _, err := r.Decode("t+json", []byte(doc)); err == nil || name != "arrays in any" && !errors.Is(err, codec.ErrLimit) {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
	for name, doc := range map[string]string{
		"unknown": `{"Else":` + list("null") + `}`,
		"plain":   `{"Name":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		if _, err := r.Decode("t+json", []byte(doc)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Decoding data just below the limit allocates no more memory than the counted cost.
func TestAcceptedDataStaysWithinTheLimit(t *testing.T) { //nolint:paralleltest // counts allocations
	r := registry[amplifier](t)
	most := effort.Count(6_000, 60_000, 60_000)
	for n := 1; n < most; n += 1 + n/2 {
		for field, elem := range map[string]string{
			"Structs": "\xc0", "Pointers": "\x80", "Arrays": "\x91\xc0", "Sets": "\x81\x01\xc0", "Any": "\x81\xa0\xc0", "Any2": "\x91\x01", "Lists": "\x91\xa0", "Bytes": "\xc4\x01a",
		} {
			payload := append([]byte{0x81, 0xa0 | byte(len(field))}, field...)
			payload = binary.BigEndian.AppendUint16(append(payload, 0xdc), uint16(n))
			payload = append(payload, strings.Repeat(elem, n)...)
			limited(t, len(payload), func() { _, _ = r.Decode("t", payload) })
		}
		payload := binary.BigEndian.AppendUint16([]byte("\x81\xa3Map\xde"), uint16(n))
		for i := range n {
			payload = append(binary.BigEndian.AppendUint16(append(payload, 0xa2), uint16(i)), 0xc0)
		}
		limited(t, len(payload), func() { _, _ = r.Decode("t", payload) })
		for field, elem := range map[string]string{"Structs": "{}", "Pointers": "{}", "Any": `{"":0}`, "Any2": "[1]", "Lists": `["a"]`, "Sets": `{"1":{}}`} {
			doc := fmt.Appendf(nil, `{%q:[%s]}`, field, strings.Repeat(elem+",", n-1)+elem)
			limited(t, len(doc), func() { _, _ = r.Decode("t+json", doc) })
		}
	}
}

// Values of ordinary size and structure stay within the limits.
func TestOrdinaryValuesAreAccepted(t *testing.T) {
	t.Parallel()
	const n = 5_000
	v := amplifier{
		Strings: make([]string, n), Bytes: make([][]byte, n), Lists: make([][]string, n), Pointers: make([]*sparse, n),
		Map: map[string]sparse{}, Any: []any{}, Fixed: new([1 << 16]uint64),
	}
	for i := range n {
		v.Map[fmt.Sprint("key", i)] = sparse{A: "a name", B: "a street", C: "a city"}
		v.Structs = append(v.Structs, sparse{A: "a name", B: "a street", C: "a city"})
		v.Any = append(v.Any.([]any), map[string]any{"id": i, "name": "someone", "tags": []string{"a", "b"}}) //nolint:errcheck // set above
	}
	v.Big = map[big64]big64{{1}: {2}, {3}: {4}}
	v.Large = map[[20]string][20]string{{"a"}: {"b"}, {"c"}: {"d"}}
	r := registry[amplifier](t)
	for _, r := range []*codec.Registry{r, r.Using(codec.JSON())} {
		manifest, payload, err := r.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Decode(manifest, payload); err != nil {
			t.Error(err)
		}
	}
	if unsafe.Sizeof(sparse{}) != 160 {
		t.Error("the size of sparse has changed: adapt the limits in this file")
	}
}

// Encode and Decode enforce the same limit.
func TestEncodeAndDecodeAgreeOnTheLimit(t *testing.T) {
	t.Parallel()
	agree(t, "\x80", sparse{})
	agree(t, "\x80", &sparse{})
	agree(t, "\x81\xa1a\x01", map[string]int8{"a": 1})
	agree[any](t, "\x81\xa1a\x01", map[string]int8{"a": 1})
	agree[any](t, "\x81\x01\x90", map[int][]string{1: {}})
	agree(t, "\x92\x01\x02", pairForm{1, 2})
	agree[any](t, "\x92\x01\x02", pairForm{1, 2})
	agree(t, "\xa1a", "a")
	agree(t, "\xc4\x00", []byte{})
}

// agree finds the longest list of the same element that Decode accepts, and compares Encode for
// this and the next length.
func agree[T any](t *testing.T, element string, value T) {
	t.Helper()
	const most = 1 << 14
	r := registry[[]T](t)
	payload := func(n int) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{0xdc}, uint16(n)), strings.Repeat(element, n)...)
	}
	list := make([]T, most)
	for i := range list {
		list[i] = value
	}
	refused := sort.Search(most, func(n int) bool {
		_, err := r.Decode("t", payload(n))
		return err != nil
	})
	if _, encoded, err := r.Encode(list[:refused-1]); err != nil || string(encoded) != string(payload(refused-1)) {
		t.Errorf("Decode accepts %d elements of %T, but Encode returned %v", refused-1, list, err)
	}
	if _, _, err := r.Encode(list[:refused]); refused < most && !errors.Is(err, codec.ErrLimit) {
		t.Errorf("Decode rejects %d elements of %T, but Encode returned %v, want ErrLimit", refused, list, err)
	}
}
