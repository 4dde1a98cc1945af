// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// A supervisor keeps entities whose handlers panic, stops entities whose history cannot be read, and
// restarts the others after a pause.
func ExampleDirective() {
	// region supervise
	supervise := func(cause error) eventsourcing.Directive {
		if _, ok := errors.AsType[*eventsourcing.PanicError](cause); ok {
			return eventsourcing.Resume
		}
		if errors.Is(cause, eventsourcing.ErrRecovery) {
			return eventsourcing.Stop
		}
		return eventsourcing.Restart
	}
	// endregion
	type (
		state struct{ Calls int } // of this instance
		event struct{}
		call  struct {
			eventsourcing.Command[state, int]
			Fail bool
		}
	)
	handle := func(s *state, ctx *eventsourcing.Context[state, event, int], c call) eventsourcing.Decision[state, event, int] {
		if c.Fail {
			panic("a mistake")
		}
		return ctx.Persist(event{}).ReplyFunc(func() int { return s.Calls })
	}
	ctx := context.Background()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	phones, err := eventsourcing.HostWith(rt, eventsourcing.Type[state, event]{
		Name:     "phone",
		Commands: eventsourcing.Commands(eventsourcing.On("call", handle)),
		Apply:    func(s *state, _ event) { s.Calls++ },
		Events:   codec.Types(codec.Name[event]("called")),
	}, eventsourcing.HostOptions{Supervise: supervise, PanicLimit: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, fail := range []bool{false, true, false} {
		n, err := eventsourcing.Ask(ctx, phones.Ref("42"), call{Fail: fail})
		fmt.Println(n, err)
	}
	fmt.Println(phones.Close(ctx), phones.Err()) // the runtime may host the type again
	// Output:
	// 1 <nil>
	// 0 eventsourcing: entity "phone|42" panicked: a mistake
	// 2 <nil>
	// <nil> <nil>
}
