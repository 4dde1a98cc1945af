// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/journal"
)

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "account|42", "|", "帳戶|四十二", " a ", strings.Repeat("x", journal.MaxIDLength)} {
		if err := journal.CheckID(id); err != nil {
			t.Errorf("CheckID(%q): %v, want nil", id, err)
		}
	}
	for _, id := range []string{"", " ", "\t\n", "\u2003", "a\x00b", "\xff", "a\xc3", strings.Repeat("x", journal.MaxIDLength+1)} {
		if err := journal.CheckID(id); !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("CheckID(%q): %v, want ErrInvalid", id, err)
		}
	}
	if err := journal.CheckID(strings.Repeat("x", 1<<20)); len(err.Error()) > 200 {
		t.Errorf("the error about a long ID has %d bytes, want at most 200", len(err.Error()))
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
			t.Errorf("JoinID of the parts of %q returns %q, want the ID", id, joined)
		}
	}
}

func TestIsFence(t *testing.T) {
	t.Parallel()
	if fence := (&journal.Event{SequenceNr: 4, Writer: "w"}); !fence.IsFence() {
		t.Error("IsFence = false for a record without a manifest, want true")
	}
	if event := (&journal.Event{SequenceNr: 4, Manifest: "deposited"}); event.IsFence() {
		t.Error("IsFence = true for an event with an empty payload, want false")
	}
}

func TestCheckWrite(t *testing.T) {
	t.Parallel()
	big := make([]byte, journal.MaxEventSize)
	long := strings.Repeat("t", 1025)
	four := func(last []byte) []journal.Event {
		events := make([]journal.Event, 5)
		for i := range events {
			events[i] = journal.Event{SequenceNr: uint64(i + 1), Payload: big}
		}
		events[4].Payload = last
		return events
	}
	for name, c := range map[string]struct {
		expect uint64
		events []journal.Event
		size   int
		seqNr  uint64 // of the invalid event
		want   string
	}{
		"one":            {0, []journal.Event{{SequenceNr: 1, Payload: []byte("abc"), Metadata: []byte("d"), Tags: []string{"tag"}}}, 4, 0, ""},
		"two":            {7, []journal.Event{{SequenceNr: 8, Payload: []byte("a")}, {SequenceNr: 9}}, 1, 0, ""},
		"the last":       {journal.MaxSequenceNr - 1, []journal.Event{{SequenceNr: journal.MaxSequenceNr}}, 0, 0, ""},
		"largest event":  {0, []journal.Event{{SequenceNr: 1, Payload: big}}, len(big), 0, ""},
		"largest write":  {0, four(nil), journal.MaxWriteSize, 0, ""},
		"none":           {0, nil, 0, 0, "has no events"},
		"above the last": {journal.MaxSequenceNr, []journal.Event{{SequenceNr: journal.MaxSequenceNr + 1}}, 0, 0, "sequence numbers of 1 events after"},
		"gap":            {0, []journal.Event{{SequenceNr: 1}, {SequenceNr: 3}}, 0, 2, "event 1 of the write has sequence number 3"},
		"zero":           {0, []journal.Event{{}}, 0, 1, "sequence number 0"},
		"large event":    {0, []journal.Event{{SequenceNr: 1}, {SequenceNr: 2, Payload: big, Metadata: []byte{1}}}, 0, 2, "16777217 bytes"},
		"large write":    {0, four([]byte{1}), 0, 0, "67108865 bytes"},
		"largest names":  {0, []journal.Event{{SequenceNr: 1, Manifest: "m", Tags: slices.Repeat([]string{long[:1024]}, 63)}}, 0, 0, ""},
		"most tags":      {0, []journal.Event{{SequenceNr: 1, Tags: make([]string, 16<<10)}}, 0, 0, ""},
		"large names":    {0, []journal.Event{{SequenceNr: 1, Manifest: "m", Tags: slices.Repeat([]string{long[:1024]}, 64)}}, 0, 1, "have 65537 bytes"},
		"many tags":      {0, []journal.Event{{SequenceNr: 1, Tags: make([]string, 16<<10+1)}}, 0, 1, "16385 tags"},
		"long tag":       {0, []journal.Event{{SequenceNr: 1}, {SequenceNr: 2, Tags: []string{"a", long}}}, 0, 2, "1025 bytes"},
		"invalid tag":    {0, []journal.Event{{SequenceNr: 1, Tags: []string{"a", "\xff"}}}, 0, 1, "tag \"\\xff\" is not valid UTF-8"},
		"NUL in a tag":   {0, []journal.Event{{SequenceNr: 1, Tags: []string{"a\x00"}}}, 0, 1, "NUL"},
		"manifest":       {0, []journal.Event{{SequenceNr: 1, Manifest: "\xff"}}, 0, 1, "manifest"},
	} {
		w := journal.Write{ID: "a|1", Expect: c.expect, Events: c.events}
		size, err := journal.CheckWrite(&w)
		if c.want == "" {
			if err != nil || size != c.size {
				t.Errorf("%s: CheckWrite returned %d, %v, want %d", name, size, err, c.size)
			}
			continue
		}
		rejected, ok := errors.AsType[*journal.RejectedError](err)
		if !ok || rejected.ID != "a|1" || rejected.SequenceNr != c.seqNr || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: CheckWrite returned %v, want a rejection of event %d with %q", name, err, c.seqNr, c.want)
		}
	}
}
