// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/refold-io/refold/journal"
)

// immediate is a fake that declares itself immediate.
type immediate struct{ fake }

func (j *immediate) Immediate() journal.Journal { return j }

// TestImmediate checks that Submit appends to an immediate journal and calls Written once, in order;
// that a failed write stops its stream until Reset, and no other one; and that a closed Writer appends
// nothing.
func TestImmediate(t *testing.T) {
	t.Parallel()
	log := newLedger()
	var sent []string
	var fail []error
	j := &immediate{fake{append: func(_ context.Context, writes []journal.Write) []error {
		sent = append(sent, arrival{writes: writes}.names()...)
		if outcomes := log.take(); len(outcomes) > 0 {
			t.Errorf("the outcomes of %q came before the append", outcomes)
		}
		return fail
	}}}
	var commits []journal.CommitInfo
	w := newWriter(t, j, journal.WriterConfig{OnCommit: func(i journal.CommitInfo) { commits = append(commits, i) }, MaxBatchBytes: 100})
	a, b := log.entity("a"), log.entity("b")
	a.submit(t, w)
	expect(t, "outcomes", log.take(), []string{"a@0"})
	lost := errors.New("lost")
	fail = []error{lost}
	a.submit(t, w)
	expect(t, "outcomes", log.take(), []string{"a@1"})
	fail = nil
	a.submit(t, w)
	expect(t, "outcomes", log.take(), []string{"a@2"})
	b.submit(t, w)
	expect(t, "outcomes", log.take(), []string{"b@0"})
	w.Reset(&a.stream)
	a.seqNr = 1
	a.submit(t, w)
	if err := errors.Join(log.err("a@0"), log.err("b@0"), log.err("a@1")); err != nil {
		t.Error(err)
	}
	if err := log.err("a@2"); !errors.Is(err, journal.ErrSkipped) {
		t.Errorf("the write after the failed one: %v, want ErrSkipped", err)
	}
	expect(t, "outcomes", log.take(), []string{"a@1"})
	expect(t, "appends", sent, []string{"a@0", "a@1", "b@0", "a@1"})
	if len(commits) != 4 || commits[0].Writes != 1 || commits[0].Events != 1 || commits[0].Failed != 0 || commits[1].Failed != 1 {
		t.Errorf("the commits are %+v", commits)
	}

	if !w.Submit(b.write(string(make([]byte, 200)))) {
		t.Error("no room for a large write")
	}
	if err := log.err("b@1"); !errors.Is(err, journal.ErrRejected) {
		t.Errorf("a write that is too large: %v, want ErrRejected", err)
	}
	log.take()
	closeWriter(t, w)
	closeWriter(t, w)
	a.submit(t, w)
	wantClosed(t, log, "a@2")
	expect(t, "appends after Close", sent[4:], nil)
}

// TestImmediatePanic checks that a panic of an immediate journal is an unknown outcome.
func TestImmediatePanic(t *testing.T) {
	t.Parallel()
	log := newLedger()
	w := newWriter(t, &immediate{fake{append: func(context.Context, []journal.Write) []error { panic("oops") }}}, journal.WriterConfig{})
	defer closeWriter(t, w)
	log.entity("a").submit(t, w)
	if err := log.err("a@0"); !errors.Is(err, journal.ErrContract) || journal.NotStored(err) {
		t.Errorf("the outcome is %v, want an unknown one", err)
	}
}
