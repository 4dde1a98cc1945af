// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	engine "github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

const (
	benchIDs     = 1000
	benchPayload = 200
	benchReplay  = 100_000
)

func benchData(n int) []byte {
	rnd := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = rnd.Read(b)
	return b
}

// BenchmarkAppend stores one event for each of 1,000 persistence IDs per call. It compares the
// journal with the engine, which stores a batch of the same size with the same options.
func BenchmarkAppend(b *testing.B) {
	data := benchData(benchPayload)
	b.Run("engine", func(b *testing.B) {
		db, err := engine.OpenFile(b.TempDir(), leveldb.Options())
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close() //nolint:errcheck // only measured
		var batch engine.Batch
		var key [16]byte
		nr := uint64(0)
		b.SetBytes(benchIDs * benchPayload)
		b.ReportAllocs()
		for b.Loop() {
			nr++
			batch.Reset()
			for id := range uint64(benchIDs) {
				binary.BigEndian.PutUint64(key[:], id)
				binary.BigEndian.PutUint64(key[8:], nr)
				batch.Put(key[:], data)
			}
			if err := db.Write(&batch, &opt.WriteOptions{Sync: true}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*benchIDs/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("journal", func(b *testing.B) {
		db, err := leveldb.Open(b.TempDir(), leveldb.Config{})
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close() //nolint:errcheck // only measured
		j := db.TestJournal()
		writes := make([]journal.Write, benchIDs)
		for i := range writes {
			writes[i] = journal.Write{ID: fmt.Sprintf("account|%d", i), Writer: "0192f0c1a2b3", Events: []journal.Event{{
				Time: time.UnixMicro(1).UTC(), Manifest: "deposited", Payload: data,
			}}}
		}
		b.SetBytes(benchIDs * benchPayload)
		b.ReportAllocs()
		for b.Loop() {
			for i := range writes {
				writes[i].Events[0].SequenceNr++
			}
			if errs := j.Append(b.Context(), writes); errs != nil {
				b.Fatal(errs[0])
			}
			for i := range writes {
				writes[i].Expect++
			}
		}
		b.ReportMetric(float64(b.N)*benchIDs/b.Elapsed().Seconds(), "events/s")
	})
}

type benchEvent struct {
	Amount int64
	Note   string
	Data   []byte
}

// BenchmarkReplay replays 100,000 events and decodes them. It compares the journal with an iterator
// of the engine that decodes the same payloads.
func BenchmarkReplay(b *testing.B) {
	data, err := msgpack.Marshal(benchEvent{Amount: 5, Note: "rent", Data: benchData(160)})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("engine", func(b *testing.B) {
		db, err := engine.OpenFile(b.TempDir(), leveldb.Options())
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close() //nolint:errcheck // only measured
		var batch engine.Batch
		var key [16]byte
		for nr := range uint64(benchReplay) {
			binary.BigEndian.PutUint64(key[8:], nr)
			batch.Put(key[:], data)
			if batch.Len() == 1000 {
				if err := db.Write(&batch, nil); err != nil {
					b.Fatal(err)
				}
				batch.Reset()
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			it := db.NewIterator(&util.Range{}, nil)
			for it.Next() {
				var e benchEvent
				if err := msgpack.Unmarshal(it.Value(), &e); err != nil {
					b.Fatal(err)
				}
				n++
			}
			it.Release()
			if n != benchReplay {
				b.Fatal(n)
			}
		}
		b.ReportMetric(float64(b.N)*benchReplay/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("journal", func(b *testing.B) {
		db, err := leveldb.Open(b.TempDir(), leveldb.Config{NoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close() //nolint:errcheck // only measured
		j := db.TestJournal()
		for n := uint64(0); n < benchReplay; n += 1000 {
			w := journal.Write{ID: "account|1", Writer: "0192f0c1a2b3", Expect: n}
			for i := range uint64(1000) {
				w.Events = append(w.Events, journal.Event{SequenceNr: n + 1 + i, Time: time.UnixMicro(1).UTC(), Manifest: "deposited", Payload: data})
			}
			if errs := j.Append(b.Context(), []journal.Write{w}); errs != nil {
				b.Fatal(errs[0])
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for rec, err := range j.Replay(b.Context(), "account|1", 1, journal.MaxSequenceNr) {
				if err != nil {
					b.Fatal(err)
				}
				var e benchEvent
				if err := msgpack.Unmarshal(rec.Payload, &e); err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != benchReplay {
				b.Fatal(n)
			}
		}
		b.ReportMetric(float64(b.N)*benchReplay/b.Elapsed().Seconds(), "events/s")
	})
}

// scatteredEvent makes an event of about 250 bytes that compresses to about a half.
func scatteredEvent(rnd *rand.Rand, seqNr uint64) journal.Event {
	payload := fmt.Appendf(nil, `{"transfer":"%016x%016x","from":"account-%06d","to":"account-%06d","amount":%d,"currency":"EUR","reference":"invoice %d of 2026","balance":%d,"channel":"online","device":"%016x"}`,
		rnd.Uint64(), rnd.Uint64(), rnd.IntN(1e6), rnd.IntN(1e6), rnd.IntN(1e5), rnd.IntN(1e5), rnd.IntN(1e7), rnd.Uint64())
	return journal.Event{SequenceNr: seqNr, Time: time.UnixMicro(int64(seqNr)).UTC(), Manifest: "transferred", Payload: payload}
}

// BenchmarkScattered replays histories whose events were written in between those of other entities:
// 10,000 entities with 200 events each, in batches of 500 events of random entities. An iteration
// replays one entity. -benchtime=10000x replays each entity once, in random order.
func BenchmarkScattered(b *testing.B) {
	const entities, each, batch = 10_000, 200, 500
	rnd := rand.New(rand.NewPCG(1, 2))
	ids := make([]string, entities)
	turns := make([]int, 0, entities*each)
	for i := range ids {
		ids[i] = fmt.Sprintf("account|%d", i)
		for range each {
			turns = append(turns, i)
		}
	}
	rnd.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	dir := b.TempDir()
	db, err := leveldb.Open(dir, leveldb.Config{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	highest := make([]uint64, entities)
	for some := range slices.Chunk(turns, batch) {
		writes := make([]journal.Write, len(some))
		for i, entity := range some {
			e := scatteredEvent(rnd, highest[entity]+1)
			writes[i] = journal.Write{ID: ids[entity], Writer: "0192f0c1a2b3", Expect: highest[entity], Events: []journal.Event{e}}
			highest[entity]++
		}
		if errs := db.TestJournal().Append(b.Context(), writes); errs != nil {
			b.Fatal(errs[0])
		}
	}
	if err = db.Close(); err != nil {
		b.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	size := int64(0)
	for _, f := range files {
		info, failed := f.Info()
		if failed != nil {
			b.Fatal(failed)
		}
		size += info.Size()
	}
	if db, err = leveldb.Open(dir, leveldb.Config{}); err != nil {
		b.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // only measured
	rnd.Shuffle(entities, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	next := 0
	for b.Loop() {
		n := 0
		for _, err := range db.TestJournal().Replay(b.Context(), ids[next%entities], 1, journal.MaxSequenceNr) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != each {
			b.Fatal(n)
		}
		next++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entities/s")
	b.ReportMetric(float64(size)/entities/each, "disk-B/event")
}

// BenchmarkQuery reads 100,000 events of 1,000 persistence IDs in their order: all events, the
// events with a tag that one event in a hundred has, and the events of a quarter of the slices.
func BenchmarkQuery(b *testing.B) {
	db, err := leveldb.Open(b.TempDir(), leveldb.Config{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // only measured
	j := db.TestJournal()
	data := benchData(benchPayload)
	for n := range uint64(benchReplay / benchIDs) {
		writes := make([]journal.Write, benchIDs)
		for i := range writes {
			e := journal.Event{SequenceNr: n + 1, Time: time.UnixMicro(1).UTC(), Manifest: "deposited", Payload: data}
			if i%100 == 0 {
				e.Tags = []string{"rare"}
			}
			writes[i] = journal.Write{ID: fmt.Sprintf("account|%d", i), Writer: "0192f0c1a2b3", Expect: n, Events: []journal.Event{e}}
		}
		if errs := j.Append(b.Context(), writes); errs != nil {
			b.Fatal(errs[0])
		}
	}
	for _, c := range []struct {
		name string
		q    journal.Criteria
	}{
		{"all", journal.Criteria{}},
		{"tag", journal.Criteria{Tag: "rare"}},
		{"slices", journal.Criteria{Slices: journal.Slices{First: 256, Count: 256}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n = len(readAll(b, j, c.q))
			}
			b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkAppendBesideSnapshots stores one event per call, at most one call every 5 milliseconds. It
// reports the time from the due time of a call until its end, while another goroutine saves nothing
// or a snapshot of 16 MiB every second, in parts or as one record.
func BenchmarkAppendBesideSnapshots(b *testing.B) {
	const every, size = 5 * time.Millisecond, 16 << 20
	for _, c := range []struct {
		name string
		save bool
		part int
	}{
		{"none", false, 0},
		{"parts", true, 0},
		{"whole", true, size},
	} {
		b.Run(c.name, func(b *testing.B) {
			db, err := leveldb.Open(b.TempDir(), leveldb.Config{}.WithPart(c.part))
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close() //nolint:errcheck // only measured
			j, snapshots := db.TestJournal(), db.TestSnapshots()
			ctx, stop := context.WithCancel(b.Context())
			var saving sync.WaitGroup
			saved := 0
			saving.Go(func() {
				payload := benchData(size)
				for n := uint64(1); c.save && ctx.Err() == nil; n++ {
					began := time.Now()
					if err := snapshots.Save(context.WithoutCancel(ctx), snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "large|1", SequenceNr: n, Time: time.UnixMicro(1).UTC()}, Payload: payload}); err != nil {
						b.Error(err)
						return
					}
					saved++
					if n > 2 { // keep two
						if err := snapshots.Delete(context.WithoutCancel(ctx), "large|1", snapshot.Criteria{MaxSequenceNr: n - 2}); err != nil {
							b.Error(err)
							return
						}
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Second - time.Since(began)):
					}
				}
			})
			w := journal.Write{ID: "account|1", Writer: "0192f0c1a2b3", Events: []journal.Event{{Time: time.UnixMicro(1).UTC(), Manifest: "deposited", Payload: benchData(benchPayload)}}}
			var took []time.Duration
			due := time.Now()
			for b.Loop() {
				due = due.Add(every)
				<-time.After(time.Until(due))
				w.Events[0].SequenceNr++
				if errs := j.Append(b.Context(), []journal.Write{w}); errs != nil {
					b.Fatal(errs[0])
				}
				w.Expect++
				took = append(took, time.Since(due))
			}
			seconds := b.Elapsed().Seconds()
			stop()
			saving.Wait()
			slices.Sort(took)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(took[len(took)*p/100].Microseconds()), fmt.Sprintf("p%d-µs", p))
			}
			b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
			b.ReportMetric(float64(saved)/seconds, "snapshots/s")
		})
	}
}
