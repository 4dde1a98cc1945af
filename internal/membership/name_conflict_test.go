// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// twin is another process with the name of the machine. The UID of the machine is 5 here.
func twin(uid uint64) identity.Node { return identity.Node{Name: "m", UID: uid} }

func five(cfg *membership.Config) { cfg.Self = twin(5) }

// twin sends messages of another process with the machine's name.
func (s *solo) twin(uid uint64, msg membership.Message) {
	to := s.m.Self()
	switch msg.(type) {
	case membership.InitJoin, membership.Ping:
		to.UID = 0
	}
	s.do(membership.Received{From: twin(uid), To: to, Data: membership.AppendMessage(nil, msg)})
}

// nameTaken reports whether the machine has stopped because another process has its name.
func (s *solo) nameTaken(uid uint64) bool {
	return slices.Contains(s.all.Life, membership.Life{Kind: membership.Stopped, Reason: membership.NameTaken, Detail: twin(uid).String()})
}

func TestOnlySeedWaitsForNamesake(t *testing.T) {
	t.Parallel()
	for _, join := range []membership.Input{membership.JoinSeeds{Seeds: []string{"m"}}, membership.JoinNode{Name: "m"}} {
		s := newSolo(t)
		s.mute = true
		s.do(join)
		if s.pass(time.Minute); s.m.Member() {
			t.Error("the node founded a cluster while it was disconnected")
		}
		s.mute = false
		s.pass(time.Second)
		if got := sentIn(s.all, membership.KindInitJoin); !slices.Equal(got, []string{"m"}) {
			t.Errorf("requests were sent to %v, want [m]", got)
		}
		s = newSolo(t)
		s.do(join)
		if s.pass(499 * time.Millisecond); s.m.Member() {
			t.Error("the node founded a cluster too early")
		}
		if s.pass(time.Millisecond); s.status(thisNode) != up {
			t.Error("the node founded no cluster although no process has replied")
		}
	}
}

// Of two nodes that may found a cluster, the one with the lower UID continues.
func TestJoiningNamesakes(t *testing.T) {
	t.Parallel()
	for _, seeds := range [][]string{{"m"}, {"m", "a"}} {
		s := newSolo(t, five)
		s.do(membership.JoinSeeds{Seeds: seeds})
		s.twin(9, membership.InitJoin{})
		s.wants("a process with a higher UID", membership.KindNameInUse, "m")
		if got := s.last(membership.KindNameInUse); got != (membership.NameInUse{Holder: twin(5)}) {
			t.Errorf("the node replied %v, want NameInUse with itself as the holder", got)
		}
		s.twin(3, membership.InitJoin{})
		s.wants("a process with a lower UID", membership.KindNameInUse)
		s.wants("a process with a lower UID that may have missed the request", membership.KindInitJoin, "m")
		s.twin(9, membership.NameInUse{Holder: twin(7)})
		if len(s.all.Life) > 0 {
			t.Errorf("the node ended before the reply: %v", s.all.Life)
		}
		s.twin(3, membership.NameInUse{Holder: twin(3)})
		if !s.nameTaken(3) {
			t.Errorf("the node did not end after the reply: %v", s.all.Life)
		}
	}
	// A node that cannot found a cluster sends no such request and does not reply to one.
	s := newSolo(t, five)
	s.do(membership.JoinSeeds{Seeds: []string{"a", "m"}})
	s.twin(9, membership.InitJoin{})
	s.wants("a node that cannot found a cluster", membership.KindNameInUse)
	s.twin(3, membership.NameInUse{Holder: twin(3)})
	s.twin(3, membership.Ping{Node: twin(3)})
	if len(s.all.Life) > 0 {
		t.Errorf("the joining node ended although only the cluster decides about its name: %v", s.all.Life)
	}
}

