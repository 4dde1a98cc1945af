// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/eventsourcing/eventsourcingtest"
	"github.com/refold-io/refold/journal/journaltest"
)

// recorder is a testing.TB that records failures instead of failing.
type recorder struct {
	testing.TB
	failures []string
	cleanup  func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanup = f }

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record returns the failures of a test, which ends at the first fatal one.
func record(t *testing.T, test func(t testing.TB)) []string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	if r.cleanup != nil {
		r.cleanup()
	}
	return r.failures
}

// TestMistakes checks that each mistake of a type fails the test that sends the command.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mistakes mistakes
		when     func(k *eventsourcingtest.Kit[Cart, Event])
		want     string
	}{
		"state changed by a handler": {
			mistakes{changesState: true},
			func(k *eventsourcingtest.Kit[Cart, Event]) { eventsourcingtest.When(k, List{}) },
			"the stored events lead to",
		},
		"answer is a slice of the state": {
			mistakes{sharesSlice: true},
			func(k *eventsourcingtest.Kit[Cart, Event]) { eventsourcingtest.When(k, List{}) },
			"the reply shares memory with the state: []string is state.Articles",
		},
		"answer holds a map of the state": {
			mistakes{sharesMap: true},
			func(k *eventsourcingtest.Kit[Cart, Event]) { eventsourcingtest.When(k, Checkout{}) },
			"Receipt.Articles is state.Seen",
		},
		"the state keeps a slice of a command": {
			mistakes{keepsCommand: true},
			func(k *eventsourcingtest.Kit[Cart, Event]) {
				k.Clear()
				eventsourcingtest.When(k, Add{Articles: []string{"fig"}})
			},
			"the command shares memory with the state",
		},
		"an unexpected answer": {
			mistakes{},
			func(k *eventsourcingtest.Kit[Cart, Event]) {
				eventsourcingtest.When(k, Add{Articles: []string{"fig"}}).Answers(7)
			},
			"is answered 2, want 7",
		},
		"unexpected events": {
			mistakes{},
			func(k *eventsourcingtest.Kit[Cart, Event]) {
				eventsourcingtest.When(k, Add{Articles: []string{"fig"}}).Stores(Added{[]string{"pear"}})
			},
			"stores\n\teventsourcingtest_test.Added{Articles:[fig]}\nwant\n\teventsourcingtest_test.Added{Articles:[pear]}",
		},
		"an effect that is not returned": {
			mistakes{dropsEffect: true},
			func(k *eventsourcingtest.Kit[Cart, Event]) { eventsourcingtest.When(k, List{}).Succeeds() },
			"the handler of eventsourcingtest_test.List made 1 effects and did not return them",
		},
		"events where none are wanted": {
			mistakes{},
			func(k *eventsourcingtest.Kit[Cart, Event]) {
				eventsourcingtest.When(k, Add{Articles: []string{"fig"}}).StoresNothing()
			},
			"want\n\tnothing",
		},
		"success where an error is wanted": {
			mistakes{},
			func(k *eventsourcingtest.Kit[Cart, Event]) { eventsourcingtest.When(k, List{}).Fails(ErrEmpty) },
			`want the error "the cart is empty"`,
		},
		"another error": {
			mistakes{},
			func(k *eventsourcingtest.Kit[Cart, Event]) {
				k.Clear()
				eventsourcingtest.When(k, Checkout{}).Fails(eventsourcing.ErrUnhandled)
			},
			"fails: the cart is empty\nwant the error",
		},
		"an error where an answer is wanted": {
			mistakes{},
			func(k *eventsourcingtest.Kit[Cart, Event]) {
				k.Clear()
				eventsourcingtest.When(k, Checkout{}).Answers(Receipt{})
			},
			"fails: the cart is empty\nwant the answer",
		},
		"an error where success is wanted": {
			mistakes{},
			func(k *eventsourcingtest.Kit[Cart, Event]) {
				k.Clear()
				eventsourcingtest.When(k, Checkout{}).Succeeds()
			},
			"fails: the cart is empty",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := record(t, func(t testing.TB) {
				k := eventsourcingtest.New(t, cartType(c.mistakes))
				k.Given(Added{[]string{"apple"}})
				c.when(k)
			})
			if len(failures) == 0 || !strings.Contains(strings.Join(failures, "\n"), c.want) {
				t.Errorf("the failures are %q, want %q", failures, c.want)
			}
		})
	}
}

// TestSharedUnexportedMemory checks that a state may share unexported fields, because other
// packages can't change them.
func TestSharedUnexportedMemory(t *testing.T) {
	t.Parallel()
	k := eventsourcingtest.New(t, cartType(mistakes{}))
	k.Given(Added{[]string{"apple"}}, CheckedOut{1}, Added{[]string{"fig"}})
	eventsourcingtest.When(k, Checkout{}).Succeeds()
}

