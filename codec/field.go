// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const structTag = "refold"

// field is one stored field of a struct.
type field struct {
	name  string
	alias string // another name under which it is read, or ""
	index []int  // through embedded structs
	omit  bool   // if empty
	plan  *plan
	head  []byte // the encoded name
}

// fieldTag is what the tags of a field say.
type fieldTag struct {
	skip, omit, noInline bool
	name, alias          string
}

func parseTag(f reflect.StructField) (fieldTag, error) {
	var tag fieldTag
	switch name, _, _ := strings.Cut(f.Tag.Get(structTag), ","); name {
	case "-":
		return fieldTag{skip: true}, nil
	case "":
	default:
		return tag, fmt.Errorf(`the tag refold:%q: only refold:"-" has a meaning`, name)
	}
	name, options, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
	if name == "-" {
		return fieldTag{skip: true}, nil
	}
	tag.name = name
	for option := range strings.SplitSeq(options, ",") {
		alias, isAlias := strings.CutPrefix(option, "alias:")
		switch {
		case isAlias:
			tag.alias = alias
		case option == "omitempty":
			tag.omit = true
		case option == "noinline":
			tag.noInline = true
		case option == "" || option == "inline":
		default:
			return tag, fmt.Errorf("the msgpack tag's option %q is not supported", option)
		}
	}
	return tag, nil
}

// fields returns the stored fields of a struct. Structs that are embedded by
// value are inlined. It is an error if something would be lost: a field that
// can't be reached, or two of one name.
func (c *compiler) fields(t reflect.Type) ([]field, error) {
	fs, err := c.collect(t)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, f := range fs {
		for _, name := range []string{f.name, f.alias} {
			if name != "" && taken[name] {
				return nil, fmt.Errorf("two fields have the name %q", name)
			}
			taken[name] = true
		}
	}
	return fs, nil
}

func (c *compiler) collect(t reflect.Type) ([]field, error) {
	var fs []field
	var wrong mistakes
	for sf := range t.Fields() {
		found, err := c.field(sf)
		if err != nil {
			err = at(sf.Name, err)
			if all, many := errors.AsType[mistakes](err); many {
				wrong = append(wrong, all...)
			} else {
				wrong = append(wrong, err)
			}
		}
		fs = append(fs, found...)
	}
	if wrong != nil {
		return nil, wrong
	}
	return fs, nil
}

func (c *compiler) field(sf reflect.StructField) ([]field, error) {
	tag, err := parseTag(sf)
	if err != nil {
		return nil, err
	}
	if tag.skip || sf.Name == "_" || sf.Type.Size() == 0 {
		return nil, nil // nothing is lost with these
	}
	if sf.Anonymous && sf.Type.Kind() == reflect.Struct && tag.name == "" && !tag.noInline && !hasOwnForm(sf.Type) {
		var inner []field
		inner, err = c.collect(sf.Type)
		for i := range inner {
			inner[i].index = slices.Concat(sf.Index, inner[i].index)
		}
		return inner, err
	}
	if !sf.IsExported() {
		return nil, errors.New(`the field is unexported, and would not be stored: export it, or tag it refold:"-"`)
	}
	p, err := c.plan(sf.Type)
	if err != nil {
		return nil, err
	}
	name := sf.Name
	if tag.name != "" {
		name = tag.name
	}
	return []field{{name: name, alias: tag.alias, index: sf.Index, omit: tag.omit, plan: p}}, nil
}
