// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/snapshot"
)

var errBusy = errors.New("busy")

// faults has for each case a fault that the case must find.
func faults() map[string]func(d *double) {
	return map[string]func(d *double){
		"UnknownID":               noneIsZero,
		"NothingOldEnough":        func(d *double) { d.widened(withoutMaxTime) },
		"NothingLowEnough":        func(d *double) { d.widened(withoutMaxNumber) },
		"NewestOfAll":             func(d *double) { d.changed(func(s *snapshot.Snapshot) { s.Manifest = "" }) },
		"NewestByNumber":          numbersAsText,
		"NewestUpToNumber":        func(d *double) { d.widened(exclusiveNumber) },
		"NewestUpToNumberAndTime": func(d *double) { d.widened(exclusiveTime) },
		"LowerBounds":             func(d *double) { d.widened(withoutLowerBounds) },
		"ZeroBounds":              func(d *double) { d.widened(withAll) },
		"ExtremeNumbers":          func(d *double) { d.changed(func(s *snapshot.Snapshot) { s.SequenceNr &= math.MaxUint32 }) },
		"ExtremeTimes":            func(d *double) { d.changed(func(s *snapshot.Snapshot) { s.Time = s.Time.Truncate(time.Millisecond) }) },

		"Replace":             firstWins,
		"TenThousandBytes":    func(d *double) { d.changed(cutAt(8 << 10)) },
		"Megabytes":           func(d *double) { d.changed(cutAt(1 << 20)) },
		"Empty":               emptyIsNone,
		"AllBytes":            func(d *double) { d.changed(cutAtNUL) },
		"LoadedPayloadIsKept": oneBuffer,

		"DeleteOne":          func(d *double) { d.widened(withoutLowerBounds) },
		"DeleteMatches":      deletesNewestOnly,
		"DeleteKeepsYounger": func(d *double) { d.widened(withoutMaxTime) },
		"DeleteKeepsBelow":   func(d *double) { d.widened(withoutLowerBounds) },
		"DeleteTwice":        deletesWhatIsThere,

		"ListOrder":     listsUpwards,
		"ListMatches":   listsAll,
		"ListReplaced":  listsTwice,
		"ListLeftEarly": func(d *double) { d.busyWhileListed(false) },
		"ListAgain":     listsOnce,
		"ListBody":      func(d *double) { d.busyWhileListed(true) },

		"IDsAreApart": func(d *double) { d.renamed(func(id string) string { id, _, _ = strings.Cut(id, "-"); return id }) },
		"OddIDs":      func(d *double) { d.renamed(strings.ToLower) },
		"LongIDs":     func(d *double) { d.renamed(func(id string) string { return id[:min(len(id), 255)] }) },

		"EndedContext":     ignoresContext,
		"Closed":           func(d *double) { d.close = func() error { return nil } },
		"Local":            func(d *double) { d.local = true },
		"CloseMeanwhile":   closesUnderCalls,
		"ReplaceMeanwhile": replacesInTwoSteps,
		"DeleteMeanwhile":  deletesTooMuch,

		"Reopened":         func(*double) {}, // reopened as an empty store
		"ReopenedReplaced": func(*double) {},
		"ReopenedDeleted":  func(d *double) { d.delete = func(context.Context, string, snapshot.Criteria) error { return nil } },

		"DamagedNewest": failsOnDamage,
		"DamagedAll":    hidesDamage,
		"DamagedReplaced": func(d *double) {
			d.save = func(ctx context.Context, s snapshot.Snapshot) error { return d.inner.Save(ctx, s) }
		},
	}
}

func withoutMaxTime(c snapshot.Criteria) snapshot.Criteria {
	c.MaxTime = snapshot.Latest().MaxTime
	return c
}

func withoutMaxNumber(c snapshot.Criteria) snapshot.Criteria {
	c.MaxSequenceNr = math.MaxInt64
	return c
}

func withoutLowerBounds(c snapshot.Criteria) snapshot.Criteria {
	c.MinSequenceNr, c.MinTime = 0, time.Time{}
	return c
}

func exclusiveNumber(c snapshot.Criteria) snapshot.Criteria {
	c.MaxSequenceNr--
	return c
}

func exclusiveTime(c snapshot.Criteria) snapshot.Criteria {
	c.MaxTime = c.MaxTime.Add(-time.Microsecond)
	return c
}

// withAll permits a deletion without bounds.
func withAll(c snapshot.Criteria) snapshot.Criteria {
	c.All = true
	return c
}

func noneIsZero(d *double) {
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.inner.Load(ctx, id, c)
		if errors.Is(err, snapshot.ErrNotFound) {
			err = nil
		}
		return s, err
	}
}

func numbersAsText(d *double) {
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		newest := uint64(0)
		for m := range d.inner.List(ctx, id, c) { //nolint:errcheck // errors do not matter here
			if strconv.FormatUint(m.SequenceNr, 10) > strconv.FormatUint(newest, 10) {
				newest = m.SequenceNr
			}
		}
		return d.inner.Load(ctx, id, snapshot.At(newest))
	}
}

func firstWins(d *double) {
	d.save = func(ctx context.Context, s snapshot.Snapshot) error {
		if _, err := d.inner.Load(ctx, s.ID, snapshot.At(s.SequenceNr)); err == nil {
			return nil
		}
		return d.inner.Save(ctx, s)
	}
}

func cutAt(size int) func(s *snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) { s.Payload = s.Payload[:min(len(s.Payload), size)] }
}

