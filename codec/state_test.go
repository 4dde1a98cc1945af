// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/codec"
)

type rates interface{ Rate(string) float64 }

type fixedRates float64

func (f fixedRates) Rate(string) float64 { return float64(f) }

type (
	marker  struct{} // an embedded type of size zero
	account struct {
		marker
		Base
		Balance int64
		History []entry
		Limits  map[color]int
		Open    bool
		Since   time.Time
		Meta    meta
		Linked  *meta
		Queue   pairForm

		rates rates       `refold:"-"`
		Log   io.Writer   `refold:"-"`
		Wake  chan int    `refold:"-"`
		Hook  func(int)   `msgpack:"-"`
		cache map[int]int `refold:"-"`
	}
	entry struct {
		What string
		N    int
	}
	meta struct {
		Note  string
		rates rates `refold:"-"`
	}
)

func TestState(t *testing.T) {
	t.Parallel()
	st, err := codec.NewState(reflect.TypeFor[*account]())
	if err != nil {
		t.Fatal(err)
	}
	fresh := func() *account {
		return &account{
			marker: marker{}, rates: fixedRates(2), Log: io.Discard, cache: map[int]int{1: 1},
			Limits: map[color]int{"red": 1, "new": 2}, History: make([]entry, 1, 8), Meta: meta{rates: fixedRates(3)}, Linked: &meta{rates: fixedRates(4)},
		}
	}
	a := fresh()
	a.Balance, a.ID, a.Open, a.Since = 100, "42", true, time.Unix(5, 5).UTC()
	a.History = []entry{{"in", 1}, {"out", 2}}
	a.Limits = map[color]int{"red": 10, "blue": 20}
	a.Meta.Note, a.Linked.Note, a.Queue = "n", "l", pairForm{1, 2}
	data, err := st.Encode(a)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != cap(data) {
		t.Errorf("%d bytes with a capacity of %d, want equal numbers", len(data), cap(data))
	}
	a.History[0].N = 77
	for range 20 {
		again := fresh()
		shared := again.History[:cap(again.History)]
		if err := st.Decode(data, again); err != nil {
			t.Fatal(err)
		}
		a.History[0].N = 1
		if !reflect.DeepEqual(again, a) {
			t.Fatalf("%+v is decoded as %+v", a, again)
		}
		if shared[0] != (entry{}) {
			t.Fatal("Decode wrote to a slice of the fresh aggregate")
		}
		if same, err := st.Encode(again); err != nil || string(same) != string(data) {
			t.Fatalf("%x, %v, want %x", same, err, data)
		}
	}
	if strings.Contains(string(data), "rates") || strings.Contains(string(data), "marker") {
		t.Errorf("the encoded state %q contains fields that are not part of the state", data)
	}

	for _, bad := range []any{nil, account{}, (*account)(nil), &meta{}} {
		if _, err := st.Encode(bad); err == nil {
			t.Errorf("Encode(%T) returned no error", bad)
		}
		if err := st.Decode(data, bad); err == nil {
			t.Errorf("Decode into %T returned no error", bad)
		}
	}
	if err := st.Decode(data[:len(data)-1], fresh()); err == nil {
		t.Error("Decode of truncated data returned no error")
	}
}

// engineForm has the methods of the msgpack package, which the codec does not call.
type engineForm struct{ A int }

func (engineForm) EncodeMsgpack(*msgpack.Encoder) error { return nil }

