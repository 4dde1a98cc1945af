// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// An entity whose history cannot be read reports this once, and tries again with its next command.
func ExampleRecoveryFailed() {
	type (
		state struct{ Calls int }
		event struct{}
		call  struct {
			eventsourcing.Command[state, int]
		}
	)
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	typ := eventsourcing.Type[state, event]{
		Name: "phone",
		Commands: eventsourcing.Commands(eventsourcing.On("call",
			func(s *state, ctx *eventsourcing.Context[state, event, int], _ call) eventsourcing.Decision[state, event, int] {
				return ctx.Persist(event{}).ReplyFunc(func() int { return s.Calls })
			})),
		Signals: eventsourcing.Signals(eventsourcing.OnSignal(
			func(_ *state, ctx *eventsourcing.Context[state, event, eventsourcing.None], f eventsourcing.RecoveryFailed) eventsourcing.Effect[state, event, eventsourcing.None] {
				fmt.Println(ctx.ID(), "failed:", errors.Is(f.Err, journaltest.ErrInjected))
				return ctx.Stop()
			})),
		Apply:  func(s *state, _ event) { s.Calls++ },
		Events: codec.Types(codec.Name[event]("called")),
	}
	ctx := context.Background()
	rt, phones := hostedOn(store.Of(faulty, nil), typ)
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	faulty.Inject(journaltest.Fault{Op: journaltest.OpHighest})
	_, err := eventsourcing.Ask(ctx, phones.Ref("42"), call{})
	fmt.Println(errors.Is(err, eventsourcing.ErrRecovery))
	n, err := eventsourcing.Ask(ctx, phones.Ref("42"), call{})
	fmt.Println(n, err, phones.Presence("42"), phones.Presence("43"))
	// Output:
	// 42 failed: true
	// true
	// 1 <nil> running absent
}
