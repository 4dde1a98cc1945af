// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// A traveller returns each kind of reply, to callers on the same node and on other nodes.
type (
	travelCtx[R any]      = eventsourcing.Context[traveller, string, R]
	travelDecision[R any] = eventsourcing.Decision[traveller, string, R]

	// travel selects its reply with the field How.
	travel struct {
		eventsourcing.Command[traveller, stamp]
		How string
	}
	// chat has a reply that can't be encoded.
	chat struct {
		eventsourcing.Command[traveller, func()]
	}
	arrive struct {
		eventsourcing.Notice[traveller]
	}
	stamp struct {
		Place string
		Count int
	}
	traveller struct {
		id     string
		token  eventsourcing.Token[stamp]
		closed chan struct{} // when the context of "context" has ended, and when "block" ends
		open   bool          // "stash" is answered
	}
)

var errVisa = eventsourcing.NewRefusal("travel/visa", "no visa")

func (t *traveller) chat(ctx *travelCtx[func()], _ chat) travelDecision[func()] {
	return ctx.Reply(func() {})
}

func (t *traveller) arrive(ctx *travelCtx[eventsourcing.None], _ arrive) eventsourcing.Effect[traveller, string, eventsourcing.None] {
	return ctx.Resolve(t.token.With(stamp{t.id, 2}))
}

func (t *traveller) travel(ctx *travelCtx[stamp], c travel) travelDecision[stamp] {
	switch c.How {
	case "answer":
		return ctx.Reply(stamp{t.id, 1})
	case "refuse":
		return ctx.Refuse(errVisa)
	case "explain":
		return ctx.Refuse(fmt.Errorf("to %s: %w", t.id, errVisa))
	case "error":
		return ctx.Refuse(errors.New("lost"))
	case "persist":
		return ctx.Persist("event").Reply(stamp{})
	case "panic":
		panic("lost")
	case "later":
		t.token = ctx.Token()
		return ctx.Go(func(context.Context) eventsourcing.Message[traveller] { return arrive{} }).ReplyLater()
	case "context":
		deadline, ok := ctx.Context().Deadline()
		if !ok || deadline.IsZero() {
			return ctx.Refuse(errors.New("no deadline"))
		}
		context.AfterFunc(ctx.Context(), func() { close(t.closed) })
		return ctx.Reply(stamp{t.id, 3})
	case "passivate":
		return ctx.Passivate().Reply(stamp{t.id, 4})
	case "wait":
		return ctx.StartTimer("wait", time.Hour, arrive{}).Reply(stamp{})
	case "block":
		<-t.closed
		return ctx.Reply(stamp{})
	case "stash":
		if !t.open {
			return ctx.Stash()
		}
		return ctx.Reply(stamp{})
	case "unstash":
		t.open = true
		return ctx.UnstashAll().Reply(stamp{})
	case "stop":
		return ctx.Stop().Reply(stamp{t.id, 5})
	}
	return ctx.Unhandled()
}

func travellers(closed chan struct{}) eventsourcing.Type[traveller, string] {
	return eventsourcing.Type[traveller, string]{
		Name: "traveller",
		New:  func(id string) *traveller { return &traveller{id: id, closed: closed} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("", (*traveller).travel), eventsourcing.On("", (*traveller).chat), eventsourcing.OnNotice("", (*traveller).arrive),
		),
	}
}

func newRemote() hosting.Remote[eventsourcing.Entities[traveller], *eventsourcing.Runtime] {
	return hosting.RemoteOf[eventsourcing.Entities[traveller], *eventsourcing.Runtime](travellers(nil).Protocol())
}

// remoteNode hosts travellers in a runtime. All messages of its route are encoded.
type remoteNode struct {
	rt       *eventsourcing.Runtime
	entities eventsourcing.Entities[traveller]
	host     hosting.Host
	remote   eventsourcing.Entities[traveller]
	route    func(id string) eventsourcing.Ref[traveller] // of remote
	deadline time.Duration
	closed   chan struct{}

	mu   sync.Mutex
	left []string
}

