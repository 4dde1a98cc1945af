// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
)

// A branch is paused until its standbys have replaced it and have stored further events of its
// accounts. When it resumes, many requests for these accounts wait in its sockets. It ends, and no
// deposit that it has acknowledged, or that a standby has acknowledged, is missing from the books.
//
// Until the process notices the pause, a look-up may be outdated.
func TestResumedBranch(t *testing.T) {
	t.Parallel()
	for _, state := range []string{stateJournal, stateDDATA} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := &soak{T: t, state: state, standbys: 1, stable: 2 * time.Second}
			s.resumeOne(s.startBranches())
		})
	}
}

func (s *soak) resumeOne(admin *sharding.Admin) {
	s.Helper()
	p := s.servers
	homes := s.openInterrupted(admin, "first-")
	paused := p.names[1]
	others := slices.DeleteFunc(slices.Clone(p.names), func(name string) bool { return name == paused })
	accounts := homes[paused]
	if len(accounts) == 0 {
		s.Fatalf("branch %s hosts none of the accounts: %v", paused, homes)
	}
	s.awaitStandbys(interruptedAccounts)
	r := p.process(paused)
	p.signal(r, syscall.SIGSTOP)
	p.until("the other nodes have downed the paused node", []string{paused}, func() bool { return p.agree(others...) })
	for _, account := range accounts {
		s.post(others[0], "/accounts/"+account+"/deposits", map[string]string{"amount": "1.00", "currency": "USD", "request_id": "meanwhile-" + account})
	}
	s.requirePrepared()

	client := newCaller(time.Minute)
	var sent, clients sync.WaitGroup
	var mu sync.Mutex
	acknowledged, outdated, looked := map[string]bool{}, 0, 0
	send := func(method, path, body string, answered func(answer string)) {
		var once atomic.Bool
		written := func(httptrace.WroteRequestInfo) {
			if once.CompareAndSwap(false, true) {
				sent.Done()
			}
		}
		sent.Add(1)
		clients.Go(func() {
			ctx := httptrace.WithClientTrace(s.Context(), &httptrace.ClientTrace{WroteRequest: written})
			status, answer, err := client.do(ctx, method, r.at()+path, body)
			written(httptrace.WroteRequestInfo{}) // also if the request could not be sent
			if err == nil && status == http.StatusOK {
				mu.Lock()
				defer mu.Unlock()
				answered(answer)
			}
		})
	}
	for i, account := range slices.Repeat(accounts, 4) {
		send(http.MethodGet, "/accounts/"+account, "", func(answer string) {
			if looked++; strings.Contains(answer, `"balance":"1000.00"`) {
				outdated++
			}
		})
		request := fmt.Sprint("resumed-", i)
		send(http.MethodPost, "/accounts/"+account+"/deposits", asJSON(map[string]string{"amount": "1.00", "currency": "USD", "request_id": request}), func(string) {
			acknowledged[request] = true
		})
	}
	sent.Wait()
	p.signal(r, syscall.SIGCONT)
	clients.Wait()
	<-r.dead
	s.Logf("the resumed branch has answered %d look-ups, %d of them outdated, and acknowledged %d deposits", looked, outdated, len(acknowledged))
	p.whole()
	books := readLedger(s.T, s.address)
	for _, account := range accounts {
		if n := books.requests["meanwhile-"+account]; n != 1 {
			s.Errorf("the deposit of %s at a standby is in the journal %d times, want once", account, n)
		}
	}
	for request := range acknowledged {
		if n := books.requests[request]; n != 1 {
			s.Errorf("deposit %s at the resumed branch is in the journal %d times, want once", request, n)
		}
	}
	must(s.T, exitOK, "audit", "--journal", s.address)
}
