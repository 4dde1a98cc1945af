// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
)

// StateManifest is the manifest of snapshots of the state's struct: msgpack, a map from field names
// to values. "@" and Snapshots.Version follow if the version is not 1. Snapshots of a StateForm
// have the name and the version of the form.
const StateManifest = "state"

// StateForm is a form in which snapshots hold the state. StateAs returns one.
type StateForm[S any] struct{ form stateForm }

// stateForm is a StateForm without its type parameter.
type stateForm struct {
	registry *codec.Registry
	to       func(state any) (any, error)
	from     func(state, value any) error
}

// StateAs returns a form in which snapshots hold a value of type T instead of the state. T has a
// name and a version, so older versions can be upcast in the same way as events. to converts a
// state to a value, and from sets a fresh state from a value. older decodes earlier versions:
// codec.Upcast, codec.Split, codec.Removed. Snapshots of the state's struct are still read.
//
// If the state has a delivery.Outbox, the function from calls Outbox.Restore.
func StateAs[S, T any](name string, version int, to func(*S) (T, error), from func(*S, T) error, older ...codec.Entry) *StateForm[S] {
	entry := codec.Name[T](name)
	if version != 0 {
		entry = entry.Version(version)
	}
	return &StateForm[S]{stateForm{
		registry: codec.Types(append([]codec.Entry{entry}, older...)...),
		to:       func(state any) (any, error) { return to(as[*S](state)) },
		from: func(state, value any) error {
			t, ok := value.(T)
			if !ok {
				return fmt.Errorf("%w: a snapshot decodes to %T, want %v", codec.ErrUnknown, value, reflect.TypeFor[T]())
			}
			return from(as[*S](state), t)
		},
	}}
}

// Using returns the form with another format of the encoded value, see codec.Registry.Using.
func (f *StateForm[S]) Using(write codec.Format, alsoRead ...codec.Format) *StateForm[S] {
	return &StateForm[S]{stateForm{registry: f.form.registry.Using(write, alsoRead...), to: f.form.to, from: f.form.from}}
}

// Registry returns the types with their stored names.
func (f *StateForm[S]) Registry() *codec.Registry {
	if f == nil {
		return nil
	}
	return f.form.registry
}

func (m *model) prepareState() error {
	m.manifest = StateManifest
	if v := m.snapshots.version; v > 1 {
		m.manifest += "@" + strconv.Itoa(v)
	}
	m.state, m.stateErr = codec.NewState(reflect.PointerTo(m.stateType))
	if form := m.form; form != nil {
		m.stateErr = nil // m.state reads snapshots that are older than the form
		if err := form.registry.Err(); err != nil {
			return fmt.Errorf("%w: Type.Snapshots.State: %w", ErrInvalid, err)
		}
		for name := range form.registry.GoTypes() {
			if name == StateManifest {
				return fmt.Errorf("%w: Type.Snapshots.State: the name %q is reserved", ErrInvalid, name)
			}
		}
		return nil
	}
	if m.stateErr != nil && (m.snapshots.every > 0 || m.when != nil) {
		return fmt.Errorf("%w: the state can't be stored in snapshots: %w", ErrInvalid, m.stateErr)
	}
	return nil
}

func (m *model) encode(state any) (manifest string, payload []byte, err error) {
	if form := m.form; form != nil {
		value, failed := form.to(state)
		if failed != nil {
			return "", nil, failed
		}
		return form.registry.Encode(value)
	}
	if m.stateErr != nil {
		return "", nil, m.stateErr
	}
	payload, err = m.state.Encode(state)
	return m.manifest, payload, err
}

func (m *model) decode(manifest string, payload []byte, state any) error {
	switch {
	case manifest == m.manifest && m.state != nil:
		return m.state.Decode(payload, state)
	case manifest != m.manifest && isStateManifest(manifest):
		return fmt.Errorf("%w: %w: snapshot manifest %q, this program reads %q", ErrSnapshotVersion, codec.ErrUnknown, manifest, m.manifest)
	}
	form := m.form
	if form == nil {
		return fmt.Errorf("%w: snapshot manifest %q", codec.ErrUnknown, manifest)
	}
	value, err := form.registry.Decode(manifest, payload)
	if err != nil {
		return err
	}
	return form.from(state, value)
}

// isStateManifest reports whether a snapshot stores the state itself, in any version.
func isStateManifest(manifest string) bool {
	number, versioned := strings.CutPrefix(manifest, StateManifest+"@")
	version, err := strconv.Atoi(number)
	return manifest == StateManifest || versioned && err == nil && version > 1
}

