// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/examples/bank/requests"
)

type memory = requests.Memory[int]

// check checks the result of Check: an answer, 0 for a new request, or an error.
func check(t *testing.T, m *memory, id, content string, want int, wantErr error) {
	t.Helper()
	answer, done, err := m.Check(id, content)
	if !errors.Is(err, wantErr) || done != (want != 0) || done && answer != want {
		t.Errorf("%s %q: answer %d, done %v, %v; want %d, %v", id, content, answer, done, err, want, wantErr)
	}
}

func TestRetryGetsFirstAnswer(t *testing.T) {
	t.Parallel()
	var m memory
	check(t, &m, "r1", "deposit 1", 0, nil)
	m.Record("r1", "deposit 1", 41)
	m.Record("r2", "deposit 1", 42)
	check(t, &m, "r1", "deposit 1", 41, nil)
	check(t, &m, "r2", "deposit 1", 42, nil)
	check(t, &m, "r1", "deposit 2", 0, requests.ErrReused)
	check(t, &m, "r3", "deposit 1", 0, nil)
}

func TestRequestWithoutID(t *testing.T) {
	t.Parallel()
	var m memory
	m.Record("", "deposit 1", 41)
	check(t, &m, "", "deposit 1", 0, nil)
	if len(m.Recent) != 0 {
		t.Errorf("%d requests are stored after a request without an ID, want 0", len(m.Recent))
	}
}

func TestMemoryKeepsLastThousand(t *testing.T) {
	t.Parallel()
	var m memory
	for i := 1; i <= requests.Remembered; i++ {
		m.Record(fmt.Sprint("r", i), "x", i)
	}
	for i := 1; i <= requests.Remembered; i++ {
		check(t, &m, fmt.Sprint("r", i), "x", i, nil)
	}
	m.Record("one more", "x", 7)
	check(t, &m, "r1", "x", 0, nil)
	check(t, &m, "r2", "x", 2, nil)
	check(t, &m, "one more", "x", 7, nil)
	if len(m.Recent) != 1000 {
		t.Errorf("%d requests are stored, want 1000", len(m.Recent))
	}
}

func TestHighestLineOfFile(t *testing.T) {
	t.Parallel()
	var m memory
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	for line := uint64(2); line <= 5000; line += 2 {
		m.Record(requests.FileLine(a, line), "x", int(line))
	}
	m.Record(requests.FileLine(b, 7), "x", 77)
	check(t, &m, requests.FileLine(a, 5000), "x", 5000, nil)
	check(t, &m, requests.FileLine(a, 5000), "y", 0, requests.ErrReused)
	check(t, &m, requests.FileLine(a, 4998), "x", 0, requests.ErrPassed)
	check(t, &m, requests.FileLine(a, 4999), "x", 0, requests.ErrPassed)
	check(t, &m, requests.FileLine(a, 5001), "x", 0, nil)
	check(t, &m, requests.FileLine(b, 7), "x", 77, nil)
	check(t, &m, requests.FileLine(b, 8), "x", 0, nil)
	if len(m.Files) != 2 || len(m.Recent) != 0 {
		t.Errorf("%d files and %d other requests are stored, want 2 and 0", len(m.Files), len(m.Recent))
	}
}

func TestLongID(t *testing.T) {
	t.Parallel()
	var m memory
	check(t, &m, strings.Repeat("x", requests.MaxLength), "", 0, nil)
	check(t, &m, strings.Repeat("x", requests.MaxLength+1), "", 0, requests.ErrTooLong)
}

func TestParseFileLine(t *testing.T) {
	t.Parallel()
	hash, err := requests.Hash(strings.NewReader("a file"))
	if err != nil || len(hash) != 32 || !strings.ContainsAny(hash, "abcdef") {
		t.Fatal(hash, err)
	}
	if got, line, ok := requests.ParseFileLine(requests.FileLine(hash, 12)); !ok || got != hash || line != 12 {
		t.Errorf("ParseFileLine returns %s, %d, %v; want %s, 12, true", got, line, ok, hash)
	}
	for _, id := range []string{
		"", ":", ":1", hash, hash + ":", hash + ":0", hash + ":01", hash + ":+1", hash + ":-1", hash + ":x", hash + ":1:2",
		hash + ":9223372036854775808", strings.ToUpper(hash) + ":1", hash[1:] + ":1", "0" + hash + ":1", hash[:31] + "g:1",
	} {
		if _, _, ok := requests.ParseFileLine(id); ok {
			t.Errorf("ParseFileLine(%q) = true, want false", id)
		}
	}
}

// state is an aggregate that has a memory.
type state struct{ Requests memory }

func TestSnapshot(t *testing.T) {
	t.Parallel()
	s, err := codec.NewState(reflect.TypeFor[*state]())
	if err != nil {
		t.Fatal(err)
	}
	var before, after state
	before.Requests.Record("r1", "x", 1)
	before.Requests.Record(requests.FileLine(strings.Repeat("a", 32), 3), "x", 2)
	data, err := s.Encode(&before)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Decode(data, &after); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("%+v was decoded as %+v, error %v; want equal values", before, after, err)
	}
}
