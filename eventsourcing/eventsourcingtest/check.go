// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

type stateCodec[S, E any] struct {
	typ   eventsourcing.Type[S, E]
	id    string
	plain bool // the state has no encoding
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

// encode returns the manifest of a snapshot, a line feed, and the payload.
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

// image is a state for comparisons: its encoding, or the state if it has no encoding.
type image[S any] struct {
	encoded []byte
	state   *S
}

func (k *Kit[S, E]) image(state *S) image[S] {
	k.t.Helper()
	encoded, err := k.codec.encode(state)
	switch {
	case errors.Is(err, errNoEncoding):
		return image[S]{state: state}
	case err != nil:
		k.t.Errorf("encode the state: %v", err)
	}
	return image[S]{encoded: encoded}
}

func (k *Kit[S, E]) live() (seen image[S]) {
	k.t.Helper()
	k.inspect(func(state *S) { seen = k.image(state) })
	return seen
}

func (k *Kit[S, E]) inspect(f func(*S)) {
	k.t.Helper()
	err := k.entities.Inspect(context.Background(), k.cfg.ID, func(state *S, _ uint64) { f(state) })
	if err != nil {
		k.t.Fatalf("inspect the state: %v", err)
	}
}

// same reports an error unless two states are equal. The names are printed before the states.
func (k *Kit[S, E]) same(nameA string, a image[S], nameB string, b image[S]) {
	k.t.Helper()
	if bytes.Equal(a.encoded, b.encoded) && reflect.DeepEqual(a.state, b.state) {
		return
	}
	k.t.Errorf("%s\n\t%s\n%s\n\t%s", nameA, k.show(a), nameB, k.show(b))
}

// settle waits until the events of a command are durable and checks the state.
func (k *Kit[S, E]) settle(command, answer any) {
	k.t.Helper()
	if k.cfg.Host.Recovery != (eventsourcing.Recovery{}) {
		return // the state differs from the stored events on purpose
	}
	defer k.report()
	var seen image[S]
	var shared []string
	k.inspect(func(state *S) {
		shared = nil
		if seen = k.image(state); k.cfg.AllowSharedMemory {
			return
		}
		for _, v := range []struct {
			name  string
			value any
		}{{"the reply", answer}, {"the command", command}} {
			if path := sharing(v.value, state); path != "" {
				shared = append(shared, v.name+" shares memory with the state: "+path)
			}
		}
	})
	for _, s := range shared {
		k.t.Errorf("%T: %s: copy the shared value", command, s)
	}
	k.same("after "+name(command)+" the state is", seen,
		"but the stored events lead to (possible causes: a handler changes the state, Apply depends on other data, an event loses data in its encoding)",
		k.image(k.State()))
	k.checkSnapshot(seen)
}

// report reports the mistakes that were found on the goroutines of the runtime: lossy events, and
// effects that handlers made and did not return, once for each type of message.
func (k *Kit[S, E]) report() {
	k.t.Helper()
	k.mu.Lock()
	lossy, found := k.lossy, k.unreturned
	k.lossy, k.unreturned = nil, nil
	k.mu.Unlock()
	slices.Sort(lossy)
	for _, problem := range slices.Compact(lossy) {
		k.t.Errorf("%s", problem)
	}
	seen := map[string]bool{}
	for _, u := range found {
		if message := name(u.Message); !seen[message] {
			seen[message] = true
			k.t.Errorf("the handler of %s made %d effects and did not return them: join them with And, or set Config.AllowUnreturned", message, u.Effects)
		}
	}
}

// checked returns the type with an Apply that first compares each event with its decoded form: after a
// restart, Apply gets the decoded one.
func (k *Kit[S, E]) checked() eventsourcing.Type[S, E] {
	typ := k.typ
	check := func(event E) {
		manifest, payload, err := typ.Events.Encode(event)
		if err != nil {
			return // the runtime has rejected the event
		}
		if problem := lossy("event", typ.Events, event, manifest, payload); problem != "" {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.lossy = append(k.lossy, problem)
		}
	}
	if f := typ.Apply; f != nil {
		typ.Apply = func(state *S, event E) { check(event); f(state, event) }
	}
	if f := typ.ApplyRecorded; f != nil {
		typ.ApplyRecorded = func(state *S, event E, record eventsourcing.Recorded) { check(event); f(state, event, record) }
	}
	return typ
}

func name(v any) string { return reflect.TypeOf(v).String() }

// checkSnapshot reports an error unless the encoded state decodes to an equal state.
func (k *Kit[S, E]) checkSnapshot(seen image[S]) {
	k.t.Helper()
	if seen.encoded == nil {
		return
	}
	state, err := k.codec.decode(seen.encoded)
	if err != nil {
		k.t.Errorf("decode the state from a snapshot: %v", err)
		return
	}
	k.same("the state decoded from a snapshot is", k.image(state), "want", seen)
}

// checkCommand reports an error unless a command that has a name can be encoded and decodes to an
// equal command. It returns whether the command has a name.
func (k *Kit[S, E]) checkCommand(command any) (named bool) {
	k.t.Helper()
	commands := k.typ.Protocol().Commands
	manifest, payload, err := commands.Encode(command)
	if errors.Is(err, codec.ErrNotRegistered) {
		return false
	}
	if err != nil {
		k.t.Errorf("encode command %T: %v", command, err)
	} else if problem := lossy("command", commands, command, manifest, payload); problem != "" {
		k.t.Errorf("%s", problem)
	}
	return true
}

// checkReply reports an error unless the reply to a command that has a name reaches other nodes.
func checkReply[S, E, R any](k *Kit[S, E], command any, value R) {
	k.t.Helper()
	if any(value) == nil {
		return
	}
	sent := reflect.New(reflect.TypeOf(value))
	sent.Elem().Set(reflect.ValueOf(value))
	var received R
	var data []byte
	from, err := codec.NewState(sent.Type())
	if err == nil {
		data, err = from.Encode(sent.Interface())
	}
	into, bad := codec.NewState(reflect.TypeFor[*R]())
	if err = cmp.Or(err, bad); err == nil {
		err = into.Decode(data, &received)
	}
	if err != nil {
		k.t.Errorf("the reply to %T cannot be sent to another node: %v. If no other node sends the command, give it no name in Type.Commands", command, err)
	} else if d := difference(value, received); d != "" {
		k.t.Errorf("the reply %T%+v to %T differs on another node: %s", value, value, command, d)
	}
}

// lossy describes the difference between an encoded value and its decoded form. It returns "" if they
// are equal, or if upcasting returns several values or another type.
func lossy(kind string, registry *codec.Registry, value any, manifest string, payload []byte) string {
	decoded, err := registry.DecodeAppend(nil, manifest, payload)
	if err != nil {
		return fmt.Sprintf("decode %s %T: %v", kind, value, err)
	}
	if len(decoded) == 1 && reflect.TypeOf(decoded[0]) == reflect.TypeOf(value) {
		if d := difference(value, decoded[0]); d != "" {
			return fmt.Sprintf("%s %T%+v differs when it is decoded: %s", kind, value, value, d)
		}
	}
	return ""
}

func (k *Kit[S, E]) show(i image[S]) string {
	state := i.state
	if i.encoded != nil {
		decoded, err := k.codec.decode(i.encoded)
		if err != nil {
			return err.Error()
		}
		state = decoded
	}
	return fmt.Sprintf("%+v", *state)
}
