// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// fault is a fault of a process.
type fault string

const (
	kill  fault = "SIGKILL"
	blink fault = "SIGSTOP for a moment" // too short for a downing decision
	pause fault = "SIGSTOP until it is given up"
	drain fault = "SIGTERM"
)

// strike injects faults one after the other while lines are left.
func (s *soak) strike(over <-chan struct{}) {
	s.Helper()
	if len(s.faults) > 0 {
		sleep(s.Context(), s.time/4)
		for _, f := range s.faults {
			s.befall(f)
			s.servers.whole()
		}
		return
	}
	// All of them come about equally often.
	var next []fault
	for {
		if len(next) == 0 {
			next = []fault{kill, blink, pause, drain, kill, drain}
			s.random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		select {
		case <-over:
			return
		case <-time.After(s.upTo(5 * time.Second)):
		}
		s.befall(next[0])
		next = next[1:]
		s.servers.whole()
	}
}

func (s *soak) upTo(d time.Duration) time.Duration { return time.Duration(s.random.Int64N(int64(d))) }

// befall injects a fault into a process.
func (s *soak) befall(f fault) {
	s.Helper()
	p := s.servers
	victim := p.names[s.random.IntN(len(p.names))]
	others := slices.DeleteFunc(slices.Clone(p.names), func(name string) bool { return name == victim })
	r := p.process(victim)
	if r == nil {
		return // it has ended, and is started again soon
	}
	p.struck[f]++
	_, _ = fmt.Fprintf(p.log, "%s %s gets %s\n", time.Now().Format(time.StampMilli), victim, f)
	switch f {
	case kill:
		p.signal(r, syscall.SIGKILL)
		<-r.dead
		rest := s.upTo(15 * time.Second)
		if len(s.faults) > 0 {
			rest = s.upTo(2 * time.Second)
		}
		sleep(s.Context(), rest) // the others give it up, or it is back before
	case blink:
		p.signal(r, syscall.SIGSTOP)
		sleep(s.Context(), s.upTo(4*time.Second))
		p.signal(r, syscall.SIGCONT)
	case pause:
		p.signal(r, syscall.SIGSTOP)
		p.until("the others have given up who stands still", []string{victim}, func() bool { return p.agree(others...) })
		sleep(s.Context(), s.upTo(10*time.Second)) // the others take over its accounts
		p.signal(r, syscall.SIGCONT)
		<-r.dead
	case drain:
		p.signal(r, syscall.SIGTERM)
		<-r.dead
		if r.exit != nil {
			s.Errorf("%s was drained, and ended with %v", victim, r.exit)
		}
		sleep(s.Context(), s.upTo(3*time.Second))
	}
}