func TestAllowSharedMemory(t *testing.T) {
	t.Parallel()
	k := eventsourcingtest.NewWithConfig(t, cartType(mistakes{sharesSlice: true}), eventsourcingtest.Config{AllowSharedMemory: true})
	k.Given(Added{[]string{"apple"}})
	eventsourcingtest.When(k, List{}).Answers([]string{"apple"})
}

// lossy has an event and a command whose encodings lose data.
type (
	lossySet struct {
		eventsourcing.Command[lossy, int]
		N half
	}
	lossyEvent struct{ N half }
	lossy      struct{ N int }

	// half is encoded without the lowest bit of its number.
	half int
)

func (h half) MarshalText() ([]byte, error) { return fmt.Append(nil, int(h)/2), nil }

func (h *half) UnmarshalText(text []byte) error {
	var n int
	_, err := fmt.Sscan(string(text), &n)
	*h = half(2 * n)
	return err
}

func (l *lossy) set(ctx *eventsourcing.Context[lossy, lossyEvent, int], c lossySet) eventsourcing.Decision[lossy, lossyEvent, int] {
	return ctx.Persist(lossyEvent{c.N}).ReplyFunc(func() int { return l.N })
}

func (l *lossy) apply(e lossyEvent) { l.N = int(e.N) }

func TestLossyEncodings(t *testing.T) {
	t.Parallel()
	typ := eventsourcing.Type[lossy, lossyEvent]{
		Name:     "lossy",
		Commands: eventsourcing.Commands(eventsourcing.On("set", (*lossy).set)),
		Apply:    (*lossy).apply,
		Events:   codec.Types(codec.Name[lossyEvent]("set")).Using(codec.JSON()),
	}
	for name, c := range map[string]struct {
		when func(k *eventsourcingtest.Kit[lossy, lossyEvent])
		want string
	}{
		"event that is given":      {func(k *eventsourcingtest.Kit[lossy, lossyEvent]) { k.Given(lossyEvent{3}) }, "event eventsourcingtest_test.lossyEvent{N:3} differs when it is decoded: N: 3 is decoded as 2"},
		"command and event":        {func(k *eventsourcingtest.Kit[lossy, lossyEvent]) { eventsourcingtest.When(k, lossySet{N: 3}) }, "command eventsourcingtest_test.lossySet{Command:{} N:3} differs when it is decoded: N: 3 is decoded as 2"},
		"event that was persisted": {func(k *eventsourcingtest.Kit[lossy, lossyEvent]) { eventsourcingtest.When(k, lossySet{N: 3}) }, "event eventsourcingtest_test.lossyEvent{N:3} differs"},
		"different state":          {func(k *eventsourcingtest.Kit[lossy, lossyEvent]) { eventsourcingtest.When(k, lossySet{N: 3}) }, "the stored events lead to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := record(t, func(t testing.TB) { c.when(eventsourcingtest.New(t, typ)) })
			if !strings.Contains(strings.Join(failures, "\n"), c.want) {
				t.Errorf("the failures are %q, want %q", failures, c.want)
			}
		})
	}
	// Even numbers are encoded without a loss.
	k := eventsourcingtest.New(t, typ)
	k.Given(lossyEvent{2})
	eventsourcingtest.When(k, lossySet{N: 4}).Answers(4)
}

// diary has events, commands and replies with times and other values.
type (
	diaryNote struct {
		eventsourcing.Command[diary, diaryPage]
	}
	diarySign struct {
		eventsourcing.Command[diary, eventsourcing.Ack]
		At time.Time
	}
	diaryPage struct {
		At    time.Time
		More  []diaryLine
		Named map[string]*diaryLine
		Price float64
		Sum   *big.Int
		Any   any
	}
	diaryLine struct {
		At  time.Time
		Own zoned
	}
	diary struct{ Pages int }

	// zoned has a method Equal, which decides.
	zoned struct{ T time.Time }
)

func (z zoned) Equal(o zoned) bool { return z.T.Equal(o.T) }

func (d *diary) sign(ctx *eventsourcing.Context[diary, diaryPage, eventsourcing.Ack], c diarySign) eventsourcing.Decision[diary, diaryPage, eventsourcing.Ack] {
	return ctx.Persist(diaryPage{At: ctx.Now()}).Reply(eventsourcing.Ack{})
}

func (d *diary) apply(diaryPage) { d.Pages++ }

