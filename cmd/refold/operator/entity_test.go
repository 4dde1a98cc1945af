// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// attached is a part that reports its attachment.
type attached struct {
	hosting.Part // has the methods that the test does not call
	hosting.NeedsPart

	attach func(id, field string) error
}

// Field implements hosting.Part.
func (a *attached) Field() any { return a }

// Attach is part of hosting.Part.
func (a *attached) Attach(id, field string) error { return a.attach(id, field) }

// accountWithPart is an account with a part.
type accountWithPart struct {
	account

	Mail attached `refold:"-"`
}

func TestVerifyDecodesSnapshotParts(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"valid": nil, "failing": errDisk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got string
			typ := eventsourcing.Type[accountWithPart, event]{Name: "a", Events: events(), Apply: func(a *accountWithPart, ev event) { a.apply(ev) }}
			typ.Parts = []eventsourcing.Part[accountWithPart, event]{&hosting.PartDefinition[accountWithPart, eventsourcing.SignalHandler[accountWithPart, event]]{
				Name: "Mail", Field: func(a *accountWithPart) hosting.Part { return &a.Mail },
			}}
			typ.New = func(string) *accountWithPart {
				return &accountWithPart{Mail: attached{attach: func(id, field string) error {
					got = id + "#" + field
					return failure
				}}}
			}
			report, err := operator.Verify(t.Context(), &fakeJournal{records: map[string][]journal.Event{"a|1": {{SequenceNr: 1}}}}, operator.VerifyOptions{
				Snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(1, eventsourcing.StateManifest, []byte{0x80})}},
				Entities:  []operator.Linked{operator.Entity(typ)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got != "a|1#Mail" {
				t.Errorf("attached to %q, want a|1#Mail", got)
			}
			if failed := report.Found() == 1 && strings.Contains(report.Problems[0].String(), "part Mail: disk on fire"); failed != (failure != nil) {
				t.Errorf("report %+v, want a problem with part Mail only if attaching failed (%v)", report, failure)
			}
		})
	}
}

// Verify reports an aggregate that panics as a problem of its entity.
func TestVerifyWithPanickingEntity(t *testing.T) {
	t.Parallel()
	typ := accountType()
	typ.Name = "a"
	typ.New = func(string) *account { panic("not today") }
	nothing := typ
	nothing.New = func(string) *account { return nil }
	for want, typ := range map[string]eventsourcing.Type[account, event]{"not today": typ, "returned nil": nothing} {
		report, err := operator.Verify(t.Context(), &fakeJournal{records: map[string][]journal.Event{"a|1": {{SequenceNr: 1}}}}, operator.VerifyOptions{
			Snapshots: &fakeSnapshots{stored: []snapshot.Snapshot{saved(1, eventsourcing.StateManifest, []byte{0x80})}},
			Entities:  []operator.Linked{operator.Entity(typ)},
		})
		if err != nil || report.Found() != 1 || !strings.Contains(report.Problems[0].String(), want) {
			t.Errorf("report %+v, error %v; want the problem %q", report, err, want)
		}
	}
}
