// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener is a program that records its messages.
type listener struct {
	p     *env.Process
	heard []string
	woken []time.Duration
}

func (l *listener) Wake()                 { l.woken = append(l.woken, l.p.Now()) }
func (l *listener) Receive(m env.Message) { l.heard = append(l.heard, m.From.Name+string(m.Data)) }
func (l *listener) Connection(bool)       {}
func (l *listener) say(to *listener, s string) {
	l.p.Do(func() { l.p.Send(to.p.Node(), link.Data, 1000, []byte(s)) })
}

func start(w *env.Env, name string) *listener {
	l := &listener{}
	l.p = w.Start(name, func(*env.Process) env.Program { return l })
	return l
}

func (l *listener) wants(t *testing.T, subject string, heard ...string) {
	t.Helper()
	if !slices.Equal(l.heard, heard) {
		t.Errorf("%s: received %q, want %q", subject, l.heard, heard)
	}
	l.heard = nil
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	w := env.New(1)
	a, b := start(w, "a"), start(w, "b")
	both := func() {
		a.say(b, "1")
		b.say(a, "2")
		w.Run(time.Second, nil)
	}
	both()
	a.wants(t, "all is well", "b2")
	b.wants(t, "all is well", "a1")

	w.Place("a").NoUp = true
	both()
	a.wants(t, "no way up", "b2")
	b.wants(t, "no way up")
	w.Place("a").NoUp, w.Place("a").NoDown = false, true
	both()
	a.wants(t, "no way down")
	b.wants(t, "no way down", "a1")
	w.Place("a").NoDown = false

	w.Place("b").Side, w.Network.Split = 1, true
	both()
	a.wants(t, "split")
	b.wants(t, "split")
	w.Network.OneWay = true
	both()
	a.wants(t, "split one way")
	b.wants(t, "split one way", "a1")
	w.Network.Heal()

	w.Network.Cut("a", "b", true)
	both()
	a.wants(t, "a pair", "b2")
	b.wants(t, "a pair")
	w.Network.Heal()

	w.Network.Double, w.Network.Overtake = 1, 0.5
	for range 20 {
		a.say(b, "1")
	}
	w.Run(time.Second, nil)
	if n := len(b.heard); n == 0 || n > 20 {
		t.Errorf("a duplicated and overtaken message arrived %d times, want at most once", n)
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	w := env.New(1)
	w.Place("b").Drift = 500
	a, b := start(w, "a"), start(w, "b")
	due := b.p.Now() + time.Minute
	b.p.WakeAt(due)
	w.Run(time.Minute, nil)
	if len(b.woken) != 1 || b.woken[0] < due || b.woken[0] > due+time.Microsecond {
		t.Errorf("woken at %v, not at %v", b.woken, due)
	}
	if a, b := a.p.Now(), b.p.Now(); a == b {
		t.Error("two clocks show the same")
	}

	b.p.Pause()
	a.say(b, "1")
	a.say(b, "2")
	b.p.WakeAt(b.p.Now() + time.Second)
	w.Run(time.Minute, nil)
	b.wants(t, "paused")
	b.p.Resume()
	b.wants(t, "resumed", "a1", "a2")
	if len(b.woken) != 2 {
		t.Errorf("woken %d times", len(b.woken))
	}

	b.p.Kill()
	a.say(b, "3")
	again := start(w, "b")
	w.Run(time.Second, nil)
	b.wants(t, "killed")
	again.wants(t, "another incarnation")
}

func TestStore(t *testing.T) {
	t.Parallel()
	w := env.New(1)
	s := w.NewLeaseStore(10 * time.Second)
	revision, err := s.Create("x", "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Create("x", "b"); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("a second entry: %v", err)
	}
	w.Run(9*time.Second, nil)
	if revision, err = s.Renew("x", "a", revision); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew("x", "a", revision-1); !errors.Is(err, lease.ErrConflict) {
		t.Errorf("an old revision: %v", err)
	}
	w.Run(10*time.Second, nil)
	if _, err := s.Get("x"); !errors.Is(err, lease.ErrFree) {
		t.Errorf("an expired entry: %v", err)
	}
	if err := s.Delete("x", revision); !errors.Is(err, lease.ErrConflict) {
		t.Errorf("deleting it: %v", err)
	}
}
