// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/cmd/refold/internal/console"
)

// difference is a field in which two states differ. A missing value is nil.
type difference struct {
	Field   string          `json:"field"`
	Present json.RawMessage `json:"present,omitempty"`
	Rebuilt json.RawMessage `json:"rebuilt,omitempty"`
}

const maxDifferences = 100

type differences struct {
	list    []difference
	omitted int   // number of unlisted differences
	why     error // reason why the list is empty
}

var errSameText = errors.New("only their encoding differs")

func compare(present, other *folded) (d differences) {
	a, err := tree(present)
	if err != nil {
		return differences{why: err}
	}
	b, err := tree(other)
	if err != nil {
		return differences{why: err}
	}
	d.walk("", a, b)
	d.why = errSameText
	return d
}

// fields names the differing fields.
func (d *differences) fields() string {
	if len(d.list) == 0 {
		return fmt.Sprintf("unknown fields (%v)", d.why)
	}
	const shown = 3
	var names []string
	for _, x := range d.list[:min(len(d.list), shown)] {
		names = append(names, x.Field)
	}
	text := strings.Join(names, ", ")
	if more := len(d.list) + d.omitted - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// equal reports whether two states have the same encoding.
func (f *folded) equal(other *folded) bool {
	return f.manifest == other.manifest && bytes.Equal(f.payload, other.payload)
}

func tree(f *folded) (any, error) {
	text, err := formatOfState(f.manifest, f.payload).render(f.payload, stateLength)
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

func (d *differences) walk(field string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
			slices.Sort(keys)
			for _, key := range slices.Compact(keys) {
				d.walk(below(field, key), of(a, key), of(b, key))
			}
			return
		}
	case []any:
		if b, ok := b.([]any); ok {
			for i := range max(len(a), len(b)) {
				d.walk(field+"["+strconv.Itoa(i)+"]", at(a, i), at(b, i))
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
	if len(d.list) == maxDifferences {
		d.omitted++
		return
	}
	if field == "" {
		field = "(all)"
	}
	d.list = append(d.list, difference{Field: field, Present: encoded(a), Rebuilt: encoded(b)})
}

func below(field, key string) string {
	if !plain.MatchString(key) {
		return field + "[" + string(console.AppendQuoted(nil, key, lineLength)) + "]"
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
func encoded(v any) json.RawMessage {
	if v == (missing{}) {
		return nil
	}
	text, err := console.Marshal(v)
	if err != nil {
		return nil // unreachable: v was decoded from JSON
	}
	return text
}
