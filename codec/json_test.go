// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/codec"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	type doc struct {
		Base
		Scalars scalars
		Tree    *tree
		Map     map[string][]Base
		Levels  map[int]map[color]bool
		When    time.Time
		Any     any
		Short   string `json:"s,omitempty"`
		Hidden  int    `json:"-"`
	}
	r := registry[doc](t).Using(codec.JSON())
	values := rapid.Map(rapid.MakeCustom[doc](drawn()), func(d doc) doc {
		d.When, d.Hidden = time.Unix(d.When.Unix()%1e9, 0).UTC(), 0
		d.Any = []any{1.5, "x", map[string]any{"a": nil, "b": []any{true}}}
		return d
	})
	rapid.Check(t, func(t *rapid.T) {
		v := values.Draw(t, "value")
		manifest, payload, err := r.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(v)
		if err != nil || string(payload) != string(want) || len(payload) != cap(payload) {
			t.Fatalf("the payload is %s, want %s", payload, want)
		}
		got, err := r.Decode(manifest, payload)
		if err != nil {
			t.Fatal(err)
		}
		var wanted doc
		if err := json.Unmarshal(want, &wanted); err != nil || !reflect.DeepEqual(got, wanted) {
			t.Fatalf("%s is decoded as %#v, want %#v", payload, got, wanted)
		}
	})
}

func TestJSONMistakes(t *testing.T) {
	t.Parallel()
	type doc struct {
		Any  any
		Text string
		More []doc
	}
	r := registry[doc](t).Using(codec.JSON())
	nested := func(n int) string {
		return `{"Any":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "}"
	}
	for payload, want := range map[string]error{
		`{}`: nil, ` { "Any" : { "a" : [ 1 , 2 ] } , "x" : [ ] } `: nil, `{"Text":"\"\\"}`: nil, "null": nil,
		nested(100): nil, nested(101): codec.ErrLimit, strings.Repeat("[", 1_000_000): codec.ErrLimit,
		strings.Repeat(`{"More":[`, 51): codec.ErrLimit,
		``:                              codec.ErrMalformed, `{`: codec.ErrMalformed, `{}{}`: codec.ErrMalformed, `{} x`: codec.ErrMalformed, `{"Text":1}`: codec.ErrMalformed,
		`{"Text":"}`: codec.ErrMalformed, `{"Text":"\`: codec.ErrMalformed, `{"a" 1}`: codec.ErrMalformed, `{a:1}`: codec.ErrMalformed, `{"Any":[1,]}`: codec.ErrMalformed,
		`{"Any":[1 2]}`: codec.ErrMalformed, `[,]`: codec.ErrMalformed, `{"Any":}`: codec.ErrMalformed, `{"a\x":1}`: codec.ErrMalformed, `]`: codec.ErrMalformed,
		`{"Any":[`: codec.ErrMalformed, `{"Any":1e999}`: codec.ErrMalformed, `nul`: codec.ErrMalformed,
	} {
		if got, err := r.Decode("t+json", []byte(payload)); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%.80s: %v, %v, want %v", payload, got, err, want)
		}
	}
	if _, _, err := r.Encode(doc{Any: make(chan int)}); err == nil {
		t.Error("Encode of a channel returned no error")
	}
}

// upper is a Format that a program defines.
type upper struct{ name string }

func (u upper) Name() string { return u.name }

func (upper) Marshal(v any) ([]byte, error) {
	o, ok := v.(opened)
	if !ok {
		return nil, errNowhere
	}
	return []byte(strings.ToUpper(o.Owner)), nil
}

func (upper) Unmarshal(data []byte, v any) error {
	o, ok := v.(*opened)
	if !ok || strings.HasPrefix(string(data), "!") {
		return errNowhere
	}
	o.Owner = strings.ToLower(string(data))
	return nil
}

func TestCustomFormat(t *testing.T) {
	t.Parallel()
	type opaque struct{ c chan int } //nolint:unused // the field makes the type impossible to store
	plain := codec.Types(codec.Name[opened]("opened"))
	r := ok(t, codec.Types(codec.Name[opened]("opened"), codec.Name[opaque]("opaque")).Using(upper{"upper"}))
	manifest, payload, err := r.Encode(opened{"ann"})
	if err != nil || manifest != "opened+upper" || string(payload) != "ANN" {
		t.Fatal(manifest, payload, err)
	}
	readers := map[string]*codec.Registry{"the same": r, "another one": plain.Using(codec.JSON(), upper{"upper"})}
	for name, reader := range readers {
		if got, err := ok(t, reader).Decode(manifest, payload); err != nil || got != (opened{"ann"}) {
			t.Errorf("%s: decoded %v, %v, want the owner ann", name, got, err)
		}
	}
	if _, err := plain.Decode(manifest, payload); !errors.Is(err, codec.ErrUnknown) {
		t.Error(err)
	}
	if _, err := r.Decode(manifest, []byte("!")); !errors.Is(err, errNowhere) {
		t.Error(err)
	}
	if _, _, err := r.Encode(opaque{}); !errors.Is(err, errNowhere) {
		t.Error(err)
	}
	if _, err := r.Decode("opaque", []byte("\x80")); err == nil || !strings.Contains(err.Error(), "unexported") {
		t.Error(err)
	}
	for want, r := range map[string]*codec.Registry{
		"empty":             plain.Using(upper{""}),
		"'+'":               plain.Using(upper{"a+b"}),
		"can't be replaced": plain.Using(upper{"msgpack"}),
		"nil":               plain.Using(codec.JSON(), nil),
		"two formats":       plain.Using(upper{"x"}, upper{"x"}),
	} {
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Err returned %v, want %q", err, want)
		}
	}
}
