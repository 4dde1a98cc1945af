// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/plugins/leveldb"
)

const crashDurableDir = "REFOLD_TEST_CRASH_DURABLE_DIR"

func noContext() context.Context { return context.Background() }

// killedKeys is how many keys crashDurable writes, one after the other.
const killedKeys = 7

// killedBatch returns the records of call n of crashDurable. Each call writes n to three keys, and
// every third call deletes one of them. Some data is long, so that logs are flushed to tables.
func killedBatch(n int) []durable.Record {
	var batch []durable.Record
	for i := range 3 {
		r := durable.Record{Key: fmt.Sprint("key-", (n+i)%killedKeys), Data: []byte(fmt.Sprint(n, " "))}
		if n%3 == 0 && i == 0 {
			r.Data = nil
		}
		if n%5 == 0 && i == 1 {
			r.Data = append(r.Data, strings.Repeat("x", 200<<10)...)
		}
		batch = append(batch, r)
	}
	return batch
}

// killedContent returns the stored records after some calls: the number of each key.
func killedContent(calls int) map[string]string {
	all := map[string]string{}
	for n := max(1, calls-3*killedKeys); n <= calls; n++ {
		for _, r := range killedBatch(n) {
			if len(r.Data) == 0 {
				delete(all, r.Key)
			} else {
				all[r.Key] = string(r.Data)
			}
		}
	}
	return all
}

// crashDurable writes to a store until it is killed, and prints a line after each successful call.
// TestDurableKilled runs it in a separate process. The argument holds the directory and the number
// of the last call.
func crashDurable(dir string) {
	dir, from, _ := strings.Cut(dir, "\n")
	n, err := strconv.Atoi(from)
	if err != nil {
		n = 0
	}
	s, err := leveldb.NewDurable(dir, leveldb.DurableConfig{}).Open(noContext(), durableID())
	for err == nil {
		n++
		if err = s.Write(noContext(), killedBatch(n)); err == nil {
			_, _ = fmt.Fprintln(os.Stdout, n)
		}
	}
	_, _ = os.Stdout.WriteString(err.Error() + "\n")
	os.Exit(1)
}

// TestDurableKilled kills a writing process several times, and many more times with REFOLD_SOAK.
// Acknowledged records survive, with or without the call that was in progress.
func TestDurableKilled(t *testing.T) {
	t.Parallel()
	rounds := 5
	if effort.Soak() {
		rounds = 200
	}
	dir := t.TempDir()
	last := 0
	for round := range rounds {
		last = killDurable(t, dir, last, 20+13*(round%20))
		s := openDurable(t, dir, leveldb.DurableConfig{})
		all, err := loadDurable(t, s)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range all {
			got[r.Key] = string(r.Data)
		}
		without, with := fmt.Sprint(killedContent(last)), fmt.Sprint(killedContent(last+1))
		switch fmt.Sprint(got) {
		case without:
		case with:
			last++
		default:
			t.Fatalf("round %d: %d calls were acknowledged, stored is %.500v", round, last, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killDurable lets another process write, kills it after some calls, and returns how many were
// acknowledged.
func killDurable(t *testing.T, dir string, last, calls int) int {
	t.Helper()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d", crashDurableDir, dir, last))
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil || n != last+1 {
			t.Fatalf("after the line %d the process printed %q, want the next number", last, lines.Text())
		}
		last = n
		if seen++; seen == calls {
			if err := other.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = other.Wait() // it was killed
	return last
}
