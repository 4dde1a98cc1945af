// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	goleveldb "github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

func (b *run) rawDB(f func(*goleveldb.DB) error) error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	db, err := goleveldb.OpenFile(dir, leveldb.Options())
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = f(db)
	return errors.Join(err, db.Close(), os.RemoveAll(dir))
}

// rawBatches writes synced batches of entries with a 16-byte key and a 200-byte value from one
// goroutine. It returns the time of each batch and the entries per second.
func (b *run) rawBatches(size int) (samples []time.Duration, rate float64, err error) {
	err = b.rawDB(func(db *goleveldb.DB) error {
		rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
		batch := new(goleveldb.Batch)
		n := 0
		start := time.Now()
		for n == 0 || time.Since(start) < b.settings.Length { // at least once
			batch.Reset()
			for range size {
				n++
				var key [16]byte
				binary.BigEndian.PutUint64(key[:], rng.Uint64N(1000))
				binary.BigEndian.PutUint64(key[8:], uint64(n))
				batch.Put(key[:], noteOf(n, 200))
			}
			began := time.Now()
			if err = db.Write(batch, &opt.WriteOptions{Sync: true}); err != nil {
				return err
			}
			samples = append(samples, time.Since(began))
		}
		rate = float64(n) / time.Since(start).Seconds()
		return nil
	})
	return samples, rate, err
}

// rawChannels measures request and reply over channels, with one goroutine per entity.
func (b *run) rawChannels(entities, callers int) (float64, error) {
	type request struct {
		command add
		reply   chan int64
	}
	inboxes := make([]chan request, entities)
	done := make(chan struct{}, entities)
	for i := range inboxes {
		inboxes[i] = make(chan request)
		go func() {
			defer func() { done <- struct{}{} }()
			var sum int64
			for r := range inboxes[i] {
				sum += r.command.N
				r.reply <- sum
			}
		}()
	}
	rngs := randoms(callers)
	replies := make([]chan int64, callers)
	for i := range replies {
		replies[i] = make(chan int64, 1)
	}
	c, err := together(callers, b.settings.Length, func(caller, n int) error {
		inboxes[rngs[caller].IntN(entities)] <- request{add{N: 1, Note: noteOf(caller*31+n, noteSize)}, replies[caller]}
		if sum := <-replies[caller]; sum < 1 {
			return fmt.Errorf("wrong reply %d", sum)
		}
		return nil
	})
	for _, inbox := range inboxes {
		close(inbox)
	}
	for range inboxes {
		<-done
	}
	return c.rate(), err
}

// parseJournal splits the address of a journal into its scheme and its directory or DSN.
func parseJournal(address string) (scheme, dir string, err error) {
	if address == "" {
		return "", "", nil
	}
	scheme, dir, found := strings.Cut(address, ":")
	switch {
	case address == "postgres:":
		return "postgres", "", nil // a private server
	case strings.HasPrefix(address, "postgres://"), strings.HasPrefix(address, "postgresql://"):
		return "postgres", address, nil
	case !found, scheme != "inmem" && scheme != "leveldb" && scheme != "nats", scheme != "leveldb" && dir != "":
		return "", "", fmt.Errorf("bench: --journal %q: must be inmem:, leveldb:, leveldb:DIR, nats:, postgres: or a PostgreSQL URL", address)
	}
	return scheme, dir, nil
}

type database struct {
	journal   journal.Journal
	snapshots snapshot.Store
	schema    string
	close     func() error
}

func (b *run) opened(ctx context.Context, f func(s *database) error) (err error) {
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return f(s)
}

// open opens an empty store. LevelDB's directory is removed when the store is closed.
func (b *run) open(ctx context.Context) (*database, error) {
	if b.scheme == "postgres" {
		return b.openPostgres(ctx)
	}
	if b.scheme == "inmem" {
		j, s := inmem.NewJournal(), &inmem.SnapshotStore{}
		return &database{journal: j, snapshots: s, close: func() error { return errors.Join(j.Close(), s.Close()) }}, nil
	}
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) }
	return &database{journal: db.Journal(), snapshots: db.Snapshots(), close: stop}, nil
}

// again opens a store again, as another process does, if its journal permits it. Otherwise it returns the
// same store.
func (b *run) again(ctx context.Context, d *database) (*database, error) {
	if b.scheme == "postgres" {
		return b.openSchema(ctx, d.schema)
	}
	return &database{journal: d.journal, snapshots: d.snapshots, close: func() error { return nil }}, nil
}

func (b *run) folder() (string, error) {
	if b.dir != "" {
		if err := os.MkdirAll(b.dir, 0o750); err != nil {
			return "", fmt.Errorf("bench: %w", err)
		}
	}
	dir, err := os.MkdirTemp(b.dir, "refold-bench-")
	if err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	return dir, nil
}
