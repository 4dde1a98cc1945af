// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/refold-io/refold/journal"
)

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "account|42", "|", "帳戶|四十二", " a ", strings.Repeat("x", journal.MaxIDLength)} {
		if err := journal.CheckID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", " ", "\t\n", "\u2003", "a\x00b", "\xff", "a\xc3", strings.Repeat("x", journal.MaxIDLength+1)} {
		if err := journal.CheckID(id); !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", id, err)
		}
	}
	if err := journal.CheckID(strings.Repeat("x", 1<<20)); len(err.Error()) > 200 {
		t.Errorf("the error about a long ID has %d bytes", len(err.Error()))
	}
}

func TestJoinAndSplitID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string][2]string{
		"account|42":  {"account", "42"},
		"account|4|2": {"account", "4|2"},
		"account|":    {"account", ""},
		"|42":         {"", "42"},
		"plain":       {"", "plain"},
		"":            {"", ""},
	} {
		typeName, entityID := journal.SplitID(id)
		if typeName != want[0] || entityID != want[1] {
			t.Errorf("%q is split into %q and %q, want %q", id, typeName, entityID, want)
		}
		if joined := journal.JoinID(typeName, entityID); strings.Contains(id, "|") && joined != id {
			t.Errorf("%q is joined again to %q", id, joined)
		}
	}
}

func TestIsFence(t *testing.T) {
	t.Parallel()
	if fence := (&journal.Event{SequenceNr: 4, Writer: "w"}); !fence.IsFence() {
		t.Error("a record without a manifest is a fence")
	}
	if event := (&journal.Event{SequenceNr: 4, Manifest: "deposited"}); event.IsFence() {
		t.Error("an event with an empty payload is no fence")
	}
}
