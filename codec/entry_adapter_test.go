// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
)

// plane is the type that the program uses. It cannot be stored itself, because its field is
// unexported.
type plane struct{ wings int }

type (
	planeRow   struct{ Wings int }
	planeRowV1 struct{ Pairs int }
)

var errWings = errors.New("wings come in pairs")

func planeRowOf(p plane) (planeRow, error) {
	switch {
	case p.wings < 0:
		panic("negative wings")
	case p.wings%2 == 1:
		return planeRow{}, errWings
	}
	return planeRow{p.wings}, nil
}

func planeOf(r planeRow) (plane, error) {
	if r.Wings%2 == 1 {
		return plane{}, errWings
	}
	return plane{wings: r.Wings}, nil
}

func TestAdapt(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(
		codec.Adapt("plane", planeRowOf, planeOf).Version(2).Was("aeroplane"),
		codec.Upcast("plane", 1, func(old planeRowV1) (planeRow, error) { return planeRow{2 * old.Pairs}, nil }),
		codec.Split("hangar", 1, func(old movedV1) ([]any, error) { return []any{planeRow{len(old.Street)}, plane{wings: 8}}, nil }),
		codec.Name[opened]("opened"),
	))
	for _, r := range []*codec.Registry{r, r.Using(codec.JSON())} {
		manifest, payload, failed := ok(t, r).Encode(plane{wings: 4})
		if failed != nil || manifest != "plane@2" && manifest != "plane@2+json" {
			t.Fatalf("the manifest is %s, %v, want plane@2 or plane@2+json", manifest, failed)
		}
		for _, name := range []string{manifest, strings.Replace(manifest, "plane", "aeroplane", 1)} {
			got, err := r.Decode(name, payload)
			if err != nil || got != (plane{wings: 4}) {
				t.Errorf("%s: decoded %v, %v, want 4 wings", name, got, err)
			}
		}
		_, _, err := r.Encode(plane{wings: 3})
		if !errors.Is(err, errWings) || !strings.Contains(err.Error(), "encode plane@2") {
			t.Errorf("Encode with an adapter that fails: %v, want errWings", err)
		}
		_, _, err = r.Encode(plane{wings: -1})
		if _, panicked := errors.AsType[*codec.PanicError](err); !panicked {
			t.Errorf("Encode with an adapter that panics: %v, want a PanicError", err)
		}
	}
	manifest, payload := stored(t, "plane", 1, planeRowV1{3})
	if got, err := r.Decode(manifest, payload); err != nil || got != (plane{wings: 6}) {
		t.Errorf("version 1: decoded %v, %v, want 6 wings", got, err)
	}
	if _, err := r.Decode("plane@2", []byte("\x81\xa5Wings\x03")); !errors.Is(err, errWings) || !strings.Contains(err.Error(), "plane@2") {
		t.Errorf("Decode with an adapter that fails: %v, want errWings", err)
	}
	manifest, payload = stored(t, "hangar", 1, movedV1{"ab"})
	got, err := r.DecodeAppend(nil, manifest, payload)
	if want := []any{plane{wings: 2}, plane{wings: 8}}; err != nil || !equal(got, want) {
		t.Errorf("decoding a split value returned %v, %v, want %v", got, err, want)
	}
	var types []string
	for name, typ := range r.GoTypes() {
		types = append(types, name+" "+typ.Name())
	}
	if want := []string{"opened opened", "plane plane"}; !slices.Equal(types, want) {
		t.Errorf("types %q, want %q", types, want)
	}
}

func TestAdaptMistakes(t *testing.T) {
	t.Parallel()
	type other struct{}
	toOther := func(planeRow) (other, error) { return other{}, nil }
	fromOther := func(other) (planeRow, error) { return planeRow{}, nil }
	for name, c := range map[string]struct {
		entries []codec.Entry
		want    string
	}{
		"nil to":    {[]codec.Entry{codec.Adapt("a", nil, planeOf)}, "is nil"},
		"nil from":  {[]codec.Entry{codec.Adapt("a", planeRowOf, nil)}, "is nil"},
		"itself":    {[]codec.Entry{codec.Adapt("a", func(o opened) (opened, error) { return o, nil }, func(o opened) (opened, error) { return o, nil })}, "use Name"},
		"interface": {[]codec.Entry{codec.Adapt("a", func(o opened) (any, error) { return o, nil }, func(any) (opened, error) { return opened{}, nil })}, "an interface"},
		"taken":     {[]codec.Entry{codec.Adapt("a", planeRowOf, planeOf), codec.Name[planeRow]("b")}, `also used by "b"`},
		"shared": {[]codec.Entry{codec.Adapt("a", planeRowOf, planeOf), codec.Adapt("b", func(opened) (planeRow, error) { return planeRow{}, nil },
			func(planeRow) (opened, error) { return opened{}, nil })}, `also used by "b"`},
		"read":   {[]codec.Entry{codec.Adapt("a", planeRowOf, planeOf).Version(2), codec.Upcast("a", 1, func(planeRow) (plane, error) { return plane{}, nil })}, "a@1 is read"},
		"circle": {[]codec.Entry{codec.Adapt("a", toOther, fromOther), codec.Adapt("b", fromOther, toOther)}, "a separate Go type"},
		"channel": {[]codec.Entry{codec.Adapt("a", func(opened) (plane, error) { return plane{}, nil },
			func(plane) (opened, error) { return opened{}, nil })}, "wings: the field is unexported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := codec.Types(c.entries...).Err(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error that contains %q", err, c.want)
			}
		})
	}
}

