// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"errors"
	"testing"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
)

func from(sender string, nr, floor uint64) delivery.Header {
	return delivery.Header{Sender: sender, Nr: nr, Floor: floor}
}

func TestInbox(t *testing.T) {
	t.Parallel()
	var b delivery.Inbox
	if b.Seen(from("a", 1, 1)) || b.Refusal(from("a", 1, 1)) != nil || b.Senders() != 0 {
		t.Error("an empty inbox contains a delivery, a refusal or a sender")
	}
	b.Record(from("a", 3, 2))
	b.RecordRefusal(from("a", 4, 2), errLocked)
	for nr, want := range map[uint64]bool{1: true, 2: false, 3: true, 4: true, 5: false} {
		if got := b.Seen(from("a", nr, 2)); got != want {
			t.Errorf("Seen(%d) = %v, want %v", nr, got, want)
		}
	}
	if b.Seen(from("b", 3, 2)) {
		t.Error("a record of sender a counts for sender b")
	}
	if err := b.Refusal(from("a", 4, 2)); !errors.Is(err, errLocked) || err.Error() != errLocked.Error() {
		t.Errorf("the refusal of 4 is %v, want errLocked", err)
	}
	if err := b.Refusal(from("a", 3, 2)); err != nil {
		t.Errorf("the refusal of 3 is %v, want nil", err)
	}
	b.Record(from("a", 4, 2))
	if b.Refusal(from("a", 4, 2)) == nil {
		t.Error("a later record replaced the first one")
	}
	b.Record(from("a", 9, 9))
	if err := b.Refusal(from("a", 4, 2)); err != nil || !b.Seen(from("a", 4, 2)) {
		t.Errorf("below the floor: not seen, or the refusal is %v, want nil", err)
	}
	b.Forget("a")
	if b.Seen(from("a", 9, 9)) || b.Senders() != 0 {
		t.Error("a forgotten sender is still recorded")
	}
}

// TestRefusalKind checks that a refusal keeps its kind, also in a snapshot: the answer to a repeated
// delivery has the same status as the first one.
func TestRefusalKind(t *testing.T) {
	t.Parallel()
	var e ends
	h := from("a", 1, 1)
	e.In.RecordRefusal(h, errLocked.OfKind(eventsourcing.NotFound))
	for subject, in := range map[string]*delivery.Inbox{"recorded": &e.In, "from a snapshot": &decode(t, encode(t, &e)).In} {
		if r, ok := errors.AsType[*eventsourcing.Refusal](in.Refusal(h)); !ok || r.Kind() != eventsourcing.NotFound || r.Code() != errLocked.Code() {
			t.Errorf("%s: the refusal is %v, want errLocked of kind NotFound", subject, in.Refusal(h))
		}
	}
}

// TestInboxWithoutOutbox checks that a command that no outbox has sent is always new.
func TestInboxWithoutOutbox(t *testing.T) {
	t.Parallel()
	var b delivery.Inbox
	for _, h := range []delivery.Header{{}, {Nr: 1}, {Sender: "a"}, {Floor: 7}} {
		b.Record(h)
		b.RecordRefusal(h, errLocked)
		if b.Seen(h) || b.Refusal(h) != nil || b.Senders() != 0 {
			t.Errorf("the inbox counts %+v as seen", h)
		}
	}
	b.Record(from("a", 5, 5))
	if b.Seen(delivery.Header{Sender: "a"}) {
		t.Error("Seen returned true for number 0, want false")
	}
}
