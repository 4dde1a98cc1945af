// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durabletest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/refold-io/refold/ddata/durable"
)

func diskChecks() []check {
	return []check{
		{name: "Crash", rule: "after a crash, acknowledged records are on disk and replaced records do not return", needs: func(c Config) bool { return c.Crash != nil }, run: crash},
		{name: "Shrink", rule: "the space of replaced and deleted records is reclaimed", needs: func(c Config) bool { return c.Size != nil }, run: shrink},
		{name: "Damaged", rule: "a damaged record is reported with its location, not skipped", needs: func(c Config) bool { return c.Damage != nil }, run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "first"), put("b", strings.Repeat("the one", 20)), put("c", "last"))
			f.close(s)
			f.cfg.Damage(f.TB, f.o, carts(), "b")
			s, err := f.o.Open(f.ctx, carts())
			if err != nil {
				if !errors.Is(err, durable.ErrCorrupt) {
					f.Errorf("Open: %v, want ErrCorrupt", err)
				}
				return
			}
			records, err := f.tryLoad(s)
			if !errors.Is(err, durable.ErrCorrupt) || err.Error() == durable.ErrCorrupt.Error() {
				f.Errorf("Load: %s, %v, want an ErrCorrupt that contains the key or the location", show(records), err)
			}
			for _, r := range records {
				if r.Key == "b" {
					f.Errorf("Load yielded the damaged record: %.40q", r.Data)
				}
			}
			f.close(s)
		}},
		{name: "Format", rule: "a store of another format is rejected and not changed", needs: func(c Config) bool { return c.Alter != nil }, run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"))
			f.close(s)
			f.cfg.Alter(f.TB, f.o, carts())
			for range 2 {
				f.wantOpenError(carts(), func(err error) bool { return errors.Is(err, durable.ErrVersion) }, "ErrVersion")
			}
		}},
		{name: "Foreign", rule: "other data is rejected and not changed", needs: func(c Config) bool { return c.Replace != nil }, run: func(f *fixture) {
			f.cfg.Replace(f.TB, f.o, carts())
			for range 2 {
				f.wantOpenError(carts(), func(err error) bool { return errors.Is(err, durable.ErrForeign) }, "ErrForeign")
			}
		}},
		{name: "Fail", rule: "a failed write returns an error, and the store stays usable", needs: func(c Config) bool { return c.Fail != nil }, run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"), put("b", "1"), put("c", "1"))
			for round := range 3 {
				heal := f.cfg.Fail(f.TB, f.o, s)
				for range 3 {
					if err := s.Write(f.ctx, []durable.Record{put("a", "failed"), put("b", ""), put("d", "failed")}); err == nil {
						f.Fatalf("round %d: Write to a failing disk returned nil", round)
					} else if errors.Is(err, durable.ErrClosed) || errors.Is(err, durable.ErrInvalid) {
						f.Errorf("round %d: Write: %v", round, err)
					}
				}
				heal()
				healed := []durable.Record{put("a", fmt.Sprint(round)), put("b", "2"), put("d", "")}
				err := s.Write(f.ctx, healed)
				for err != nil && f.ctx.Err() == nil && !errors.Is(err, durable.ErrClosed) { // the store need not retry in each call
					runtime.Gosched()
					err = s.Write(f.ctx, healed)
				}
				if err != nil {
					f.Fatalf("round %d: Write after the disk recovered: %v", round, err)
				}
				f.want(s, fmt.Sprintf("round %d", round), put("a", fmt.Sprint(round)), put("b", "2"), put("c", "1"))
			}
			f.want(f.reopen(s), "opened again", put("a", "2"), put("b", "2"), put("c", "1"))
		}},
	}
}

// crash simulates a crash after each of several calls, because a single record could be on disk by
// chance.
func crash(f *fixture) {
	all := content{}
	s := f.open(carts())
	for n := range 12 {
		if n > 0 {
			f.o = f.cfg.Crash(f.TB, f.o)
			s = f.open(carts())
			f.want(s, fmt.Sprintf("crash %d", n), all.records()...)
		}
		for call := range n%3 + 1 {
			replaced, added, removed := fmt.Sprint("key-", n%4), fmt.Sprint("new-", n, call), fmt.Sprint("new-", n-3, call)
			all[replaced], all[added] = strings.Repeat("x", n*1000+1), fmt.Sprint(n)
			delete(all, removed)
			f.write(s, put(replaced, all[replaced]), put(added, all[added]), put(removed, ""))
		}
	}
}

// shrink stores more incompressible data than any store may retain.
func shrink(f *fixture) {
	const records, size, slack = 200, 100 << 10, 12 << 20
	s := f.open(carts())
	fill := random(2)
	write := func(data func() []byte) {
		var batch []durable.Record
		for i := range records {
			batch = append(batch, durable.Record{Key: fmt.Sprint("key-", i), Data: data()})
			if len(batch) == 20 {
				f.write(s, batch...)
				batch = nil
			}
		}
	}
	for range 3 {
		write(func() []byte { return fill(size) })
	}
	if got, most := f.cfg.Size(f.TB, f.o, s), int64(records*size*2+slack); got > most {
		f.Errorf("after two replacements: the store takes up %d bytes, want at most %d", got, most)
	}
	write(func() []byte { return nil })
	if got := f.cfg.Size(f.TB, f.o, s); got > slack {
		f.Errorf("after all keys were deleted: the store takes up %d bytes, want at most %d", got, slack)
	}
	f.want(s, "all deleted")
}