// TestEventsDifferWhenDecoded checks that an event that Apply gets in another form after a restart fails
// the test that persists it, with the field and the cause.
func TestEventsDifferWhenDecoded(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("CET", 3600)
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		page, reply diaryPage
		sign        time.Time
		json        bool
		want        string // "" for no failure
	}{
		"UTC":               {page: diaryPage{At: noon, Price: math.NaN(), Any: "x", More: []diaryLine{{At: noon}}}, reply: diaryPage{At: noon}},
		"zero big.Int":      {page: diaryPage{Sum: new(big.Int).Sub(big.NewInt(5), big.NewInt(5))}},
		"method Equal":      {page: diaryPage{More: []diaryLine{{Own: zoned{noon.In(berlin)}}}}},
		"now, UTC":          {page: diaryPage{At: time.Now().UTC()}},
		"time.Now":          {page: diaryPage{At: time.Now()}, want: "differs when it is decoded: At: "},
		"monotonic":         {page: diaryPage{At: time.Now()}, want: "no monotonic clock reading: use Context.Now, or the method UTC"},
		"local":             {page: diaryPage{At: time.Now().Round(0)}, want: " in Local is decoded as "},
		"zone":              {page: diaryPage{At: noon.In(berlin)}, want: "At: 2026-01-02 13:00:00 +0100 CET in CET is decoded as 2026-01-02 12:00:00 +0000 UTC in UTC"},
		"zone in a list":    {page: diaryPage{More: []diaryLine{{}, {At: noon.In(berlin)}}}, want: "More[1].At: 2026-01-02 13:00:00 +0100 CET"},
		"zone in a map":     {page: diaryPage{Named: map[string]*diaryLine{"a": {At: noon.In(berlin)}}}, want: "Named[a].At: "},
		"type in an any":    {page: diaryPage{Any: 7}, want: "Any: int(7) is decoded as int64(7)"},
		"JSON keeps a zone": {json: true, page: diaryPage{At: noon.In(time.FixedZone("", 3600))}},
		"JSON, monotonic":   {json: true, page: diaryPage{At: time.Now()}, want: "no monotonic clock reading"},
		"reply":             {reply: diaryPage{At: noon.In(berlin)}, want: "to eventsourcingtest_test.diaryNote differs on another node: At: 2026-01-02 13:00:00"},
		"command":           {sign: noon.In(berlin), want: "command eventsourcingtest_test.diarySign{Command:{} At:2026-01-02 13:00:00 +0100 CET} differs when it is decoded: At: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			typ := eventsourcing.Type[diary, diaryPage]{
				Name: "diary", Apply: (*diary).apply, Events: codec.Types(codec.Name[diaryPage]("page")),
				Commands: eventsourcing.Commands(eventsourcing.On("sign", (*diary).sign), eventsourcing.On("note",
					func(_ *diary, ctx *eventsourcing.Context[diary, diaryPage, diaryPage], _ diaryNote) eventsourcing.Decision[diary, diaryPage, diaryPage] {
						return ctx.Persist(c.page).Reply(c.reply)
					})),
			}
			if c.json {
				typ.Events = typ.Events.Using(codec.JSON())
			}
			failures := record(t, func(t testing.TB) {
				k := eventsourcingtest.New(t, typ)
				if !c.sign.IsZero() {
					eventsourcingtest.When(k, diarySign{At: c.sign}).Succeeds()
					return
				}
				eventsourcingtest.When(k, diaryNote{}).Succeeds()
			})
			if c.want == "" && len(failures) > 0 || c.want != "" && (len(failures) != 1 || !strings.Contains(failures[0], c.want)) {
				t.Errorf("the failures are %q, want one with %q", failures, c.want)
			}
		})
	}
}

func TestKit(t *testing.T) {
	t.Parallel()
	k := eventsourcingtest.NewWithConfig(t, cartType(mistakes{}), eventsourcingtest.Config{ID: "mine"})
	if got := k.Ref().String(); got != "cart|mine" {
		t.Errorf("the kit addresses %s, want cart|mine", got)
	}
	k.Given(Added{[]string{"apple"}})
	k.Given(Added{[]string{"fig"}})
	eventsourcingtest.When(k, List{}).StoresNothing().Succeeds().Answers([]string{"apple", "fig"})
	eventsourcingtest.Tell(k, Add{Articles: []string{"pear"}}).Stores(Added{[]string{"pear"}})
	k.Restart()
	if got := k.State().Articles; len(got) != 3 {
		t.Errorf("after a restart the articles are %q, want 3", got)
	}
	if got := k.Events(); len(got) != 3 {
		t.Errorf("the events are %v, want 3", got)
	}
	k.Clear()
	eventsourcingtest.When(k, Checkout{}).Fails(ErrEmpty)
	if got := k.Events(); len(got) != 0 {
		t.Errorf("after a clear the events are %v, want none", got)
	}
}

