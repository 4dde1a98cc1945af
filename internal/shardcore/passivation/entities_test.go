// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	core "github.com/refold-io/refold/internal/shardcore/passivation"
	"github.com/refold-io/refold/sharding/passivation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entities(tb testing.TB, s passivation.Settings, limit int) *core.Entities {
	tb.Helper()
	e, err := core.New(s, limit)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// play touches one entity for each letter. It returns the script with the stopped entities in
// parentheses after the letter that stopped them. -x removes x, and a digit sets the limit.
func play(e *core.Entities, script string) string {
	var out strings.Builder
	note := func(ids []string) {
		if len(ids) > 0 {
			out.WriteString("(" + strings.Join(ids, "") + ")")
		}
	}
	for i := 0; i < len(script); i++ {
		c := script[i]
		switch {
		case c == '-':
			i++
			e.Remove(script[i : i+1])
			out.WriteString(script[i-1 : i+1])
		case c >= '0' && c <= '9':
			out.WriteByte(c)
			note(e.SetLimit(int(c - '0')))
		default:
			out.WriteByte(c)
			note(e.Touch(time.Duration(i), script[i:i+1]))
		}
	}
	return out.String()
}

// stack is a strategy that stops the most recently used entity.
type stack struct{ ids []string }

func (s *stack) Remove(id string) {
	s.ids = slices.DeleteFunc(s.ids, func(other string) bool { return other == id })
}

func (s *stack) Touch(id string) {
	s.Remove(id)
	s.ids = append(s.ids, id)
}

func (s *stack) Next() string { return s.ids[len(s.ids)-1] }

// mistaken is a strategy whose Next returns an unknown entity.
type mistaken struct{ stack }

func (*mistaken) Next() string { return "unknown" }

func TestLimit(t *testing.T) {
	t.Parallel()
	recent := passivation.Settings{Limit: 1}
	custom := passivation.Settings{Limit: 1, NewStrategy: func() passivation.Strategy { return &stack{} }}
	unknown := passivation.Settings{Limit: 1, NewStrategy: func() passivation.Strategy { return &mistaken{} }}
	for name, test := range map[string]struct {
		settings passivation.Settings
		limit    int
		want     string
	}{
		"least recent":                {recent, 3, "abcd(a)e(b)"},
		"least recent, used again":    {recent, 3, "abcad(b)ae(c)"},
		"least recent, smaller limit": {recent, 4, "abcda2(bc)"},
		"least recent, larger limit":  {recent, 2, "ab4cde(a)"},
		"least recent, removed":       {recent, 3, "abc-ade(b)"},
		"least recent, limit 0":       {recent, 0, "a(a)a(a)b(b)"},
		"least recent, limit 0 later": {recent, 3, "abc0(abc)d(d)"},
		"strategy":                    {custom, 3, "abcd(c)e(d)"},
		"strategy, used again":        {custom, 3, "abcad(a)"},
		"strategy, smaller limit":     {custom, 4, "abcda2(ad)"},
		"strategy, removed":           {custom, 3, "abc-cde(d)"},
		"strategy, limit 0":           {custom, 0, "a(a)"},
		"strategy, unknown entity":    {unknown, 2, "abac(b)"},
	} {
		script := strings.NewReplacer("(", "<", ")", ">").Replace(test.want)
		for from := strings.IndexByte(script, '<'); from >= 0; from = strings.IndexByte(script, '<') {
			script = script[:from] + script[strings.IndexByte(script, '>')+1:]
		}
		if got := play(entities(t, test.settings, test.limit), script); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	const second = time.Second
	e := entities(t, passivation.Settings{}, 0)
	if e.Next() != core.Never {
		t.Errorf("Next() without entities = %v, want Never", e.Next())
	}
	for _, id := range []string{"a", "b", "c"} {
		if got := e.Touch(0, id); len(got) > 0 {
			t.Errorf("stopped %v, want none", got)
		}
	}
	e.Touch(30*second, "a")
	e.Remove("b")
	if e.Next() != 60*second || e.Limit() != -1 {
		t.Errorf("Next() = %v, Limit() = %d, want 1m and -1", e.Next(), e.Limit())
	}
	for _, step := range []struct {
		at, next time.Duration
		want     []string
	}{
		{59 * second, 60 * second, nil},
		{60 * second, 120 * second, nil},
		{120 * second, 180 * second, nil}, // no entity is idle for longer than 120 seconds
		{179 * second, 180 * second, nil}, // no check is due
		{180 * second, core.Never, []string{"c", "a"}},
		{500 * second, core.Never, nil},
	} {
		if got := e.Tick(step.at); !slices.Equal(got, step.want) || e.Next() != step.next {
			t.Errorf("at %v: stopped %v, Next() = %v, want %v, %v", step.at, got, e.Next(), step.want, step.next)
		}
	}
	if e.Touch(600*second, "d"); e.Next() != 660*second || e.Len() != 1 {
		t.Errorf("Next() = %v with %d active entities, want 11m and 1", e.Next(), e.Len())
	}
}

// Idle entities make room for others.
func TestIdleWithALimit(t *testing.T) {
	t.Parallel()
	e := entities(t, passivation.Settings{Limit: 1, IdleTimeout: 10, IdleInterval: 1}, 2)
	e.Touch(0, "a")
	e.Touch(5, "b")
	if got := e.Tick(11); !slices.Equal(got, []string{"a"}) {
		t.Errorf("stopped idle entities %v, want a", got)
	}
	if got := e.Touch(11, "c"); len(got) > 0 {
		t.Errorf("stopped %v below the limit, want none", got)
	}
	if got := e.Touch(12, "d"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("stopped %v, want b", got)
	}
	if got := entities(t, passivation.Settings{Limit: 1}, 2); got.Touch(0, "a") != nil || got.Next() != core.Never {
		t.Error("a limit sets an idle timeout by default")
	}
}

func TestNothingIsTracked(t *testing.T) {
	t.Parallel()
	for _, s := range []passivation.Settings{{Disabled: true, Limit: 5}, {IdleTimeout: -1}} {
		e := entities(t, s, 1)
		for _, id := range []string{"a", "b", "c"} {
			if got := e.Touch(0, id); len(got) > 0 {
				t.Errorf("stopped %v, want none", got)
			}
			e.Remove("a")
		}
		if e.Len() != 0 || e.Next() != core.Never || len(e.Tick(math.MaxInt64)) > 0 || len(e.SetLimit(0)) > 0 || e.Limit() != -1 {
			t.Errorf("%+v: entities are tracked, want none", s)
		}
	}
}

func TestPerShard(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]int{{100_000, 1000, 100}, {10, 3, 3}, {10, 11, 0}, {10, 0, 10}} {
		if got := core.PerShard(test[0], test[1]); got != test[2] {
			t.Errorf("PerShard(%d, %d) = %d, want %d", test[0], test[1], got, test[2])
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	if _, err := core.New(passivation.Settings{Limit: -1}, 1); !errors.Is(err, passivation.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
}

// There are never more entities than the limit, and each stopped entity was active.
func TestRandomLoad(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]passivation.Settings{
		"least recent": {Limit: 1, IdleTimeout: 300},
		"strategy":     {Limit: 1, IdleTimeout: 300, NewStrategy: func() passivation.Strategy { return &stack{} }},
	} {
		rnd := rand.New(rand.NewPCG(1, 2))
		e := entities(t, s, 20)
		active, limit, now := map[string]bool{}, 20, time.Duration(0)
		drop := func(ids []string) {
			for _, id := range ids {
				if !active[id] {
					t.Fatalf("%s: stopped %s, which is not active", name, id)
				}
				delete(active, id)
			}
		}
		for range 3000 {
			now += time.Duration(rnd.IntN(20))
			id := fmt.Sprint(int(rnd.ExpFloat64() * 12))
			switch rnd.IntN(50) {
			case 0:
				limit = rnd.IntN(40)
				drop(e.SetLimit(limit))
			case 1:
				e.Remove(id)
				delete(active, id)
			case 2:
				drop(e.Tick(now))
			default:
				active[id] = true
				drop(e.Touch(now, id))
			}
			if e.Len() != len(active) || e.Len() > limit || e.Limit() != limit {
				t.Fatalf("%s: %d entities are active, want %d, at most %d", name, e.Len(), len(active), limit)
			}
		}
		drop(e.SetLimit(0))
		if len(active) > 0 {
			t.Errorf("%s: %v are active with a limit of 0, want none", name, active)
		}
	}
}

func TestTouchAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	e := entities(t, passivation.Settings{Limit: 1, IdleTimeout: time.Minute}, 100)
	ids := make([]string, 50)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
		e.Touch(0, ids[i])
	}
	if n := testing.AllocsPerRun(20, func() {
		for _, id := range ids {
			e.Touch(1, id)
		}
	}); n > 0 {
		t.Errorf("%v allocations for %d messages to active entities, want none", n, len(ids))
	}
}

