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

// Format converts values to bytes and back, for formats other than msgpack and JSON; see
// Registry.Using.
//
// A Format must be safe for concurrent use, must write the same bytes for the same value, and must
// limit the memory that Unmarshal allocates.
type Format interface {
	// Name is stored with every value, so it must never change. The rules of the function Name
	// apply.
	Name() string
	// Marshal returns bytes that are not modified afterwards. The value has the registered type.
	Marshal(v any) ([]byte, error)
	// Unmarshal fills the fresh value that v points to. It neither changes data nor keeps it.
	Unmarshal(data []byte, v any) error
}

type jsonFormat struct {
	shapes sync.Map // reflect.Type to *shape
}

// JSON returns a format based on encoding/json, with its tags and rules: unexported fields are
// silently left out, and numbers in an interface are read as float64. It enforces the same limits
// as msgpack.
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

// check enforces the limits for data that is to be decoded into a t.
func (f *jsonFormat) check(t reflect.Type, data []byte) error {
	known, ok := f.shapes.Load(t)
	if !ok {
		known, _ = f.shapes.LoadOrStore(t, shapeOf(t, map[reflect.Type]*shape{}))
	}
	c := jsonCheck{data: data, budget: costLimit(len(data)) - costNew(t.Size())}
	return c.value(known.(*shape), 0) //nolint:errcheck // nothing else is stored
}

// jsonCheck walks JSON once, together with the shape of the target type, and enforces the limits.
// It does not verify the complete syntax; encoding/json does so before it decodes.
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

// value reads a value that is nested in depth arrays and objects.
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
		return c.list(s, depth+1, first+2) // the closing bracket or brace
	case '"':
		text, err := c.text()
		if err != nil {
			return err
		}
		return c.alloc(costNew(uintptr(len(text))))
	}
	return c.literal()
}

// list reads an array, or an object if end is a closing brace.
func (c *jsonCheck) list(s *shape, depth int, end byte) error {
	list, cost := s.array, 32
	if end == '}' {
		list, cost = s.object, 64
	}
	if list == nil {
		list = &elements{shape: &shape{}}
	}
	if err := c.alloc(cost); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := c.more(n, end)
		if !more {
			return err
		}
		value := list.shape
		if end == '}' {
			if value, err = c.key(s, value); err != nil {
				return err
			}
		}
		if err := list.take(c, n); err != nil {
			return err
		}
		if err := c.value(value, depth); err != nil {
			return err
		}
	}
}

// key reads a key of an object and returns the shape of its value. For a struct this is the shape
// of the field with this key, otherwise the given shape.
func (c *jsonCheck) key(s, value *shape) (*shape, error) {
	if c.peek() != '"' {
		return nil, c.malformed()
	}
	key, err := c.text()
	if err != nil {
		return nil, err
	}
	if c.peek() != ':' {
		return nil, c.malformed()
	}
	c.pos++
	if s.fields != nil {
		return c.field(s, key)
	}
	return value, c.alloc(costNew(uintptr(len(key))))
}

// take adds the cost of the element with index n.
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

// more reports whether another element follows, and consumes the comma before it or the end of the
// list.
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

// shape describes the allocations of encoding/json when it reads a value of a type. It may
// overestimate.
type shape struct {
	alloc  int               // independent of the data, such as the target of a pointer
	target *shape            // of a pointer
	array  *elements         // of an array
	object *elements         // of an object that becomes a map
	fields map[string]*shape // of an object that becomes a struct, by folded name
}

// elements describes the allocations for an array or an object.
type elements struct {
	first, each int // costs of the first element and of each element
	shape       *shape
}

// shapeOf returns the shape of a type. Shapes of recursive types are recursive; made contains the
// shapes of the enclosing types.
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

// slicesOf describes a slice that grows while it is read. A long slice grows by a quarter of its
// length, so the old and new arrays together need five times its final size.
func slicesOf(size uintptr, elem *shape) *elements {
	return &elements{first: 32 + costNew(4*size), each: int(7 * size), shape: elem}
}

func mapsOf(key, value uintptr, elem *shape) *elements {
	return &elements{first: costMap(1, key, value), each: int(8*(slotSize(key, value)+1) + 32), shape: elem}
}

// addFields adds the fields of a struct and of those that it embeds, level by level, so that outer
// fields hide inner fields of the same name.
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

// addField adds a field. It returns the type of an embedded struct instead of adding it.
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

// appendFolded appends the folded form of a name. encoding/json treats names as equal if their
// folded forms are equal.
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

// hasOwnJSON reports whether a type decodes JSON by a method.
func hasOwnJSON(t reflect.Type) bool {
	ptr := reflect.PointerTo(t)
	return ptr.Implements(reflect.TypeFor[json.Unmarshaler]()) || ptr.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
