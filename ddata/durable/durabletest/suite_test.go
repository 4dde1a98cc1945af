// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durabletest_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/ddata/durable/durabletest"
	"github.com/refold-io/refold/internal/testkit/recorder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type planted struct {
	finds []string
	bug   bug
}

// mapped is a store that changes records before writing them.
func mapped(f func(s *store, records []durable.Record) []durable.Record) bug {
	return bug{write: func(ctx context.Context, s *store, records []durable.Record) error {
		return s.Store.Write(ctx, f(s, slices.Clone(records)))
	}}
}

// listed is a store that changes the loaded records.
func listed(f func(all []durable.Record) []durable.Record) bug {
	return bug{load: func(ctx context.Context, s *store) iter.Seq2[durable.Record, error] {
		return func(yield func(durable.Record, error) bool) {
			for _, r := range f(s.all(ctx)) {
				if !yield(r, nil) {
					return
				}
			}
		}
	}}
}

func recordBugs() map[string]planted {
	return map[string]planted{
		"a new store contains a record": {[]string{"Empty"}, listed(func(all []durable.Record) []durable.Record {
			return append(all, durable.Record{Key: "\xff\xff\xff", Data: []byte("format 1")})
		})},
		"records are loaded in another order": {[]string{"Order"}, listed(func(all []durable.Record) []durable.Record {
			slices.Reverse(all)
			return all
		})},
		"Load yields 100 records at most": {[]string{"Order", "View"}, listed(func(all []durable.Record) []durable.Record { return all[:min(len(all), 100)] })},
		"the first record of a key stays": {[]string{"Replace"}, mapped(func(s *store, records []durable.Record) []durable.Record {
			held := s.all(context.Background())
			return slices.DeleteFunc(records, func(r durable.Record) bool {
				return len(r.Data) > 0 && slices.ContainsFunc(held, func(h durable.Record) bool { return h.Key == r.Key })
			})
		})},
		"the first of several records of a key is stored": {[]string{"LastOfKey"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			slices.Reverse(records)
			return records
		})},
		"deletions are executed before writes": {[]string{"LastOfKey"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			slices.SortStableFunc(records, func(a, b durable.Record) int { return min(len(a.Data), 1) - min(len(b.Data), 1) })
			return records
		})},
		"deletions are ignored": {[]string{"Delete"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			return slices.DeleteFunc(records, func(r durable.Record) bool { return len(r.Data) == 0 })
		})},
		"stores empty data as a record": {[]string{"Delete"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			for i, r := range records {
				if r.Data != nil && len(r.Data) == 0 {
					records[i].Data = []byte("nothing")
				}
			}
			return records
		})},
		"ignores case": {[]string{"Keys"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			for i := range records {
				records[i].Key = strings.ToLower(records[i].Key)
			}
			return records
		})},
		"keys are cut at a zero byte": {[]string{"Keys"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			for i := range records {
				records[i].Key, _, _ = strings.Cut(records[i].Key+"\x00", "\x00")
			}
			return slices.DeleteFunc(records, func(r durable.Record) bool { return r.Key == "" })
		})},
		"trims data": {[]string{"Data"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			for i, r := range records {
				records[i].Data = bytes.TrimRight(r.Data, "\x00")
			}
			return records
		})},
		"long data is cut off": {[]string{"Data"}, mapped(func(_ *store, records []durable.Record) []durable.Record {
			for i, r := range records {
				records[i].Data = r.Data[:min(len(r.Data), 1<<20)]
			}
			return records
		})},
		"an invalid call stores its first records": {[]string{"Invalid"}, bug{write: func(ctx context.Context, s *store, records []durable.Record) error {
			for _, r := range records {
				if err := s.Store.Write(ctx, []durable.Record{r}); err != nil {
					return err
				}
			}
			return nil
		}}},
		"accepts invalid IDs": {[]string{"InvalidID"}, bug{id: func(id durable.ID) durable.ID {
			if id.Check() != nil {
				return durable.ID{Node: "n", Replicator: "r"}
			}
			return id
		}}},
		"written slices are retained": {[]string{"NotKept"}, bug{
			write: func(_ context.Context, s *store, records []durable.Record) error {
				if s.slices == nil {
					s.slices = make(map[string][]byte)
				}
				for _, r := range records {
					s.slices[r.Key] = r.Data
				}
				return nil
			},
			load: shared,
		}},
		"loaded slices are shared": {[]string{"NotKept"}, bug{
			write: func(_ context.Context, s *store, records []durable.Record) error {
				if s.slices == nil {
					s.slices = make(map[string][]byte)
				}
				for _, r := range records {
					s.slices[r.Key] = bytes.Clone(r.Data)
				}
				return nil
			},
			load: shared,
		}},
	}
}

