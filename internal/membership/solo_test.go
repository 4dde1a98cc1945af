// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// solo is one machine whose peers are made up by the test. Its node is called m.
type solo struct {
	t   *testing.T
	m   *membership.Machine
	now time.Duration
	// out is what came of the last step, all of all since the last call of forget.
	out, all membership.Effects
	mute     bool // it does not hear itself
}

var self = node("m")

func newSolo(t *testing.T, change ...func(*membership.Config)) *solo {
	t.Helper()
	cfg := membership.Config{Self: self, Rand: rand.New(rand.NewPCG(1, 1)), Started: time.Unix(1000, 0)}
	for _, c := range change {
		c(&cfg)
	}
	m, err := membership.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &solo{t: t, m: m}
}

// founded returns a machine that is the only member.
func founded(t *testing.T, change ...func(*membership.Config)) *solo {
	t.Helper()
	s := newSolo(t, change...)
	s.do(membership.JoinNode{Name: "m"})
	s.pass(500 * time.Millisecond)
	if got := s.status(s.m.Self()); got != up {
		t.Fatalf("the founder is %v", got)
	}
	return s
}

// with returns a machine that is up with others that are, and have seen that.
func with(t *testing.T, names ...string) *solo {
	t.Helper()
	s := founded(t)
	s.add(names...)
	return s
}

// add lets nodes join and waits until they are up.
func (s *solo) add(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.named(name, membership.Join{})
	}
	s.seen(names...)
	for range 2 {
		s.pass(time.Second, names...)
		s.seen(names...)
	}
	for _, name := range names {
		if got := s.status(node(name)); got != up {
			s.t.Fatalf("%s is %v:\n%s", name, got, describe(s.m.Gossip()))
		}
	}
	s.forget()
}

// seen tells the machine that others have seen what it knows.
func (s *solo) seen(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.recv(name, membership.SeenOf(s.m.Gossip().Saw(node(name))))
	}
}

func (s *solo) took(e membership.Effects) membership.Effects {
	s.out = e
	s.all.Send = append(s.all.Send, e.Send...)
	s.all.Events = append(s.all.Events, e.Events...)
	s.all.Life = append(s.all.Life, e.Life...)
	s.all.Log = append(s.all.Log, e.Log...)
	s.all.Quarantine = append(s.all.Quarantine, e.Quarantine...)
	for _, sent := range e.Send {
		if sent.Kind == membership.KindEcho && !s.mute {
			s.took(s.m.Step(s.now, membership.Received{From: s.m.Self(), To: s.m.Self(), Data: sent.Data}))
		}
	}
	s.out = e
	return e
}

func (s *solo) forget() { s.all = membership.Effects{} }

func (s *solo) do(in membership.Input) membership.Effects { return s.took(s.m.Step(s.now, in)) }

// recv is a message to the incarnation, named one to its name.
func (s *solo) recv(from string, msg membership.Message) membership.Effects {
	return s.do(membership.Received{From: node(from), To: s.m.Self(), Data: membership.AppendMessage(nil, msg)})
}

func (s *solo) named(from string, msg membership.Message) {
	s.do(membership.Received{From: node(from), To: identity.Node{Name: "m"}, Data: membership.AppendMessage(nil, msg)})
}

// pass lets time pass. The nodes that are named answer heartbeats.
func (s *solo) pass(d time.Duration, answering ...string) {
	end := s.now + d
	for s.m.Next() <= end {
		s.now = s.m.Next()
		e := s.took(s.m.Tick(s.now))
		for _, sent := range e.Send {
			if sent.Kind == membership.KindHeartbeat && slices.Contains(answering, sent.To.Name) {
				m, _ := membership.DecodeMessage(sent.Data)
				if beat, ok := m.(membership.Heartbeat); ok {
					s.recv(sent.To.Name, membership.HeartbeatReply(beat))
				}
			}
		}
	}
	s.now = end
}

func (s *solo) status(n identity.Node) membership.Status {
	if m := s.m.Gossip().Member(n); m != nil {
		return m.Status
	}
	return 0
}

// sent returns to whom messages of a kind went in the last step.
func (s *solo) sent(k membership.Kind) []string { return sentIn(s.out, k) }

func sentIn(e membership.Effects, k membership.Kind) (to []string) {
	for _, sent := range e.Send {
		if sent.Kind == k {
			to = append(to, sent.To.Name)
		}
	}
	return to
}

// last returns the last message of a kind in the last step.
func (s *solo) last(k membership.Kind) membership.Message {
	s.t.Helper()
	for _, sent := range slices.Backward(s.out.Send) {
		if sent.Kind == k {
			m, err := membership.DecodeMessage(sent.Data)
			if err != nil {
				s.t.Fatal(err)
			}
			return m
		}
	}
	s.t.Fatalf("no %v was sent: %v", k, s.out.Send)
	return nil
}

func (s *solo) dropped(d membership.Drop) uint64 { return s.m.Counters().Dropped[d] }

func (s *solo) logged(message string) int {
	n := 0
	for _, l := range s.all.Log {
		if l.Message == message {
			n++
		}
	}
	return n
}

// wants asserts to whom a kind of message went in the last step.
func (s *solo) wants(what string, k membership.Kind, to ...string) {
	s.t.Helper()
	if got := s.sent(k); !slices.Equal(got, to) {
		s.t.Errorf("%s: %v went to %v, want %v", what, k, got, to)
	}
}
