// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// The accounts of the transfers that are interrupted.
const (
	interruptedPrefix   = sharedPrefix + "interrupted-"
	interruptedAccounts = 48
)

// interruptTransfers kills the branch of some accounts while their transfers are pending, or all
// branches. From the kill on, it sends no command to any account and only reads the journal: the
// transfers complete because the branches restart their sources by themselves.
func (s *soak) interruptTransfers(admin *sharding.Admin, killAll bool) {
	s.Helper()
	for round := 0; ; round++ {
		prefix := fmt.Sprintf("interrupted-%v-%d-", killAll, round)
		homes := s.openInterrupted(admin, prefix)
		names := slices.SortedFunc(maps.Keys(homes), func(a, b string) int { return len(homes[b]) - len(homes[a]) })
		if len(names) < 2 {
			continue // a branch has just started, and receives shards soon
		}
		s.awaitStandbys(interruptedAccounts)
		if s.interrupt(prefix, names[0], names[1], homes, killAll) {
			return
		}
	}
}

// interrupt starts transfers from accounts of one branch to those of another one, and kills the first
// branch or all. It reports whether transfers were pending after the kill.
func (s *soak) interrupt(prefix, from, to string, homes map[string][]string, killAll bool) bool {
	s.Helper()
	p := s.servers
	paused := p.process(to)
	p.signal(paused, syscall.SIGSTOP) // keeps the transfers pending
	for i, source := range homes[from] {
		fields := map[string]string{"amount": "1.00", "currency": "USD", "to": homes[to][i%len(homes[to])], "request_id": fmt.Sprint(prefix, i)}
		s.post(from, "/accounts/"+source+"/transfers", fields)
		s.interrupted = append(s.interrupted, fields["request_id"])
	}
	victims := []string{from}
	if killAll {
		victims = p.names
	}
	for _, name := range victims {
		if v := p.process(name); v != nil {
			p.signal(v, syscall.SIGKILL)
			<-v.dead
		}
	}
	began, pending := time.Now(), 0
	s.reading(func(b *bank) {
		count := func() (n int) {
			for _, source := range homes[from] {
				folded, err := eventsourcing.Fold(s.Context(), b.runtime, b.typ, source, eventsourcing.FoldOptions[Event]{})
				if err != nil {
					s.Fatal(err)
				}
				n += folded.State.Transfers.Unconfirmed()
			}
			return n
		}
		pending = count()
		p.signal(paused, syscall.SIGCONT)
		p.whole()
		s.awaitEnd(count)
	})
	s.Logf("%d of %d transfers were pending after the kill of %v; all have ended without a command, in %v", pending, len(homes[from]), victims, time.Since(began).Round(time.Millisecond))
	if pending == 0 {
		return false // the other branches have removed the paused one before the kill
	}
	if s.standbys > 0 && !killAll {
		s.requirePrepared()
	}
	return true
}

// openInterrupted opens the accounts and returns them by branch. Each account stores an event, so that
// its standby has its state.
func (s *soak) openInterrupted(admin *sharding.Admin, prefix string) map[string][]string {
	s.Helper()
	homes := map[string][]string{}
	for i := range interruptedAccounts {
		name := s.servers.names[i%len(s.servers.names)]
		account := fmt.Sprint(interruptedPrefix, i)
		s.open(name, account)
		s.post(name, "/accounts/"+account+"/deposits", map[string]string{"amount": "1000.00", "currency": "USD", "request_id": prefix + "funds"})
		home, _, _ := strings.Cut(s.find(admin, name, account).Home, "#")
		homes[home] = append(homes[home], account)
	}
	delete(homes, "") // the shard moves
	return homes
}

// post sends a request to a branch until it is executed.
func (s *soak) post(name, path string, fields map[string]string) {
	s.Helper()
	s.servers.until(path+" is executed", nil, func() bool {
		status, answer, err := s.servers.caller.do(s.Context(), http.MethodPost, s.servers.process(name).at()+path, asJSON(fields))
		if err != nil || status >= http.StatusInternalServerError {
			return false
		}
		if status != http.StatusOK {
			s.Fatalf("%s of %v: status %d, want %d: %s", path, fields, status, http.StatusOK, answer)
		}
		return true
	})
}

// awaitStandbys waits until the branches keep the states of n accounts ready, if they are to.
func (s *soak) awaitStandbys(n int) {
	s.Helper()
	if s.standbys == 0 {
		return
	}
	s.servers.until("the branches keep accounts ready", nil, func() bool {
		standby, _ := s.servers.counts()
		return standby >= n
	})
}

// requirePrepared requires that some accounts have started with the state of a standby.
func (s *soak) requirePrepared() {
	s.Helper()
	_, prepared := s.servers.counts()
	s.Logf("%d accounts have started with the state of a standby", prepared)
	if prepared == 0 {
		s.Error("no account has started with the state of a standby after its branch was killed, want at least 1")
	}
}

// counts returns the sums of the branches that respond, see branchBody.
func (p *processes) counts() (standby int, prepared int64) {
	for _, name := range p.names {
		if r := p.process(name); r != nil {
			if known, err := p.caller.branchAt(p.s.Context(), r.at()); err == nil {
				standby, prepared = standby+known.Standby, prepared+known.Prepared
			}
		}
	}
	return standby, prepared
}

// checkInterrupted requires that each interrupted transfer was debited once and credited once.
func (s *soak) checkInterrupted(books ledger) {
	s.Helper()
	for _, request := range s.interrupted {
		if n := books.requests[request]; n != 1 {
			s.Errorf("transfer %s is in the journal %d times, want once", request, n)
		}
	}
	credits := 0
	for id, events := range books.events {
		if strings.HasPrefix(id, AccountTypeName+"|"+interruptedPrefix) {
			for _, e := range events {
				if strings.HasPrefix(e, "credited") {
					credits++
				}
			}
		}
	}
	if credits != len(s.interrupted) {
		s.Errorf("%d interrupted transfers were credited, want %d", credits, len(s.interrupted))
	}
}