func shared(_ context.Context, s *store) iter.Seq2[durable.Record, error] {
	return func(yield func(durable.Record, error) bool) {
		for _, key := range []string{"a", "b"} {
			if data := s.slices[key]; data != nil && !yield(durable.Record{Key: key, Data: data}, nil) {
				return
			}
		}
	}
}

func lifeBugs() map[string]planted {
	return map[string]planted{
		"Close loses data": {[]string{"Persist"}, bug{close: func(s *store) error {
			for _, r := range s.all(context.Background()) {
				_ = s.Store.Write(context.Background(), []durable.Record{{Key: r.Key}})
			}
			return s.Store.Close()
		}}},
		"IDs ignore case": {[]string{"Apart"}, bug{id: func(id durable.ID) durable.ID {
			return durable.ID{Node: strings.ToLower(id.Node), Replicator: id.Replicator}
		}}},
		"the names of node and replicator are joined": {[]string{"Apart"}, bug{id: func(id durable.ID) durable.ID {
			return durable.ID{Node: "n", Replicator: (id.Node + ":" + id.Replicator)[:min(len(id.String())-3, 128)]}
		}}},
		"one store per node": {[]string{"Apart", "InUse"}, bug{id: func(id durable.ID) durable.ID { return durable.ID{Node: id.Node, Replicator: "r"} }}},
		"an open store is opened again": {[]string{"InUse"}, bug{open: func(ctx context.Context, o *opener, id durable.ID) (durable.Store, error) {
			s, err := o.sound(ctx, id)
			if errors.Is(err, durable.ErrInUse) {
				return &store{Store: o.open[id].Store, o: o, id: id}, nil
			}
			return s, err
		}}},
		"a closed store stays locked": {[]string{"InUse", "Persist"}, bug{close: func(*store) error { return nil }}},
		"a second Close releases the lock": {[]string{"InUse"}, bug{close: func(s *store) error {
			return s.o.open[s.id].Store.Close()
		}}},
		"the end of a loop closes the store": {[]string{"Stop"}, bug{load: func(ctx context.Context, s *store) iter.Seq2[durable.Record, error] {
			return func(yield func(durable.Record, error) bool) {
				for r, err := range s.Store.Load(ctx) {
					if !yield(r, err) {
						_ = s.Store.Close()
						return
					}
				}
			}
		}}},
		"Load works only once": {[]string{"Stop"}, bug{load: func(ctx context.Context, s *store) iter.Seq2[durable.Record, error] {
			all := s.all(ctx)
			return func(yield func(durable.Record, error) bool) {
				for len(all) > 0 {
					r := all[0]
					if all = all[1:]; !yield(r, nil) {
						return
					}
				}
			}
		}}},
		"loads records that are written during the loop": {[]string{"View"}, bug{load: func(ctx context.Context, s *store) iter.Seq2[durable.Record, error] {
			return func(yield func(durable.Record, error) bool) {
				for last := ""; ; {
					all := s.all(ctx)
					i := slices.IndexFunc(all, func(r durable.Record) bool { return r.Key > last })
					if i < 0 || !yield(all[i], nil) {
						return
					}
					last = all[i].Key
				}
			}
		}}},
		"concurrent writes fail": {[]string{"Concurrent"}, oneAtATime()},
		"Write during Close is acknowledged and lost": {[]string{"CloseWaits", "Closed"}, bug{write: func(ctx context.Context, s *store, records []durable.Record) error {
			if err := s.Store.Write(ctx, records); !errors.Is(err, durable.ErrClosed) || s.late.Add(1) > 4 {
				return err
			}
			return nil
		}}},
		"Write ignores the context": {[]string{"Cancelled"}, bug{write: func(ctx context.Context, s *store, records []durable.Record) error {
			return s.Store.Write(context.WithoutCancel(ctx), records)
		}}},
		"Write stores after the end of the context": {[]string{"Cancelled"}, bug{write: func(ctx context.Context, s *store, records []durable.Record) error {
			_ = s.Store.Write(context.WithoutCancel(ctx), records)
			return context.Cause(ctx)
		}}},
		"Load ignores the context":   {[]string{"Cancelled"}, listed(func(all []durable.Record) []durable.Record { return all })},
		"Write succeeds after Close": {[]string{"Closed"}, bug{write: func(context.Context, *store, []durable.Record) error { return nil }}},
		"a second Close fails": {[]string{"Closed"}, bug{close: func(s *store) error {
			if s.late.Add(1) > 1 {
				return durable.ErrClosed
			}
			return s.Store.Close()
		}}},
	}
}

