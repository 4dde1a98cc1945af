// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/refold-io/refold/snapshot"
)

func callChecks() []check {
	return []check{
		{"EndedContext", "a call whose context has ended fails with the error of the context and changes nothing", always, (*probe).endedContext},
		{"Closed", "after Close every call fails with ErrClosed, and a second Close does nothing", always, func(p *probe) {
			p.baseline()
			for range 2 {
				if err := p.store.Close(); err != nil {
					p.Errorf("Close: %v", err)
				}
			}
			for name, err := range p.calls(p.Context()) {
				if !errors.Is(err, snapshot.ErrClosed) {
					p.Errorf("%s after Close: %v, want ErrClosed", name, err)
				}
			}
		}},
		{"Local", "the store reports whether it is local to one node, as Config.Local claims", always, func(p *probe) {
			if l, ok := p.store.(snapshot.Local); p.cfg.Local != (ok && l.Local()) {
				p.Errorf("snapshot.Local reports %t, want %t", !p.cfg.Local, p.cfg.Local)
			}
		}},
		{"CloseMeanwhile", "a call that is concurrent with Close succeeds or fails with ErrClosed", always, (*probe).closeMeanwhile},
		{"ReplaceMeanwhile", "during a replacement a load returns the old or the new snapshot, never a mixture and never ErrNotFound", always, (*probe).replaceMeanwhile},
		{"DeleteMeanwhile", "a load finds the newest snapshot while older ones are being deleted", always, (*probe).deleteMeanwhile},
	}
}

// calls makes one call of each kind on the baseline and returns their errors.
func (p *probe) calls(ctx context.Context) map[string]error {
	_, loadErr := p.store.Load(ctx, p.id, snapshot.Latest())
	var listErr error
	for _, err := range p.store.List(ctx, p.id, snapshot.Latest()) {
		listErr = err
	}
	return map[string]error{
		"Save":   p.store.Save(ctx, numbered(p.id, 16)),
		"Load":   loadErr,
		"List":   listErr,
		"Delete": p.store.Delete(ctx, p.id, snapshot.Criteria{All: true}),
	}
}

func (p *probe) endedContext() {
	p.baseline()
	ended, cancel := context.WithCancel(p.Context())
	cancel()
	for name, err := range p.calls(ended) {
		if !errors.Is(err, context.Canceled) {
			p.Errorf("%s with an ended context: %v, want context.Canceled", name, err)
		}
	}
	p.expectList(p.id, snapshot.Latest(), 15, 14, 13, 12, 11)
	p.save(numbered(p.id, 16))
	p.expectNumber(snapshot.Latest(), 16)
}

func (p *probe) closeMeanwhile() {
	var running, done sync.WaitGroup
	running.Add(4)
	for i := range 4 {
		done.Go(func() {
			id := fmt.Sprintf("%s-%d", p.id, i)
			for n := uint64(1); ; n++ {
				err := p.store.Save(p.Context(), numbered(id, n))
				if err == nil {
					_, err = p.store.Load(p.Context(), id, snapshot.At(n))
				}
				if n == 1 {
					running.Done()
				}
				if errors.Is(err, snapshot.ErrClosed) {
					return
				}
				if err != nil {
					p.Errorf("Save or Load of %d while the store is closed: %v, want nil or ErrClosed", n, err)
					return
				}
			}
		})
	}
	running.Wait()
	if err := p.store.Close(); err != nil {
		p.Errorf("Close: %v", err)
	}
	done.Wait()
}

// uniform returns a snapshot whose manifest and payload identify each other, so a mixture of two is
// detected.
func uniform(id string, seqNr uint64, letter byte) snapshot.Snapshot {
	s := numbered(id, seqNr)
	s.Manifest = string(letter)
	s.Payload = bytes.Repeat([]byte{letter}, 64<<10+int(letter))
	return s
}

func checkUniform(got snapshot.Snapshot) error {
	if len(got.Manifest) == 1 {
		want := uniform(got.ID, got.SequenceNr, got.Manifest[0])
		if bytes.Equal(got.Payload, want.Payload) && sameTime(got.Time, want.Time) {
			return nil
		}
	}
	return fmt.Errorf("a mixture at %d: manifest %q, time %v, and %d bytes beginning with %.8q",
		got.SequenceNr, got.Manifest, got.Time, len(got.Payload), got.Payload)
}