// A node that has founded a cluster ends joining nodes with its name, with any UID.
func TestFounderEndsJoiningNamesakes(t *testing.T) {
	t.Parallel()
	for _, uid := range []uint64{3, 9} {
		s := newSolo(t, five)
		s.do(membership.JoinSeeds{Seeds: []string{"m", "a"}})
		s.twin(uid, membership.Ping{Node: twin(uid)})
		if !s.nameTaken(uid) {
			t.Errorf("the node did not end although the node with UID %d has founded a cluster: %v", uid, s.all.Life)
		}
		s = founded(t, five)
		s.twin(uid, membership.InitJoin{})
		s.wants("a process that asks", membership.KindNameInUse, "m")
		s.twin(uid, membership.NameInUse{Holder: twin(uid)}) // the reply to an earlier request
		if s.nameTaken(uid) {
			t.Errorf("a joining node with UID %d ended the founder of a cluster", uid)
		}
	}
}

// Of two processes that are each alone in a cluster that they founded, one ends.
func TestTwoFounders(t *testing.T) {
	t.Parallel()
	s := founded(t, five)
	s.wants("founding", membership.KindPing, "m")
	s.forget()
	s.pass(10 * time.Second)
	if got := len(sentIn(s.all, membership.KindPing)); got < 9 {
		t.Errorf("the founder sent %d announcements in 10 s, want at least 9", got)
	}
	s.twin(3, membership.Ping{Node: twin(3)})
	s.wants("a founder with a lower UID", membership.KindPong)
	s.twin(9, membership.Ping{Node: twin(9)})
	s.wants("a founder with a higher UID", membership.KindPong, "m")
	s.twin(3, membership.Pong{})
	if !s.nameTaken(3) {
		t.Errorf("the founder with the higher UID did not end: %v", s.all.Life)
	}
	// A node that has accepted others does not end for a founder that is alone.
	s = founded(t, five)
	s.named("a", membership.Join{})
	s.forget()
	s.pass(2 * time.Second)
	if got := sentIn(s.all, membership.KindPing); len(got) > 0 {
		t.Errorf("the founder still sends announcements to %v", got)
	}
	s.twin(3, membership.Pong{})
	if s.nameTaken(3) {
		t.Error("a founder that has accepted another node ended")
	}
	s.twin(3, membership.Ping{Node: twin(3)})
	s.wants("a founder with a lower UID that is alone", membership.KindPong, "m")
	s.do(membership.DownNode{Node: twin(5)})
	s.twin(3, membership.Ping{Node: twin(3)})
	s.wants("a founder that is Down", membership.KindPong)
	s.twin(3, membership.InitJoin{})
	s.wants("a founder that is Down", membership.KindNameInUse)
}

// Of two processes with the name of the first seed, exactly one remains, even if messages are lost
// or late. Without losses, they never both found a cluster.
func TestTwins(t *testing.T) {
	t.Parallel()
	both := 0
	for seed := range seeds(60) {
		w := newWorld(t, seed)
		bad := seed%3 == 0
		if w.delay = 80 * time.Millisecond; bad {
			w.loss, w.double, w.delay = 0.4, 0.1, time.Second
		}
		list := [][]string{{"a"}, {"a", "b"}}[seed%2]
		first, second := w.start("a"), w.start("a")
		if w.rand.IntN(2) == 0 { // the later process has the higher UID
			first, second = second, first
		}
		first.do(membership.JoinSeeds{Seeds: list})
		w.run(time.Duration(w.rand.Int64N(int64(700 * time.Millisecond))))
		second.do(membership.JoinSeeds{Seeds: list})
		w.run(30 * time.Second)
		w.loss, w.delay = 0, time.Millisecond
		w.run(10 * time.Second)
		if first.dead == second.dead {
			t.Fatalf("seed %d: not exactly one process is alive: %v, %v", seed, first.lives, second.lives)
		}
		one, other := first, second
		if first.dead {
			one, other = second, first
		}
		if end := other.lives[len(other.lives)-1]; end.Reason != membership.NameTaken {
			t.Errorf("seed %d: life events of the other process: %v, want Stopped with NameTaken", seed, other.lives)
		}
		if n := countLife(first, membership.BecameUp) + countLife(second, membership.BecameUp); n > 1 {
			if both++; !bad {
				t.Errorf("seed %d: both processes founded a cluster", seed)
			}
		}
		b := w.start("b")
		b.do(membership.JoinSeeds{Seeds: list})
		w.up(30*time.Second, one, b)
	}
	if both == 0 {
		t.Error("no seed had two founders, want at least one such seed")
	}
}
