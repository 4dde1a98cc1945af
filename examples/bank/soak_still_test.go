// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/sharding"
)

// TestSuspendedProcess suspends one of three processes. This process does not run the coordinator
// and is not downed. Meanwhile new shards are allocated to the other processes. The first account
// of each new shard is open within two seconds.
func TestSuspendedProcess(t *testing.T) {
	t.Parallel()
	for _, state := range []string{stateJournal, stateDDATA} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := &soak{T: t, state: state, stable: time.Hour}
			s.suspendOne(s.startBranches())
		})
	}
}

func (s *soak) suspendOne(admin *sharding.Admin) {
	s.Helper()
	p := s.servers
	var branch branchBody
	p.until("a reports the coordinator", nil, func() (ok bool) {
		var err error
		branch, err = p.caller.branchAt(s.Context(), p.process("a").at())
		return err == nil && branch.Coordinator != ""
	})
	coordinator, _, _ := strings.Cut(branch.Coordinator, "#")
	others := slices.DeleteFunc(slices.Clone(p.names), func(name string) bool { return name == coordinator })
	suspended, running := others[0], []string{coordinator, others[1]}
	for i, name := range p.names {
		s.open(name, "before-"+id(i))
	}
	p.signal(p.process(suspended), syscall.SIGSTOP)
	quick := newCaller(300 * time.Millisecond)
	p.until("the paused process does not respond", nil, func() bool {
		_, _, err := quick.do(s.Context(), http.MethodGet, p.process(suspended).at()+"/live", "")
		return err != nil
	})
	more := 4
	if effort.Soak() {
		more = 30
	}
	var slowest time.Duration
	for i := 0; more > 0; i++ {
		account := fmt.Sprintf("after-%d", i)
		if at := s.find(admin, coordinator, account); at.Home != "" {
			continue // its shard is not new
		}
		more--
		began := time.Now()
		s.open(running[i%2], account)
		slowest = max(slowest, time.Since(began))
		at := s.find(admin, coordinator, account)
		if home, _, _ := strings.Cut(at.Home, "#"); !slices.Contains(running, home) {
			s.Errorf("shard %d is on %q, want one of %v", at.Shard, at.Home, running)
		}
	}
	s.Logf("the first account of a new shard was open after %v at most", slowest.Round(time.Millisecond))
	if effort.Soak() && slowest > 2*time.Second {
		s.Errorf("opening an account took %v, want at most 2s", slowest)
	}
}

// find requests the home of an account from a branch, until the branch replies.
func (s *soak) find(admin *sharding.Admin, name, account string) (at *sharding.AdminFound) {
	s.Helper()
	s.servers.until(name+" reports the node of "+account, nil, func() bool {
		var err error
		at, err = admin.Find(s.Context(), name, AccountTypeName, account)
		return err == nil
	})
	return at
}

// open opens an account at a branch, and retries after errors of the server.
func (s *soak) open(name, account string) {
	s.Helper()
	s.servers.until(account+" is open", nil, func() bool {
		status, answer, err := s.servers.caller.do(s.Context(), http.MethodPost, s.servers.process(name).at()+"/accounts", fmt.Sprintf(`{"id": %q, "currency": "USD"}`, account))
		if err != nil || status >= http.StatusInternalServerError {
			s.Logf("%s at %s: %d %s %v", account, name, status, answer, err)
			return false
		}
		return true
	})
}
