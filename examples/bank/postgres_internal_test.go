// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
)

func TestBankOnPostgres(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	if r := must(t, exitFailed, "audit", "--journal", dsn); !strings.Contains(r.errout, "open the journal: postgres: ") {
		t.Errorf("audit of an empty database: %+v, want an error of postgres", r)
	}
	file := written(t, "1,open,alice,,USD,Alice\n2,deposit,alice,5,USD,\n3,open,bob,,TWD,\n4,transfer,alice,1,USD,bob\n")
	for _, want := range []string{" 4\n", " 0\n"} {
		r := must(t, exitOK, "apply", file, "--settle", "--journal", dsn)
		if _, done, _ := strings.Cut(r.out, "done "); !strings.HasSuffix(done[:strings.Index(done, "\n")+1], want) {
			t.Errorf("apply has another number of done lines than %q:\n%s", want, r.out)
		}
		must(t, exitOK, "audit", "--journal", dsn)
	}
	if r := must(t, exitOK, "lookup", "alice", "--journal", dsn); !strings.Contains(r.out, "4.00 USD") {
		t.Errorf("lookup: %+v, want 4.00 USD", r)
	}
	if r := must(t, exitOK, "refold", "rebuild", "account|alice", "--journal", dsn); !strings.Contains(r.out, "equal") {
		t.Errorf("refold rebuild: %+v, want equal states", r)
	}
	if r := call(t.Context(), "deposit alice 1 USD\n", "shell", "--journal", dsn); r.out != "balance 5.00 USD\n" {
		t.Errorf("shell: %+v, want the balance 5.00 USD", r)
	}
}

// The database server is killed and restarted while a bank executes a file. Each line is executed
// once, with the same result as in an undisturbed run.
func TestBankSurvivesServerRestarts(t *testing.T) {
	t.Parallel()
	k := killing{accounts: 20, commands: 400, kills: 2, seed: 17}
	if effort.Soak() {
		k = killing{accounts: 1000, commands: 100_000, kills: 5, seed: 17}
	}
	want := k.prepare(t)
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)

	rng := rand.New(rand.NewPCG(k.seed, 0))
	moments := make([]int, k.kills)
	for i := range moments {
		moments[i] = k.commands*5/100 + rng.IntN(k.commands*85/100)
	}
	slices.Sort(moments)
	restarted, kills := make(chan struct{}, 1), 0
	restarted <- struct{}{}
	_, finished := k.apply(t, dsn, func(acknowledged int, r logRecord) bool {
		if kills == len(moments) || acknowledged < moments[kills] || r.Event != "transfer_debited" {
			return false
		}
		<-restarted // the bank waits, because its log is not read
		kills++
		server.Kill()
		go func() { // while the bank detects the failure
			defer func() { restarted <- struct{}{} }()
			server.Restart(t)
		}()
		return false
	})
	<-restarted
	if !finished || kills != k.kills {
		t.Fatalf("apply finished: %v, after %d of %d kills; want true after all kills", finished, kills, k.kills)
	}
	k.compare(t, dsn, want)
}