func cutAtNUL(s *snapshot.Snapshot) { s.Payload, _, _ = bytes.Cut(s.Payload, []byte{0}) }

func emptyIsNone(d *double) {
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.inner.Load(ctx, id, c)
		if err == nil && len(s.Payload) == 0 {
			err = snapshot.ErrNotFound
		}
		return s, err
	}
}

func oneBuffer(d *double) {
	var buffer []byte
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.inner.Load(ctx, id, c)
		buffer = append(buffer[:0], s.Payload...)
		s.Payload = buffer
		return s, err
	}
}

func deletesNewestOnly(d *double) {
	d.delete = func(ctx context.Context, id string, c snapshot.Criteria) error {
		s, err := d.inner.Load(ctx, id, c)
		if err != nil {
			return nil //nolint:nilerr // nothing to delete
		}
		return d.inner.Delete(ctx, id, snapshot.At(s.SequenceNr))
	}
}

func deletesWhatIsThere(d *double) {
	d.delete = func(ctx context.Context, id string, c snapshot.Criteria) error {
		if _, err := d.inner.Load(ctx, id, c); err != nil {
			return err
		}
		return d.inner.Delete(ctx, id, c)
	}
}

// listed changes the output of a list.
func (d *double) listed(change func(all []snapshot.Metadata) []snapshot.Metadata) {
	d.list = func(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
		return func(yield func(snapshot.Metadata, error) bool) {
			var all []snapshot.Metadata
			for m := range d.inner.List(ctx, id, c) { //nolint:errcheck // errors do not matter here
				all = append(all, m)
			}
			for _, m := range change(all) {
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

func listsUpwards(d *double) {
	d.listed(func(all []snapshot.Metadata) []snapshot.Metadata {
		slices.Reverse(all)
		return all
	})
}

func listsTwice(d *double) {
	d.listed(func(all []snapshot.Metadata) []snapshot.Metadata { return append(all, all...) })
}

func listsAll(d *double) {
	d.list = func(ctx context.Context, id string, _ snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
		return d.inner.List(ctx, id, snapshot.Latest())
	}
}

func listsOnce(d *double) {
	d.list = func(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
		inner, used := d.inner.List(ctx, id, c), false
		return func(yield func(snapshot.Metadata, error) bool) {
			if !used {
				used = true
				inner(yield)
			}
		}
	}
}

// busyWhileListed makes saves fail while a list runs. If released is set, they succeed again after
// the loop was left early.
func (d *double) busyWhileListed(released bool) {
	busy := false
	d.list = func(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
		return func(yield func(snapshot.Metadata, error) bool) {
			busy = true
			for m, err := range d.inner.List(ctx, id, c) {
				if !yield(m, err) {
					busy = !released
					return
				}
			}
			busy = false
		}
	}
	d.save = func(ctx context.Context, s snapshot.Snapshot) error {
		if busy {
			return errBusy
		}
		return d.inner.Save(ctx, s)
	}
}

func ignoresContext(d *double) {
	d.delete = func(ctx context.Context, id string, c snapshot.Criteria) error {
		return d.inner.Delete(context.WithoutCancel(ctx), id, c)
	}
}

func closesUnderCalls(d *double) {
	hide := func(err error) error {
		if errors.Is(err, snapshot.ErrClosed) {
			return errors.New("bad file descriptor")
		}
		return err
	}
	d.save = func(ctx context.Context, s snapshot.Snapshot) error { return hide(d.inner.Save(ctx, s)) }
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.inner.Load(ctx, id, c)
		return s, hide(err)
	}
}

// waitForLoad makes a save wait, half done, until a load has read.
func (d *double) waitForLoad() (wait func()) {
	var loads atomic.Int64
	loaded := make(chan struct{})
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.inner.Load(ctx, id, c)
		loads.Add(1)
		select {
		case loaded <- struct{}{}:
		default:
		}
		return s, err
	}
	return func() {
		for before := loads.Load(); loads.Load() == before; {
			<-loaded
		}
	}
}

func replacesInTwoSteps(d *double) {
	wait := d.waitForLoad()
	d.save = func(ctx context.Context, s snapshot.Snapshot) error {
		old, err := d.inner.Load(ctx, s.ID, snapshot.At(s.SequenceNr))
		if err == nil && old.Manifest == "a" {
			old.Manifest = s.Manifest
			_ = d.inner.Save(ctx, old)
			wait()
			wait()
		}
		return d.inner.Save(ctx, s)
	}
}

func deletesTooMuch(d *double) {
	wait, once := d.waitForLoad(), false
	d.delete = func(ctx context.Context, id string, c snapshot.Criteria) error {
		if once {
			return d.inner.Delete(ctx, id, c)
		}
		once = true
		newest, err := d.inner.Load(ctx, id, snapshot.Latest())
		_ = d.inner.Delete(ctx, id, snapshot.Criteria{All: true})
		wait()
		wait()
		return errors.Join(err, d.inner.Save(ctx, newest))
	}
}

func failsOnDamage(d *double) {
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.inner.Load(ctx, id, c)
		if err == nil && d.isDamaged(s.Metadata) {
			err = snapshot.ErrCorrupt
		}
		return s, err
	}
}

func hidesDamage(d *double) {
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.loadWell(ctx, id, c)
		if errors.Is(err, snapshot.ErrCorrupt) {
			err = snapshot.ErrNotFound
		}
		return s, err
	}
}