// TestFailures checks an entity whose journal fails and recovers.
func TestFailures(t *testing.T) {
	t.Parallel()
	k := eventsourcingtest.New(t, cartType(mistakes{}))
	errDisk := errors.New("disk full")

	k.Journal().Inject(journaltest.Fault{Err: errDisk})
	o := eventsourcingtest.When(k, Add{Articles: []string{"a"}}).Fails(eventsourcing.ErrNotStored)
	if !errors.Is(o.Err, errDisk) {
		t.Errorf("the error is %v, want errDisk", o.Err)
	}
	k.Journal().Inject(journaltest.Fault{Do: journaltest.Store, Err: errDisk})
	eventsourcingtest.When(k, Add{Articles: []string{"b"}}).Stores(Added{[]string{"b"}}).Answers(1)

	k.Restart()
	k.Journal().Inject(journaltest.Fault{Op: journaltest.OpHighest, Err: errDisk})
	k.Clear() // Clear also removes the injected faults
	eventsourcingtest.When(k, Add{Articles: []string{"c"}}).Answers(1)

	k.Journal().Inject(journaltest.Fault{Do: journaltest.Stall, Times: -1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := eventsourcingtest.WhenContext(ctx, k, List{}); !errors.Is(o.Err, context.Canceled) {
		t.Errorf("the error is %v, want context.Canceled", o.Err)
	}
}

// counter has a state that is not exported.
type (
	count struct {
		eventsourcing.Command[counter, int]
		Cheat bool
	}
	counted struct{}
	counter struct{ n int }
)

func (a *counter) count(ctx *eventsourcing.Context[counter, counted, int], c count) eventsourcing.Decision[counter, counted, int] {
	if c.Cheat {
		a.n++
	}
	return ctx.Persist(counted{}).ReplyFunc(func() int { return a.n })
}

func (a *counter) apply(counted) { a.n++ }

// form is a form of snapshots that loses the state, or fails.
func form(loses, fails bool) *eventsourcing.StateForm[counter] {
	return eventsourcing.StateAs("counter", 0, func(a *counter) (int, error) {
		if fails {
			return 0, errors.New("injected snapshot error")
		}
		return a.n, nil
	}, func(a *counter, n int) error {
		if !loses {
			a.n = n
		}
		return nil
	})
}

func counterType() eventsourcing.Type[counter, counted] {
	return eventsourcing.Type[counter, counted]{
		Name: "counter", Commands: eventsourcing.Commands(eventsourcing.On("", (*counter).count)),
		Apply: (*counter).apply, Events: codec.Types(codec.Name[counted]("counted")),
	}
}

// TestStatesWithoutEncoding checks that a state without an encoding is compared by its values.
func TestStatesWithoutEncoding(t *testing.T) {
	t.Parallel()
	typ := counterType()
	k := eventsourcingtest.New(t, typ)
	eventsourcingtest.When(k, count{}).Answers(1)
	k.Restart()
	eventsourcingtest.When(k, count{}).Answers(2)
	failures := record(t, func(t testing.TB) { eventsourcingtest.When(eventsourcingtest.New(t, typ), count{Cheat: true}) })
	if !strings.Contains(strings.Join(failures, "\n"), "the stored events lead to") {
		t.Errorf("the failures are %q, want one with \"the stored events lead to\"", failures)
	}
}

// TestSnapshots checks the encoding of a type with a StateForm, and that the kit works if only a
// snapshot covers the first events.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	for want, bad := range map[string]*eventsourcing.StateForm[counter]{
		"decoded from a snapshot is": form(true, false),
		"injected snapshot error":    form(false, true),
	} {
		failures := record(t, func(t testing.TB) {
			typ := counterType()
			typ.Snapshots.State = bad
			eventsourcingtest.When(eventsourcingtest.New(t, typ), count{})
		})
		if !strings.Contains(strings.Join(failures, "\n"), want) {
			t.Errorf("the failures are %q, want %q", failures, want)
		}
	}
	typ := counterType()
	typ.Snapshots = eventsourcing.Snapshots[counter, counted]{Every: 2, Keep: 1, DeleteEvents: true, State: form(false, false)}
	k := eventsourcingtest.New(t, typ)
	for i := range 10 {
		eventsourcingtest.When(k, count{}).Answers(i + 1)
	}
	k.Restart()
	for n := 11; ; n++ { // events are deleted in the background
		eventsourcingtest.When(k, count{}).Answers(n)
		if len(k.Events()) < n {
			break
		}
		if n == 10_000 {
			t.Fatalf("no event of %d was deleted", n)
		}
	}
}

func TestEffectsMayBeDropped(t *testing.T) {
	t.Parallel()
	k := eventsourcingtest.NewWithConfig(t, cartType(mistakes{dropsEffect: true}), eventsourcingtest.Config{AllowUnreturned: true})
	eventsourcingtest.When(k, List{}).Succeeds()
}