func (p *probe) replaceMeanwhile() {
	p.save(uniform(p.id, 1, 'a'))
	p.whileSaving(func(round byte) error {
		return p.store.Save(p.Context(), uniform(p.id, 1, 'a'+round))
	}, func() error {
		got, err := p.store.Load(p.Context(), p.id, snapshot.Latest())
		if err != nil {
			return fmt.Errorf("load while the snapshot is replaced: %w", err)
		}
		return checkUniform(got)
	})
}

func (p *probe) deleteMeanwhile() {
	p.save(uniform(p.id, 1, 'a'))
	var last uint64
	p.whileSaving(func(round byte) error {
		n := uint64(round) + 2
		if err := p.store.Save(p.Context(), uniform(p.id, n, 'a'+round)); err != nil {
			return err
		}
		return p.store.Delete(p.Context(), p.id, snapshot.UpTo(n-1))
	}, func() error {
		got, err := p.store.Load(p.Context(), p.id, snapshot.Latest())
		if err != nil {
			return fmt.Errorf("load while older snapshots are deleted: %w", err)
		}
		if got.SequenceNr < last {
			return fmt.Errorf("Load returned %d after %d", got.SequenceNr, last)
		}
		last = got.SequenceNr
		return checkUniform(got)
	})
}

// whileSaving calls load repeatedly until 25 rounds of save have ended, and reports the first error
// of each.
func (p *probe) whileSaving(save func(round byte) error, load func() error) {
	const rounds = 25
	saved := make(chan error, 1)
	go func() {
		var first error
		for round := range byte(rounds) {
			if err := save(round); err != nil && first == nil {
				first = err
			}
		}
		saved <- first
	}()
	var loadErr error
	for {
		if err := load(); err != nil && loadErr == nil {
			loadErr = err
		}
		select {
		case saveErr := <-saved:
			if err := errors.Join(saveErr, loadErr, load()); err != nil {
				p.Errorf("%v", err)
			}
			return
		default:
		}
	}
}

func reopenChecks() []check {
	return []check{
		{"Reopened", "saved snapshots are complete when the store is opened again", reopens, func(p *probe) {
			p.baseline()
			s := uniform(p.id, 16, 'z')
			p.save(s)
			p.reopen()
			p.expect(snapshot.Latest(), s)
			p.expectNumber(snapshot.UpTo(15), 15)
			p.expectList(p.id, snapshot.Latest(), 16, 15, 14, 13, 12, 11)
		}},
		{"ReopenedReplaced", "a snapshot that was replaced stays replaced when the store is opened again", reopens, func(p *probe) {
			p.baseline()
			s := uniform(p.id, 15, 'z')
			p.save(s)
			p.reopen()
			p.expect(snapshot.Latest(), s)
		}},
		{"ReopenedDeleted", "deletions survive a restart of the store", reopens, func(p *probe) {
			p.baseline()
			p.delete(p.id, snapshot.UpTo(13))
			p.reopen()
			p.expectList(p.id, snapshot.Latest(), 15, 14)
			p.delete(p.id, snapshot.Criteria{All: true})
			p.reopen()
			p.expectNone(p.id, snapshot.Latest())
		}},
	}
}

func (p *probe) reopen() {
	p.Helper()
	p.store = p.cfg.Reopen(p.TB, p.store)
}

func damageChecks() []check {
	return []check{
		{"DamagedNewest", "when the newest snapshot can't be read an older match is loaded", damages, func(p *probe) {
			p.baseline()
			p.damage(15)
			p.expectNumber(snapshot.Latest(), 14)
			p.damage(13)
			p.expectNumber(snapshot.UpTo(13), 12)
		}},
		{"DamagedAll", "when no match can be read the error is ErrCorrupt and not ErrNotFound", damages, func(p *probe) {
			p.save(numbered(p.id, 11))
			p.save(numbered(p.id, 12))
			p.damage(11)
			p.damage(12)
			p.expectError(p.id, snapshot.Latest(), snapshot.ErrCorrupt)
			p.expectError(p.id, snapshot.UpTo(11), snapshot.ErrCorrupt)
			p.expectNone(p.id, snapshot.UpTo(10))
		}},
		{"DamagedReplaced", "a damaged snapshot can be replaced, and deleted by its number", damages, func(p *probe) {
			p.baseline()
			p.damage(14)
			p.damage(15)
			p.save(numbered(p.id, 15))
			p.expectNumber(snapshot.Latest(), 15)
			p.delete(p.id, snapshot.At(14))
			p.expectList(p.id, snapshot.Latest(), 15, 13, 12, 11)
		}},
	}
}

func (p *probe) damage(seqNr uint64) {
	p.Helper()
	p.cfg.Damage(p.TB, p.store, numbered(p.id, seqNr).Metadata)
}
