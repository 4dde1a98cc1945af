// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"bytes"
	"context"
	"errors"
	"reflect"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// stateCodec encodes states, to compare them.
type stateCodec[S, E any] struct {
	typ   eventsourcing.Type[S, E]
	id    string
	plain bool // it has no encoding, so values are compared
}

func newStateCodec[S, E any](typ eventsourcing.Type[S, E], id string) stateCodec[S, E] {
	c := stateCodec[S, E]{typ: typ, id: id}
	if typ.Snapshots.State == nil {
		_, err := codec.NewState(reflect.TypeFor[*S]())
		c.plain = err != nil
	}
	return c
}

var errNoEncoding = errors.New("the state has no encoding")

// encode returns a state as a snapshot holds it: its manifest, a line feed, and its payload.
func (c stateCodec[S, E]) encode(state *S) ([]byte, error) {
	if c.plain {
		return nil, errNoEncoding
	}
	manifest, payload, err := eventsourcing.EncodeState(c.typ, state)
	if err != nil {
		return nil, err
	}
	return append([]byte(manifest+"\n"), payload...), nil
}

func (c stateCodec[S, E]) decode(data []byte) (*S, error) {
	manifest, payload, _ := bytes.Cut(data, []byte("\n"))
	return eventsourcing.DecodeState(c.typ, c.id, string(manifest), payload)
}

// image is a state that can be compared: its encoding, or itself.
type image[S any] struct {
	encoded []byte
	state   *S // if it has no encoding
}

func (k *Kit[S, E]) image(state *S) image[S] {
	k.t.Helper()
	encoded, err := k.codec.encode(state)
	switch {
	case errors.Is(err, errNoEncoding):
		return image[S]{state: state}
	case err != nil:
		k.t.Errorf("the state can't be encoded: %v", err)
	}
	return image[S]{encoded: encoded}
}

// live is the state of the running entity.
func (k *Kit[S, E]) live() (seen image[S]) {
	k.t.Helper()
	k.look(func(state *S) { seen = k.image(state) })
	return seen
}

func (k *Kit[S, E]) look(f func(*S)) {
	k.t.Helper()
	err := k.entities.Inspect(context.Background(), k.cfg.ID, func(state *S, _ uint64) { f(state) })
	if err != nil {
		k.t.Fatalf("look at the state: %v", err)
	}
}

// same requires that two states are the same.
func (k *Kit[S, E]) same(what string, a image[S], other string, b image[S]) {
	k.t.Helper()
	if bytes.Equal(a.encoded, b.encoded) && reflect.DeepEqual(a.state, b.state) {
		return
	}
	k.t.Errorf("%s\n\t%s\n%s\n\t%s", what, k.show(a), other, k.show(b))
}

// settle waits until what a command led to is durable, and checks the state.
func (k *Kit[S, E]) settle(command, answer any) {
	k.t.Helper()
	if k.cfg.Host.Recovery != (eventsourcing.Recovery{}) {
		return // the state is not what is stored
	}
	defer k.checkReturned()
	var seen image[S]
	var shared []string
	k.look(func(state *S) {
		shared = nil
		if seen = k.image(state); k.cfg.AllowSharedMemory {
			return
		}
		for _, v := range []struct {
			name  string
			value any
		}{{"the answer", answer}, {"the command", command}} {
			if path := sharing(v.value, state); path != "" {
				shared = append(shared, v.name+" shares memory with the state: "+path)
			}
		}
	})
	for _, s := range shared {
		k.t.Errorf("%T: %s; copy it, or one changes with the other", command, s)
	}
	k.same("after "+name(command)+" the state is", seen,
		"but the stored events fold to (does a handler change the state, or Apply depend on something else, or an event lose something when it is encoded?)",
		k.image(k.folded()))
	k.checkSnapshot(seen)
}

// checkReturned reports effects that handlers made and did not return, each kind once.
func (k *Kit[S, E]) checkReturned() {
	k.t.Helper()
	k.mu.Lock()
	found := k.unreturned
	k.unreturned = nil
	k.mu.Unlock()
	seen := map[string]bool{}
	for _, u := range found {
		if what := name(u.Message); !seen[what] {
			seen[what] = true
			k.t.Errorf("handling %s made %d effects that were not returned, so nothing came of them: join them with And, or see Config.AllowUnreturned",
				what, u.Effects)
		}
	}
}

func name(v any) string { return reflect.TypeOf(v).String() }

// checkSnapshot requires that a state survives its encoding.
func (k *Kit[S, E]) checkSnapshot(seen image[S]) {
	k.t.Helper()
	if seen.encoded == nil {
		return
	}
	state, err := k.codec.decode(seen.encoded)
	if err != nil {
		k.t.Errorf("the state can't be decoded from a snapshot: %v", err)
		return
	}
	k.same("a state that was decoded from a snapshot is", k.image(state), "want", seen)
}

// checkEvent requires that an event survives its encoding. One that is an upcast, or several, is
// not compared.
func (k *Kit[S, E]) checkEvent(event E, manifest string, payload []byte) {
	k.t.Helper()
	k.checkRoundTrip("event", k.typ.Events, event, manifest, payload)
}

// checkCommand requires that a command with a name survives its encoding.
func (k *Kit[S, E]) checkCommand(command any) {
	k.t.Helper()
	commands := k.typ.Protocol().Commands
	manifest, payload, err := commands.Encode(command)
	if errors.Is(err, codec.ErrNotRegistered) {
		return // it has no name
	}
	if err != nil {
		k.t.Errorf("command %T can't be encoded: %v", command, err)
		return
	}
	k.checkRoundTrip("command", commands, command, manifest, payload)
}

func (k *Kit[S, E]) checkRoundTrip(what string, registry *codec.Registry, value any, manifest string, payload []byte) {
	k.t.Helper()
	decoded, err := registry.DecodeAppend(nil, manifest, payload)
	switch {
	case err != nil:
		k.t.Errorf("%s %T can't be decoded: %v", what, value, err)
	case len(decoded) == 1 && reflect.TypeOf(decoded[0]) == reflect.TypeOf(value) && !equal(decoded[0], value):
		k.t.Errorf("%s %T%+v is decoded as %+v", what, value, value, decoded[0])
	}
}

// show prints a state.
func (k *Kit[S, E]) show(i image[S]) string {
	state := i.state
	if i.encoded != nil {
		decoded, err := k.codec.decode(i.encoded)
		if err != nil {
			return err.Error()
		}
		state = decoded
	}
	return sprint(state)
}
