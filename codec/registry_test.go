// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/refold-io/refold/codec"
)

type (
	opened  struct{ Owner string }
	closed  struct{}
	renamed struct{ To string }
	counted int
)

func ok(t *testing.T, r *codec.Registry) *codec.Registry {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestManifests(t *testing.T) {
	t.Parallel()
	r := codec.Types(
		codec.Name[opened]("opened"),
		codec.Name[renamed]("konto.umbenannt").Version(2),
		codec.Upcast("konto.umbenannt", 1, func(old struct{ Name string }) (renamed, error) { return renamed{old.Name}, nil }),
		codec.Name[*closed]("closed").Was("shut", "ended"),
		codec.Name[counted]("counted"),
	)
	for _, c := range []struct {
		registry *codec.Registry
		value    any
		manifest string
	}{
		{r, opened{"ann"}, "opened"},
		{r, renamed{"bob"}, "konto.umbenannt@2"},
		{r, &closed{}, "closed"},
		{r, counted(7), "counted"},
		{r.Using(codec.JSON()), opened{"ann"}, "opened+json"},
		{r.Using(codec.JSON()), renamed{"bob"}, "konto.umbenannt@2+json"},
		{r.Using(codec.JSON()).Using(nil), opened{"ann"}, "opened"},
	} {
		manifest, payload, err := ok(t, c.registry).Encode(c.value)
		if err != nil || manifest != c.manifest {
			t.Errorf("Encode(%#v) = %q, %v, want %q", c.value, manifest, err, c.manifest)
		}
		if len(payload) != cap(payload) {
			t.Errorf("Encode(%#v): %d bytes with a capacity of %d, want equal numbers", c.value, len(payload), cap(payload))
		}
		// Registries with different formats read each other's payloads.
		for _, reader := range []*codec.Registry{r, r.Using(codec.JSON())} {
			got, err := reader.Decode(manifest, payload)
			if err != nil {
				t.Errorf("Decode(%q): %v", manifest, err)
			} else if p, isPtr := got.(*closed); got != c.value && (!isPtr || *p != closed{}) {
				t.Errorf("Decode(%q) = %#v, want %#v", manifest, got, c.value)
			}
		}
	}
	for _, alias := range []string{"shut", "ended", "shut+json"} {
		if got, err := r.Decode(alias, []byte("\x80")); alias != "shut+json" && err != nil {
			t.Errorf("Decode(%q) = %v, %v", alias, got, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	identity := func(o opened) (opened, error) { return o, nil }
	type v1 struct{ A string }
	type v2 struct{ A string }
	for name, c := range map[string]struct {
		entries []codec.Entry
		want    string
	}{
		"blank":              {[]codec.Entry{codec.Name[opened]("")}, "empty"},
		"at":                 {[]codec.Entry{codec.Name[opened]("a@b")}, `'@'`},
		"plus":               {[]codec.Entry{codec.Name[opened]("a+b")}, `'+'`},
		"bar":                {[]codec.Entry{codec.Name[opened]("a|b")}, `'|'`},
		"space":              {[]codec.Entry{codec.Name[opened]("a b")}, `' '`},
		"wide space":         {[]codec.Entry{codec.Name[opened]("a\u3000b")}, `'\u3000'`},
		"control":            {[]codec.Entry{codec.Name[opened]("a\x00b")}, `'\x00'`},
		"utf8":               {[]codec.Entry{codec.Name[opened]("a\xff")}, "UTF-8"},
		"long":               {[]codec.Entry{codec.Name[opened](strings.Repeat("a", 256))}, "256 bytes"},
		"alias":              {[]codec.Entry{codec.Name[opened]("a").Was("b c")}, `' '`},
		"two types":          {[]codec.Entry{codec.Name[opened]("a"), codec.Name[closed]("a")}, "is used for"},
		"two names":          {[]codec.Entry{codec.Name[opened]("a"), codec.Name[opened]("b")}, "two names"},
		"alias taken":        {[]codec.Entry{codec.Name[opened]("a"), codec.Name[closed]("b").Was("a")}, "is used for"},
		"removed twice":      {[]codec.Entry{codec.Removed("a", "a")}, "is used for"},
		"removed blank":      {[]codec.Entry{codec.Removed("")}, "empty"},
		"removed current":    {[]codec.Entry{codec.Name[opened]("a"), codec.Removed("a")}, "is used for"},
		"version zero":       {[]codec.Entry{codec.Name[opened]("a").Version(0)}, "version 0"},
		"old version zero":   {[]codec.Entry{codec.Upcast("a", 0, identity)}, "version 0"},
		"nil entry":          {[]codec.Entry{nil}, "nil"},
		"nil function":       {[]codec.Entry{codec.Upcast[v1, opened]("a", 1, nil)}, "nil"},
		"nil split":          {[]codec.Entry{codec.Split[v1]("a", 1, nil)}, "nil"},
		"gap":                {[]codec.Entry{codec.Name[opened]("a").Version(3), codec.Split("a", 1, func(v1) ([]any, error) { return nil, nil })}, "version 2"},
		"current read":       {[]codec.Entry{codec.Name[opened]("a"), codec.Upcast("a", 1, func(v1) (opened, error) { return opened{}, nil })}, "a@1 is the current version"},
		"read twice":         {[]codec.Entry{codec.Split("a", 1, func(v1) ([]any, error) { return nil, nil }), codec.Split("a", 1, func(v2) ([]any, error) { return nil, nil })}, "two functions"},
		"one type two names": {[]codec.Entry{codec.Split("a", 1, func(v1) ([]any, error) { return nil, nil }), codec.Split("b", 1, func(v1) ([]any, error) { return nil, nil })}, "a separate Go type"},
		"current as old":     {[]codec.Entry{codec.Name[opened]("a").Version(2), codec.Upcast("a", 1, identity)}, "current type"},
		"read by its alias":  {[]codec.Entry{codec.Name[opened]("a").Was("b"), codec.Split("b", 1, func(v1) ([]any, error) { return nil, nil })}, "earlier name"},
		"removed and read":   {[]codec.Entry{codec.Removed("a"), codec.Split("a", 1, func(v1) ([]any, error) { return nil, nil })}, "removed"},
		"dead end":           {[]codec.Entry{codec.Upcast("a", 1, func(v1) (v2, error) { return v2{}, nil })}, "has no name and no function"},
		"backwards":          {[]codec.Entry{codec.Upcast("a", 2, func(v1) (v2, error) { return v2{}, nil }), codec.Upcast("a", 1, func(v2) (v1, error) { return v1{}, nil })}, "not a later version"},
		"bad old name":       {[]codec.Entry{codec.Split("a b", 1, func(v1) ([]any, error) { return nil, nil })}, `' '`},
		"interface":          {[]codec.Entry{codec.Name[any]("a")}, "is an interface"},
		"channel":            {[]codec.Entry{codec.Name[struct{ C chan int }]("a")}, "C: a chan int"},
		"unexported":         {[]codec.Entry{codec.Name[struct{ c int }]("a")}, "c: the field is unexported"},
		"old unexported":     {[]codec.Entry{codec.Split("a", 1, func(struct{ c int }) ([]any, error) { return nil, nil })}, "c: the field is unexported"},
	} {
		r := codec.Types(c.entries...)
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	err := codec.Types(codec.Name[opened]("a b"), codec.Name[closed]("c d"), nil).Err()
	for _, want := range []string{"a b", "c d", "nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Err returned %v, want an error that contains %q", err, want)
		}
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(codec.Name[opened]("opened"), codec.Name[*closed]("closed")))
	for _, v := range []any{closed{}, &opened{}, nil, 3} {
		if _, _, err := r.Encode(v); !errors.Is(err, codec.ErrNotRegistered) {
			t.Errorf("Encode(%#v): %v, want ErrNotRegistered", v, err)
		}
	}
	if _, _, err := r.Encode(&opened{}); !strings.Contains(err.Error(), "*codec_test.opened") {
		t.Errorf("Encode returned %v, want an error that names *codec_test.opened", err)
	}
	if _, _, err := r.Encode((*closed)(nil)); err == nil {
		t.Error("Encode of a nil pointer returned no error")
	}
	for _, manifest := range []string{
		"", "shut", "opened@2", "opened@0", "opened@1", "opened@01", "opened@x", "opened@", "opened+", "opened+msgpack", "opened+xml", "opened+json@2", "@", "+",
	} {
		if _, err := r.Decode(manifest, []byte("\x80")); !errors.Is(err, codec.ErrUnknown) || !strings.Contains(err.Error(), `"`+manifest+`"`) {
			t.Errorf("Decode(%q): %v, want ErrUnknown", manifest, err)
		}
	}
	for manifest, payload := range map[string]string{"closed": "\xc0", "closed+json": "null", "opened": "", "opened+json": ""} {
		if v, err := r.Decode(manifest, []byte(payload)); !errors.Is(err, codec.ErrMalformed) {
			t.Errorf("Decode(%q, %q) = %#v, %v, want ErrMalformed", manifest, payload, v, err)
		}
	}
	var none *codec.Registry
	if err := none.Err(); err != nil {
		t.Error(err)
	}
	if _, _, err := none.Encode(opened{}); !errors.Is(err, codec.ErrNotRegistered) {
		t.Error(err)
	}
	if _, err := none.Decode("opened", nil); !errors.Is(err, codec.ErrUnknown) {
		t.Error(err)
	}
}

func TestDecodeAppendKeepsDst(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(codec.Name[opened]("opened"), codec.Removed("gone")))
	_, payload, err := r.Encode(opened{"ann"})
	if err != nil {
		t.Fatal(err)
	}
	dst := []any{1}
	if dst, err = r.DecodeAppend(dst, "opened", payload); err != nil || len(dst) != 2 || dst[1] != (opened{"ann"}) {
		t.Fatal(dst, err)
	}
	if dst, err = r.DecodeAppend(dst, "gone@3+own", nil); err != nil || len(dst) != 2 {
		t.Fatal(dst, err)
	}
	if dst, err = r.DecodeAppend(dst, "opened", payload[1:]); err == nil || len(dst) != 2 {
		t.Fatal(dst, err)
	}
	if _, err = r.Decode("gone", nil); !errors.Is(err, codec.ErrUnknown) {
		t.Errorf("Decode of a removed name: %v, want ErrUnknown", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(codec.Name[boxes]("boxes")))
	want := boxes{Any: map[string]any{"a": []any{int64(1), "b"}, "c": nil}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				manifest, payload, err := r.Encode(boxes{Any: map[string]any{"a": []any{1, opened{"b"}.Owner}, "c": (*opened)(nil)}})
				if err != nil {
					t.Error(err)
					return
				}
				got, err := r.Decode(manifest, payload)
				if err != nil || !equal(got, want) {
					t.Errorf("decoded %#v, %v, want %#v", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
