// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
)

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
