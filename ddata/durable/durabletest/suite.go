// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package durabletest checks implementations of durable.Opener and durable.Store.
//
//	func TestDurable(t *testing.T) {
//		durabletest.Run(t, durabletest.Config{
//			Open: func(tb testing.TB) durable.Opener { return mystore.NewDurable(tb.TempDir()) },
//		})
//	}
//
// Each check has its own opener and is a subtest. Failures show the call and its result. Checks
// that need an optional function of Config, such as Crash, are skipped without it.
package durabletest

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/durable"
)

// Config configures Run. The optional functions are called with the opener that Open or Crash has
// returned. A check is skipped if it needs a function that is not set.
type Config struct {
	// Open returns an opener without stored data. Required.
	Open func(tb testing.TB) durable.Opener
	// Crash returns an opener for the data that remains if the process is killed, or loses power,
	// at the time of the call. Stores that are open at that time are closed later; the results of
	// Close are ignored.
	Crash func(tb testing.TB, o durable.Opener) durable.Opener
	// Size returns the size of an open store in bytes, after its background compaction.
	Size func(tb testing.TB, o durable.Opener, s durable.Store) int64
	// Damage changes a byte of the record of a key in a closed store.
	Damage func(tb testing.TB, o durable.Opener, id durable.ID, key string)
	// Alter changes the format of a closed store to the format of a later version.
	Alter func(tb testing.TB, o durable.Opener, id durable.ID)
	// Replace writes data of another program to the location of a store that was never opened.
	Replace func(tb testing.TB, o durable.Opener, id durable.ID)
	// Fail makes the calls of Write of an open store fail, as they would on a failing disk, until
	// heal is called.
	Fail func(tb testing.TB, o durable.Opener, s durable.Store) (heal func())
	// Limit is the time limit of a check. Defaults to five minutes.
	Limit time.Duration
}

// Run checks the contracts of an opener and its stores. Each check is a parallel subtest.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	var without []string
	for _, c := range checks() {
		if c.needs != nil && !c.needs(cfg) {
			without = append(without, c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("rule: %s", c.rule)
			c.on(t, cfg)
		})
	}
	if len(without) > 0 {
		t.Logf("checks that were skipped, because Config lacks their functions: %s", strings.Join(without, ", "))
	}
}

type check struct {
	name, rule string
	needs      func(cfg Config) bool // nil if the check needs no optional function
	run        func(f *fixture)
}

func (c check) on(tb testing.TB, cfg Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(cfg.Limit, 5*time.Minute))
	tb.Cleanup(cancel)
	c.run(&fixture{TB: tb, cfg: cfg, ctx: ctx, o: cfg.Open(tb)})
}

func checks() []check {
	return []check{
		{name: "Empty", rule: "a store that was never opened is empty", run: empty},
		{name: "Order", rule: "all records are loaded, once, in the bytewise order of their keys", run: order},
		{name: "Replace", rule: "a later record of a key replaces the previous one", run: replace},
		{name: "LastOfKey", rule: "the last of several records of a key in a call is stored", run: lastOfKey},
		{name: "Delete", rule: "a record without data deletes the key, whether or not it exists", run: deleteRecord},
		{name: "Keys", rule: "keys may contain any bytes and stay distinct", run: keys},
		{name: "Data", rule: "data is loaded as it was written, up to MaxData", run: data},
		{name: "Invalid", rule: "a call with an invalid record stores nothing", run: invalid},
		{name: "InvalidID", rule: "an invalid ID is rejected", run: invalidID},
		{name: "NotKept", rule: "the store and its caller do not share slices", run: notKept},
		{name: "Persist", rule: "a store that is opened again contains all stored records", run: persist},
		{name: "Apart", rule: "each ID has its own store", run: apart},
		{name: "InUse", rule: "an open store cannot be opened again until it is closed", run: inUse},
		{name: "Stop", rule: "a loop over Load can be left and started again", run: stop},
		{name: "View", rule: "Load yields the records as of the start of the loop", run: view},
		{name: "Concurrent", rule: "concurrent calls do not affect each other", run: concurrent},
		{name: "CloseWaits", rule: "records that Write acknowledges during Close are stored", run: closeWaits},
		{name: "Cancelled", rule: "a call whose context has ended fails, and stores nothing", run: cancelled},
		{name: "Closed", rule: "calls after Close return ErrClosed", run: closed},
		{name: "Crash", rule: "after a crash, acknowledged records are on disk and replaced records do not return", needs: func(c Config) bool { return c.Crash != nil }, run: crash},
		{name: "Shrink", rule: "the space of replaced and deleted records is reclaimed", needs: func(c Config) bool { return c.Size != nil }, run: shrink},
		{name: "Damaged", rule: "a damaged record is reported with its location, not skipped", needs: func(c Config) bool { return c.Damage != nil }, run: damaged},
		{name: "Format", rule: "a store of another format is rejected and not changed", needs: func(c Config) bool { return c.Alter != nil }, run: format},
		{name: "Foreign", rule: "other data is rejected and not changed", needs: func(c Config) bool { return c.Replace != nil }, run: foreign},
		{name: "Fail", rule: "a failed write returns an error, and the store stays usable", needs: func(c Config) bool { return c.Fail != nil }, run: fail},
	}
}
