// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
)

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// stored encodes a value as an older program encoded it.
func stored[T any](t *testing.T, name string, version int, v T) (string, []byte) {
	t.Helper()
	entries := []codec.Entry{codec.Name[T](name).Version(version)}
	type filler [1]byte
	if version > 1 {
		entries = append(entries, codec.Split(name, 1, func(filler) ([]any, error) { return nil, nil }))
	}
	if version > 2 {
		type filler struct{}
		entries = append(entries, codec.Split(name, 2, func(filler) ([]any, error) { return nil, nil }))
	}
	manifest, payload, err := ok(t, codec.Types(entries...)).Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return manifest, payload
}

type (
	movedV1 struct{ Street string }
	movedV2 struct{ Street, City string }
	moved   struct{ Address []string }
	left    struct{ City string }
	arrived struct{ City string }
)

func movedTypes() *codec.Registry {
	return codec.Types(
		codec.Name[moved]("moved").Version(3).Was("relocated"),
		codec.Upcast("moved", 1, func(e movedV1) (movedV2, error) { return movedV2{e.Street, "unknown"}, nil }),
		codec.Upcast("moved", 2, func(e movedV2) (moved, error) {
			if e.City == "nowhere" {
				return moved{}, errNowhere
			}
			return moved{[]string{e.Street, e.City}}, nil
		}),
	)
}

var errNowhere = errors.New("nowhere")

func TestUpcastChain(t *testing.T) {
	t.Parallel()
	r := ok(t, movedTypes())
	check := func(manifest string, payload []byte, want moved) {
		t.Helper()
		if got, err := r.Decode(manifest, payload); err != nil || !equal(got, want) {
			t.Errorf("Decode(%q) = %#v, %v, want %#v", manifest, got, err, want)
		}
	}
	manifest, payload := stored(t, "moved", 1, movedV1{"Elm"})
	check(manifest, payload, moved{[]string{"Elm", "unknown"}})
	check("relocated", payload, moved{[]string{"Elm", "unknown"}})
	manifest, payload = stored(t, "moved", 2, movedV2{"Elm", "Ulm"})
	check(manifest, payload, moved{[]string{"Elm", "Ulm"}})
	manifest, payload = stored(t, "moved", 3, moved{[]string{"a", "b"}})
	check(manifest, payload, moved{[]string{"a", "b"}})
	check("moved@2+json", []byte(`{"Street":"Elm","City":"Ulm"}`), moved{[]string{"Elm", "Ulm"}})

	manifest, payload = stored(t, "moved", 2, movedV2{"Elm", "nowhere"})
	if _, err := r.Decode(manifest, payload); !errors.Is(err, errNowhere) || !strings.Contains(err.Error(), "moved@2") {
		t.Errorf("Decode: %v, want the error of the upcaster", err)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(
		codec.Name[left]("left"),
		codec.Name[arrived]("arrived"),
		codec.Split("moved", 1, func(e movedV1) ([]any, error) {
			if e.Street == "" {
				return nil, nil
			}
			return []any{left{"old"}, movedV2{e.Street, "new"}, left{"end"}}, nil
		}),
		codec.Split("moved", 2, func(e movedV2) ([]any, error) { return []any{left{e.Street}, arrived{e.City}}, nil }),
	))
	manifest, payload := stored(t, "moved", 1, movedV1{"Elm"})
	got, err := r.DecodeAppend([]any{0}, manifest, payload)
	want := []any{0, left{"old"}, left{"Elm"}, arrived{"new"}, left{"end"}}
	if err != nil || !equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := r.Decode(manifest, payload); !errors.Is(err, codec.ErrUnknown) {
		t.Errorf("Decode of a split value: %v, want ErrUnknown", err)
	}
	manifest, payload = stored(t, "moved", 1, movedV1{})
	if got, err := r.DecodeAppend(nil, manifest, payload); err != nil || len(got) != 0 {
		t.Errorf("%v, %v, want nothing", got, err)
	}
}

func TestSplitMistakes(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(
		codec.Name[left]("left"),
		codec.Split("stranger", 1, func(movedV1) ([]any, error) { return []any{left{}, opened{}}, nil }),
		codec.Split("circle", 1, func(e movedV2) ([]any, error) { return []any{left{}, e}, nil }),
		codec.Split("panic", 1, func(arrived) ([]any, error) { panic("a bug") }),
	))
	for manifest, want := range map[string]error{"stranger": codec.ErrNotRegistered, "circle": codec.ErrLimit, "panic": nil} {
		got, err := r.DecodeAppend([]any{1}, manifest, []byte("\x80"))
		if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), manifest) {
			t.Errorf("%s: %v, want %v", manifest, err, want)
		}
		if len(got) != 1 {
			t.Errorf("%s: after the error dst is %v, want it unchanged", manifest, got)
		}
	}
}

func TestNamedMapAsOldType(t *testing.T) {
	t.Parallel()
	type openedV1 map[string]any
	r := ok(t, codec.Types(
		codec.Name[opened]("opened").Version(2),
		codec.Upcast("opened", 1, func(old openedV1) (opened, error) {
			name, _ := old["name"].(string)
			return opened{name}, nil
		}),
	))
	manifest, payload := stored(t, "opened", 1, map[string]string{"name": "ann"})
	if got, err := r.Decode(manifest, payload); err != nil || got != (opened{"ann"}) {
		t.Errorf("decoded %v, %v, want the owner ann", got, err)
	}
}

// Fields can be added, removed, renamed and widened without a new version.
func TestAddedAndRemovedFields(t *testing.T) {
	t.Parallel()
	type before struct {
		Name string
		Gone []map[string]int
		Size int
	}
	type after struct {
		Added string
		Title string `msgpack:"Title,alias:Name"`
		Size  float64
	}
	_, payload := stored(t, "thing", 1, before{"x", []map[string]int{{"a": 1}}, 5})
	r := ok(t, codec.Types(codec.Name[after]("thing")))
	if got, err := r.Decode("thing", payload); err != nil || got != (after{"", "x", 5}) {
		t.Errorf("decoded %+v, %v, want the values of the remaining fields", got, err)
	}
}
