// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files that do not exist")

// The stored form never changes: golden files are added, never rewritten.
func TestGolden(t *testing.T) {
	t.Parallel()
	golden := goldenValue()
	r := codec.Types(codec.Name[goldenEvent]("golden").Version(2), codec.Split("golden", 1, func(movedV1) ([]any, error) { return nil, nil }))
	for name, r := range map[string]*codec.Registry{"v1/event.msgpack": r, "v1/event.json": r.Using(codec.JSON())} {
		manifest, payload, err := r.Encode(golden)
		if err != nil {
			t.Fatal(err)
		}
		want := goldenFile(t, name, manifest, payload)
		if got := manifest + "\n" + hex.EncodeToString(payload) + "\n"; got != want {
			t.Errorf("%s: the stored form is %s, want %s as in the golden file", name, got, want)
		}
		manifest, encoded, _ := strings.Cut(strings.TrimSpace(want), "\n")
		stored, err := hex.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Decode(manifest, stored); err != nil || !reflect.DeepEqual(got, golden) {
			t.Errorf("%s: %#v, %v, want %#v", name, got, err, golden)
		}
	}
}

func goldenFile(t *testing.T, name, manifest string, payload []byte) string {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	want, err := os.ReadFile(path)
	if *rewrite && os.IsNotExist(err) {
		want = []byte(manifest + "\n" + hex.EncodeToString(payload) + "\n")
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
			err = os.WriteFile(path, want, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(want)
}

type goldenEvent struct {
	Base
	Bool    bool
	Small   int
	Large   int64
	Neg     int16
	Unsig   uint64
	F32     float32
	F64     float64
	Text    string
	Bytes   []byte
	Nil     []int
	Empty   []int
	List    []string
	Array   [2]uint8
	Levels  map[int]string
	Ptr     *Base
	Time    time.Time
	Far     time.Time
	Wait    time.Duration
	Any     any
	Renamed string `json:"r" msgpack:"r"`
	Absent  string `json:",omitempty" msgpack:",omitempty"`
	Set     setOf
}

func goldenValue() goldenEvent {
	return goldenEvent{
		Base: Base{"42", "gold"}, Bool: true, Small: 7, Large: 1 << 40, Neg: -300, Unsig: 1 << 63, F32: 1.5, F64: -0.25,
		Text: strings.Repeat("äöü", 12), Bytes: []byte{0, 1, 255}, Empty: []int{}, List: []string{"", "x"}, Array: [2]uint8{1, 2},
		Levels: map[int]string{1000: "k", -5: "n", 3: "t"}, Ptr: &Base{ID: "p"}, Time: time.Unix(1_700_000_000, 5).UTC(),
		Far: time.Unix(-5, 0).UTC(), Wait: time.Minute, Any: map[string]any{"z": []any{nil, "a", false}, "a": 0.5}, Renamed: "r", Set: setOf{"b": {}, "a": {}},
	}
}