func newRemoteNode(t *testing.T) *remoteNode {
	t.Helper()
	a := &remoteNode{closed: make(chan struct{})}
	var err error
	if a.rt, err = eventsourcing.Open(eventsourcing.Config{}); err != nil {
		t.Fatal(err)
	}
	sharding := &hosting.Sharding{Hooks: hosting.Hooks{
		Route: func(m hosting.Message) error { return a.host.Deliver(m) },
		Gone: func(id string, passivated bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.left = append(a.left, fmt.Sprint(id, " ", passivated))
		},
		Busy: func(id string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.left = append(a.left, id+" is busy")
		},
	}}
	var options eventsourcing.HostOptions
	hosting.Shard(&options, sharding)
	if a.entities, err = eventsourcing.HostWith(a.rt, travellers(a.closed), options); err != nil {
		t.Fatal(err)
	}
	a.host = sharding.Host
	answers := newRemote()
	remote := answers.Entities(nil, hosting.Listing{Type: "traveller"}, func(m hosting.Message) error {
		if !m.Take() {
			return nil
		}
		var deadline time.Time
		if a.deadline != 0 {
			deadline = time.Now().Add(a.deadline)
		}
		answered := func(value any, err error) { m.AnswerEncoded(answers.AppendReply(nil, value, err)) }
		forwarded := newRemote().NewMessage(context.Background(), m.ID(), m.Command(), deadline, answered, nil)
		if !m.Asked() {
			forwarded = newRemote().NewMessage(context.Background(), m.ID(), m.Command(), deadline, nil, nil)
		}
		return a.host.Deliver(forwarded)
	})
	a.remote, a.route = remote, remote.Ref
	t.Cleanup(func() {
		if err := a.rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// TestRemoteReplies checks that callers on another node receive the same replies as callers on the
// same node.
func TestRemoteReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newRemoteNode(t)
		for _, how := range []string{"answer", "refuse", "explain", "error", "persist", "panic", "later", "unknown"} {
			local, errLocal := eventsourcing.Ask(t.Context(), a.entities.Ref("rome"), travel{How: how})
			remote, errRemote := eventsourcing.Ask(t.Context(), a.route("rome"), travel{How: how})
			if local != remote || eventsourcing.StatusOf(errLocal).Code != eventsourcing.StatusOf(errRemote).Code || errors.Is(errLocal, errVisa) != errors.Is(errRemote, errVisa) ||
				eventsourcing.NotDone(errLocal) != eventsourcing.NotDone(errRemote) {
				t.Errorf("%s: local reply %v, %v; remote reply %v, %v", how, local, errLocal, remote, errRemote)
			}
			if errLocal != nil && how != "panic" && errLocal.Error() != errRemote.Error() {
				t.Errorf("%s: the local error is %q, the remote error is %q", how, errLocal, errRemote)
			}
		}
		if _, err := eventsourcing.Ask(t.Context(), a.route("rome"), chat{}); !errors.Is(err, eventsourcing.ErrNoReply) {
			t.Errorf("an answer that can't be encoded: %v, want ErrNoReply", err)
		}
		if err := eventsourcing.Tell(t.Context(), a.route("rome"), travel{How: "stop"}); err != nil {
			t.Error(err)
		}
		if _, err := eventsourcing.Ask(t.Context(), a.route(""), travel{}); !errors.Is(err, eventsourcing.ErrInvalid) {
			t.Errorf("an empty ID: %v, want ErrInvalid", err)
		}
	})
}

// TestChargeOfRemoteCommands checks that a command of another node is charged while it waits in the
// mailbox or in the stash, and that its charge ends with the command.
func TestChargeOfRemoteCommands(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := newRemoteNode(t)
			account := loop.NewBudget(1 << 20).Account("peer")
			deliver := func(id, how string, deadline time.Time) {
				t.Helper()
				var charge loop.Charge
				if !charge.Take(account, 100) {
					t.Fatal("the budget is used up")
				}
				var answered func(any, error)
				if asked {
					answered = func(any, error) {}
				}
				if err := a.host.Deliver(newRemote().NewMessage(context.Background(), id, travel{How: how}, deadline, answered, &charge)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			want := func(phase string, bytes int) {
				t.Helper()
				synctest.Wait()
				if held := account.Held(); held != bytes {
					t.Errorf("asked %t, %s: %d bytes are held, want %d", asked, phase, held, bytes)
				}
			}
			deliver("rome", "answer", time.Time{})
			want("a handled command", 0)
			for range 3 {
				deliver("rome", "stash", time.Time{})
			}
			want("three stashed commands", 300)
			deliver("rome", "unstash", time.Time{})
			want("handled after the stash", 0)
			deliver("oslo", "stash", time.Time{})
			a.host.Kill("oslo")
			want("a killed entity with a stashed command", 0)
			for _, how := range []string{"block", "answer", "unknown", "panic", "later", "persist"} {
				deliver("paris", how, time.Now().Add(time.Second))
			}
			want("a handler that blocks, and five waiting commands", 500)
			time.Sleep(2 * time.Second) // the callers no longer wait
			close(a.closed)
			want("commands of callers that no longer wait", 0)
		})
	}
}

