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

// fill appends events to one counter directly in the journal and returns the time of the last one.
func fill(ctx context.Context, j journal.Journal, pid string, n int, p notes) (time.Time, error) {
	names := codec.Types(codec.Name[added]("added"))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for done := 0; done < n; {
		w := journal.Write{ID: pid, Writer: "bench", Expect: uint64(done)}
		for len(w.Events) < 1000 && done < n {
			done++
			manifest, payload, err := names.Encode(added{N: 1, Note: p.bytes(done, noteSize)})
			if err != nil {
				return at, err
			}
			at = at.Add(time.Microsecond)
			w.Events = append(w.Events, journal.Event{SequenceNr: uint64(done), Time: at, Manifest: manifest, Payload: payload})
		}
		if slots := j.Append(ctx, []journal.Write{w}); slots != nil {
			return at, errors.Join(slots...)
		}
	}
	return at, nil
}

// firstReply opens a runtime and measures the first reply of a counter.
func firstReply(ctx context.Context, s *database, typ eventsourcing.Type[counter, event], id string, want int64) (time.Duration, error) {
	rt, h, err := host(ctx, s, typ)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	sum, err := eventsourcing.Ask(ctx, h.Ref(id), read{})
	took := time.Since(began)
	if err == nil && sum != want {
		err = fmt.Errorf("the recovered counter holds %d, want %d", sum, want)
	}
	return took, errors.Join(err, rt.Close(ctx))
}

// recoverEvents measures the recovery of an entity with many events.
func recoverEvents(ctx context.Context, b *run) (results []Result, err error) {
	n := b.scaled(100_000)
	p := newNotes()
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b.progress("writing %d events", n)
	if _, err = fill(ctx, s.journal, "counter|0", n, p); err != nil {
		return nil, err
	}
	var limits, values []float64
	err = b.rawEvents(ctx, n, p, func(scan func() (float64, error)) error {
		limits, values, err = b.alternate(scan, func() (float64, error) {
			took, failed := firstReply(ctx, s, counters(0, eventsourcing.Snapshots[counter, event]{}), "0", int64(n))
			return float64(n) / took.Seconds(), failed
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	limit, value := median(limits), median(values)
	return []Result{Result{
		Value: value, Unit: "events/s", Limit: limit, Ratio: value / limit, Goal: 0.60, Better: higher,
		Settings: fmt.Sprintf("1 entity, %d events of 200 bytes, median of %d", n, len(values)),
	}.judge()}, nil
}

// rawEvents writes the same events without Refold and measures a function that reads and decodes
// them.
func (b *run) rawEvents(ctx context.Context, n int, p notes, measure func(scan func() (float64, error)) error) error {
	if b.scheme == "postgres" {
		return b.rawSelect(ctx, n, p, measure)
	}
	return b.rawDB(func(db *leveldb.DB) error {
		if err := rawFill(db, n, p); err != nil {
			return err
		}
		return measure(func() (float64, error) { return rawScan(db, n) })
	})
}

// rawFill writes the same events as raw entries.
func rawFill(db *leveldb.DB, n int, p notes) error {
	batch := new(leveldb.Batch)
	for i := 1; i <= n; i++ {
		var key [16]byte
		binary.BigEndian.PutUint64(key[8:], uint64(i))
		value, err := msgpack.Marshal(added{N: 1, Note: p.bytes(i, noteSize)})
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
	return nil
}

// rawScan iterates over all entries and decodes each.
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
func recoverSnapshot(ctx context.Context, b *run) (results []Result, err error) {
	const tail = 999
	n := b.scaled(1_000_000)/1000*1000 + 1000
	p := newNotes()
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b.progress("writing %d events with a snapshot each 1,000", n+tail)
	if _, err = fill(ctx, s.journal, "counter|tail", tail, p); err != nil {
		return nil, err
	}
	at, err := fill(ctx, s.journal, "counter|long", n+tail, p)
	if err != nil {
		return nil, err
	}
	if err = saveSnapshots(ctx, s, n, at); err != nil {
		return nil, err
	}
	typ := counters(0, eventsourcing.Snapshots[counter, event]{Every: 1_000_000_000})
	limits, values, err := b.alternate(
		func() (float64, error) {
			took, failed := firstReply(ctx, s, typ, "tail", tail)
			return ms(took), failed
		},
		func() (float64, error) {
			took, failed := firstReply(ctx, s, typ, "long", int64(n+tail))
			return ms(took), failed
		})
	if err != nil {
		return nil, err
	}
	limit, value := median(limits), median(values)
	return []Result{Result{
		Value: value, Unit: "ms", Limit: limit, Ratio: value / limit, Goal: 1.5, Better: lower,
		Settings: fmt.Sprintf("%d events, a snapshot each 1,000, against an entity of %d events, median of %d", n+tail, tail, len(values)),
	}.judge()}, nil
}

// saveSnapshots saves the state of a counter after each thousand events.
func saveSnapshots(ctx context.Context, s *database, n int, at time.Time) error {
	for seq := 1000; seq <= n; seq += 1000 {
		payload, err := msgpack.Marshal(&counter{Sum: int64(seq)})
		if err != nil {
			return err
		}
		snap := snapshot.Snapshot{Manifest: eventsourcing.StateManifest, Payload: payload}
		snap.Metadata = snapshot.Metadata{ID: "counter|long", SequenceNr: uint64(seq), Time: at}
		if err := s.snapshots.Save(ctx, snap); err != nil {
			return err
		}
	}
	return nil
}
