// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	msgpackName = "msgpack"
	jsonName    = "json"
)

// Format turns values into bytes. It is the way to store something else than
// msgpack or JSON; see Registry.Using.
//
// A Format is used by many goroutines at the same time, writes the same bytes
// for the same value, and sets its own limits on what it reads.
type Format interface {
	// Name is stored beside every value, so it must never change. It obeys
	// the rules of Name.
	Name() string
	// Marshal returns bytes that nobody changes afterwards. The value has the
	// registered type.
	Marshal(v any) ([]byte, error)
	// Unmarshal fills the fresh value that v points to. It neither changes
	// data nor keeps it.
	Unmarshal(data []byte, v any) error
}

// jsonFormat keeps the shapes of the types it has seen.
type jsonFormat struct {
	shapes sync.Map // reflect.Type to *shape
}

// JSON returns the format that writes what encoding/json makes of a value, with
// its tags and rules: it leaves out unexported fields without a word, and reads
// numbers in an interface as float64. It holds the same limits as msgpack.
func JSON() Format { return &jsonFormat{} }

// Name implements Format.
func (*jsonFormat) Name() string { return jsonName }

// Marshal implements Format.
func (f *jsonFormat) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := f.check(reflect.TypeOf(v), data); err != nil {
		return nil, err
	}
	exact := make([]byte, len(data))
	copy(exact, data)
	return exact, nil
}

// Unmarshal implements Format.
func (f *jsonFormat) Unmarshal(data []byte, v any) error {
	if err := f.check(reflect.TypeOf(v).Elem(), data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// check holds the limits of data that is to be read into a t.
func (f *jsonFormat) check(t reflect.Type, data []byte) error {
	known, ok := f.shapes.Load(t)
	if !ok {
		known, _ = f.shapes.LoadOrStore(t, shapeOf(t, map[reflect.Type]*shape{}))
	}
	c := jsonCheck{data: data, budget: costLimit(len(data)) - costNew(t.Size())}
	return c.value(known.(*shape), 0) //nolint:errcheck // nothing else is stored
}

// jsonCheck walks JSON once, together with the shape of the type it will be
// read into. It holds the limits, and leaves the finer points of the syntax to
// encoding/json, which checks all of it before it decodes.
type jsonCheck struct {
	data   []byte
	pos    int
	budget int
	name   []byte // the current key
}

func (c *jsonCheck) alloc(cost int) error {
	c.budget -= cost
	if c.budget < 0 {
		return errBudget(len(c.data))
	}
	return nil
}

// value reads a value that has so many arrays and objects around it.
func (c *jsonCheck) value(s *shape, depth int) error {
	first := c.peek()
	if first == 'n' {
		return c.literal()
	}
	for ; s.target != nil; s = s.target {
		if err := c.alloc(s.alloc); err != nil {
			return err
		}
	}
	if err := c.alloc(s.alloc); err != nil {
		return err
	}
	switch first {
	case '{', '[':
		if depth == maxDepth {
			return errDepth()
		}
		c.pos++
		if first == '[' {
			return c.array(s, depth+1)
		}
		return c.object(s, depth+1)
	case '"':
		text, err := c.text()
		if err != nil {
			return err
		}
		return c.alloc(costNew(uintptr(len(text))))
	}
	return c.literal()
}

func (c *jsonCheck) array(s *shape, depth int) error {
	list := s.array
	if list == nil {
		list = &elements{shape: &shape{}}
	}
	if err := c.alloc(32); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := c.more(n, ']')
		if !more {
			return err
		}
		if err := list.take(c, n); err != nil {
			return err
		}
		if err := c.value(list.shape, depth); err != nil {
			return err
		}
	}
}

func (c *jsonCheck) object(s *shape, depth int) error {
	list := s.object
	if list == nil {
		list = &elements{shape: &shape{}}
	}
	if err := c.alloc(64); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := c.more(n, '}')
		if !more {
			return err
		}
		if c.peek() != '"' {
			return c.malformed()
		}
		key, err := c.text()
		if err != nil {
			return err
		}
		if c.peek() != ':' {
			return c.malformed()
		}
		c.pos++
		value := list.shape
		if s.fields != nil {
			if value, err = c.field(s, key); err != nil {
				return err
			}
		} else if err := c.alloc(costNew(uintptr(len(key)))); err != nil {
			return err
		}
		if err := list.take(c, n); err != nil {
			return err
		}
		if err := c.value(value, depth); err != nil {
			return err
		}
	}
}

// take pays for the next element.
func (l *elements) take(c *jsonCheck, n int) error {
	if n == 0 {
		return c.alloc(l.first + l.each)
	}
	return c.alloc(l.each)
}

// field finds the shape of a struct's field by the quoted key.
func (c *jsonCheck) field(s *shape, key []byte) (*shape, error) {
	name := key[1 : len(key)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		if err := c.alloc(512); err != nil {
			return nil, err
		}
		var unquoted string
		if err := json.Unmarshal(key, &unquoted); err != nil {
			return nil, c.malformed()
		}
		name = []byte(unquoted)
	}
	c.name = appendFolded(c.name[:0], name)
	if f := s.fields[string(c.name)]; f != nil {
		return f, nil
	}
	return &shape{}, nil
}