func TestUnstorableStates(t *testing.T) {
	t.Parallel()
	type inner2 struct{ secret int } //nolint:unused // the mistake
	type list []struct{ F func() }
	type loop struct {
		Next *loop
		More map[string][]*loop
		Bad  chan int
	}
	type hidden struct {
		time.Time
		Note string
	}
	type hiddenPtr struct {
		*pairForm
		Note string
	}
	type quiet struct {
		*pairForm `refold:"-"`
		Note      string
	}
	for want, v := range map[string]any{
		"hide the other fields of codec_test.quiet": &quiet{},
		"B: a func() can't be stored\nC.secret: the field": &struct {
			A int
			B func()
			C inner2
		}{},
		"secret: the field is unexported":        &struct{ secret int }{},
		"A.secret: the field is unexported":      &struct{ A inner2 }{},
		"inner2.secret: the field is unexported": &struct{ inner2 }{},
		"A[].F: a func() can't be stored":        &struct{ A list }{},
		"A[].C: a chan int can't": &struct {
			A map[string]*struct{ C chan int }
		}{},
		"A[key].C: a chan int can't":                    &struct{ A map[struct{ C chan int }]int }{},
		"Bad: a chan int can't":                         &loop{},
		"A: codec_test.engineForm has the methods":      &struct{ A engineForm }{},
		"A: a complex128 can't":                         &struct{ A complex128 }{},
		"A: a uintptr can't":                            &struct{ A uintptr }{},
		"A: fmt.Stringer is an interface with methods":  &struct{ A fmt.Stringer }{},
		"A: error is an interface with methods":         &struct{ A error }{},
		"A: **int is a pointer to a pointer":            &struct{ A **int }{},
		"A: *interface {} is a pointer to a pointer or": &struct{ A *any }{},
		"hide the other fields of codec_test.hidden":    &hidden{},
		"embedded *codec_test.pairForm":                 &hiddenPtr{},
		`two fields have the name "ID"`: &struct {
			Base
			ID string
		}{},
		`two fields have the name "x"`: &struct {
			A int `msgpack:"x"`
			B int `msgpack:"y,alias:x"`
		}{},
		`option "as_array" is not supported`: &struct {
			A int `msgpack:",as_array"`
		}{},
		`option "intern" is not supported`: &struct {
			A string `msgpack:",intern"`
		}{},
		`only refold:"-" is allowed`: &struct {
			A string `refold:"name"`
		}{},
		"*inner2: the field is unexported": &struct{ *inner2 }{},
		"want a pointer":                   struct{}{},
	} {
		want = strings.TrimPrefix(want, "*")
		if _, err := codec.NewState(reflect.TypeOf(v)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v, want %q", v, err, want)
		}
	}
	if _, err := codec.NewState(nil); err == nil {
		t.Error("NewState(nil) returned no error")
	}
}

func TestStorableStates(t *testing.T) {
	t.Parallel()
	type recursive struct {
		Kids  []recursive
		ByKey map[string]recursive
		Self  *recursive
		_     [4]byte
	}
	type endless []endless
	type wide map[string]wide
	for _, v := range []any{
		&recursive{Kids: []recursive{{}}, ByKey: map[string]recursive{"a": {}}, Self: &recursive{}},
		&struct{ E endless }{endless{nil, {}}}, &struct{ W wide }{wide{"a": {"b": nil}}},
		&struct {
			*Base
			N int
		}{&Base{"1", "2"}, 3},
		&struct {
			Base `msgpack:"base"`
			ID   string
		}{Base{"1", "2"}, "3"},
		&struct {
			Base `msgpack:",noinline"`
			ID   string
		}{Base{"1", "2"}, "3"},
		&struct { // both have the same methods, so neither is promoted
			netip.Addr
			netip.Prefix
			noCompare [0]func()
		}{Addr: netip.MustParseAddr("::1"), Prefix: netip.MustParsePrefix("10.0.0.0/8")},
		new(counted), &map[string]int{"a": 1}, new(pairForm),
	} {
		st, err := codec.NewState(reflect.TypeOf(v))
		if err != nil {
			t.Errorf("%T: %v", v, err)
			continue
		}
		data, err := st.Encode(v)
		if err != nil {
			t.Errorf("%T: %v", v, err)
			continue
		}
		again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := st.Decode(data, again); err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%#v is decoded as %#v, %v", v, again, err)
		}
	}
}