// TestRemoteErrorCodes checks that each error of Refold, alone and combined with another one, keeps
// its code.
func TestRemoteErrorCodes(t *testing.T) {
	t.Parallel()
	all := []error{
		eventsourcing.ErrPartlyStored, eventsourcing.ErrNoReply, eventsourcing.ErrUnhandled, eventsourcing.ErrStashFull, eventsourcing.ErrStopped,
		eventsourcing.ErrConflict, eventsourcing.ErrRejected, eventsourcing.ErrNotStored, eventsourcing.ErrOutcomeUnknown, eventsourcing.ErrReadOnly,
		eventsourcing.ErrNoJournal, eventsourcing.ErrWrongReply, eventsourcing.ErrUnknownType, eventsourcing.ErrRecoveryTimeout, eventsourcing.ErrInvalid,
		eventsourcing.ErrClosed, context.DeadlineExceeded, context.Canceled, codec.ErrNotRegistered, &eventsourcing.PanicError{Value: 1}, errVisa, errors.New("x"),
	}
	for _, one := range all {
		for _, other := range append(all, nil) {
			err := one
			if other != nil {
				err = fmt.Errorf("%w, and %w", one, other)
			}
			back := encodeAndDecode(t, err)
			if eventsourcing.StatusOf(back).Code != eventsourcing.StatusOf(err).Code || eventsourcing.NotDone(back) != eventsourcing.NotDone(err) {
				t.Errorf("%q has the code %q, not done %v; after the transport %q, %v", err, eventsourcing.StatusOf(err).Code, eventsourcing.NotDone(err), eventsourcing.StatusOf(back).Code, eventsourcing.NotDone(back))
			}
		}
	}
}

// TestRemoteKinds checks that callers on another node receive the kind of a refusal, and that an
// unknown kind is Rejected.
func TestRemoteKinds(t *testing.T) {
	t.Parallel()
	for given, want := range map[eventsourcing.Kind]eventsourcing.Kind{
		eventsourcing.Rejected: eventsourcing.Rejected, eventsourcing.BadRequest: eventsourcing.BadRequest, eventsourcing.Denied: eventsourcing.Denied,
		eventsourcing.NotFound: eventsourcing.NotFound, eventsourcing.AlreadyExists: eventsourcing.AlreadyExists,
		eventsourcing.AlreadyExists + 1: eventsourcing.Rejected, 255: eventsourcing.Rejected,
	} {
		refusal := eventsourcing.NewRefusal("travel/kind", "refused").OfKind(given)
		received, ok := errors.AsType[*eventsourcing.Refusal](encodeAndDecode(t, refusal))
		if !ok || refusal.Kind() != want || received.Kind() != want || !errors.Is(received, refusal) {
			t.Errorf("kind %d: the refusal is %+v, and %+v after the transport, want kind %d", given, refusal, received, want)
		}
	}
}

// encodeAndDecode returns an error in the form that another node receives.
func encodeAndDecode(t *testing.T, err error) error {
	t.Helper()
	answers := newRemote()
	_, back := answerWith(t.Context(), answers.AppendReply(nil, nil, err))
	return back
}

// answerWith returns the result of Ask for an encoded reply.
func answerWith(ctx context.Context, data []byte) (stamp, error) {
	remote := newRemote().Entities(nil, hosting.Listing{Type: "traveller"}, func(m hosting.Message) error {
		m.AnswerEncoded(data)
		return nil
	})
	return eventsourcing.Ask(ctx, remote.Ref("rome"), travel{})
}

