// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
)

// Outcome is the result of a command.
type Outcome[E, R any] struct {
	t       testing.TB
	command any
	stated  bool // Stores was called

	// Events are the events that were stored since the command was sent.
	Events []E
	// Value and Err are the results of Ask.
	Value R
	Err   error
}

// When sends a command, waits for its reply, and makes the checks that the package documentation
// lists.
func When[S, E, R any](k *Kit[S, E], command eventsourcing.Request[S, R]) *Outcome[E, R] {
	k.t.Helper()
	return WhenContext(context.Background(), k, command)
}

// WhenContext is When with the context of the caller.
func WhenContext[S, E, R any](ctx context.Context, k *Kit[S, E], command eventsourcing.Request[S, R]) *Outcome[E, R] {
	k.t.Helper()
	named := k.checkCommand(command)
	from := k.next()
	o := &Outcome[E, R]{t: k.t, command: command}
	o.Value, o.Err = eventsourcing.Ask(ctx, k.Ref(), command)
	if named && o.Err == nil {
		checkReply(k, command, o.Value)
	}
	k.settle(command, o.Value)
	o.Events = k.eventsFrom(from)
	return o
}

// Tell sends a message without a reply and waits until the message was handled. Messages that the
// handler sends may be handled later.
func Tell[S, E any](k *Kit[S, E], command eventsourcing.Message[S]) *Outcome[E, struct{}] {
	k.t.Helper()
	k.checkCommand(command)
	from := k.next()
	o := &Outcome[E, struct{}]{t: k.t, command: command}
	if o.Err = eventsourcing.Tell(context.Background(), k.Ref(), command); o.Err == nil {
		k.settle(command, nil)
	}
	o.Events = k.eventsFrom(from)
	return o
}

func (k *Kit[S, E]) next() uint64 {
	k.t.Helper()
	highest, err := k.memory.HighestSequenceNr(context.Background(), k.pid)
	if err != nil {
		k.t.Fatalf("%v", err)
	}
	return highest + 1
}

// Stores reports an error unless exactly these events were stored, in this order.
func (o *Outcome[E, R]) Stores(want ...E) *Outcome[E, R] {
	o.t.Helper()
	o.stated = true
	same := len(o.Events) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = equal(o.Events[i], want[i])
	}
	if !same {
		o.t.Errorf("%s stores\n%swant\n%s", o, list(o.Events), list(want))
	}
	return o
}

// StoresNothing reports an error if an event was stored.
func (o *Outcome[E, R]) StoresNothing() *Outcome[E, R] {
	o.t.Helper()
	return o.Stores()
}

// Answers reports an error unless the command was answered with this value.
func (o *Outcome[E, R]) Answers(want R) *Outcome[E, R] {
	o.t.Helper()
	if o.Err != nil {
		o.t.Errorf("%s fails: %v\nwant the answer %+v", o, o.Err, want)
	} else if !equal(o.Value, want) {
		o.t.Errorf("%s is answered %+v, want %+v", o, o.Value, want)
	}
	return o
}

// Succeeds reports an error if the command failed.
func (o *Outcome[E, R]) Succeeds() *Outcome[E, R] {
	o.t.Helper()
	if o.Err != nil {
		o.t.Errorf("%s fails: %v", o, o.Err)
	}
	return o
}

// Fails reports an error unless the command failed with an error that matches the target, such as a
// Refusal. Unless Stores was called before, it also reports an error if an event was stored. A partner
// of a saga stores its refusal: When(kit, charge).Stores(refused).Fails(errNotEnough).
func (o *Outcome[E, R]) Fails(target error) *Outcome[E, R] {
	o.t.Helper()
	if o.Err == nil {
		o.t.Errorf("%s is answered %+v, want the error %q", o, o.Value, target)
	} else if !errors.Is(o.Err, target) {
		o.t.Errorf("%s fails: %v\nwant the error %q", o, o.Err, target)
	}
	if !o.stated {
		o.StoresNothing()
	}
	return o
}

func (o *Outcome[E, R]) String() string { return fmt.Sprintf("%T%+v", o.command, o.command) }

func list[E any](events []E) string {
	if len(events) == 0 {
		return "\tnothing\n"
	}
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\t%T%+v\n", e, e)
	}
	return b.String()
}

// equal compares two values with the method Equal of their type if it has one, otherwise with
// reflect.DeepEqual.
func equal(a, b any) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if va.IsValid() && vb.IsValid() && va.Type() == vb.Type() {
		if same, found := callEqual(va, vb); found {
			return same
		}
	}
	return reflect.DeepEqual(a, b)
}
