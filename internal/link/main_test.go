// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	alice   = identity.Node{Name: "alice:1", UID: 0xa11ce}
	bob     = identity.Node{Name: "bob:1", UID: 0xb0b}
	mallory = identity.Node{Name: "mallory:1", UID: 0xbad}
)

// end is one end of links. It stores the delivered messages.
type end struct {
	*link.Machine

	t    testing.TB
	self identity.Node
	now  time.Duration
	got  []link.Delivery
	lost uint64
	last link.Effects
}

func open(tb testing.TB, self identity.Node, change ...func(*link.Config)) *end {
	tb.Helper()
	cfg := link.Config{Self: self, MaxFrame: 1 << 20}
	for _, f := range change {
		f(&cfg)
	}
	m, err := link.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return &end{Machine: m, t: tb, self: self}
}

func pair(tb testing.TB, change ...func(*link.Config)) (a, b *end) {
	tb.Helper()
	return open(tb, alice, change...), open(tb, bob, change...)
}

func tell(payload string) link.Message {
	return link.Message{Type: link.Tell, Kind: 7, Payload: []byte(payload)}
}

// send queues messages for another end.
func (e *end) send(to *end, lane link.Lane, msgs ...link.Message) {
	e.t.Helper()
	for _, msg := range msgs {
		if err := e.Send(to.self, lane, msg); err != nil {
			e.t.Fatalf("Send: %v", err)
		}
	}
}

// frames returns all frames that are ready on a lane.
func (e *end) frames(lane link.Lane) [][]byte {
	var all [][]byte
	for {
		_, frame, ok := e.Flush(e.now, lane, nil)
		if !ok {
			return all
		}
		all = append(all, frame)
	}
}

// take receives frames from another end.
func (e *end) take(from *end, lane link.Lane, frames ...[]byte) {
	for _, frame := range frames {
		e.last = e.Receive(e.now, lane, from.self.Name, frame)
		e.lost += e.last.Lost
		e.got = append(e.got, slices.Clone(e.last.Deliver)...)
	}
}

// move receives all frames that another end has ready on a lane.
func (e *end) move(from *end, lane link.Lane) { e.take(from, lane, from.frames(lane)...) }

// consume consumes the messages delivered from another end on a lane.
func (e *end) consume(from *end, lane link.Lane) {
	for _, d := range e.got {
		e.Consume(from.self, lane, d.Cost)
	}
	e.got = nil
}

func (e *end) payloads() []string {
	var all []string
	for _, d := range e.got {
		all = append(all, string(d.Payload))
	}
	return all
}

func (e *end) want(payloads ...string) {
	e.t.Helper()
	if got := e.payloads(); !slices.Equal(got, payloads) {
		e.t.Errorf("delivered %.200q, want %.200q", got, payloads)
	}
}

func (e *end) wantDropped(why link.Reason, n uint64) {
	e.t.Helper()
	if got := e.Stats().Dropped[why]; got != n {
		e.t.Errorf("dropped %d frames or messages as %v, want %d", got, why, n)
	}
}