func FuzzAnswer(f *testing.F) {
	answers := newRemote()
	f.Add(answers.AppendReply(nil, stamp{"rome", 1}, nil))
	f.Add(answers.AppendReply(nil, nil, nil))
	f.Add(answers.AppendReply(nil, nil, fmt.Errorf("%w: %w", eventsourcing.ErrPartlyStored, errVisa)))
	f.Add(answers.AppendReply(nil, nil, errVisa))
	f.Add([]byte{3, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := answerWith(t.Context(), data)
		if err == nil || errors.Is(err, eventsourcing.ErrWrongReply) {
			return
		}
		again := encodeAndDecode(t, err)
		if eventsourcing.StatusOf(again).Code != eventsourcing.StatusOf(err).Code {
			t.Errorf("%q with code %q is encoded again as %q with code %q", err, eventsourcing.StatusOf(err).Code, again, eventsourcing.StatusOf(again).Code)
		}
	})
}

// TestRemoteDeadline checks that an entity receives the deadline of its caller and skips the
// command of a caller that has stopped waiting.
func TestRemoteDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newRemoteNode(t)
		a.deadline = time.Minute
		if _, err := eventsourcing.Ask(t.Context(), a.route("rome"), travel{How: "context"}); err != nil {
			t.Fatal(err)
		}
		<-a.closed // the context ends as soon as the call is answered
		a.deadline = -time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := eventsourcing.Ask(ctx, a.route("rome"), travel{How: "answer"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a command after its deadline: %v, want context.DeadlineExceeded", err)
		}
	})
}

// TestLeavingMemory checks the hooks for entities that have left memory, passivated or not, and for
// entities that are busy.
func TestLeavingMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newRemoteNode(t)
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { a.mustAsk(t, "passivate") }, "rome true"},
			{func() { a.mustAsk(t, "stop") }, "rome false"},
			{func() { a.mustAsk(t, "answer"); a.host.Passivate("rome") }, "rome true"},
			{func() { a.mustAsk(t, "wait"); a.host.Passivate("rome") }, "rome is busy"},
			{func() { a.mustAsk(t, "answer"); a.host.Drain("rome") }, "rome false"},
			{func() { a.mustAsk(t, "answer"); a.host.Kill("rome") }, "rome false"},
		} {
			a.left = nil
			step.do()
			synctest.Wait()
			if len(a.left) != 1 || a.left[0] != step.want {
				t.Errorf("the entities that left memory are %q, want %q", a.left, step.want)
			}
		}
		if a.host.Passivate("rome") || a.host.Drain("rome") || a.host.Kill("rome") {
			t.Error("Passivate, Drain or Kill returned true for an entity that is not in memory")
		}
	})
}

func (a *remoteNode) mustAsk(t *testing.T, how string) {
	t.Helper()
	if _, err := eventsourcing.Ask(t.Context(), a.entities.Ref("rome"), travel{How: how}); err != nil {
		t.Error(how, err)
	}
}

// TestStartOnAnotherNode checks that a node without entities can start an entity of another node
// and returns the error of the start, and that it lists IDs only with a journal.
func TestStartOnAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newRemoteNode(t)
		err := a.remote.Start(t.Context(), "rome")
		if found, recovered := a.host.InMemory("rome"); err != nil || !found || !recovered {
			t.Errorf("Start = %v, in memory %t, recovered %t, want nil, true and true", err, found, recovered)
		}
		if err := a.remote.Start(t.Context(), ""); !errors.Is(err, eventsourcing.ErrArgument) {
			t.Errorf("Start without an ID = %v, want ErrArgument", err)
		}
		if n, err := a.remote.Wake(t.Context()); n != 0 || err != nil {
			t.Errorf("Wake = %d, %v, want 0 and nil", n, err)
		}
		for id, err := range a.remote.IDs(t.Context()) {
			if !errors.Is(err, eventsourcing.ErrNoJournal) {
				t.Errorf("IDs yields %q, %v, want ErrNoJournal", id, err)
			}
		}
	})
}

