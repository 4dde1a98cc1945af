// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refold-io/refold/codec"
)

const (
	storedSuffix  = ".stored"
	decodedSuffix = ".decoded"
	hexPerLine    = 64
	// maxGolden is the maximum size of a file. An event has at most 16 MiB, and its hex form is
	// twice as long.
	maxGolden = 40 << 20
	// goldenMode lets other users read the files, as they read the other files of a checkout.
	goldenMode = 0o644
)

type encoded struct {
	manifest string
	payload  []byte
}

func (e encoded) equal(f encoded) bool {
	return e.manifest == f.manifest && bytes.Equal(e.payload, f.payload)
}

// readGolden returns all samples in a directory by their paths. The directory need not exist.
func readGolden(dir string) (map[string]encoded, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files := map[string]encoded{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), storedSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if info.Size() > maxGolden {
			return nil, fmt.Errorf("%s is not a sample: it has %d bytes, at most %d are allowed", path, info.Size(), maxGolden)
		}
		data, err := os.ReadFile(path) //nolint:gosec // the test names it
		if err != nil {
			return nil, err
		}
		manifest, text, _ := strings.Cut(string(data), "\n")
		payload, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return nil, fmt.Errorf("%s is not a sample: the payload after the first line is not hexadecimal: %w", path, err)
		}
		if manifest == "" {
			return nil, fmt.Errorf("%s is not a sample: the first line, the manifest, is empty", path)
		}
		files[path] = encoded{strings.TrimSpace(manifest), payload}
	}
	return files, nil
}

// freeGolden returns an unused path for a new sample with a manifest.
func freeGolden(dir string, files map[string]encoded, manifest string) string {
	base := filepath.Join(dir, url.PathEscape(manifest))
	path := base + storedSuffix
	for n := 2; ; n++ {
		if _, taken := files[path]; !taken {
			return path
		}
		path = base + "." + strconv.Itoa(n) + storedSuffix
	}
}

func writeGolden(path string, s encoded) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // see goldenMode
		return err
	}
	text := []byte(s.manifest + "\n")
	for line := range slices.Chunk([]byte(hex.EncodeToString(s.payload)), hexPerLine) {
		text = append(append(text, line...), '\n')
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, goldenMode) //nolint:gosec // see goldenMode
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// String returns the manifest and the decoded values as a tree.
func (e encoded) String() string {
	var b strings.Builder
	b.WriteString(e.manifest + "\n")
	if v, ok := e.generic(); ok {
		tree(&b, v, "  ")
		return b.String()
	}
	var indented bytes.Buffer
	if json.Indent(&indented, e.payload, "  ", "  ") == nil {
		return b.String() + "  " + indented.String() + "\n"
	}
	for line := range slices.Chunk([]byte(hex.EncodeToString(e.payload)), hexPerLine) {
		b.WriteString("  " + string(line) + "\n")
	}
	return b.String()
}

// generic decodes a msgpack payload without its Go type. It returns false for other payloads.
func (e encoded) generic() (any, bool) {
	if strings.Contains(e.manifest, "+") || codec.Check(e.payload) != nil {
		return nil, false
	}
	r := codec.Types(codec.Name[map[string]any]("map"), codec.Name[[]any]("list"), codec.Name[string]("string"), codec.Name[int64]("int"),
		codec.Name[uint64]("uint"), codec.Name[float64]("float"), codec.Name[bool]("bool"), codec.Name[time.Time]("time"), codec.Name[[]byte]("bytes"))
	for _, kind := range []string{"map", "list", "string", "int", "uint", "float", "bool", "time", "bytes"} {
		if v, err := r.Decode(kind, e.payload); err == nil {
			return v, true
		}
	}
	return nil, false
}

// value decodes a msgpack or JSON payload without its Go type. It returns nil for other payloads.
func (e encoded) value() any {
	if v, ok := e.generic(); ok {
		return v
	}
	var v any
	if json.Unmarshal(e.payload, &v) != nil {
		return nil
	}
	return v
}

// missing returns the names of the fields that a value has and another one lacks, with their paths. The
// other value may lack an empty field, unless it has a new field in the same place.
func missing(was, now any, path string) (names []string) {
	switch was := byText(was).(type) {
	case map[string]any:
		now, _ := byText(now).(map[string]any)
		isNew := func(name string) bool { _, known := was[name]; return !known }
		renamed := slices.ContainsFunc(slices.Collect(maps.Keys(now)), isNew)
		for _, name := range slices.Sorted(maps.Keys(was)) {
			field := strings.TrimPrefix(path+"."+name, ".")
			if v, found := now[name]; found {
				names = append(names, missing(was[name], v, field)...)
			} else if renamed || !isEmpty(was[name]) {
				names = append(names, field)
			}
		}
	case []any:
		now, _ := now.([]any)
		for i := range min(len(was), len(now)) {
			names = append(names, missing(was[i], now[i], path)...)
		}
	}
	return names
}

func isEmpty(v any) bool {
	rv := reflect.ValueOf(v)
	if k := rv.Kind(); k == reflect.Slice || k == reflect.Map {
		return rv.Len() == 0
	}
	return !rv.IsValid() || rv.IsZero()
}

// tree prints a value with one field or element per line.
func tree(b *strings.Builder, v any, indent string) {
	switch v := byText(v).(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			branch(b, k, v[k], indent)
		}
	case []any:
		for _, item := range v {
			branch(b, "-", item, indent)
		}
	default:
		b.WriteString(indent + leaf(v) + "\n")
	}
}

// byText converts the keys of a map to strings. It returns other values unchanged.
func byText(v any) any {
	m, ok := v.(map[any]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(m))
	for k, item := range m {
		out[leaf(k)] = item
	}
	return out
}

func branch(b *strings.Builder, name string, v any, indent string) {
	empty := ""
	switch v := byText(v).(type) {
	case map[string]any:
		empty = "{}"[min(len(v), 1)*2:]
	case []any:
		empty = "[]"[min(len(v), 1)*2:]
	default:
		empty = leaf(v)
	}
	b.WriteString(indent + name)
	if name != "-" {
		b.WriteString(":")
	}
	if empty != "" {
		b.WriteString(" " + empty + "\n")
		return
	}
	b.WriteString("\n")
	tree(b, v, indent+"  ")
}

func leaf(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return strconv.Quote(v)
	case []byte:
		return "0x" + hex.EncodeToString(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}