// If a function returns a nil pointer, encoding or decoding returns an error.
func TestNilResults(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(
		codec.Adapt("plane", func(p *plane) (*planeRow, error) {
			if p.wings == 0 {
				return nil, nil //nolint:nilnil // the error under test
			}
			return &planeRow{p.wings}, nil
		}, func(r *planeRow) (*plane, error) {
			if r.Wings == 8 {
				return nil, nil //nolint:nilnil // the error under test
			}
			return &plane{r.Wings}, nil
		}).Version(2),
		codec.Upcast("plane", 1, func(planeRowV1) (*planeRow, error) { return nil, nil }), //nolint:nilnil // the error under test
		codec.Split("typed", 1, func(movedV1) ([]any, error) { return []any{&plane{2}, (*plane)(nil)}, nil }),
		codec.Split("untyped", 1, func(movedV2) ([]any, error) { return []any{nil}, nil }),
	))
	if _, _, err := r.Encode(&plane{}); err == nil || !strings.Contains(err.Error(), "encode plane@2: the function that adapts *codec_test.plane returned a nil *codec_test.planeRow") {
		t.Errorf("Encode: %v, want an error that names the function", err)
	}
	if _, _, err := r.Encode((*plane)(nil)); err == nil || !strings.Contains(err.Error(), "a nil *codec_test.plane") {
		t.Errorf("Encode of nil: %v, want an error about a nil pointer", err)
	}
	for manifest, want := range map[string]string{
		"plane@2": "value 1 of 1 that the function for plane@2 returned is nil (*codec_test.plane)",
		"plane":   "value 1 of 1 that the function for plane@1 returned is nil (*codec_test.planeRow)",
		"typed":   "value 2 of 2 that the function for typed@1 returned is nil (*codec_test.plane)",
		"untyped": "value 1 of 1 that the function for untyped@1 returned is nil",
	} {
		got, err := r.DecodeAppend([]any{1}, manifest, []byte("\x81\xa5Wings\x08"))
		if err == nil || !strings.Contains(err.Error(), want) || len(got) != 1 {
			t.Errorf("%s: %v, %v, want %s", manifest, got, err, want)
		}
	}
	if got, err := r.Decode("plane@2", []byte("\x81\xa5Wings\x04")); err != nil || !equal(got, &plane{4}) {
		t.Errorf("Decode: %v, %v, want 4 wings", got, err)
	}
}

func TestStoredManifests(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(
		codec.Adapt("plane", planeRowOf, planeOf).Version(2).Was("aeroplane"),
		codec.Upcast("plane", 1, func(old planeRowV1) (planeRow, error) { return planeRow{2 * old.Pairs}, nil }),
		codec.Split("hangar", 1, func(movedV1) ([]any, error) { return nil, nil }),
		codec.Name[opened]("opened"),
		codec.Removed("greeted"),
	))
	if got, want := slices.Collect(r.Manifests()), []string{"hangar", "opened", "plane", "plane@2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for m := range r.Using(codec.JSON()).Manifests() {
		if m != "hangar+json" {
			t.Errorf("the first manifest is %q, want hangar+json", m)
		}
		break
	}
	for m := range (*codec.Registry)(nil).Manifests() {
		t.Errorf("a nil registry yields the manifest %q", m)
	}
}

// Errors about missing entries name the entry to add.
func TestErrorsNameARemedy(t *testing.T) {
	t.Parallel()
	r := ok(t, codec.Types(codec.Name[opened]("opened").Version(3), codec.Name[*closed]("closed"),
		codec.Split("opened", 1, func(movedV1) ([]any, error) { return nil, nil }),
		codec.Split("opened", 2, func(movedV2) ([]any, error) { return nil, nil }),
		codec.Split("gone", 2, func(left) ([]any, error) { return nil, nil }),
	))
	for want, value := range map[string]any{
		"nil is not a value":                      nil,
		"the registry has codec_test.opened, so":  &opened{},
		"the registry has *codec_test.closed, so": closed{},
		`add codec.Name[codec_test.renamed]("...`: renamed{},
	} {
		if _, _, err := r.Encode(value); !errors.Is(err, codec.ErrNotRegistered) || !strings.Contains(err.Error(), want) {
			t.Errorf("Encode(%#v): %v, want %s", value, err, want)
		}
	}
	for manifest, want := range map[string]string{
		"stranger":   `add codec.Name[...]("stranger") to the registry, or Was("stranger")`,
		"opened@4":   "written by a newer program, this one supports version 3",
		"opened+xml": "add the format with Using",
		"gone":       `add codec.Upcast("gone", 1, ...)`,
	} {
		if _, err := r.Decode(manifest, nil); !errors.Is(err, codec.ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%q): %v, want %s", manifest, err, want)
		}
	}
}
