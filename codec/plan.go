// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"reflect"
	"sync"
	"time"
)

// plan encodes and decodes the values of one Go type. Its functions refer to the plans of the
// component types, possibly to itself.
type plan struct {
	typ    reflect.Type
	encode func(e *encoder, v reflect.Value) error
	decode func(d *decoder, v reflect.Value) error
	// needsAddr is set if encode requires an addressable value, and copies a value that is not
	// addressable.
	needsAddr bool
	// scratch holds zeroed *T for encoding and decoding.
	scratch sync.Pool
}

// plans caches the plans of all types.
type plans struct {
	byType   sync.Map   // reflect.Type to *plan; complete and never changed
	mu       sync.Mutex // one compiler at a time
	encoders sync.Pool
	decoders sync.Pool
}

// compile returns the plan of a type, or the reason why its values can't be stored, with the path
// of the field that is to blame.
func (ps *plans) compile(t reflect.Type) (*plan, error) {
	if p, ok := ps.byType.Load(t); ok {
		return p.(*plan), nil //nolint:errcheck // nothing else is stored
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	c := &compiler{plans: ps, made: map[reflect.Type]*plan{}}
	p, err := c.plan(t)
	if err != nil {
		return nil, err
	}
	for typ, made := range c.made {
		ps.byType.Store(typ, made)
	}
	return p, nil
}

// compiler creates the plans of one type and its component types. They are published together, or
// not at all.
type compiler struct {
	plans *plans
	made  map[reflect.Type]*plan
}

func (c *compiler) plan(t reflect.Type) (*plan, error) {
	if p, ok := c.made[t]; ok {
		return p, nil
	}
	if p, ok := c.plans.byType.Load(t); ok {
		return p.(*plan), nil //nolint:errcheck // nothing else is stored
	}
	p := &plan{typ: t}
	p.scratch.New = func() any { return reflect.New(t).Interface() }
	c.made[t] = p
	if err := c.fill(p); err != nil {
		return nil, err
	}
	return p, nil
}

func (c *compiler) fill(p *plan) error {
	t := p.typ
	if t == reflect.TypeFor[time.Time]() {
		p.encode, p.decode = encodeTime, decodeTime
		return nil
	}
	if done, err := planMarshaler(p); done || err != nil {
		return err
	}
	switch t.Kind() {
	case reflect.Bool:
		p.encode, p.decode = encodeBool, decodeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.encode, p.decode = encodeInt, decodeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.encode, p.decode = encodeUint, decodeUint
	case reflect.Float32:
		p.encode, p.decode = encodeFloat32, decodeFloat
	case reflect.Float64:
		p.encode, p.decode = encodeFloat64, decodeFloat
	case reflect.String:
		p.encode, p.decode = encodeString, decodeString
	case reflect.Slice:
		return c.slice(p)
	case reflect.Array:
		return c.array(p)
	case reflect.Map:
		return c.mapping(p)
	case reflect.Struct:
		return c.structure(p)
	case reflect.Pointer:
		return c.pointer(p)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%s is an interface with methods: its value can't be decoded", t)
		}
		p.encode, p.decode = encodeInterface, decodeInterface
	default:
		return fmt.Errorf("a %s can't be stored", t)
	}
	return nil
}

func (c *compiler) pointer(p *plan) error {
	if k := p.typ.Elem().Kind(); k == reflect.Pointer || k == reflect.Interface {
		return fmt.Errorf("%s is a pointer to a pointer or interface, which can't be stored", p.typ)
	}
	elem, err := c.plan(p.typ.Elem())
	if err != nil {
		return err
	}
	size := p.typ.Elem().Size()
	p.encode = func(e *encoder, v reflect.Value) error {
		if v.IsNil() {
			return e.mp.EncodeNil()
		}
		e.cost += costNew(size)
		return elem.encode(e, v.Elem())
	}
	p.decode = func(d *decoder, v reflect.Value) error {
		if d.nil() {
			v.SetZero()
			return nil
		}
		if err := d.alloc(costNew(size)); err != nil {
			return err
		}
		if v.IsNil() {
			v.Set(reflect.New(elem.typ))
		}
		return elem.decode(d, v.Elem())
	}
	return nil
}