func BenchmarkTouch(b *testing.B) {
	for name, s := range map[string]passivation.Settings{"idle": {}, "least recent": {Limit: 1}} {
		b.Run(name, func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 1))
			ids := make([]string, 1<<14)
			for i := range ids {
				ids[i] = fmt.Sprint(int(rnd.ExpFloat64() * 2000))
			}
			e := entities(b, s, 4000)
			b.ReportAllocs()
			for i := range b.N {
				e.Touch(time.Duration(i), ids[i%len(ids)])
			}
		})
	}
}

// panicking is a strategy of which one method panics.
type panicking struct {
	stack

	method string
}

func (p *panicking) check(method string) {
	if p.method == method {
		panic(method)
	}
}

func (p *panicking) Touch(id string) {
	p.check("Touch")
	p.stack.Touch(id)
}

func (p *panicking) Remove(id string) {
	p.check("Remove")
	p.stack.Remove(id)
}

func (p *panicking) Next() string {
	p.check("Next")
	return p.stack.Next()
}

// A strategy that panics is replaced by the least recently used entity.
func TestPanickingStrategy(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"New", "Touch", "Remove", "Next"} {
		e, err := core.New(passivation.Settings{Limit: 2, NewStrategy: func() passivation.Strategy {
			p := &panicking{method: method}
			p.check("New")
			return p
		}}, 2)
		if err != nil {
			t.Fatal(err)
		}
		var stopped []string
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			stopped = append(stopped, e.Touch(0, id)...)
		}
		want := []string{"a", "b", "c"}
		if method == "Remove" { // the stack has chosen once
			want = []string{"b", "a", "c"}
		}
		if !slices.Equal(stopped, want) {
			t.Errorf("after a panic of %s, the stopped entities are %v, want %v", method, stopped, want)
		}
	}
}
