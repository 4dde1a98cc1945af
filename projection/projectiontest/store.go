// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projectiontest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
)

// Cases returns the cases that Run would run, for a caller that runs them in its own way.
func Cases(c Config) []Case {
	var cases []Case
	add := func(name, rule string, check func(p *probe)) {
		cases = append(cases, Case{Name: name, Rule: rule, run: func(t T) {
			check(&probe{T: t, cfg: c, store: c.Open(t), name: name + " " + rand.Text()})
		}})
	}
	add("LoadNothing", "an unknown projection has no positions", func(p *probe) { p.want() })
	add("SaveFirst", "the first positions are stored, in the order of their slices, and only once", func(p *probe) {
		whole := at(0, 1024, "7")
		p.save(nil, positions{at(0, 512, ""), at(512, 512, "3")})
		p.want(at(0, 512, ""), at(512, 512, "3"))
		p.fenced(nil, positions{whole})
		p.fenced(nil, positions{at(0, 256, ""), at(256, 256, ""), at(512, 256, ""), at(768, 256, "")})
		p.want(at(0, 512, ""), at(512, 512, "3"))
	})
	add("SaveMoves", "a move changes its position and no other", func(p *probe) {
		p.save(nil, positions{at(0, 512, ""), at(512, 512, "")})
		p.save(positions{at(512, 512, "")}, positions{at(512, 512, "20")})
		p.save(positions{at(512, 512, "20")}, positions{at(512, 512, "30")})
		p.save(positions{at(0, 512, "")}, positions{at(0, 512, "1")})
		p.want(at(0, 512, "1"), at(512, 512, "30"))
	})
	add("SaveStale", "a move from other positions than the stored ones is fenced and changes nothing", func(p *probe) {
		p.fenced(positions{at(0, 1024, "")}, positions{at(0, 1024, "1")})
		p.want()
		p.save(nil, positions{at(0, 1024, "5")})
		to := positions{at(0, 1024, "9")}
		p.fenced(positions{at(0, 1024, "4")}, to)
		p.fenced(positions{at(0, 1024, "6")}, to)
		p.fenced(positions{at(0, 1024, "")}, to)
		p.fenced(positions{at(0, 1024, "50")}, to)
		p.fenced(positions{at(0, 512, "5")}, positions{at(0, 512, "9")})
		p.fenced(positions{{Slices: journal.Slices{First: 0, Count: 1024}, Offset: "5", Clear: true}}, to)
		p.want(at(0, 1024, "5"))
	})
	add("SaveIsAtomic", "a move is executed completely or not at all", func(p *probe) {
		p.save(nil, positions{at(0, 512, "1"), at(512, 512, "2")})
		p.fenced(positions{at(0, 512, "1"), at(512, 512, "3")}, positions{at(0, 512, "8"), at(512, 512, "9")})
		p.fenced(positions{at(0, 512, "0"), at(512, 512, "2")}, positions{at(0, 512, "8"), at(512, 512, "9")})
		p.want(at(0, 512, "1"), at(512, 512, "2"))
		p.save(positions{at(0, 512, "1"), at(512, 512, "2")}, positions{at(0, 512, "8"), at(512, 512, "9")})
		p.want(at(0, 512, "8"), at(512, 512, "9"))
	})
	add("SaveDivides", "a move can divide a range, or join ranges", func(p *probe) {
		p.save(nil, positions{at(0, 512, "1"), at(512, 512, "2")})
		p.save(positions{at(512, 512, "2")}, positions{at(512, 256, "2"), at(768, 256, "2")})
		p.want(at(0, 512, "1"), at(512, 256, "2"), at(768, 256, "2"))
		p.save(positions{at(512, 256, "2"), at(768, 256, "2")}, positions{at(512, 512, "2")})
		p.want(at(0, 512, "1"), at(512, 512, "2"))
		p.fenced(positions{at(512, 256, "2")}, positions{at(512, 256, "3")})
		p.want(at(0, 512, "1"), at(512, 512, "2"))
	})
	add("SaveSame", "a move to the same position succeeds", func(p *probe) {
		whole := positions{at(0, 1024, "5")}
		p.save(nil, whole)
		p.save(whole, whole)
		p.want(whole...)
	})
	add("SaveOneWinner", "one of several concurrent moves from the same position succeeds", func(p *probe) {
		from := positions{at(0, 1024, "0")}
		p.save(nil, from)
		for round := range 20 {
			next := positions{at(0, 1024, journal.Offset(strings.Repeat("x", round+1)))}
			if won := p.race(8, func(int) projection.Move { return p.move(from, next) }); won != 1 {
				p.Errorf("%d of 8 moves from the same position succeeded, want 1", won)
			}
			from = next
		}
		p.want(from...)
	})
	add("SaveOneBegins", "one of several concurrent first moves succeeds", func(p *probe) {
		won := p.race(8, func(i int) projection.Move {
			if i%2 == 0 {
				return p.move(nil, positions{at(0, 1024, "")})
			}
			return p.move(nil, positions{at(0, 512, ""), at(512, 512, "")})
		})
		if won != 1 {
			p.Errorf("%d of 8 first moves succeeded, want 1", won)
		}
		stored, err := p.store.Load(p.Context(), p.name)
		if err != nil || len(stored) == 0 || len(stored) > 2 || stored[len(stored)-1].Slices.First+stored[len(stored)-1].Slices.Count != 1024 {
			p.Errorf("Load = %v, %v, want the positions of one of the moves", stored, err)
		}
	})
	add("SaveRetainsNoSlices", "the store keeps no slice of a move", func(p *probe) {
		to := positions{at(0, 1024, "1")}
		p.save(nil, to)
		to[0].Offset = "changed"
		p.want(at(0, 1024, "1"))
		loaded, err := p.store.Load(p.Context(), p.name)
		if err != nil {
			p.Fatalf("Load: %v", err)
		}
		loaded[0].Offset = "changed"
		p.want(at(0, 1024, "1"))
	})
	add("ResetMarks", "a reset sets all positions to the beginning, with the mark", func(p *probe) {
		p.save(nil, positions{at(0, 512, "1"), at(512, 512, "")})
		for range 2 {
			if err := p.store.Reset(p.Context(), p.name); err != nil {
				p.Fatalf("Reset: %v", err)
			}
			p.want(marked(0, 512), marked(512, 512))
		}
	})
	add("ResetNothing", "a reset of an unknown projection has no effect", func(p *probe) {
		if err := p.store.Reset(p.Context(), p.name); err != nil {
			p.Errorf("Reset: %v", err)
		}
		p.want()
	})
	add("ResetFences", "a reset fences earlier moves, and a move can remove the mark", func(p *probe) {
		p.save(nil, positions{at(0, 512, "1"), at(512, 512, "")})
		if err := p.store.Reset(p.Context(), p.name); err != nil {
			p.Fatalf("Reset: %v", err)
		}
		p.fenced(positions{at(0, 512, "1")}, positions{at(0, 512, "2")})
		p.fenced(positions{at(512, 512, "")}, positions{at(512, 512, "2")})
		p.save(positions{marked(0, 512), marked(512, 512)}, positions{at(0, 1024, "")})
		p.want(at(0, 1024, ""))
	})
	add("ResetClaimed", "one process at a time claims marked positions, the claim remains after the rebuild, and a reset removes it", func(p *probe) {
		claim := func(name string) positions {
			claimed := positions{marked(0, 512), marked(512, 512)}
			claimed[0].Claim, claimed[1].Claim = name, name
			return claimed
		}
		p.save(nil, positions{at(0, 512, "1"), at(512, 512, "")})
		if err := p.store.Reset(p.Context(), p.name); err != nil {
			p.Fatalf("Reset: %v", err)
		}
		free := positions{marked(0, 512), marked(512, 512)}
		p.save(free, claim("one"))
		p.want(claim("one")...)
		p.fenced(free, claim("two"))
		p.fenced(free, positions{at(0, 1024, "")})
		p.save(claim("one"), claim("two"))
		p.fenced(claim("one"), positions{at(0, 1024, "")})
		if err := p.store.Reset(p.Context(), p.name); err != nil {
			p.Fatalf("Reset: %v", err)
		}
		p.want(free...)
		p.fenced(claim("two"), positions{at(0, 1024, "")})
		p.save(free, claim("three"))
		begin := at(0, 1024, "")
		begin.Claim = "three"
		p.save(claim("three"), positions{begin})
		p.want(begin)
		p.fenced(positions{at(0, 1024, "")}, positions{at(0, 1024, "1")}) // the first position of an earlier rebuild
		next := begin
		next.Offset = "1"
		p.save(positions{begin}, positions{next})
		p.want(next)
	})
	add("NamesApart", "projections with similar names are independent", func(p *probe) {
		names := []string{
			p.name, p.name + " ", p.name + "%", p.name + "_", strings.ToUpper(p.name), p.name + "'", p.name + `"`, p.name + `\`,
			p.name + "é", p.name + "e\u0301", p.name + "日本", p.name + "🏦", p.name + strings.Repeat("n", 255-len(p.name)),
		}
		for i, name := range names {
			first := projection.Move{Projection: name, To: positions{at(0, 1024, journal.Offset(rune('a'+i)))}}
			if err := p.store.Save(p.Context(), first); err != nil {
				p.Errorf("Save for %q: %v", name, err)
			}
		}
		for i, name := range names {
			p.wantIn(p.store, name, at(0, 1024, journal.Offset(rune('a'+i))))
		}
		if err := p.store.Reset(p.Context(), names[0]); err != nil {
			p.Errorf("Reset: %v", err)
		}
		p.wantIn(p.store, names[0], marked(0, 1024))
		p.wantIn(p.store, names[1], at(0, 1024, "b"))
	})
	add("Offsets", "any offset of up to 64 printable bytes is returned unchanged", func(p *probe) {
		from := positions{at(0, 1024, "")}
		p.save(nil, from)
		for _, offset := range []journal.Offset{"0", "00", "pg-1", "a b", `'"\%_`, journal.Offset(strings.Repeat("9", 64)), " 1", "1 ", "A", "a", ""} {
			to := positions{at(0, 1024, offset)}
			p.save(from, to)
			p.want(to...)
			from = to
		}
	})
	add("ContextEnded", "a call whose context has ended fails and changes nothing", func(p *probe) {
		p.save(nil, positions{at(0, 1024, "1")})
		ctx, cancel := context.WithCancel(p.Context())
		cancel()
		if _, err := p.store.Load(ctx, p.name); !errors.Is(err, context.Canceled) {
			p.Errorf("Load: %v, want context.Canceled", err)
		}
		if err := p.store.Save(ctx, p.move(positions{at(0, 1024, "1")}, positions{at(0, 1024, "2")})); !errors.Is(err, context.Canceled) {
			p.Errorf("Save: %v, want context.Canceled", err)
		}
		if err := p.store.Reset(ctx, p.name); !errors.Is(err, context.Canceled) {
			p.Errorf("Reset: %v, want context.Canceled", err)
		}
		p.want(at(0, 1024, "1"))
	})
	if c.Reopen != nil {
		add("SurvivesReopen", "saved positions are visible to another process", func(p *probe) {
			p.save(nil, positions{at(0, 512, ""), at(512, 512, "")})
			p.save(positions{at(0, 512, "")}, positions{at(0, 512, "1")})
			p.wantIn(p.cfg.Reopen(p.T, p.store), p.name, at(0, 512, "1"), at(512, 512, ""))
		})
	}
	return cases
}

// race makes calls at the same time and returns how many succeeded. The others must be fenced.
func (p *probe) race(calls int, save func(i int) projection.Move) int {
	p.Helper()
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = p.store.Save(p.Context(), save(i)) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, projection.ErrFenced) {
			p.Errorf("Save: %v, want nil or ErrFenced", err)
		}
	}
	return won
}
