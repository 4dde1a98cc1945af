// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

var filledAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fill appends events of counters directly to the journal. Each append contains at most step events
// of each counter.
func fill(ctx context.Context, j journal.Journal, each, step int, ids ...string) error {
	return fillOn(ctx, j, 0, each, step, ids...)
}

// fillOn is fill for counters that have a number of events.
func fillOn(ctx context.Context, j journal.Journal, have, each, step int, ids ...string) error {
	names := codec.Types(codec.Name[added]("added"))
	for done := have; done < each; done += step {
		writes := make([]journal.Write, len(ids))
		for i, id := range ids {
			w := journal.Write{ID: id, Writer: "bench", Expect: uint64(done)} //nolint:gosec // not negative
			for n := done; n < min(done+step, each); n++ {
				manifest, payload, err := names.Encode(added{N: 1, Note: noteOf(i*each+n, noteSize)})
				if err != nil {
					return err
				}
				w.Events = append(w.Events, journal.Event{SequenceNr: uint64(n) + 1, Time: filledAt, Manifest: manifest, Payload: payload}) //nolint:gosec // not negative
			}
			writes[i] = w
		}
		if slots := j.Append(ctx, writes); slots != nil {
			return errors.Join(slots...)
		}
	}
	return nil
}

// firstReply returns the time from asking an entity that is not running to its reply.
func firstReply(ctx context.Context, s *database, snapshots int, id string, want int64) (took time.Duration, err error) {
	typ := counters(0, eventsourcing.Snapshots[counter, event]{Every: snapshots})
	err = s.host(ctx, typ, func(h *local) (err error) {
		began := time.Now()
		sum, err := eventsourcing.Ask(ctx, h.Ref(id), read{})
		took = time.Since(began)
		if err == nil && sum != want {
			err = fmt.Errorf("the recovered counter holds %d, want %d", sum, want)
		}
		return err
	})
	return took, err
}

func recoverEvents(ctx context.Context, b *run) ([]Result, error) {
	n := b.scaled(100_000, 1)
	var c compared
	err := b.opened(ctx, func(s *database) error {
		b.progress("writing %d events", n)
		if err := fill(ctx, s.journal, n, 1000, "counter|0"); err != nil {
			return err
		}
		return b.rawEvents(ctx, n, func(scan func() (float64, error)) (err error) {
			c, err = b.compare(scan, func() (_ float64, err error) {
				took, err := firstReply(ctx, s, 0, "0", int64(n))
				return float64(n) / took.Seconds(), err
			})
			return err
		})
	})
	return []Result{c.result(Result{
		Unit: "events/s", Goal: map[string]float64{"leveldb": 1, "postgres": 0.90}[b.scheme], Better: higher,
		Settings: fmt.Sprintf("1 entity, %d events of 200 bytes, median of %d", n, b.settings.Rounds),
	})}, err
}

// rawEvents writes the same events without Refold and measures their scan.
func (b *run) rawEvents(ctx context.Context, n int, measure func(scan func() (float64, error)) error) error {
	if b.scheme == "postgres" {
		return b.rawSelect(ctx, n, measure)
	}
	return b.rawDB(func(db *leveldb.DB) error {
		batch := new(leveldb.Batch)
		for i := 1; i <= n; i++ {
			var key [16]byte
			binary.BigEndian.PutUint64(key[8:], uint64(i))
			value, err := msgpack.Marshal(added{N: 1, Note: noteOf(i, noteSize)})
			if err != nil {
				return err
			}
			batch.Put(key[:], value)
			if batch.Len() == 1000 || i == n {
				if err := db.Write(batch, &opt.WriteOptions{Sync: true}); err != nil {
					return err
				}
				batch.Reset()
			}
		}
		return measure(func() (float64, error) { return rawScan(db, n) })
	})
}

func rawScan(db *leveldb.DB, n int) (float64, error) {
	began := time.Now()
	it := db.NewIterator(nil, nil)
	defer it.Release()
	var sum int64
	for it.Next() {
		var e added
		if err := msgpack.Unmarshal(it.Value(), &e); err != nil {
			return 0, err
		}
		sum += e.N
	}
	if err := it.Error(); err != nil {
		return 0, err
	}
	if sum != int64(n) {
		return 0, fmt.Errorf("the raw entries add up to %d, want %d", sum, n)
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// recoverSnapshot measures a recovery from the newest of many snapshots.
func recoverSnapshot(ctx context.Context, b *run) ([]Result, error) {
	const tail, never = 999, 1_000_000_000
	n := b.scaled(1_000_000, 0)/1000*1000 + 1000
	var c compared
	err := b.opened(ctx, func(s *database) error {
		b.progress("writing %d events with a snapshot each 1,000", n+tail)
		if err := fill(ctx, s.journal, tail, 1000, "counter|tail"); err != nil {
			return err
		}
		if err := fill(ctx, s.journal, n+tail, 1000, "counter|long"); err != nil {
			return err
		}
		if err := saveSnapshots(ctx, s, n); err != nil {
			return err
		}
		replied := func(id string, want int) func() (float64, error) {
			return func() (float64, error) {
				took, err := firstReply(ctx, s, never, id, int64(want))
				return ms(took), err
			}
		}
		var err error
		c, err = b.compare(replied("tail", tail), replied("long", n+tail))
		return err
	})
	return []Result{c.result(Result{
		Unit: "ms", Goal: 1.5, Better: lower,
		Settings: fmt.Sprintf("%d events, a snapshot each 1,000, against an entity of %d events, median of %d", n+tail, tail, b.settings.Rounds),
	})}, err
}

func saveSnapshots(ctx context.Context, s *database, n int) error {
	for seq := 1000; seq <= n; seq += 1000 {
		payload, err := msgpack.Marshal(&counter{Sum: int64(seq)})
		if err != nil {
			return err
		}
		snap := snapshot.Snapshot{Manifest: eventsourcing.StateManifest, Payload: payload}
		snap.Metadata = snapshot.Metadata{ID: "counter|long", SequenceNr: uint64(seq), Time: filledAt}
		if err := s.snapshots.Save(ctx, snap); err != nil {
			return err
		}
	}
	return nil
}
