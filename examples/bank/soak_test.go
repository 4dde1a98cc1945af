// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/examples/bank/requests"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
)

// soak is a bank of three processes that are killed, suspended and drained while clients use it.
type soak struct {
	*testing.T

	// The lines of a file are spread over this time.
	time   time.Duration
	lines  killing
	faults []fault // each fault is injected once, in order; if empty, random faults until all lines are done
	stable time.Duration
	// tellers are clients that share some accounts with each other.
	tellers, shared int

	state    string
	standbys int
	// interrupted are the requests of transfers, see interruptTransfers.
	interrupted []string

	random  *rand.Rand // only the goroutine of the test uses it
	servers *processes
	address string // address of the journal
}

// Three processes share a journal in PostgreSQL and a NATS server. In spite of faults of the
// processes, each line of a file is executed exactly once, the audit finds no violation, and the
// replies to clients are linearizable. Transfers that a kill interrupts complete without a command.
func TestProcessesUnderFaults(t *testing.T) {
	t.Parallel()
	turn, counts := make(chan struct{}, 2), []int{1}
	if effort.Soak() {
		turn, counts = make(chan struct{}, 1), []int{0, 1}
	}
	for _, state := range []string{stateJournal, stateDDATA} {
		for _, standbys := range counts {
			t.Run(fmt.Sprintf("%s, %d standbys", state, standbys), func(t *testing.T) {
				t.Parallel()
				turn <- struct{}{}
				defer func() { <-turn }()
				s := &soak{
					T: t, state: state, standbys: standbys, time: 2 * time.Second, lines: killing{accounts: 15, commands: 120, seed: 19},
					faults: []fault{cut, kill}, stable: 2 * time.Second, tellers: 2, shared: 2,
				}
				if effort.Soak() {
					s.time, s.faults = soakTime(t), nil
					s.lines = killing{accounts: 1000, commands: int(s.time / linePause), seed: 19}
					s.stable, s.tellers, s.shared = 5*time.Second, 8, 6
				}
				s.run()
			})
		}
	}
}

// linePause is the time between two lines of a soak, so that ten minutes have 100,000 lines.
const linePause = 6 * time.Millisecond

// soakTime returns the duration of a soak: ten minutes, or REFOLD_SOAK_TIME.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("REFOLD_SOAK_TIME")
	if text == "" {
		return 10 * time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s *soak) run() {
	seed := rand.Uint64()
	if text := os.Getenv("REFOLD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			s.Fatal(err)
		}
	}
	s.Logf("REFOLD_SEED=%d", seed)
	s.random = rand.New(rand.NewPCG(seed, 0))
	s.lines.dir = s.TempDir()
	want := s.lines.generate(s.T)

	admin := s.startBranches()

	tellers := newTellers(s, seed)
	lines := newLineClients(s, seed)
	began := time.Now()
	tellers.start()
	lines.start()
	s.injectFaults(lines.done)
	<-lines.done
	tellers.stop()
	s.Logf("%d lines in %v; %s", s.lines.commands, time.Since(began).Round(time.Second), lines)
	s.Logf("faults: %v; %s; decisions of the supervisor: %s", s.servers.injected, tellers, s.servers.log.decisions())

	s.servers.whole()
	if effort.Soak() { // a restarted branch receives shards after a while
		s.servers.allHost()
	}
	s.awaitNothingInFlight()
	s.interruptTransfers(admin, false)
	if effort.Soak() {
		s.interruptTransfers(admin, true)
	}
	s.servers.drain()
	s.Logf("bank audit\n%s", must(s.T, exitOK, "audit", "--journal", s.address).out)
	s.compare(lines.acknowledged, want)
	books := readLedger(s.T, s.address)
	s.checkInterrupted(books)
	tellers.check(books)
}

// startBranches starts the processes, and waits until they are members.
func (s *soak) startBranches() *sharding.Admin {
	s.Helper()
	names := []string{"a", "b", "c"}
	users, err := natstest.Nodes("bank", names...)
	if err != nil {
		s.Fatal(err)
	}
	s.address = pgtest.DSN(s.T)
	server := natstest.Start(s.T, natstest.Config{Users: append(users, natstest.User{Name: "operator"})})
	s.servers = startProcesses(s, server, names)
	s.servers.whole()
	operator, err := nats.ConnectOperator(nats.OperatorConfig{Access: server.Access(s.T, "operator"), Cluster: "bank", Name: "operator"})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = operator.Close() })
	return sharding.NewAdmin(operator)
}

// awaitNothingInFlight waits until the journal contains no pending transfer. It asks no account.
func (s *soak) awaitNothingInFlight() {
	s.Helper()
	s.reading(func(b *bank) {
		s.awaitEnd(func() int {
			report, err := b.audit(s.Context())
			if err != nil {
				s.Fatal(err)
			}
			return report.inFlight + report.unconfirmed
		})
	})
}

// reading calls f with a bank that only reads the journal.
func (s *soak) reading(f func(b *bank)) {
	s.Helper()
	store, err := openStore(s.Context(), s.address, true)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	b := startBank(s.T, store, testRates)
	defer stopBank(s.T, b)
	f(b)
}

// awaitEnd waits until no transfer is pending. It fails if none ends for some minutes.
func (s *soak) awaitEnd(pending func() int) {
	s.Helper()
	const patience = 4 * time.Minute
	for last, changed := -1, time.Now(); ; {
		n := pending()
		switch {
		case n == 0:
			return
		case n != last:
			last, changed = n, time.Now()
		case time.Since(changed) > patience:
			s.Errorf("%d transfers are pending, and none has ended for %v", n, patience)
			return
		}
		sleep(s.Context(), time.Second)
	}
}

// compare requires that each line was answered and executed once, and that the balances equal those
// of an undisturbed run.
func (s *soak) compare(acknowledged int, want ledger) {
	s.Helper()
	got := readLedger(s.T, s.address)
	if acknowledged != s.lines.commands {
		s.Errorf("%d lines were answered, want all %d lines of the file", acknowledged, s.lines.commands)
	}
	done := maps.Clone(got.requests)
	maps.DeleteFunc(done, func(request string, _ int) bool {
		_, _, isLine := requests.ParseFileLine(request)
		return !isLine
	})
	for request, n := range done {
		if n != 1 {
			s.Errorf("line %s was executed %d times, want once", request, n)
		}
	}
	if !maps.Equal(done, want.requests) {
		s.Errorf("%d lines were executed, %d in the undisturbed run", len(done), len(want.requests))
	}
	maps.DeleteFunc(got.balances, func(id, _ string) bool { return strings.HasPrefix(id, AccountTypeName+"|"+sharedPrefix) })
	if !maps.Equal(got.balances, want.balances) {
		s.Error("the balances after the faults are not equal to those of an undisturbed run")
	}
	if !s.Failed() {
		s.Logf("%d lines were executed once, the others were refused as in the undisturbed run, and the balances of %d accounts are equal",
			len(done), len(got.balances))
	}
	_ = os.RemoveAll(filepath.Join(s.lines.dir, "calm"))
}