// more tells whether an element follows, and reads the comma before it or the
// end of the list.
func (c *jsonCheck) more(n int, end byte) (bool, error) {
	next := c.peek()
	switch {
	case next == end:
		c.pos++
		return false, nil
	case n == 0 && next != 0:
		return true, nil
	case next == ',':
		c.pos++
		return true, nil
	}
	return false, c.malformed()
}

// text reads a string, and returns it with its quotes.
func (c *jsonCheck) text() ([]byte, error) {
	for i := c.pos + 1; i < len(c.data); i++ {
		switch c.data[i] {
		case '\\':
			i++
		case '"':
			text := c.data[c.pos : i+1]
			c.pos = i + 1
			return text, nil
		}
	}
	return nil, c.malformed()
}

// literal reads a number or a word.
func (c *jsonCheck) literal() error {
	start := c.pos
	for ; c.pos < len(c.data); c.pos++ {
		switch c.data[c.pos] {
		case ',', ':', ']', '}', '[', '{', '"', ' ', '\t', '\r', '\n':
			if c.pos == start {
				return c.malformed()
			}
			return nil
		}
	}
	if c.pos == start {
		return c.malformed()
	}
	return nil
}

// peek skips white space and returns the next byte, 0 at the end.
func (c *jsonCheck) peek() byte {
	for ; c.pos < len(c.data); c.pos++ {
		switch b := c.data[c.pos]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}

func (c *jsonCheck) malformed() error {
	return fmt.Errorf("%w: bad JSON at byte %d", ErrMalformed, c.pos)
}

// shape is what encoding/json allocates when it reads a value of some type. It
// may overestimate.
type shape struct {
	alloc  int               // for what is always there, such as what a pointer points to
	target *shape            // what a pointer points to
	array  *elements         // of an array
	object *elements         // of an object that becomes a map
	fields map[string]*shape // of an object that becomes a struct, by folded name
}

// elements is what an array or an object brings.
type elements struct {
	first, each int // for not being empty, for each element
	shape       *shape
}

// shapeOf returns the shape of a type. Shapes refer to each other where types
// do, so made holds those of the types around this one.
func shapeOf(t reflect.Type, made map[reflect.Type]*shape) *shape {
	if s, ok := made[t]; ok {
		return s
	}
	s := &shape{}
	made[t] = s
	if hasOwnJSON(t) {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		s.alloc, s.target = costNew(t.Elem().Size()), shapeOf(t.Elem(), made)
	case reflect.Interface:
		s.alloc = 16
		s.array, s.object = slicesOf(16, s), mapsOf(16, 16, s)
	case reflect.Slice:
		s.array = slicesOf(t.Elem().Size(), shapeOf(t.Elem(), made))
	case reflect.Array:
		s.array = &elements{shape: shapeOf(t.Elem(), made)}
	case reflect.Map:
		s.object = mapsOf(t.Key().Size(), t.Elem().Size(), shapeOf(t.Elem(), made))
	case reflect.Struct:
		s.fields = map[string]*shape{}
		s.addFields(t, made)
	default:
	}
	return s
}

// slicesOf accounts for a slice that grows as it is read: in the end by a
// quarter of its length at a time, so that it takes five times its size.
func slicesOf(size uintptr, elem *shape) *elements {
	return &elements{first: 32 + costNew(4*size), each: int(7 * size), shape: elem}
}

// mapsOf accounts for a map that grows as it is read.
func mapsOf(key, value uintptr, elem *shape) *elements {
	return &elements{first: costMap(1, key, value), each: int(8*(slotSize(key, value)+1) + 32), shape: elem}
}

// addFields adds the fields of a struct and of those that it embeds, level by
// level, so that the outer ones hide the inner ones.
func (s *shape) addFields(t reflect.Type, made map[reflect.Type]*shape) {
	seen := map[reflect.Type]bool{t: true}
	for level := []reflect.Type{t}; len(level) > 0; {
		var embedded []reflect.Type
		for _, t := range level {
			for f := range t.Fields() {
				if e := s.addField(f, made); e != nil && !seen[e] {
					seen[e] = true
					embedded = append(embedded, e)
				}
			}
		}
		level = embedded
	}
}

// addField adds a field, unless it is an embedded struct, which it returns.
func (s *shape) addField(f reflect.StructField, made map[reflect.Type]*shape) reflect.Type {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if f.Tag.Get("json") == "-" {
		return nil
	}
	if f.Anonymous && name == "" {
		elem := f.Type
		if elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
			s.alloc += costNew(elem.Size())
		}
		if elem.Kind() == reflect.Struct {
			return elem
		}
	}
	if !f.IsExported() {
		return nil
	}
	if name == "" {
		name = f.Name
	}
	if name = string(appendFolded(nil, []byte(name))); s.fields[name] == nil {
		s.fields[name] = shapeOf(f.Type, made)
	}
	return nil
}

// appendFolded appends the form that all names share which encoding/json takes
// for each other.
func appendFolded(dst, name []byte) []byte {
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		name = name[n:]
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		dst = utf8.AppendRune(dst, least)
	}
	return dst
}

// hasOwnJSON tells types that read JSON by a method.
func hasOwnJSON(t reflect.Type) bool {
	ptr := reflect.PointerTo(t)
	return ptr.Implements(reflect.TypeFor[json.Unmarshaler]()) || ptr.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
