// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fsm_test

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/eventsourcing/fsm"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

type (
	mode string

	// door opens with a coin, and closes by itself.
	door struct {
		At    fsm.Position[mode]
		Coins int
	}
	doorEvent interface{ isDoorEvent() }
	coinTaken struct{}

	insert struct {
		eventsourcing.Command[door, int]
	}
	doorContext    = fsm.Context[door, doorEvent, mode, int]
	doorTransition = fsm.Transition[door, doorEvent, mode, int]
	closeContext   = fsm.Context[door, doorEvent, mode, eventsourcing.None]
	closing        = fsm.Transition[door, doorEvent, mode, eventsourcing.None]
)

const (
	closed mode = "closed"
	open   mode = "open"
)

func (coinTaken) isDoorEvent() {}

func (d *door) insert(ctx *doorContext, _ insert) doorTransition {
	return ctx.Goto(open).Applying(coinTaken{}).ForMax(5 * time.Millisecond).ReplyFunc(func() int { return d.Coins })
}

func (*door) close(ctx *closeContext) closing { return ctx.Goto(closed) }

// A door that stays closed is removed: the time begins when the entity starts for the first time.
func ExampleMachine_initialForMax() {
	ctx := context.Background()
	moves := make(chan string, 1)
	typ, err := fsm.Machine[door, doorEvent, mode]{
		Type:          eventsourcing.Type[door, any]{Name: "door"},
		Position:      func(d *door) *fsm.Position[mode] { return &d.At },
		States:        []mode{closed, "removed"},
		InitialForMax: 5 * time.Millisecond,
		Timeouts: []fsm.Timeout[door, doorEvent, mode]{
			fsm.OnTimeout(closed, func(_ *door, ctx *closeContext) closing { return ctx.Goto("removed") }),
		},
		OnTransition: func(_ *door, from, to mode) { moves <- fmt.Sprint(from, " -> ", to) },
	}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	doors, err := eventsourcing.Host(rt, typ)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(doors.Start(ctx, "1"))
	fmt.Println(<-moves)
	// Output:
	// <nil>
	// closed -> removed
}

// A door opens with a coin. It closes when the time of the state open has ended.
func ExampleMachine() {
	ctx := context.Background()
	moves := make(chan string, 2)
	typ, err := fsm.Machine[door, doorEvent, mode]{
		Type:         eventsourcing.Type[door, any]{Name: "door"},
		Events:       []codec.Entry{codec.Name[coinTaken]("coin_taken")},
		Position:     func(d *door) *fsm.Position[mode] { return &d.At },
		States:       []mode{closed, open},
		Apply:        func(d *door, _ doorEvent) { d.Coins++ },
		Handlers:     []fsm.Handler[door, doorEvent, mode]{fsm.On("insert", fsm.In((*door).insert, closed))},
		Timeouts:     []fsm.Timeout[door, doorEvent, mode]{fsm.OnTimeout(open, (*door).close)},
		OnTransition: func(_ *door, from, to mode) { moves <- fmt.Sprint(from, " -> ", to) },
	}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	doors, err := eventsourcing.Host(rt, typ)
	if err != nil {
		fmt.Println(err)
		return
	}
	coins, err := eventsourcing.Ask(ctx, doors.Ref("1"), insert{})
	fmt.Println(coins, err)
	fmt.Println(<-moves)
	fmt.Println(<-moves)
	// Output:
	// 1 <nil>
	// closed -> open
	// open -> closed
}
