// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "github.com/refold-io/refold/identity"

// Flag is false until a node enables it, and true from then on. The zero value is false. It is
// immutable.
type Flag struct{ handle[Flag] }

func (Flag) empty(*Types) shape { return shape{kind: kindFlag} }

// Enable returns the flag set to true.
func (f Flag) Enable() Flag {
	if f.Enabled() {
		return f
	}
	return f.of(&flag{on: true})
}

// Enabled returns the value.
func (f Flag) Enabled() bool {
	c, ok := f.v.(*flag)
	return ok && c.on
}

// flag is the untyped value of a Flag.
type flag struct {
	noHistory
	on bool
}

func (f *flag) changes() change                           { return nil }
func (f *flag) resetDelta() core                          { return f }
func (f *flag) applyDelta(d change) (core, error)         { return nil, wrongType(f.shape(), d) }
func (f *flag) pruned(*Self, identity.Node) (core, error) { return f, nil }
func (f *flag) cleaned(identity.Node) (core, error)       { return f, nil }
func (f *flag) shape() shape                              { return shape{kind: kindFlag} }
func (f *flag) eachNode(*nodeTable)                       {}

func (f *flag) merge(other core) (core, error) {
	o, err := same(f, other)
	if err != nil {
		return nil, err
	}
	if o.on {
		return o, nil
	}
	return f, nil
}

func (f *flag) encode(e *encoder) {
	b := byte(0)
	if f.on {
		b = 1
	}
	e.dst = append(e.dst, b)
}

func (d *decoder) flag() core {
	b := d.byte("flag")
	if b > 1 {
		d.fail("flag %d", b)
	}
	return &flag{on: b == 1}
}
