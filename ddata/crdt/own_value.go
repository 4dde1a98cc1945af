// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
)

// own is a value of a user's type.
type own struct {
	def *definition
	v   any
}

func (o *own) shape() shape        { return shape{kind: kindOwn, own: o.def} }
func (o *own) eachNode(*nodeTable) {}

func (o *own) merge(other core) (core, error) {
	b, err := same(o, other)
	if err != nil {
		return nil, err
	}
	return o.change("merge", func() (any, error) { return o.def.merge(o.v, b.v) })
}

// change returns what a function makes of the value, without a delta.
func (o *own) change(doing string, f func() (any, error)) (core, error) {
	next := &own{def: o.def}
	err := guard(o.def, doing, func() error {
		v, err := f()
		if err == nil {
			next.v = o.def.resetDelta(v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

func (o *own) changes() change {
	d := &ownDelta{def: o.def}
	var some bool
	if err := guard(o.def, "take the delta of", func() error { d.d, some = o.def.delta(o.v); return nil }); err != nil || !some {
		return nil
	}
	return d
}

func (o *own) resetDelta() core {
	next := &own{def: o.def}
	if err := guard(o.def, "reset the delta of", func() error { next.v = o.def.resetDelta(o.v); return nil }); err != nil {
		return o
	}
	return next
}

func (o *own) applyDelta(d change) (core, error) {
	od, err := sameChange[*ownDelta](o.shape(), d)
	if err != nil {
		return nil, err
	}
	return o.change("merge a delta of", func() (any, error) { return o.def.mergeDelta(o.v, od.d) })
}

func (o *own) modifiedBy() (nodes []identity.Node) {
	if err := guard(o.def, "find the nodes of", func() error { nodes = o.def.modifiedBy(o.v); return nil }); err != nil {
		return nil
	}
	return nodes
}

func (o *own) needsPruning(removed identity.Node) (needs bool) {
	if err := guard(o.def, "find the nodes of", func() error { needs = o.def.needsPruning(o.v, removed); return nil }); err != nil {
		return false
	}
	return needs
}

func (o *own) pruned(self *Self, removed identity.Node) (core, error) {
	if !o.needsPruning(removed) {
		return o.resetDelta(), nil
	}
	return o.change("prune", func() (any, error) { return o.def.prune(o.v, self, removed) })
}

func (o *own) cleaned(removed identity.Node) (core, error) {
	return o.change("clean up", func() (any, error) { return o.def.cleanup(o.v, removed) })
}

func (o *own) encode(e *encoder) {
	e.own(o.def, func() ([]byte, error) { return o.def.appendTo(o.v, nil) })
}

// own writes the bytes that a user's type makes.
func (e *encoder) own(def *definition, write func() ([]byte, error)) {
	var data []byte
	err := guard(def, "encode", func() (err error) { data, err = write(); return err })
	if err != nil && e.err == nil {
		e.err = err
	}
	e.bytes(data)
}

func (d *decoder) own(def *definition, data []byte, read func() error, write func() ([]byte, error)) {
	if d.err != nil {
		return
	}
	before := bytes.Clone(data)
	err := guard(def, "decode", read)
	if err == nil { // one form only
		var again []byte
		if again, err = write(); err == nil && !bytes.Equal(again, before) {
			err = errors.New("another form than it is encoded to")
		}
	}
	if err != nil {
		d.failed(fmt.Errorf("%w: %s: %w", ErrMalformed, def.name, err))
	}
}

func (d *decoder) ownValue(def *definition) core {
	data := d.bytes(MaxSize, "value")
	o := &own{def: def}
	d.own(def, data, func() (err error) { o.v, err = def.decode(data); return err },
		func() ([]byte, error) { return def.appendTo(o.v, nil) })
	return o
}
