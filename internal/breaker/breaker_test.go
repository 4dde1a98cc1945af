// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package breaker_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script drives a Breaker that opens for a minute after 3 consecutive failures.
type script struct {
	t       *testing.T
	breaker breaker.Breaker
	now     time.Time
}

func newScript(t *testing.T) *script {
	t.Helper()
	return &script{t: t, breaker: breaker.New(3, time.Minute), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (s *script) enter() breaker.Ticket {
	s.t.Helper()
	ticket, ok := s.breaker.Begin(s.now)
	if !ok {
		s.t.Fatalf("Begin rejected a call in state %d", s.breaker.State())
	}
	return ticket
}

func (s *script) rejected() {
	s.t.Helper()
	if _, ok := s.breaker.Begin(s.now); ok {
		s.t.Fatalf("Begin permitted a call, now in state %d", s.breaker.State())
	}
}

func (s *script) calls(outcomes ...breaker.Outcome) {
	s.t.Helper()
	for _, o := range outcomes {
		s.breaker.End(s.now, s.enter(), o)
	}
}

func (s *script) want(state breaker.State) {
	s.t.Helper()
	if got := s.breaker.State(); got != state {
		s.t.Fatalf("state is %d, want %d", got, state)
	}
}

const (
	success = breaker.Success
	failure = breaker.Failure
	unknown = breaker.Unknown
)

func TestOpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.calls(failure, failure, success, failure, unknown, failure)
	s.want(breaker.Closed)
	s.calls(failure)
	s.want(breaker.Open)
	s.rejected()
	s.now = s.now.Add(time.Minute - 1)
	s.rejected()
}

func TestTrialDeterminesNextState(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.calls(failure, failure, failure)
	s.now = s.now.Add(time.Minute)
	trial := s.enter()
	s.want(breaker.HalfOpen)
	s.rejected()
	s.breaker.End(s.now, trial, failure)
	s.want(breaker.Open)
	s.rejected()
	s.now = s.now.Add(time.Minute)
	trial = s.enter()
	s.breaker.End(s.now, trial, success)
	s.want(breaker.Closed)
	s.calls(failure, failure) // the count of failures was reset to 0
	s.want(breaker.Closed)
}

func TestTrialWithUnknownOutcomeIsRepeated(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.calls(failure, failure, failure)
	s.now = s.now.Add(time.Minute)
	s.calls(unknown)
	s.want(breaker.Open)
	s.calls(success)
	s.want(breaker.Closed)
}

func TestOutcomesOfEarlierStatesDoNotCount(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	late, later, last := s.enter(), s.enter(), s.enter()
	s.calls(failure, failure, failure)
	s.breaker.End(s.now, late, success)
	s.want(breaker.Open)
	s.now = s.now.Add(time.Minute)
	trial := s.enter()
	s.breaker.End(s.now, later, failure)
	s.want(breaker.HalfOpen)
	s.breaker.End(s.now, trial, success)
	s.calls(failure, failure)
	s.breaker.End(s.now, last, failure)
	s.want(breaker.Closed)
}
