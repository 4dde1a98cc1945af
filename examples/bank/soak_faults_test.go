// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// fault is a fault of a process.
type fault string

const (
	kill       fault = "SIGKILL"
	shortPause fault = "SIGSTOP, too short for a downing decision"
	longPause  fault = "SIGSTOP until the process is downed"
	drain      fault = "SIGTERM"
	cut        fault = "connections to the journal terminated"
)

// injectFaults injects faults one after the other until over is closed, or each fault of s.faults
// once.
func (s *soak) injectFaults(over <-chan struct{}) {
	s.Helper()
	if len(s.faults) > 0 {
		sleep(s.Context(), s.time/4)
		for _, f := range s.faults {
			s.inject(f)
			s.servers.whole()
		}
		return
	}
	var next []fault // the rest of a round, which contains each fault once or twice
	for {
		if len(next) == 0 {
			next = []fault{kill, shortPause, longPause, drain, cut, kill, drain}
			s.random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		select {
		case <-over:
			return
		case <-time.After(s.upTo(5 * time.Second)):
		}
		s.inject(next[0])
		next = next[1:]
		s.servers.whole()
	}
}

func (s *soak) upTo(d time.Duration) time.Duration { return time.Duration(s.random.Int64N(int64(d))) }

// cutConnections terminates the connections of all branches to the journal, so that the outcome of the
// writes of that moment is unknown.
func (s *soak) cutConnections() {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.address)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = conn.Close(s.Context()) }()
	const statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	if _, err = conn.Exec(s.Context(), statement); err != nil {
		s.Fatal(err)
	}
}

// inject injects a fault into a random process.
func (s *soak) inject(f fault) {
	s.Helper()
	p := s.servers
	victim := p.names[s.random.IntN(len(p.names))]
	others := slices.DeleteFunc(slices.Clone(p.names), func(name string) bool { return name == victim })
	r := p.process(victim)
	if r == nil {
		return // the process has ended and restarts soon
	}
	p.injected[f]++
	_, _ = fmt.Fprintf(p.log, "%s fault in %s: %s\n", time.Now().Format(time.StampMilli), victim, f)
	switch f {
	case kill:
		p.signal(r, syscall.SIGKILL)
		<-r.dead
		rest := s.upTo(15 * time.Second)
		if len(s.faults) > 0 {
			rest = s.upTo(2 * time.Second)
		}
		sleep(s.Context(), rest) // the other nodes down the process, or the process restarts earlier
	case shortPause:
		p.signal(r, syscall.SIGSTOP)
		sleep(s.Context(), s.upTo(4*time.Second))
		p.signal(r, syscall.SIGCONT)
	case longPause:
		p.signal(r, syscall.SIGSTOP)
		p.until("the other nodes have downed the paused node", []string{victim}, func() bool { return p.agree(others...) })
		sleep(s.Context(), s.upTo(10*time.Second)) // the other processes take over its accounts
		r.replaced.Store(true)
		p.signal(r, syscall.SIGCONT)
		<-r.dead
	case cut:
		s.cutConnections()
	case drain:
		p.signal(r, syscall.SIGTERM)
		<-r.dead
		if r.exit != nil {
			s.Errorf("%s: exit after SIGTERM: %v, want exit status 0", victim, r.exit)
		}
		sleep(s.Context(), s.upTo(3*time.Second))
	}
}
