// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/internal/jsontext"
)

// Change is a field in which two states differ. A missing value is nil.
type Change struct {
	// Path leads to the field, such as Owner.Names[2].
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// maxChanges is the maximum number of listed changes.
const maxChanges = 100

// Changes are the differences of two states.
type Changes struct {
	// List has at most 100 changes. Omitted is the number of the others.
	List    []Change
	Omitted int
	// Err is the reason why the list is empty.
	Err error

	redact *redaction // nil for none
	path   []string   // of the current field; only with redact
}

var errSameText = errors.New("only their encoding differs")

// StateLength bounds a state that is rendered or compared, in bytes.
const StateLength = 64 << 20

// Compare returns the differences of two states.
func Compare(before, after *State) Changes { return compare(before, after, nil) }

func compare(before, after *State, redact *redaction) Changes {
	d := Changes{redact: redact}
	a, err := tree(before)
	if err != nil {
		return Changes{Err: err}
	}
	b, err := tree(after)
	if err != nil {
		return Changes{Err: err}
	}
	d.walk("", a, b)
	d.redact, d.path = nil, nil
	d.Err = errSameText
	return d
}

// Fields names the changed fields.
func (d *Changes) Fields() string {
	if len(d.List) == 0 {
		return fmt.Sprintf("unknown fields (%v)", d.Err)
	}
	const shown = 3
	var names []string
	for _, x := range d.List[:min(len(d.List), shown)] {
		names = append(names, x.Path)
	}
	text := strings.Join(names, ", ")
	if more := len(d.List) + d.Omitted - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Equal reports whether two states have the same encoding.
func (s *State) Equal(other *State) bool {
	return s.Manifest == other.Manifest && bytes.Equal(s.Payload, other.Payload)
}

func tree(s *State) (any, error) {
	text, err := FormatOfState(s.Manifest, s.Payload).Render(s.Payload, StateLength)
	if err != nil {
		return nil, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	var v any
	err = in.Decode(&v)
	return v, err
}

// missing represents a value that one side does not have.
type missing struct{}

func (d *Changes) walk(field string, a, b any) {
	hidden := d.redact.hides(d.path)
	if hidden && reflect.DeepEqual(a, b) {
		return
	}
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok && !hidden {
			keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
			slices.Sort(keys)
			for _, key := range slices.Compact(keys) {
				d.enter(key, below(field, key), of(a, key), of(b, key))
			}
			return
		}
	case []any:
		if b, ok := b.([]any); ok && !hidden {
			for i := range max(len(a), len(b)) {
				index := strconv.Itoa(i)
				d.enter(index, field+"["+index+"]", at(a, i), at(b, i))
			}
			return
		}
	default:
		if _, nested := b.(map[string]any); nested {
			break
		}
		if _, nested := b.([]any); !nested && a == b {
			return
		}
	}
	if len(d.List) == maxChanges {
		d.Omitted++
		return
	}
	if field == "" {
		field = "(all)"
	}
	d.List = append(d.List, Change{Path: field, Before: d.encoded(a), After: d.encoded(b)})
}

// enter compares the values of a field.
func (d *Changes) enter(name, field string, a, b any) {
	if d.redact == nil {
		d.walk(field, a, b)
		return
	}
	d.path = append(d.path, name)
	d.walk(field, a, b)
	d.path = d.path[:len(d.path)-1]
}

func below(field, key string) string {
	if !plain.MatchString(key) {
		return field + "[" + string(jsontext.AppendQuoted(nil, key, StateLength)) + "]"
	}
	if field == "" {
		return key
	}
	return field + "." + key
}

// plain matches a key that needs no quotes.
var plain = regexp.MustCompile(`^[0-9A-Za-z_]+$`)

func at(s []any, i int) any {
	if i < len(s) {
		return s[i]
	}
	return missing{}
}

func of(m map[string]any, key string) any {
	if v, ok := m[key]; ok {
		return v
	}
	return missing{}
}

// encoded returns a value as printable JSON, or nil if it is missing.
func (d *Changes) encoded(v any) json.RawMessage {
	if v == (missing{}) {
		return nil
	}
	text, err := jsontext.Marshal(d.redact.value(d.path, v))
	if err != nil {
		return nil // unreachable: v was decoded from JSON
	}
	return text
}