// oneAtATime makes one call wait until a second call is made. The second call fails.
func oneAtATime() bug {
	var calls atomic.Int64
	second := make(chan struct{})
	return bug{write: func(ctx context.Context, s *store, records []durable.Record) error {
		switch calls.Add(1) {
		case 1:
			select {
			case <-second:
			case <-ctx.Done():
			}
		case 2:
			close(second)
			return errors.New("busy")
		}
		return s.Store.Write(ctx, records)
	}}
}

func diskBugs() map[string]planted {
	last := func(s *store) []durable.Record { return s.kept }
	return map[string]planted{
		"Write returns before records are on disk": {[]string{"Crash"}, bug{crash: last, write: func(ctx context.Context, s *store, records []durable.Record) error {
			s.kept = nil
			held := s.all(ctx)
			for _, r := range records { // the state after a crash
				old := durable.Record{Key: r.Key}
				if i := slices.IndexFunc(held, func(h durable.Record) bool { return h.Key == r.Key }); i >= 0 {
					old = held[i]
				}
				s.kept = append(s.kept, old)
			}
			return s.Store.Write(ctx, records)
		}}},
		"deleted records return": {[]string{"Crash"}, bug{crash: last, write: func(ctx context.Context, s *store, records []durable.Record) error {
			for _, h := range s.all(ctx) {
				if slices.ContainsFunc(records, func(r durable.Record) bool { return r.Key == h.Key && len(r.Data) == 0 }) {
					s.kept = append(s.kept, h)
				}
			}
			return s.Store.Write(ctx, records)
		}}},
		"space is never reclaimed":      {[]string{"Shrink"}, bug{never: true}},
		"invalid data is accepted":      {[]string{"Damaged", "Format", "Foreign"}, bug{blind: true}},
		"failed writes return no error": {[]string{"Fail"}, bug{broken: func(context.Context, *store, []durable.Record) error { return nil }}},
		"a failed write closes the store": {[]string{"Fail"}, bug{broken: func(_ context.Context, s *store, _ []durable.Record) error {
			_ = s.Store.Close()
			return errDisk
		}}},
		"failed records return": {[]string{"Fail"}, bug{
			broken: func(_ context.Context, s *store, records []durable.Record) error {
				s.kept = slices.Clone(records)
				return errDisk
			},
			write: func(ctx context.Context, s *store, records []durable.Record) error {
				return s.Store.Write(ctx, slices.Concat(records, s.kept))
			},
		}},
	}
}

// Each check finds its planted bugs, and each check has a bug.
func TestBugs(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, some := range []map[string]planted{recordBugs(), lifeBugs(), diskBugs()} {
		for name, p := range some {
			for _, check := range p.finds {
				found[check] = true
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cfg := config(p.bug)
				cfg.Limit = 5 * time.Second
				for _, check := range p.finds {
					failures := recorder.Find(t, func(tb testing.TB) { durabletest.RunOne(tb, cfg, check) })
					if len(failures) == 0 {
						t.Errorf("%s did not find the bug", check)
						continue
					}
					t.Logf("%s: %s", check, failures[0])
				}
			})
		}
	}
	for _, name := range durabletest.Names() {
		if !found[name] {
			t.Errorf("no bug is planted for %s", name)
		}
	}
	for name := range found {
		if !slices.Contains(durabletest.Names(), name) {
			t.Errorf("a bug is planted for %s, which does not exist", name)
		}
	}
}