// EncodeState encodes a state in the form that a snapshot has. It is for tools and tests.
func EncodeState[S, E any](typ Type[S, E], state *S) (manifest string, payload []byte, err error) {
	err = catchPanic(typ.Name, func() (err error) {
		m := modelOf(&typ)
		if err = m.prepareState(); err == nil {
			manifest, payload, err = m.encode(state)
		}
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return manifest, payload, nil
}

// DecodeState decodes a snapshot of the entity with this ID, as a recovery does. The error matches
// ErrSnapshotVersion if recoveries ignore the snapshot because of its version. DecodeState is for tools
// and tests.
func DecodeState[S, E any](typ Type[S, E], id, manifest string, payload []byte) (*S, error) {
	var in instance
	err := catchPanic(typ.Name, func() (err error) {
		m := modelOf(&typ)
		if err = m.prepareState(); err != nil {
			return err
		}
		pid, err := m.naming.persistenceID(id)
		if err == nil {
			in, err = m.restore(id, pid, manifest, payload)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return as[*S](in.state), nil
}

// restore returns a new instance with the state of a snapshot.
func (m *model) restore(id, pid, manifest string, payload []byte) (in instance, err error) {
	err = catchPanic(pid, func() error {
		if in, err = m.newInstance(id, pid); err != nil {
			return err
		}
		return m.decode(manifest, payload, in.state)
	})
	return in, err
}

type inspection struct {
	f func(state any, seqNr uint64)
}

func (inspection) hidden() {}

// Inspect calls f with the state of an entity in memory, between two messages, and returns when all
// events of that state are durable. The entity is started if it is not in memory. Inspect is for
// tests and operators' tools and reaches only entities of this node. Fold reads a state without
// starting the entity.
//
// f must not change or keep the state. If an earlier write fails, f is called again. The errors are
// those of Ask.
func (h *Local[S, E]) Inspect(ctx context.Context, id string, f func(state *S, seqNr uint64)) error {
	return h.host.inspect(ctx, id, func(state any, seqNr uint64) { f(as[*S](state), seqNr) })
}

func (h *host) inspect(ctx context.Context, id string, f func(state any, seqNr uint64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := h.calls().get(ctx, inspection{f})
	if err := h.deliverLocal(hosting.NewMessage(id, &c.env, false)); err != nil {
		return err
	}
	_, err := c.wait(ctx)
	h.calls().put(c)
	return err
}

func (e *entity) inspect(op *engine.Op, i inspection) {
	i.f(e.instance.state, op.SequenceNr())
	op.Answer(nil)
}

// inspector implements hosting.Inspector.
type inspector struct{ *Runtime }

// Live implements hosting.Inspector.
func (r inspector) Live(ctx context.Context, typeName, id string, read func(state any, seqNr uint64)) (presence string, err error) {
	h := r.hostOf(typeName)
	if h == nil {
		return Absent.String(), nil
	}
	if p := h.presence(id); p != Running {
		return p.String(), nil
	}
	c := h.calls().get(ctx, inspection{read})
	e := h.find(id)
	if e == nil || e.accept(&c.env, h.opts.StashCapacity) != accepted { // not by deliver, which starts an entity
		h.calls().put(c)
		return h.presence(id).String(), nil
	}
	if _, err = c.wait(ctx); err != nil {
		return "", err
	}
	h.calls().put(c)
	return Running.String(), nil
}

// maxCounted is the number of entities of a type whose waiting messages are counted.
const maxCounted = 10_000

// Waiting implements hosting.Inspector.
func (r inspector) Waiting() []hosting.Waiting {
	r.mu.RLock()
	hosts := slices.SortedFunc(maps.Values(r.hosts), func(a, b *host) int { return strings.Compare(a.model.name, b.model.name) })
	r.mu.RUnlock()
	list := make([]hosting.Waiting, len(hosts))
	for i, h := range hosts {
		w := hosting.Waiting{Type: h.model.name, Resident: h.resident()}
		counted := 0
		for shard := range h.shards {
			if counted >= maxCounted {
				break
			}
			s := &h.shards[shard]
			s.mu.Lock()
			for _, e := range s.entities {
				e.mu.Lock()
				w.Inbox += e.mailbox.Len()
				w.Stash += int(e.waiting)
				e.mu.Unlock()
				counted++
			}
			s.mu.Unlock()
		}
		if counted >= maxCounted && w.Resident > counted { // the shards have about the same size
			w.Inbox, w.Stash = w.Inbox*w.Resident/counted, w.Stash*w.Resident/counted
		}
		list[i] = w
	}
	return list
}

// BreakersOpen implements hosting.Inspector.
func (r inspector) BreakersOpen() (journal, snapshots bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.storages {
		journal, snapshots = journal || breakerOpen(s.journal), snapshots || breakerOpen(s.snapshots)
	}
	return journal, snapshots
}