// TestRouteReceivesAllMessages checks that the route receives every command, whatever its sender,
// and can refuse it.
func TestRouteReceivesAllMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(t.Context()) //nolint:errcheck // nothing is in flight
		errRoute := errors.New("rejected by the route")
		var seen []string
		refuse := false
		var sharding hosting.Sharding
		sharding.Hooks.Route = func(m hosting.Message) error {
			seen = append(seen, fmt.Sprintf("%s %T %v", m.ID(), m.Command(), m.Asked()))
			if refuse {
				return errRoute
			}
			return sharding.Host.Deliver(m)
		}
		var options eventsourcing.HostOptions
		hosting.Shard(&options, &sharding)
		entities, err := eventsourcing.HostWith(rt, travellers(nil), options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := eventsourcing.Ask(t.Context(), entities.Ref("rome"), travel{How: "later"}); err != nil {
			t.Error(err)
		}
		if want := "[rome eventsourcing_test.travel true rome eventsourcing_test.arrive false]"; fmt.Sprint(seen) != want {
			t.Errorf("the route received %v, want %v", seen, want)
		}
		refuse = true
		if _, err := eventsourcing.Ask(t.Context(), entities.Ref("rome"), travel{How: "later"}); !errors.Is(err, errRoute) {
			t.Errorf("Ask: %v, want the error of the route", err)
		}
		unknown := newRemote().NewMessage(t.Context(), "rome", 1, time.Time{}, func(_ any, err error) { errRoute = err }, nil)
		if err := sharding.Host.Deliver(unknown); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !errors.Is(errRoute, eventsourcing.ErrUnhandled) {
			t.Errorf("a command of another type: %v, want ErrUnhandled", errRoute)
		}
	})
}

// TestObserverOfHeldCommands checks that the observer learns the end of each command once, if a region
// delivers commands while their senders give up.
func TestObserverOfHeldCommands(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ends := map[string]int{} // by persistence ID
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: eventsourcing.Observer{
		Begin: func(info eventsourcing.CommandInfo) context.Context {
			return context.WithValue(info.Context, travel{}, "begun")
		},
		Command: func(info eventsourcing.CommandInfo) {
			mu.Lock()
			defer mu.Unlock()
			ends[info.PersistenceID]++
			if info.Context.Value(travel{}) != "begun" {
				t.Errorf("%s: the context is not that of Begin", info.PersistenceID)
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan hosting.Message)
	var sharding hosting.Sharding
	sharding.Hooks.Route = func(m hosting.Message) error {
		held <- m
		return nil
	}
	var options eventsourcing.HostOptions
	hosting.Shard(&options, &sharding)
	entities, err := eventsourcing.HostWith(rt, travellers(nil), options)
	if err != nil {
		t.Fatal(err)
	}
	const commands = 300
	for i := range commands {
		ctx, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = eventsourcing.Ask(ctx, entities.Ref(fmt.Sprint(i)), travel{How: "answer"}) })
		m := <-held
		if i%3 == 0 { // the sender has given up
			giveUp()
			all.Wait()
		}
		all.Go(giveUp)
		if err := sharding.Host.Deliver(m); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for id, n := range ends {
		if n != 1 {
			t.Errorf("Command was called %d times for %s", n, id)
		}
	}
	if len(ends) != commands {
		t.Errorf("Command was called for %d of %d commands", len(ends), commands)
	}
}

// TestCommandFormat checks that Type.CommandFormat selects the format of commands between nodes.
func TestCommandFormat(t *testing.T) {
	t.Parallel()
	typ := eventsourcing.Type[traveller, string]{
		Name:     "traveller",
		Commands: eventsourcing.Commands(eventsourcing.On("travel", (*traveller).travel)),
	}
	for want, format := range map[string]codec.Format{"\x81\xa3How\xa3sea": nil, `{"How":"sea"}`: codec.JSON()} {
		typ.CommandFormat = format
		commands := typ.Protocol().Commands
		manifest, payload, err := commands.Encode(travel{How: "sea"})
		if err != nil || string(payload) != want {
			t.Errorf("Encode = %q %q, %v, want %q", manifest, payload, err, want)
		}
		if back, err := commands.Decode(manifest, payload); err != nil || back != (travel{How: "sea"}) {
			t.Errorf("Decode(%q, %q) = %v, %v, want the encoded command", manifest, payload, back, err)
		}
	}
}
